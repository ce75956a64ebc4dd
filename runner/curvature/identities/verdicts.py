"""The identities of an operator, and what a failure says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch

from runner.curvature.basics.errors import (
    EvaluationError,
    MeasurementError,
    NoSecondDerivative,
    second_derivatives,
)
from runner.curvature.basics.vectors import (
    Values,
    dot,
    dot_of,
    filled,
    joined,
    norm,
    norm_of,
    norms,
)
from runner.curvature.function.batch import Batch
from runner.curvature.function.double import LowestPrecision
from runner.curvature.function.function import (
    NETWORK,
    Evaluated,
    Function,
    Point,
    leaves_of,
    moved,
)
from runner.curvature.identities.causes import WrongFunction, message
from runner.curvature.identities.comparison import NARROWED, TINY, Comparison, fitted, of_quotients
from runner.curvature.identities.derivatives import (
    COMPARED,
    COPY,
    Compared,
    Outcome,
    Pieces,
    SecondOrder,
    in_double,
    noise,
    scalar,
)
from runner.curvature.products.of_batch import FactoredGraph, Part, outputs_at

EPS_OF_FLOAT64 = 1e-15
ELSEWHERE = 1e-2
"""Distance of a second point, in root mean squares: far enough for other roundings."""
SMALL_PART = 0.1
OF_GRADIENT = 0.01
"""Shares of a product, and of the gradient, that errors of the product in its own precision are
relative to at least."""


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
        except (EvaluationError, NoSecondDerivative, RuntimeError):
            pass  # a dtype that the network states itself
    return _second_order(SecondOrder(function, values, batch, False), part)


def _second_order(at: SecondOrder, part: Part) -> list[Outcome]:
    found, outcomes, product = _identities(at, part)
    if at.double and any(_blurred(at, one) for one in found):
        found = _decided(at, found, _farther(at, part))
    return [*found, *outcomes, *_same_product(at, part, product)]


def _identities(at: SecondOrder, part: Part) -> tuple[list[Outcome], list[Outcome], Values]:
    """Outcomes of identities 2 and 3, what else is to be said, and the product."""
    compared, outcomes, product = at.of_hessian() if part == "hessian" else _of_factors(at)
    found = [_outcome(at, identity, one) for identity, one in compared.items()]
    return found, outcomes, product


def _farther(at: SecondOrder, part: Part) -> list[Outcome]:
    """The identities at a point that is not near u; none where the network has no finite loss."""
    there = SecondOrder(at.function, at.values, at.batch, at.wide, farther=True)
    with suppress(MeasurementError, RuntimeError):
        return [one for one in _identities(there, part)[0] if math.isfinite(one.error)]
    return []


def _blurred(at: SecondOrder, one: Outcome) -> bool:
    """Whether nothing is decided, or only by what rounding allows."""
    return one.status != "wrong" and one.error > at.tolerance


def _decided(at: SecondOrder, found: Sequence[Outcome], others: Sequence[Outcome]) -> list[Outcome]:
    """With what is decided elsewhere in place of what is blurred here."""
    other = {one.identity: one for one in others if one.status != "inconclusive"}
    return [other.get(one.identity, one) if _blurred(at, one) else one for one in found]


def _outcome(at: SecondOrder, identity: str, compared: Sequence[Comparison]) -> Outcome:
    wrong: dict[str, float] = {}
    if any(one.open for one in compared):
        allowed = of_quotients(rounding(at.function, at.here, at.batch, at.eps), at.steps)
        least = NARROWED if at.wide and not at.double else 0.0
        for one in compared:
            one.allow(allowed)
            wrong |= one.wrong(max(allowed, least))
    error = max(one.error for one in compared)
    if wrong:
        names = sorted(wrong, key=lambda name: -wrong[name])
        return Outcome(identity, "wrong", wrong[names[0]], at.by_group(names))
    if names := sorted(name for one in compared for name in one.open):
        return Outcome(identity, "inconclusive", error, at.by_group(names))
    return Outcome(identity, "right", error)


def rounding(function: Function, at: Point, batch: Batch, eps: float) -> float:
    """Relative error of derivatives that the loss allows, where it has outputs (see `fitted`)."""
    leaves = leaves_of(at.values)
    with suppress(MeasurementError), function.at(at._replace(values=leaves)):
        return fitted(FactoredGraph(function, leaves, batch, 1.0, at.wide).slopes, eps)
    return 0.0


def _of_factors(at: SecondOrder) -> Compared:
    """As `SecondOrder.of_hessian`, of the factors J and A."""
    leaves = leaves_of(at.point)
    whole = at.evaluated()
    with at.function.at(at.here._replace(values=leaves)), second_derivatives(NETWORK):
        graph = FactoredGraph(at.function, leaves, at.batch, 1.0, at.wide)
        tangents = graph.jacobian([*at.d.values()], False)
        curved = graph.curved(tangents, False)
        product = filled(graph.pull(curved, False), leaves)
        pulled = filled(graph.pull([s.detach() for s in graph.slopes], False), leaves)
        others = graph.jacobian([*at.c.values()], False)
    at.function.record.finish()
    slope = at.slope(whole)
    at.compare([slope], [{"": scalar(whole.loss)}], lambda t: [at.loss(t)])
    outputs = joined(graph.outputs).detach()
    slopes = joined(graph.slopes).detach()
    of_outputs = Comparison({"outputs": joined(tangents)}, at.tolerance)
    of_loss = Comparison({"loss": joined(curved)}, at.tolerance)

    def outputs_there(t: float) -> list[Pieces]:
        there = outputs_at(at.function, at.moved(t), at.batch, graph.places)
        return [{"outputs": joined(there).detach()}]

    def slopes_there(t: float) -> list[Pieces]:
        """Of the loss at the outputs moved by t J d."""
        with at.function.at(at.here):
            return [{"loss": graph.slope_at(outputs + t * joined(tangents))}]

    at.compare([of_outputs], [{"outputs": outputs}], outputs_there)
    at.compare([of_loss], [{"loss": slopes}], slopes_there)
    outcomes = [_through_output(at, whole, pulled)]
    skew = abs(dot_of(at.c, product) - dot(joined(others), joined(curved)))
    sizes = norm_of(at.c) * norm_of(product), norm(joined(others)) * norm(joined(curved))
    skew /= max(*sizes, TINY)
    if skew > at.tolerance:
        outcomes.append(Outcome("3 product", "wrong", skew, ("symmetry",)))
    compared = dict(zip(COMPARED, ([slope], [of_outputs, of_loss]), strict=True))
    return compared, outcomes + at.remarks(whole), product


def _through_output(at: SecondOrder, whole: Evaluated, pulled: Values) -> Outcome:
    """J^T of the loss's slope is the gradient, where the loss reads nothing but the output."""
    size = max(norm_of(pulled), norm_of(whole.slopes), 1e-300)
    error = norm_of(_less(pulled, whole.slopes)) / size
    return Outcome("2 gradient", "right" if error <= at.tolerance else "wrong", error, ("output",))


