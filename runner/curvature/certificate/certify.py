"""From products and differences to a certificate: one look at all pieces, and a second one where it
disagrees.

Two examples are also evaluated alone: a batch whose examples mix, or whose loss is not their mean,
has other gradients. A difference that disagrees may be wrong itself: a kink of the network within
the step is no error of the product. The pieces next to one are named. The second look allows for
kinks so near that a network in float32 need not be on the same side as its float64 copy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.curvature.certificate.cause import likely_cause, name_of
from runner.curvature.certificate.compare import (
    Differences,
    Expected,
    Found,
    distance,
    finite,
    products_of,
)
from runner.curvature.certificate.reference import Reference, Vectors
from runner.curvature.certificate.result import Certificate, is_note, plural, worst_of
from runner.curvature.estimators.estimate import norm_of, on_sphere
from runner.curvature.function.errors import some

PRODUCT = 3.0
"""Gradients that one product costs."""
NOISE = 1e3
"""Roundings of the largest gradient that a difference may be, over its step."""


@dataclass(frozen=True)
class _Products:
    """What one method gives on the direction: its own products, and those of the whole it is a part
    of."""

    method: str
    own: Vectors
    whole: Vectors


class Comparison:
    """The products of one operator, by several methods, next to the differences of its
    reference."""

    def __init__(
        self,
        operator: Any,
        generator: torch.Generator | None,
        tolerance: float | None,
    ) -> None:
        self.operator = operator
        self.reference = Reference.of(
            operator.reference() if hasattr(operator, "reference") else operator
        )
        self.double = self.reference.double
        if tolerance is None:
            tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(operator.dtype, 0.1)
            tolerance = tolerance if self.double else max(tolerance, 1e-2)
        self.tolerance = tolerance
        self.direction = self._direction(generator)
        self.differences = Differences(self.reference, self.direction, tolerance)
        self.products: list[_Products] = []
        self.problems: list[str] = []
        self.noun, self.piece = (
            getattr(operator, "noun", "node"),
            getattr(operator, "piece", "example"),
        )

    def _direction(self, generator: torch.Generator | None) -> Vectors:
        device = getattr(self.operator, "device", torch.device("cpu"))
        dtype = torch.float64 if self.double else self.operator.dtype
        direction = {}
        for v in self.operator.nodes:
            z = on_sphere((1, self.operator.sizes[v]), torch.float64, generator)[0]
            direction[v] = (z.to(device) * self.reference.scales.get(v, 1.0)).to(dtype)
        return direction

    def add(self, name: str, method: Any) -> None:
        """The products of a method, or why it has none."""
        self.differences.spend(PRODUCT)
        try:
            self.products.append(_Products(name, *products_of(method, self.direction)))
        except (ValueError, RuntimeError) as error:
            self.problems.append(f"{name}: {error}")

    # ------------------------------------------------------------------ the batch

    def expected(self, found: Found, own: Vectors) -> Expected:
        """The mean of the pieces. Next to a kink it is the value that `own` fits best, of those on
        the sides of the kink and the engine's own product of that piece: nothing else tells the
        side that a network takes."""
        weights = self.reference.weights or [1 / self.reference.examples] * self.reference.examples
        share = torch.tensor(weights, dtype=torch.float64, device="cpu")
        doubt = {v: share * d for v, d in found.doubt.items()}
        value = {v: share[:, None].to(d.device) * d.double() for v, d in found.value.items()}
        for piece, sides in found.kinks.items():
            alone = self._product_alone(piece)
            trials = sides if alone is None else [*sides, alone[0]]
            trials = [trial for trial in trials if finite(trial)] or trials
            rest = {v: d.sum(0) - d[piece] for v, d in value.items()}
            misfits = []
            for trial in trials:
                whole = {v: rest[v] + weights[piece] * trial[v] for v in own}
                misfits.append(distance(own, whole))
            best = trials[misfits.index(min(misfits))]
            for v in value:
                value[v][piece], doubt[v][piece] = weights[piece] * best[v], 0
        mean = {v: d.sum(0) for v, d in value.items()}
        return Expected(mean, {v: float(d.sum()) for v, d in doubt.items()})

    def look(self, found: Found, alone: dict[int, float]) -> tuple[list[str], dict[str, float]]:
        """What does not agree, and the error at each node: of all methods next to these
        differences."""
        problems = []
        errors = dict.fromkeys(self.operator.nodes, math.nan if self.problems else 0.0)
        right_alone = bool(alone) and all(e <= self.tolerance for e in alone.values())
        for made in self.products:
            expected = self.expected(found, made.own)
            now = expected.errors(made.own, made.whole, self.operator.dtype, self.tolerance)
            if not worst_of(now) <= self.tolerance:
                wrong = [v for v in now if not now[v] <= self.tolerance]
                cause = likely_cause(self, made.own, expected.value, wrong, right_alone)
                problems.append(f"{made.method} are wrong: {cause}")
            errors = {v: worst_of({"": errors[v], "now": now[v]}) for v in errors}
        return problems + self._unsettled(expected, found), errors

    def _unsettled(self, expected: Expected, found: Found) -> list[str]:
        """Why the differences themselves cannot be believed."""
        if not finite(expected.value):
            return ["the gradients are not finite near this point"]
        rounding = 1e-6 * max(
            (norm_of(w) for made in self.products for w in made.whole.values()), default=0.0
        )
        bad = expected.blunt(rounding)
        if bad:
            step = float(found.step.min())
            noise = NOISE * torch.finfo(self.direction[bad[0]].dtype).eps * self._gradient() / step
            bad = [v for v in bad if expected.doubt[v] > noise]
        if not bad:
            coarse = expected.resolution(rounding)
            told = (
                f"note: the differences tell no relative error below {coarse:.0e} here (rounding)"
            )
            return [told] if coarse > 10 * self.tolerance else []
        return [
            f"the differences do not settle at {plural(self.noun)} {some(map(repr, bad))}: "
            "the network is not smooth "
            "here, or rounding hides its curvature"
        ]

    def _gradient(self) -> float:
        """Size of the largest gradient of a piece at a node."""
        self.differences.spend(1)
        zero = {v: torch.zeros_like(r) for v, r in self.direction.items()}
        with self.reference.quiet():
            found = [
                self.reference.gradient(zero, piece) for piece in range(self.reference.examples)
            ]
        return max(norm_of(g) for gradients in found for g in gradients.values())

    # ------------------------------------------------------------------ pieces alone

    def mixed(self) -> list[str]:
        """Whether the gradients of a few pieces are others where they are evaluated alone; from
        then on all are."""
        few = self.few()
        piece = self.reference.mixed(self.direction, few) if few else None
        self.differences.spend(1)
        if piece is None:
            return []
        return [
            f"{self.piece} {piece} alone has another gradient than in the batch: the "
            f"{plural(self.piece)} mix, or the "
            "loss is not their mean"
        ]

    def few(self) -> list[int]:
        """The pieces that are looked at alone: the first and the last."""
        return sorted({0, self.reference.examples - 1}) if self.reference.examples > 1 else []

    def alone(self, found: Found) -> dict[int, float]:
        """Errors of the products of a few pieces alone, which may cancel in the batch."""
        if not self.products or not hasattr(self.operator, "single"):
            return {}
        errors = {}
        for piece in self.few():
            self.differences.spend(PRODUCT, 1)
            errors[piece] = self._error_alone(piece, found, self.products[0].whole)
        return errors

    def _product_alone(self, piece: int, operator: Any = None) -> tuple[Vectors, Vectors] | None:
        """products_of the operator of one piece; None where there is no such operator, or it cannot
        be evaluated."""
        operator = operator or self.operator
        if not hasattr(operator, "single"):
            return None
        try:
            return products_of(operator.single(piece), self.direction)
        except (ValueError, RuntimeError):
            return None

    def _error_alone(
        self, piece: int, found: Found, whole: Vectors | None, operator: Any = None
    ) -> float:
        """Error of one piece's product, infinite where that is not finite, NaN next to a kink and
        where it has none of its own; whole: the batch's, next to which it may be nothing."""
        alone = None if piece in found.kinks else self._product_alone(piece, operator)
        if alone is None:
            return math.nan
        value = {v: d[piece].double() for v, d in found.value.items()}
        doubt = {v: float(d[piece]) for v, d in found.doubt.items()}
        dtype = (operator or self.operator).dtype
        error = worst_of(Expected(value, doubt).errors(*alone, dtype, self.tolerance, whole))
        return math.inf if math.isnan(error) else error

    def wrong_alone(self, found: Found, alone: dict[int, float]) -> list[str]:
        """The piece whose product is wrong where that of the batch is not."""
        for piece, error in alone.items():
            if math.isnan(error) or error <= self.tolerance:
                continue
            cause = "errors cancel"
            copied = (
                self.operator.dtype != torch.float64
                and self.double
                and hasattr(self.operator, "in_float64")
            )
            if (
                copied
                and self._error_alone(piece, found, None, self.operator.in_float64())
                <= self.tolerance
            ):
                name = name_of(self.operator.dtype)
                cause = f"rounding of {name}, in float64 it is right: measure a copy in float64"
            return [
                f"the product of {self.piece} {piece} alone is wrong, and that of the batch "
                f"is not: {cause}"
            ]
        return []

    def of_kinks(self, kinks: Iterable[int]) -> list[str]:
        """A note on the pieces that nothing can be told of; no note where they are most of all."""
        kinked, count = sorted(kinks), self.reference.examples
        if not kinked:
            return []
        if len(kinked) == count:
            whole = f"the only {self.piece}" if count == 1 else f"all {count} {plural(self.piece)}"
            return [
                f"a kink lies within every usable step in {whole}: the second derivative is "
                "not defined there, and "
                "nothing is certified"
            ]
        noun = self.piece if len(kinked) == 1 else plural(self.piece)
        line = (
            f"a kink lies within every usable step of {noun} {some(kinked, 12)} of {count}: "
            "not certified there, "
            f"certified on the other {count - len(kinked)}"
        )
        return [f"note: {line}" if 2 * len(kinked) <= count else line]

    def certificate(
        self,
        problems: Iterable[str],
        errors: dict[str, float],
        found: Found | None = None,
        alone: dict[int, float] | None = None,
    ) -> Certificate:
        """The certificate that says so."""
        reasons = list(problems)
        if found is not None and not self.double:
            reasons.append(
                "note: no float64 copy could be made, differences are in the network's own "
                "precision"
            )
        return Certificate(
            found is not None and all(map(is_note, reasons)),
            alone or {},
            errors,
            self.tolerance,
            math.nan if found is None else float(found.step.median()),
            tuple(reasons),
            self.noun,
            self.piece,
            () if found is None else tuple(sorted(found.kinks)),
            self.differences.spent,
        )


