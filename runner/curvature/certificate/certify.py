"""From products and differences to a certificate: a first look at all pieces, and a second one where it fails.

A difference that disagrees may be wrong itself: a kink of the network within the step is no error of the product. The
second look takes each piece on its own. Where its product and its difference disagree, the step is made small enough
to stay in one region of the network; where no step is, the piece is left out, and named. A third look allows for kinks
so near that a network in float32 need not be on the same side as its float64 copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from runner.curvature.certificate.compare import (
    Difference,
    Differences,
    Expected,
    Progress,
    products_of,
)
from runner.curvature.certificate.result import (
    Certificate,
    is_note,
    likely_cause,
    name_of,
    nan_last,
    plural,
    worst_of,
)
from runner.curvature.graph.errors import some
from runner.curvature.matrix_free.base import norm_of, on_sphere
from runner.curvature.matrix_free.reference import Reference, Vectors

MOST, PRODUCT = 60.0, 3.0
"""Gradients that a certificate may cost, and that one product costs."""


@dataclass(frozen=True)
class _Products:
    """What one method gives on the direction: its own products, and those of the whole it is a part of."""

    method: str
    own: Vectors
    whole: Vectors


@dataclass(frozen=True)
class _Look:
    """One comparison of all pieces. problems: what does not agree; alone: errors of single pieces."""

    problems: list[str]
    errors: dict[str, float]
    alone: list[float]


class _Comparison:
    """The products of one operator, by several methods, next to the differences of its reference."""

    def __init__(
        self,
        operator: Any,
        generator: torch.Generator | None,
        tolerance: float | None,
        most: float,
        progress: Progress | None,
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
        drawn = {
            v: on_sphere((1, operator.sizes[v]), torch.float64, generator)[0]
            for v in operator.nodes
        }
        device = getattr(operator, "device", torch.device("cpu"))
        dtype = torch.float64 if self.double else operator.dtype
        self.direction = {
            v: (z.to(device) * self.reference.scales.get(v, 1.0)).to(dtype)
            for v, z in drawn.items()
        }
        self.differences = Differences(self.reference, self.direction, most, progress)
        self.products: list[_Products] = []
        self.failed: list[str] = []
        self.noun, self.piece = (
            getattr(operator, "noun", "node"),
            getattr(operator, "piece", "example"),
        )

    def add(self, name: str, method: Any) -> None:
        """The products of a method, or why it has none."""
        self.differences.spend(PRODUCT)
        try:
            self.products.append(_Products(name, *products_of(method, self.direction)))
        except (ValueError, RuntimeError) as error:
            self.failed.append(f"{name}: {error}")

    # ------------------------------------------------------------------ looks

    def look(self, found: list[Difference], singles: bool) -> _Look:
        """All methods next to these differences."""
        alone = []
        if singles and len(found) > 1:  # the only piece is the whole
            self.differences.spend(PRODUCT)
            if hasattr(self.operator, "single"):
                alone = [
                    self._error_alone(b, d, self.products[0].whole) for b, d in enumerate(found)
                ]
        told = [e for e, d in zip(alone, found, strict=False) if not d.kink and e == e]
        problems, errors = (
            list(self.failed),
            dict.fromkeys(self.operator.nodes, math.nan if self.failed else 0.0),
        )
        for made in self.products:
            expected = self._expected(found, made.own)
            now = expected.errors(made.own, made.whole, self.operator.dtype, self.tolerance)
            if not worst_of(now) <= self.tolerance:
                singly = bool(told) and all(e <= self.tolerance for e in told)
                problems.append(
                    f"{made.method} are wrong: {self._cause(made, expected, now, singly)}"
                )
            errors = {v: worst_of({"": errors[v], "now": now[v]}) for v in errors}
        if any(not e <= self.tolerance for e in told) and not problems:
            worst = max(
                (b for b, d in enumerate(found) if not d.kink and alone[b] == alone[b]),
                key=alone.__getitem__,
            )
            problems.append(
                f"the product of {self.piece} {worst} alone is wrong, and that of the batch is not: "
                f"{self._cause_alone(worst, found[worst])}"
            )
        return _Look(problems + self._unsettled(expected), errors, alone)

    def _cause_alone(self, piece: int, difference: Difference) -> str:
        """Rounding, where a copy in float64 is right: of an example whose loss is 1e-6, say, softmax less its square
        has few digits in float32, and the sum over the batch is made by others."""
        copied = (
            self.operator.dtype != torch.float64
            and self.double
            and hasattr(self.operator, "in_float64")
        )
        if (
            copied
            and self._error_alone(piece, difference, None, self.operator.in_float64())
            <= self.tolerance
        ):
            return f"rounding of {name_of(self.operator.dtype)}, in float64 it is right: measure a copy in float64"
        return "errors cancel"

    def _products_alone(self, piece: int, operator: Any = None) -> tuple[Vectors, Vectors] | None:
        """products_of the operator of one piece; None where there is no such operator, or it cannot be evaluated."""
        operator = operator or self.operator
        if not hasattr(operator, "single"):
            return None
        try:
            return products_of(operator.single(piece), self.direction)
        except (ValueError, RuntimeError):
            return None

    def _error_alone(
        self, piece: int, difference: Difference, whole: Vectors | None, operator: Any = None
    ) -> float:
        """Error of one piece's product, NaN near a kink and where it has none of its own; whole: the batch's, next to
        which it may be nothing."""
        alone = None if difference.kink else self._products_alone(piece, operator)
        if alone is None:
            return math.nan
        dtype = (operator or self.operator).dtype
        return nan_last(
            worst_of(Expected.mean([difference]).errors(*alone, dtype, self.tolerance, whole))
        )

    def again(self, found: list[Difference]) -> list[Difference]:
        """The differences; where a piece's own product disagrees, at a step without a kink, or with the kink told."""
        looks = self.differences
        return [
            d
            if not looks.left() or self._agrees_alone(b, d)
            else looks.beside_kinks(b, d, self.tolerance)
            for b, d in enumerate(found)
        ]

    def within_rounding(self, found: list[Difference]) -> list[Difference]:
        """The differences, with the kinks so near that the network's own rounding decides on the side."""
        rounding = 16 * torch.finfo(self.operator.dtype).eps
        if self.operator.dtype == torch.float64 or not self.double:
            return found
        looks = self.differences
        return [
            d if d.kink or not looks.left() else looks.within_rounding(b, d, rounding)
            for b, d in enumerate(found)
        ]

    def _agrees_alone(self, b: int, difference: Difference) -> bool:
        self.differences.spend(PRODUCT, b)
        alone = self._products_alone(b)
        if alone is None:
            return False
        expected = Expected.mean([difference])
        errors = expected.errors(*alone, self.operator.dtype, self.tolerance)
        return worst_of(errors) <= self.tolerance and not expected.blunt(0.0)

    def _expected(self, found: list[Difference], own: Vectors | None = None) -> Expected:
        """The mean of the pieces; near a kink the engine's own product of that piece stands in, or of the values on
        its two sides the one that `own` fits: nothing else tells the side that a network takes within its rounding."""
        weights = self.reference.weights
        pieces = list(found)
        for b, difference in enumerate(found):
            if not difference.kink:
                continue
            alone = self._products_alone(b)
            sides = [*difference.sides, *([] if alone is None else [alone[0]])]
            certain = [
                replace(difference, value=side, doubt={v: 0 * t for v, t in side.items()})
                for side in sides
            ]
            trials = [
                (d, Expected.mean([*pieces[:b], d, *pieces[b + 1 :]], weights).value)
                for d in certain
            ]
            if trials:
                pieces[b] = min(
                    trials, key=lambda trial: 0.0 if own is None else _distance(own, trial[1])
                )[0]
        return Expected.mean(pieces, weights)

    # ------------------------------------------------------------------ words

    def _cause(
        self, made: _Products, expected: Expected, errors: dict[str, float], singly: bool
    ) -> str:
        return likely_cause(
            self.operator,
            self.reference,
            self.direction,
            made.own,
            expected.value,
            errors,
            self.tolerance,
            singly,
        )

    def _unsettled(self, expected: Expected) -> list[str]:
        """Why the differences themselves cannot be believed."""
        if not all(bool(m.isfinite().all()) for m in expected.value.values()):
            return ["the gradients are not finite near this point"]
        rounding = 1e-6 * max(
            (norm_of(w) for made in self.products for w in made.whole.values()), default=0.0
        )
        bad = expected.blunt(rounding)
        bad = (
            [v for v in bad if norm_of(expected.doubt[v]) > self.differences.noise()] if bad else []
        )
        if not bad:
            coarse = expected.resolution(rounding)
            told = (
                f"note: the differences tell no relative error below {coarse:.0e} here (rounding)"
            )
            return [told] if coarse > 10 * self.tolerance else []
        return [
            f"the differences do not settle at {plural(self.noun)} {some(map(repr, bad))}: the network is not smooth "
            "here, by an operation whose kinks are not known, or rounding hides its curvature"
        ]

    def of_kinks(self, found: list[Difference]) -> list[str]:
        """A note on the pieces that nothing can be told of; no note where they are most of all."""
        kinked = {b: d.kink for b, d in enumerate(found) if d.kink}
        if not kinked:
            return []
        names = sorted(
            {
                kink.split(" (")[0] + (", within rounding" if "within" in kink else "")
                for kink in kinked.values()
            }
        )
        what = f"a kink lies within every usable step ({some(names)})"
        if len(kinked) == len(found):
            whole = (
                f"in the only {self.piece}"
                if len(found) == 1
                else f"in all {len(found)} {plural(self.piece)}"
            )
            return [
                f"{what} {whole}: the second derivative is not defined there, and nothing is certified"
            ]
        left = len(found) - len(kinked)
        listed = f"{self.piece if len(kinked) == 1 else plural(self.piece)} {some(kinked, 12)} of {len(found)}"
        line = f"{what} of {listed}: not certified there, certified on the other {left}"
        return [f"note: {line}" if left >= len(kinked) else line]