def _less(one: Values, other: Values) -> Values:
    """The difference of both, in the wider of their types."""
    return {name: t - other[name] for name, t in one.items()}


# ------------------------------------------------------------------ the copy is the function


def _same_product(at: SecondOrder, part: Part, product: Values) -> list[Outcome]:
    """The product of the function in its own precision is that of its float64 copy: a kernel may
    be wrong in lower precision alone."""
    eps = max(torch.finfo(t.dtype).eps for t in at.own.values.values())
    exact = eps < EPS_OF_FLOAT64 and not at.function.record.changed
    if not at.wide or exact or at.function.record.narrowed:
        return []
    with LowestPrecision(eps) as lowest:
        apart = _less(_product(at, part, at.own, at.own_d), product)
    error = _relative(at, apart, product)
    allowed = _allowed(lowest.eps)
    if error <= allowed:
        return [Outcome(COPY, "right", error)]
    allowed = max(allowed, rounding(at.function, at.own, at.batch, lowest.eps))
    same_draws = at.function.seed is None  # they depend on the precision
    if same_draws and allowed < error < math.inf and _recurs(at, part, apart):
        return [Outcome(COPY, "wrong", error)]
    return [Outcome(COPY, "inconclusive", error)]


def _relative(at: SecondOrder, apart: Values, product: Values) -> float:
    """The largest error of a variable."""
    sizes = norms(product)
    whole = math.hypot(*sizes.values())
    least = max(SMALL_PART * whole, OF_GRADIENT * at.size_of_gradient, TINY)
    return max(size / max(sizes[name], least) for name, size in norms(apart).items())


def _recurs(at: SecondOrder, part: Part, apart: Values) -> bool:
    """Whether the products differ at another point nearby as they do here. Roundings do not, nor
    does a kink on whose other side the copy is."""
    step = noise(at.function, at.own.values, 3)
    own = at.own._replace(values=moved(at.own.values, step, ELSEWHERE))
    copied = at.here._replace(values=in_double(own.values))
    there = _less(_product(at, part, own, at.own_d), _product(at, part, copied, at.d))
    return norm_of(_less(there, apart)) < norm_of(apart) / 2


def _allowed(eps: float) -> float:
    """Relative error of a right product that is computed with such roundings."""
    return 1e4 * eps if eps < 1e-6 else 10 * eps


def _product(at: SecondOrder, part: Part, point: Point, d: Values) -> Values:
    if part == "hessian":
        return at.function.gradient(point, at.batch, (d,)).products[0]
    leaves = leaves_of(point.values)
    with at.function.at(point._replace(values=leaves)), second_derivatives(NETWORK):
        graph = FactoredGraph(at.function, leaves, at.batch, 1.0, point.wide)
        return filled(graph.apply([*d.values()], False), leaves)
