"""One search for critical points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from experiments.three_layer.ends import uniform
from experiments.three_layer.network import Network
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Cell, Context
from runner.curvature.closed_form import three_layer as tl
from runner.data.synthetic import load_gaussian
from runner.training.descent.descent import Endpoints, LossGradient, descend, duplicates


@dataclass(frozen=True, kw_only=True)
class Search(Network):
    """One cell's problem and what the descent made of it.

    test: size -> (x, q). starts, ends: (S, D) before and after. repeated: (S,), duplicates of an
    earlier critical point.
    """

    hidden: int
    rate: float
    ratio: float
    steps: int
    test: Mapping[int, tuple[Tensor, Tensor]]
    starts: Tensor
    ends: Endpoints
    repeated: Tensor

    @property
    def direction(self) -> LossGradient:
        return LossGradient(*self.args)

    @property
    def unique(self) -> Tensor:
        """Indices of the converged starts that repeat no earlier one: the paper's critical
        points."""
        return (self.ends.converged & ~self.repeated).nonzero()[:, 0]

    @cached_property
    def ranked(self) -> Tensor:
        """Indices of the unique critical points by λ_sup, sharpest first."""
        bound = self.bound(self.ends.theta)[self.unique]
        order = bound.argsort(descending=True, stable=True)
        return self.unique[order]


def run_search(experiment: WsBound, cell: Cell, ctx: Context) -> Search:
    """Draw data and starts, and descend from all starts at once.

    Data and starts of a seed are the same under every protocol and activation, so that their
    differences are theirs.
    """
    hidden = int(cell.params["hidden"])
    activation = str(cell.params["activation"])
    protocol = activation, hidden, float(cell.params["rate"]), experiment.ratio(cell)
    splits = load_gaussian(experiment.dataset, ctx)
    ctx.progress(0, 3, f"descent of {experiment.training.starts} starts")
    generator = ctx.torch_generator(f"starts/hidden={hidden}")
    return search_from(experiment, protocol, (*splits.train, splits.test), generator)


def search_from(
    experiment: WsBound,
    how: tuple[str, int, float, float],
    data: tuple[Tensor, Tensor, Mapping[int, tuple[Tensor, Tensor]]],
    generator: torch.Generator,
) -> Search:
    """The search on given data. how: activation, hidden units, rate, stop ratio; data: x, q, test
    sets by size.
    """
    training = experiment.training
    activation, hidden, rate, ratio = how
    x, q, test = data
    dimension = tl.parameter_count(x.shape[1], hidden)
    starts = uniform(training.starts, dimension, training.half_range, generator)
    ends = descend(
        starts,
        LossGradient(x, q, activation),
        rate=rate,
        max_steps=training.steps,
        stop_ratios=(ratio,),
    ).final
    repeated = torch.zeros(training.starts, dtype=torch.bool)
    repeated[ends.converged] = duplicates(ends.theta[ends.converged])
    return Search(
        x=x,
        q=q,
        activation=activation,
        hidden=hidden,
        rate=rate,
        ratio=ratio,
        steps=training.steps,
        test=test,
        starts=starts,
        ends=ends,
        repeated=repeated,
    )
