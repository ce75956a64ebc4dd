"""One search for critical points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from runner.contract import Cell, Context
from runner.curvature.closed_form import three_layer as tl
from runner.data.gaussian import load
from runner.training.descent.descent import Endpoints, LossGradient, descend, duplicates

if TYPE_CHECKING:
    from experiments.ws_bound.settings import WsBound

DTYPE = torch.float64


@dataclass(frozen=True)
class Search:
    """One cell's problem and what the descent made of it.

    x (I, M), q (I,): training set. test: size -> (x, q). starts, ends: (S, D) before and after. repeated: (S,),
    duplicates of an earlier critical point.
    """

    activation: str
    hidden: int
    rate: float
    ratio: float
    steps: int
    x: Tensor
    q: Tensor
    test: Mapping[int, tuple[Tensor, Tensor]]
    starts: Tensor
    ends: Endpoints
    repeated: Tensor

    @property
    def direction(self) -> LossGradient:
        return LossGradient(self.x, self.q, self.activation)

    @property
    def unique(self) -> Tensor:
        """Indices of the converged starts that repeat no earlier one: the paper's critical points."""
        return (self.ends.converged & ~self.repeated).nonzero()[:, 0]

    @cached_property
    def bound(self) -> Tensor:
        """λ_sup at the end of every start, (S,)."""
        return tl.upper_bound(self.ends.theta, self.x, self.q, self.activation)

    @cached_property
    def ranked(self) -> Tensor:
        """Indices of the unique critical points by λ_sup, sharpest first."""
        return self.unique[self.bound[self.unique].argsort(descending=True, stable=True)]


def run_search(experiment: WsBound, cell: Cell, ctx: Context) -> Search:
    """Draw data and starts, and descend from all starts at once.

    Data and starts of a seed are the same under every protocol and activation, so that their differences are theirs.
    """
    hidden, activation, rate = int(cell.params["hidden"]), str(cell.params["activation"]), float(cell.params["rate"])
    splits = load(experiment.dataset, ctx)
    ctx.progress(0, 3, f"descent of {experiment.training.starts} starts")
    return search_from(
        experiment,
        (activation, hidden, rate, experiment.ratio(cell)),
        (*splits.train, splits.test),
        ctx.torch_generator(f"starts/hidden={hidden}"),
    )


def search_from(
    experiment: WsBound,
    how: tuple[str, int, float, float],
    data: tuple[Tensor, Tensor, Mapping[int, tuple[Tensor, Tensor]]],
    generator: torch.Generator,
) -> Search:
    """The search on given data. how: activation, hidden units, rate, stop ratio; data: x, q, test sets by size."""
    training, (activation, hidden, rate, ratio), (x, q, test) = experiment.training, how, data
    shape = (training.starts, tl.parameter_count(x.shape[1], hidden))
    starts = (2 * torch.rand(shape, dtype=DTYPE, generator=generator) - 1) * training.half_range
    result = descend(starts, LossGradient(x, q, activation), rate=rate, max_steps=training.steps, stop_ratios=(ratio,))
    met = result.final.converged
    repeated = torch.zeros(training.starts, dtype=torch.bool)
    repeated[met] = duplicates(result.final.theta[met])
    return Search(activation, hidden, rate, ratio, training.steps, x, q, test, starts, result.final, repeated)


def macro_f1(predicted: Tensor, actual: Tensor) -> Tensor:
    """Mean over both classes of F1 = 2 TP / (2 TP + FP + FN), 0 for an empty class; predicted (..., I), actual (I,)."""
    scores = []
    for positive in (True, False):
        said, true = predicted == positive, actual == positive
        hits = 2.0 * (said & true).sum(-1, dtype=DTYPE)
        scores.append(hits / (said.sum(-1) + true.sum(-1)).clamp(min=1))
    return (scores[0] + scores[1]) / 2
