"""One data set with its starts: the search, the choice of sharp and flat starts, and training with
a method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.ends import macro_f1, uniform
from experiments.three_layer.flatness import training_direction
from experiments.three_layer.hsr_regularization.settings import HsrRegularization
from experiments.three_layer.network import Network
from runner.contract import Context
from runner.curvature.closed_form import three_layer as tl
from runner.data.synthetic import sample
from runner.training.descent.descent import (
    DescentResult,
    Endpoints,
    LossGradient,
    descend,
    duplicates,
)
from runner.training.descent.directions import Direction


@dataclass(frozen=True)
class Problem(Network):
    """A network with its test set of the same kind. starts (S, D). ratio: of the stop rule."""

    test_x: Tensor
    test_q: Tensor
    starts: Tensor
    ratio: float

    def f1(self, theta: Tensor) -> Tensor:
        """Macro F1 on the test set."""
        predicted = tl.predict(theta, self.test_x, self.activation) > 0.5
        return macro_f1(predicted, self.test_q > 0.5)


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
    train = sample(data, data.train, ctx, streams[1])
    test = sample(data, max(data.test), ctx, streams[2])
    return Problem(*train, *test, theta, ratio, activation=experiment.activation)


def direction_of(experiment: HsrRegularization, problem: Problem, method: str) -> Direction:
    """Which way a method goes; "asam_wide" is A-SAM at the wide radius."""
    return training_direction(
        method.removesuffix("_wide"),
        problem.x,
        problem.q,
        problem.activation,
        strength=experiment.strength(method),
        radius=experiment.wide_radius if method == "asam_wide" else experiment.radius,
        until=experiment.switch,
    )


def search(experiment: HsrRegularization, problem: Problem, rate: float) -> Endpoints:
    """Plain gradient descent from every start (Section VI-A)."""
    return descend(
        problem.starts,
        LossGradient(*problem.args),
        rate=rate,
        max_steps=experiment.training.steps,
        stop_ratios=(problem.ratio,),
    ).final


def critical_points(
    experiment: HsrRegularization, problem: Problem, ends: Endpoints
) -> tuple[dict[str, Any], list[str]]:
    """Unique critical points with their sharpness, and which group each belongs to ("sharp", "flat"
    or "").
    """
    met = ends.converged.nonzero()[:, 0]
    unique = met[~duplicates(ends.theta[met])] if len(met) else met
    theta = ends.theta[unique]
    spectrum = problem.spectrum(theta)
    bound = problem.bound(theta)
    group = [""] * len(unique)
    if len(unique):
        low = bound.quantile(experiment.group_share)
        high = bound.quantile(1 - experiment.group_share)
        for k, value in enumerate(bound):
            if value <= low:
                group[k] = "flat"
            if value >= high:
                group[k] = "sharp"
    table = {
        "start": unique,
        "group": group,
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "lambda_sup": bound,
    }
    return table, group


def train(
    experiment: HsrRegularization,
    problem: Problem,
    chosen: Tensor,
    direction: Direction,
    *,
    stop_from: int = 0,
    record: bool = False,
) -> DescentResult:
    """Descend from the chosen starts, 0 of them included."""
    if not len(chosen):
        empty = problem.starts[:0]
        nothing = torch.zeros(0, dtype=torch.bool)
        return DescentResult({problem.ratio: Endpoints(empty, nothing.long(), nothing, nothing)})
    return descend(
        problem.starts[chosen],
        direction,
        rate=experiment.rate,
        max_steps=experiment.training.steps,
        stop_ratios=(problem.ratio,),
        stop_from=stop_from,
        record=range(len(chosen)) if record else (),
        record_every=experiment.record_every,
    )


def end_under(
    reading: str,
    experiment: HsrRegularization,
    problem: Problem,
    chosen: Tensor,
    direction: Direction,
    result: DescentResult,
) -> Endpoints:
    """The ends of `result` (every_step), or those of a stop rule that is first judged at `switch`
    (second_half).

    A start that did not stop before `switch` ends at the same point either way, and a start's path
    does not depend on its company, so only the others descend again.
    """
    if reading == "every_step":
        return result.final
    early = (result.final.steps < experiment.switch) & ~result.final.diverged
    again = train(experiment, problem, chosen[early], direction, stop_from=experiment.switch).final
    ended = Endpoints(*(value.clone() for value in vars(result.final).values()))
    for name, value in vars(ended).items():
        value[early] = getattr(again, name)
    return ended
