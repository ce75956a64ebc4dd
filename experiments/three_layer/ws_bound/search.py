"""One search for critical points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.three_layer.ends import Limits, uniform
from experiments.three_layer.network import Network, distinct
from experiments.three_layer.ws_bound.settings import WsBound
from runner.closed_form import three_layer as tl
from runner.contract import Cell, Context
from runner.data.synthetic import load_gaussian
from runner.training.descent.descent import Endpoints

Data = tuple[Tensor, Tensor]
"""x and q."""


class Protocol(NamedTuple):
    """How a search is run; ratio: of its stop rule."""

    activation: str
    hidden: int
    rate: float
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Search(Network):
    """One cell's problem and what the descent made of it.

    test: by size. starts, ends: (S, D) before and after.
    """

    hidden: int
    rate: float
    ratio: float
    steps: int
    test: Mapping[int, Data]
    starts: Tensor
    ends: Endpoints

    @cached_property
    def unique(self) -> Tensor:
        """Indices of the converged starts that repeat no earlier one: the paper's critical
        points."""
        return distinct(self.ends)

    @cached_property
    def ranked(self) -> Tensor:
        """Indices of the unique critical points by λ_sup, sharpest first."""
        order = self.bound(self.ends.theta)[self.unique].argsort(descending=True, stable=True)
        return self.unique[order]

    def test_f1(self, theta: Tensor) -> dict[str, Tensor]:
        """Macro F1 (S,) on each test set, by its name in tables."""
        return {f"f1_test{size}": self.f1(theta, *data) for size, data in self.test.items()}

    def limits(self, experiment: WsBound) -> Limits:
        """When polishing its ends ends."""
        rounding = experiment.to_rounding.get(self.activation, 0)
        return Limits.of(experiment, self.starts.shape[1], rounding)


def run_search(experiment: WsBound, cell: Cell, ctx: Context) -> Search:
    """Draw data and starts, and descend from all starts at once.

    Data and starts of a seed are the same under every protocol and activation, so that their
    differences are theirs.
    """
    hidden = int(cell.params["hidden"])
    activation = str(cell.params["activation"])
    rate = float(cell.params["rate"])
    protocol = Protocol(activation, hidden, rate, experiment.ratio(cell))
    splits = load_gaussian(experiment.dataset, ctx)
    ctx.progress(0, 3, f"descent of {experiment.training.starts} starts")
    generator = ctx.torch_generator(f"starts/hidden={hidden}")
    return search_from(experiment, protocol, splits.train, splits.test, generator)


def search_from(
    experiment: WsBound,
    protocol: Protocol,
    train: Data,
    test: Mapping[int, Data],
    generator: torch.Generator,
) -> Search:
    """The search on given data; test: by size."""
    training = experiment.training
    x, q = train
    dimension = tl.parameter_count(x.shape[1], protocol.hidden)
    starts = uniform(training.starts, dimension, training.half_range, generator)
    network = Network(x, q, activation=protocol.activation)
    return Search(
        x=x,
        q=q,
        steps=training.steps,
        test=test,
        starts=starts,
        ends=network.descended(starts, protocol.rate, training.steps, protocol.ratio),
        **protocol._asdict(),
    )