def certify(
    comparison: Comparison,
    methods: Sequence[tuple[str, Any]],
    reasons: Iterable[str] = (),
    singles: bool = True,
) -> Certificate:
    """The certificate of `methods`, (name, operator) each, next to the differences of the
    comparison's operator. singles: whether the products of a few pieces are compared alone."""
    operator, differences = comparison.operator, comparison.differences
    for name, method in methods:
        comparison.add(name, method)
    if not comparison.products:
        reasons = [*reasons, *comparison.problems]
        return comparison.certificate(reasons, dict.fromkeys(operator.nodes, math.nan))
    with comparison.reference.quiet():
        mixed = comparison.mixed()
        found = differences.settled()
    alone = comparison.alone(found) if singles or mixed else {}
    problems, errors = comparison.look(found, alone)
    rounds = operator.dtype != torch.float64 and comparison.double
    if rounds and not all(map(is_note, problems)):
        differences.beyond_rounding(found, 16 * torch.finfo(operator.dtype).eps)
        problems, errors = comparison.look(found, alone)
    if all(map(is_note, problems)):
        problems = [*problems, *comparison.wrong_alone(found, alone)]
    if len(found.kinks) == comparison.reference.examples:
        problems, errors = [], dict.fromkeys(errors, math.nan)
    problems = [*comparison.problems, *problems, *mixed, *comparison.of_kinks(found.kinks)]
    return comparison.certificate([*reasons, *problems], errors, found, alone)
