"""Data and starts of one seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.hsr.regularization.settings import HsrRegularization
from runner.contract import Context
from runner.curvature.closed_form import three_layer as tl
from runner.data.gaussian import sample

DTYPE = torch.float64


@dataclass(frozen=True)
class Problem:
    """x (I, M), q (I,): training set; test set of the same kind. starts (S, D). ratio: of the stop rule."""

    x: Tensor
    q: Tensor
    test_x: Tensor
    test_q: Tensor
    starts: Tensor
    activation: str
    ratio: float

    @property
    def args(self) -> tuple[Tensor, Tensor, str]:
        return self.x, self.q, self.activation


def draw(experiment: HsrRegularization, ctx: Context) -> Problem:
    """Data and starts of the seed."""
    data, training = experiment.dataset, experiment.training
    shape = (training.starts, tl.parameter_count(data.inputs, experiment.hidden))
    uniform = torch.rand(shape, dtype=DTYPE, generator=ctx.torch_generator("starts"))
    starts = (2 * uniform - 1) * training.half_range
    x, q = sample(data, data.train, ctx, "data/train")
    test = sample(data, max(data.test), ctx, "data/test")
    return Problem(x, q, *test, starts, experiment.activation, experiment.fitted_ratio)
