"""The identities of an operator, and what a failure says."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from torch import Tensor

from runner.curvature.function.causes import WrongFunction, message
from runner.curvature.function.data import Batch
from runner.curvature.function.errors import (
    MeasurementError,
    NoSecondDerivative,
    second_derivatives,
)
from runner.curvature.function.function import (
    NETWORK,
    Evaluated,
    Function,
    Point,
    leaves_of,
)
from runner.curvature.function.identities import Outcome, Pieces, SecondOrder
from runner.curvature.function.vectors import Flat, dot, joined, norm
from runner.curvature.operators.products import FactoredGraph, Part, outputs_at

NARROWED = 0.1
"""Relative error up to which nothing is wrong in a float64 copy with operations of lower
precision."""


class Verdicts:
    """Outcomes of the identities of one function and part. check: True, a failure raises
    ValueError; "report", it warns and is kept in `failures`; False, nothing is compared."""

    def __init__(
        self, function: Function, part: Part, check: bool | str, outcomes: Iterable[Outcome] = ()
    ) -> None:
        self.function = function
        self.part = part
        self.check = check
        self.outcomes = list(outcomes)
        self.failures = list[str]()

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Keeps outcomes; fails for wrong ones."""
        for outcome in outcomes:
            self.outcomes.append(outcome)
            if outcome.status == "wrong":
                self.fail(message(self.function, outcome))

    def fail(self, text: str) -> None:
        """Raises, or warns."""
        if self.check is True:
            raise WrongFunction(text)
        self.failures.append(text)
        warnings.warn(text, RuntimeWarning, stacklevel=7)


def second_order(
    function: Function, values: dict, batch: Batch, part: Part, wide: bool
) -> list[Outcome]:
    """Identities 2 and 3 of a part, in float64 where `wide` and the network allows it."""
    if wide:
        try:
            return _second_order(SecondOrder(function, values, batch, True), part)
        except NoSecondDerivative:
            raise
        except (MeasurementError, RuntimeError):  # a dtype that the network states itself
            pass
    return _second_order(SecondOrder(function, values, batch, False), part)


def _second_order(at: SecondOrder, part: Part) -> list[Outcome]:
    outcomes = at.check() if part == "hessian" else _of_factors(at)
    if any(outcome.status == "wrong" for outcome in outcomes):
        rounds = rounding(at.function, at.here, at.batch, at.eps)
        if at.wide and not at.double:
            rounds = max(rounds, NARROWED)
        outcomes = [
            replace(o, status="inconclusive") if o.status == "wrong" and o.error <= rounds else o
            for o in outcomes
        ]
    return outcomes


def rounding(function: Function, at: Point, batch: Batch, eps: float) -> float:
    """Relative error of derivatives that the loss allows: where all examples are fitted, its slope
    is the rest of a difference of numbers near 1, and has few digits: eps / slope, and of a
    quotient over the largest step 1e5 times as much."""
    leaves = leaves_of(at.values)
    with suppress(MeasurementError), function.at(at._replace(values=leaves)):
        graph = FactoredGraph(function, leaves, batch, 1.0, at.wide)
        largest = max(float(slope.detach().abs().max()) * len(slope) for slope in graph.slopes)
        return 1e6 * eps / max(largest, 1e-300)
    return 0.0


def _of_factors(at: SecondOrder) -> list[Outcome]:
    leaves = leaves_of(at.point)
    whole = at.evaluated()
    flat = Flat(at.point)
    with at.function.at(at.here._replace(values=leaves)), second_derivatives(NETWORK):
        graph = FactoredGraph(at.function, leaves, at.batch, 1.0, at.wide)
        tangents = graph.jacobian(flat.split(at.d), False)
        curved = graph.curved(tangents, False)
        hd = flat.join(graph.pull(curved, False)).detach()
        pulled = flat.join(graph.pull([s.detach() for s in graph.slopes], False)).detach()
        others = graph.jacobian(flat.split(at.c), False)
    outcomes = [at.settled(at.slope(whole), at.loss), _through_output(at, whole, pulled)]
    outcomes.append(_factors(at, graph, joined(tangents), joined(curved)))
    skew = abs(dot(at.c, hd) - dot(joined(others), joined(curved)))
    skew /= max(norm(at.c) * norm(hd), 1e-300)
    if skew > at.tolerance:
        outcomes.append(Outcome("3 product", "wrong", skew, ("symmetry",)))
    return outcomes + at.remarks(whole)


def _through_output(at: SecondOrder, whole: Evaluated, pulled: Tensor) -> Outcome:
    """J^T of the loss's slope is the gradient, where the loss reads nothing but the output."""
    error = _apart(pulled, whole.gradient)
    return Outcome("2 gradient", "right" if error <= at.tolerance else "wrong", error, ("output",))


def _apart(one: Tensor, other: Tensor) -> float:
    return norm(one - other) / max(norm(one), norm(other), 1e-300)


def _factors(at: SecondOrder, graph: FactoredGraph, tangents: Tensor, curved: Tensor) -> Outcome:
    """J d and A J d next to differences of outputs, and of the loss's slope there."""
    outputs = joined(graph.outputs).detach()
    slopes = joined(graph.slopes).detach()
    base = {"outputs": outputs, "loss": slopes}
    derivative = {"outputs": tangents, "loss": curved}
    compared = at.product(derivative, base)
    return at.settled(compared, lambda t: _ends(at, graph, outputs, tangents, t))


def _ends(
    at: SecondOrder, graph: FactoredGraph, outputs: Tensor, tangents: Tensor, t: float
) -> Pieces:
    """The outputs at u' + td, and the slope of the loss at the outputs moved by t J d."""
    ends = joined(outputs_at(at.function, at.moved(t), at.batch, graph.places)).detach()
    with at.function.at(at.here):
        return {"outputs": ends, "loss": graph.slope_at(outputs + t * tangents)}
