"""A certificate: products of several methods along one direction, next to differences.

The check knows a product and a gradient, nothing of how the product is made. One direction r gives
H r, and (g(t r) - g(-t r)) / 2t in a float64 copy of the network for a few steps t.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from runner.curvature.basics.errors import some
from runner.curvature.basics.result import Estimated
from runner.curvature.basics.vectors import norm
from runner.curvature.identities.comparison import (
    NARROWED,
    Comparison,
    Difference,
    Differences,
    Vectors,
    nearby,
)


@dataclass(frozen=True, repr=False)
class Certificate(Estimated):
    """What `verify` found.

    ok: every node is right. inconclusive: nodes of which nothing can be told, where none is wrong.
    nodes: relative error of the
    product at each node (or group of parameters). step: of the differences, relative to the size of
    the nodes' outputs. reasons: what is wrong, the node and the likely cause, and notes. noun: what
    nodes are. kinks: examples with a kink within every step (a ReLU so near 0 that rounding decides
    on which side it is, two equal entries under a maximum), whose slopes differ. gradients:
    what it cost, in gradients of all data. value: the largest of `nodes`; error: 0.
    """

    ok: bool
    nodes: dict[str, float]
    tolerance: float
    step: float = math.nan
    reasons: tuple[str, ...] = ()
    noun: str = "node"
    kinks: tuple[int, ...] = ()
    gradients: float = 0.0
    inconclusive: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        return _largest(self.nodes.values())

    @property
    def error(self) -> float:
        return 0.0

    @property
    def verdict(self) -> str:
        if self.inconclusive:
            return "inconclusive"
        return "certified" if self.ok else "NOT certified"

    def summary(self) -> str:
        error = f"largest relative error {self.value:.1e}, tolerance {self.tolerance:.0e}"
        return f"{self.verdict}, {error}"

    def __str__(self) -> str:
        first = f"{self.summary()}, cost {self.gradients:.0f} gradients"
        return "\n".join([first, *(f"  {reason}" for reason in self.reasons)])


def _largest(errors: Iterable[float]) -> float:
    """NaN before all, and of nothing."""
    values = list(errors) or [math.nan]
    return math.nan if any(map(math.isnan, values)) else max(values)


@dataclass
class Product:
    """What one method gives along the direction, (d,) by node. whole: of the matrix that it is a
    part of, whose roundings it has."""

    method: str
    own: Vectors
    whole: Vectors

    def compared(self, found: Difference, dtype: torch.dtype, tolerance: float) -> Comparison:
        """With differences of which `found` is the first. Where these are below the roundings of
        both sides, errors count against those."""
        largest = max(norm(found.total(v)) for v in found.value)
        rounding = max(found.rounding.values())
        least = {}
        for v, image in self.whole.items():
            floor = 64 * torch.finfo(dtype).eps * norm(image.double())
            least[v] = (floor + 10 * rounding + 1e-10 * largest) / tolerance
        return Comparison(self.own, tolerance, least)


def certify(
    differences: Differences,
    products: Sequence[Product],
    dtype: torch.dtype,
    tolerance: float | None,
    most: float = math.inf,
    refused: Iterable[str] = (),
) -> Certificate:
    """Compares products with differences. dtype: of the products. tolerance: of relative errors;
    None: by the precision. most: gradients to spend, at least those of two steps. refused: what
    other checks found."""
    check = _Check(differences, products, dtype, tolerance, [*refused])
    try:
        check.run(most)
    except KeyboardInterrupt as stop:
        if not check.right:
            check.wrong.append("it was stopped before every node agreed")
        stop.partial = check.certificate()  # type: ignore[attr-defined]
        raise
    check.judge()
    return check.certificate()


@dataclass
class _Check:
    """Products next to differences, step after step. asked: the tolerance. wrong: what is wrong.
    untold: nodes of which nothing can be told."""

    differences: Differences
    products: Sequence[Product]
    dtype: torch.dtype
    asked: float | None
    wrong: list[str]
    compared: list[Comparison] = field(default_factory=list)
    gradients: float = 0.0
    step: float = math.nan
    untold: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kinks: tuple[int, ...] = ()

    @property
    def tolerance(self) -> float:
        """Of relative errors: as asked, by the precision, or by what rounding allows."""
        if self.compared:
            return self.compared[0].tolerance
        if self.asked is not None:
            return self.asked
        tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(self.dtype, 0.1)
        return tolerance if self.differences.double else max(tolerance, 1e-2)

    @property
    def right(self) -> bool:
        """Whether every product is right at every node."""
        return bool(self.compared) and not any(one.open for one in self.compared)

    def _difference(self, step: float, centre: float = 0.0) -> Difference:
        self.gradients += self.differences.cost
        return self.differences.at(step, centre)

    def run(self, most: float) -> None:
        """Takes steps until every node is right, or `most` gradients are spent."""
        tried = 0
        while tried < len(self.differences.steps):
            double = self.differences.double
            step = self.differences.steps[tried]
            found = self._difference(step)
            if self.differences.double != double:  # operations of lower precision: larger steps
                continue
            tried += 1
            self.step = step
            if not self.compared:
                first = found, self.dtype, self.tolerance
                self.compared = [product.compared(*first) for product in self.products]
            right = [one.add(found) for one in self.compared]
            if all(right) or (self.gradients > most and tried > 1):
                return

    def judge(self) -> None:
        """What is wrong, and of what nothing can be told."""
        if not self.right:
            allowed = self.differences.allowance()
            self._allow(allowed)
            if not self.right:
                self._find_wrong(allowed)
        if not self.differences.wide:
            self.notes.append(
                "no float64 copy could be made, differences are in the network's own precision"
            )
        elif not self.differences.double:
            names = some(sorted(self.differences.narrowed))
            self.notes.append(f"in a float64 copy these give less than float64: {names}")

    def _allow(self, allowed: float) -> None:
        before = self.tolerance
        for one in self.compared:
            one.allow(allowed)
        if self.tolerance > before:
            self.notes.append(f"examples are fitted; their loss allows errors of {allowed:.0e}")

    def _find_wrong(self, allowed: float) -> None:
        if self.differences.wide and not self.differences.double:
            allowed = max(allowed, NARROWED)
        ends = nearby(self.differences, self.dtype)
        self.gradients += self.differences.cost * len(ends)
        kinks = set[int]()
        for one, product in zip(self.compared, self.products, strict=True):
            wrong = one.wrong(allowed)
            if ends:
                apart = one.moved(ends)
                wrong = {v: error for v, error in wrong.items() if apart[v] < error / 10}
            kinks |= one.kinks(ends)
            if wrong:
                self.wrong.append(self._wrong(product, [*wrong][-1], one))
            self.untold |= dict.fromkeys(v for v in one.open if v not in wrong)
        self.kinks = tuple(sorted(kinks))

    def _wrong(self, product: Product, node: str, compared: Comparison) -> str:
        last = compared.tried[-1]
        expected = {v: last.total(v) for v in last.value}
        cause = _cause(product.own, expected, self.tolerance)
        return (
            f"{product.method} are wrong: first at {self.differences.noun} {node!r} on the way "
            f"back from the output: {cause}"
        )

    def certificate(self) -> Certificate:
        """What the steps that were tried tell."""
        nodes = dict.fromkeys(self.products[0].own, math.inf)
        for v in nodes if self.compared else ():
            nodes[v] = _largest(one.errors[v] for one in self.compared)
        reasons = [*self.wrong, *self._inconclusive(), *(f"note: {note}" for note in self.notes)]
        return Certificate(
            not (self.wrong or self.untold),
            nodes,
            self.tolerance,
            self.step,
            tuple(reasons),
            self.differences.noun,
            self.kinks,
            self.gradients,
            () if self.wrong else tuple(self.untold),
        )

    def _inconclusive(self) -> list[str]:
        """One line for each reason."""
        if not self.untold:
            return []
        names = some(sorted(map(repr, self.untold)), 3)
        lines = [
            f"nothing can be told of {self.differences.noun} {names}: a kink within every step, or "
            "rounding"
        ]
        rows = len(next(iter(self.compared[0].tried[0].value.values())))
        if self.kinks and rows > 1:
            lines.append(self._of_kinks(rows))
        return lines

    def _of_kinks(self, rows: int) -> str:
        noun = self.differences.piece
        if len(self.kinks) > 1:
            noun += "s"
        which = f"{noun} {some(self.kinks, 12)} of {rows}"
        if len(self.kinks) == rows:
            which = f"all {rows} {noun}"
        return f"a kink lies within every usable step of {which}"


def _cause(own: Vectors, expected: Vectors, tolerance: float) -> str:
    """What the numbers tell."""
    found = torch.cat([own[v].double() for v in expected])
    mean = torch.cat(list(expected.values()))
    if not bool(found.isfinite().all()):
        return "they are not finite"
    if not bool(found.any()):
        return "they are zero. Gradients are off, or a backward has no second derivative"
    if not bool(mean.any()):
        return "the gradient does not change"
    factor = float(found @ mean) / float(mean @ mean)
    near = norm(found - factor * mean) <= 10 * tolerance * norm(found)
    if abs(factor - 1) > tolerance and near:
        whole = factor > 1.5 and abs(factor - round(factor)) < 10 * tolerance * factor
        hint = ". Is the loss a sum, not a mean?" if whole else ", at every node alike"
        return f"they are {factor:.4g} times the mean over the examples{hint}"
    return "the second derivative is not that of the gradient"
