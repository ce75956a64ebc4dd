"""One data set with its starts: the search, the choice of sharp and flat starts, and training with
a method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.ends import uniform
from experiments.three_layer.flatness import training_direction
from experiments.three_layer.hsr_regularization.settings import HsrRegularization
from experiments.three_layer.network import Network, distinct
from runner.closed_form import three_layer as tl
from runner.contract import Context
from runner.data.synthetic import sample
from runner.training.descent.descent import DescentResult, Endpoints, descend
from runner.training.descent.directions import Direction


@dataclass(frozen=True)
class Seeds:
    """The starts (S,) of the sharpest and flattest points of a search, by index, and their groups,
    "sharp" or "flat"."""

    start: Tensor
    group: list[str]

    @classmethod
    def of(cls, points: dict[str, Any]) -> Seeds:
        """Of the critical points, those that belong to a group."""
        group = points["group"]
        chosen = [k for k, name in enumerate(group) if name]
        return cls(points["start"][chosen], [group[k] for k in chosen])

    def __len__(self) -> int:
        return len(self.group)

    def within(self, group: str) -> Tensor:
        """Which belong to a group, (S,)."""
        return torch.tensor([name == group for name in self.group], dtype=torch.bool)


@dataclass(frozen=True)
class Problem(Network):
    """A network with test data (x, q) of the same kind and the starts (S, D) of a search. ratio: of
    the stop rule."""

    experiment: HsrRegularization
    test: tuple[Tensor, Tensor]
    starts: Tensor
    ratio: float

    def direction_of(self, method: str) -> Direction:
        """Which way a method goes; "asam_wide" is A-SAM at the wide radius."""
        experiment = self.experiment
        radius = experiment.wide_radius if method == "asam_wide" else experiment.radius
        return training_direction(
            method.removesuffix("_wide"),
            *self.args,
            strength=experiment.strength(method),
            radius=radius,
            until=experiment.switch,
        )

    def search(self, rate: float) -> Endpoints:
        """Plain gradient descent from every start (Section VI-A)."""
        return self.descended(self.starts, rate, self.experiment.training.steps, self.ratio)

    def critical_points(self, ends: Endpoints) -> dict[str, Any]:
        """Unique critical points with their sharpness, and which group each belongs to ("sharp",
        "flat" or "").
        """
        unique = distinct(ends)
        curvature = self.curvature(ends.theta[unique])
        bound = curvature["lambda_sup"]
        group = [""] * len(unique)
        if len(unique):
            low = bound.quantile(self.experiment.group_share)
            high = bound.quantile(1 - self.experiment.group_share)
            for k, value in enumerate(bound):
                if value <= low:
                    group[k] = "flat"
                if value >= high:
                    group[k] = "sharp"
        del curvature["loss"]
        return {"start": unique, "group": group} | curvature

    def train(
        self, chosen: Tensor, direction: Direction, *, stop_from: int = 0, record: bool = False
    ) -> DescentResult:
        """Descend from the chosen starts, 0 of them included."""
        if not len(chosen):
            nothing = torch.zeros(0, dtype=torch.bool)
            none = Endpoints(self.starts[:0], nothing.long(), nothing, nothing)
            return DescentResult({self.ratio: none})
        return descend(
            self.starts[chosen],
            direction,
            rate=self.experiment.rate,
            max_steps=self.experiment.training.steps,
            stop_ratios=(self.ratio,),
            stop_from=stop_from,
            record=range(len(chosen)) if record else (),
            record_every=self.experiment.record_every,
        )

    def end_under(
        self, reading: str, chosen: Tensor, direction: Direction, result: DescentResult
    ) -> Endpoints:
        """The ends of `result` (every_step), or those of a stop rule that is first judged at
        `switch` (second_half).

        A start that did not stop before `switch` ends at the same point either way, and a start's
        path does not depend on its company, so only the others descend again.
        """
        if reading == "every_step":
            return result.final
        switch = self.experiment.switch
        early = (result.final.steps < switch) & ~result.final.diverged
        again = self.train(chosen[early], direction, stop_from=switch).final
        ended = Endpoints(*(value.clone() for value in vars(result.final).values()))
        for name, value in vars(ended).items():
            value[early] = getattr(again, name)
        return ended


def draw(experiment: HsrRegularization, ctx: Context) -> Problem:
    """Data and starts of the seed."""
    streams = ("starts", "data/train", "data/test")
    return _drawn(experiment, ctx, experiment.training.starts, streams, experiment.fitted_ratio)


def drawn(experiment: HsrRegularization, ctx: Context, role: str, ratio: float) -> Problem:
    """A problem with data and starts of its own."""
    streams = (f"{role}/starts", f"{role}/train", f"{role}/test")
    return _drawn(experiment, ctx, experiment.draw_starts, streams, ratio)


def _drawn(
    experiment: HsrRegularization,
    ctx: Context,
    starts: int,
    streams: tuple[str, str, str],
    ratio: float,
) -> Problem:
    data = experiment.dataset
    dimension = tl.parameter_count(data.inputs, experiment.hidden)
    generator = ctx.torch_generator(streams[0])
    theta = uniform(starts, dimension, experiment.training.half_range, generator)
    x, q = sample(data, data.train, ctx, streams[1])
    test = sample(data, max(data.test), ctx, streams[2])
    return Problem(x, q, experiment, test, theta, ratio, activation=experiment.activation)