def certify(
    methods: list[tuple[str, Any]],
    operator: Any,
    generator: torch.Generator | None,
    tolerance: float | None,
    reasons: tuple[str, ...],
    singles: bool = True,
    most: float = MOST,
    progress: Progress | None = None,
) -> Certificate:
    """The certificate of `methods`, (name, operator) each, next to the differences of `operator`; most: gradients that
    it may cost, save for the first look, which takes at most 24."""
    comparison = _Comparison(operator, generator, tolerance, most, progress)
    differences = comparison.differences
    for name, method in methods:
        comparison.add(name, method)
    if not comparison.products:
        nothing = dict.fromkeys(operator.nodes, math.nan)
        return Certificate(
            False, (), nothing, comparison.tolerance, differences.step, (*reasons, *comparison.failed),
            comparison.noun, comparison.piece, (), differences.spent,
        )  # fmt: skip
    found = [
        differences.best(b, comparison.tolerance) for b in range(comparison.reference.examples)
    ]
    look = comparison.look(found, singles)
    for look_closer in (comparison.again, comparison.within_rounding):
        if not all(map(is_note, look.problems)):
            found = look_closer(found)
            look = comparison.look(found, singles)
    kinks = comparison.of_kinks(found)
    if all(d.kink for d in found):
        look = _Look(list(comparison.failed), dict.fromkeys(look.errors, math.nan), look.alone)
    problems = [*reasons, *look.problems, *kinks]
    if not comparison.double:
        problems.append(
            "note: no float64 copy could be made, differences are in the network's own precision"
        )
    if differences.stopped and not all(map(is_note, problems)):
        problems.append(
            f"it stopped looking closer after {differences.spent:.0f} gradients: verify(..., gradients={4 * most:.0f})"
        )
    ok, kinked = all(map(is_note, problems)), tuple(b for b, d in enumerate(found) if d.kink)
    return Certificate(
        ok, tuple(look.alone), look.errors, comparison.tolerance, differences.step, tuple(problems),
        comparison.noun, comparison.piece, kinked, differences.spent,
    )  # fmt: skip


def _distance(one: Vectors, other: Vectors) -> float:
    return max(norm_of(one[v] - other[v]) / max(norm_of(one[v]), 1e-300) for v in one)
