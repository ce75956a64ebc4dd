"""A certificate of the numbers themselves: products against finite differences of gradients, example by example.

Guards look for known causes of wrong numbers; this compares the numbers. One random direction r on all measured nodes
gives H r from the engine and, from first derivatives of a float64 copy, (g(t r) - g(-t r)) / 2t for each example. The
step t balances the two errors of a difference, the cut-off t^2 and the rounding 1/t: of a ladder of steps, the one
whose neighbour agrees best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from runner.curvature.certificate_causes import largest_ratio, likely_cause, nan_last
from runner.curvature.exact.blocks import exact_blocks
from runner.curvature.graph.checks import check_before_measuring
from runner.curvature.graph.dag import Dag
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.state import require_dag
from runner.curvature.matrix_free.operators import CurvatureOperator
from runner.curvature.matrix_free.probes import norm_of, rademacher, whole_products
from runner.curvature.matrix_free.reference import FiniteDifferences, Vectors, central

STEPS = tuple(10.0**-k for k in (2, 3, 4, 5, 6))
COARSE_STEPS = (0.1, 0.03, 0.01, 0.003)
"""Of the float64 copy, and of a network that has none."""

EXACT_SIZE = 4000
"""Sum of node sizes up to which a Dag's exact blocks are certified beside its products."""


class Certifiable(Protocol):
    """An operator that `verify` can certify: the mean over `examples` pieces, each with a gradient of its own.

    gradient(shift, example): float64 gradient of piece `example` (an example, or a batch of equal size) at the point
    displaced by `shift`, (d_v,) for every node, by first derivatives alone. scales[v] (optional): the natural size of
    a step. single(example) (optional): the operator of one piece alone. difference(direction, example, step)
    (optional) replaces the central difference of `gradient`, for a matrix that is no Hessian.
    """

    nodes: tuple[str, ...]
    sizes: dict[str, int]
    dtype: torch.dtype
    examples: int

    def apply(self, directions: Mapping[str, Tensor]) -> Vectors: ...

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors: ...


@dataclass(frozen=True)
class Certificate:
    """ok: every error is within the tolerance, and every difference was sharp enough to tell.

    examples: relative error of the product of each example alone (empty where the operator cannot say); nodes: of the
    batch's product, at each node; step: of the differences, relative to the size of the nodes' outputs; reasons: what
    is wrong, the likely cause and the node.
    """

    ok: bool
    examples: tuple[float, ...]
    nodes: dict[str, float]
    tolerance: float
    step: float
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "certified" if self.ok else "NOT certified"
        worst = max(self.nodes, key=lambda v: nan_last(self.nodes[v]))
        lines = [
            f"{verdict}: products against differences of gradients, step {self.step:.0e}, "
            f"tolerance {self.tolerance:.0e}",
            f"  batch: largest relative error {self.nodes[worst]:.1e}, at node {worst!r}",
        ]
        if self.examples:
            b = max(range(len(self.examples)), key=lambda i: nan_last(self.examples[i]))
            lines.append(f"  {len(self.examples)} examples alone: largest {self.examples[b]:.1e}, of example {b}")
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


def verify(
    target: Dag | Any,
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    nodes: Iterable[str] | None = None,
    generator: torch.Generator | None = None,
    tolerance: float | None = None,
) -> Certificate:
    """Certifies the curvature of a Dag on a batch, or an operator.

    verify(dag, x, y) checks the guards, the matrix-free products and, where they are small enough, the exact blocks;
    verify(operator) a CurvatureOperator of any part, or any `Certifiable`. tolerance: relative, default 1e-6 for
    float64, 1e-3 for float32, 0.1 below. Costs 4 gradients of every example, 10 of the first. Never raises for a wrong
    number: the certificate says so. Raises ValueError for what is neither a Dag with a batch nor such an operator.

    >>> dag = Dag.from_sequential([torch.sin, torch.tanh], loss="mse", names=["h", "out"])
    >>> verify(dag, torch.ones(2, 3), torch.zeros(2, 3)).ok
    True
    """
    if not isinstance(target, Dag):
        if not isinstance(target, CurvatureOperator) and not (hasattr(target, "apply") and hasattr(target, "examples")):
            require_dag(target)
        return _certify([("products", target)], target, generator, tolerance, ())
    if x is None or y is None:
        raise MeasurementError("verify of a Dag needs the batch: verify(dag, x, y)")
    reasons: list[str] = []
    try:
        check_before_measuring(target, x, y)
    except MeasurementError as error:
        reasons.append(f"refused by a guard: {error}")
    try:
        operator = CurvatureOperator(target, x, y, nodes, check=False)
    except (ValueError, RuntimeError) as error:
        return Certificate(False, (), dict.fromkeys(target.select(nodes), math.nan), math.nan, math.nan, (str(error),))
    products: list[tuple[str, Any]] = [("products", operator)]
    if sum(operator.sizes.values()) <= EXACT_SIZE:
        products.append(("exact blocks", _Blocks(operator)))
    return _certify(products, operator, generator, tolerance, tuple(reasons))


class _Blocks:
    """Exact blocks as an operator, for the comparison."""

    def __init__(self, operator: CurvatureOperator) -> None:
        self.of, self.dtype, self.nodes, self.sizes = operator, operator.dtype, operator.nodes, operator.sizes

    def apply(self, directions: Mapping[str, Tensor]) -> Vectors:
        blocks = exact_blocks(self.of.dag, self.of.x, self.of.y, self.nodes, check=False)
        return {v: sum(r.to(self.dtype) @ blocks[v, w].mT for w, r in directions.items()) for v in self.nodes}  # type: ignore[misc]


# ------------------------------------------------------------------ the comparison


class _Differences:
    """Differences of one operator's gradient field, along one direction, at the step that suits it."""

    def __init__(self, operator: Any, direction: Vectors) -> None:
        self.operator, self.direction = operator, direction
        self.fine = getattr(operator, "double", True)
        self.steps = STEPS if self.fine else COARSE_STEPS
        self.step = self.steps[0]

    def at(self, example: int, step: float) -> Vectors:
        if hasattr(self.operator, "difference"):
            return self.operator.difference(self.direction, example, step)
        return central(lambda shift: self.operator.gradient(shift, example), self.direction, step)

    def best(self, example: int, tolerance: float) -> tuple[Vectors, Vectors]:
        """(difference, its distance to that of the next step) at the last good step, else the best of all steps."""
        place = self.steps.index(self.step)
        if example > 0:
            found = self._pair(example, place)
            if largest_ratio(found[1], found[0]) < tolerance / 20:
                return found
        pairs = [self._pair(example, k) for k in range(len(self.steps) - 1)]
        place = min(range(len(pairs)), key=lambda k: nan_last(largest_ratio(pairs[k][1], pairs[k][0])))
        if example == 0:
            self.step = self.steps[place]
        return pairs[place]

    def _pair(self, example: int, place: int) -> tuple[Vectors, Vectors]:
        one, other = (self.at(example, self.steps[k]) for k in (place, place + 1))
        return one, {v: one[v] - other[v] for v in one}


def _certify(
    methods: list[tuple[str, Any]],
    operator: Any,
    generator: torch.Generator | None,
    tolerance: float | None,
    reasons: tuple[str, ...],
) -> Certificate:
    reference = operator
    if isinstance(operator, CurvatureOperator):
        reference = FiniteDifferences(operator.dag, operator.x, operator.y, operator.nodes, operator.part)
    double = getattr(reference, "double", True)
    if tolerance is None:
        tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(operator.dtype, 0.1)
        tolerance = tolerance if double else max(tolerance, 1e-2)
    scales = getattr(reference, "scales", {})
    signs = {v: rademacher((operator.sizes[v],), torch.float64, generator) for v in operator.nodes}
    direction = {v: (s * scales.get(v, 1.0)).to(torch.float64 if double else operator.dtype) for v, s in signs.items()}
    differences = _Differences(reference, direction)
    found = [differences.best(b, tolerance) for b in range(reference.examples)]
    expected = _Expected.mean(found)
    alone = _alone(operator, direction, found, tolerance)
    singly = bool(alone) and all(e <= tolerance for e in alone)
    problems = list(reasons)
    rounding = 0.0
    errors: dict[str, float] = dict.fromkeys(operator.nodes, 0.0)
    for name, method in methods:
        try:
            own, whole = _products(method, direction)
        except (ValueError, RuntimeError) as error:
            problems.append(f"{name}: {error}")
            errors = dict.fromkeys(errors, math.nan)
            continue
        rounding = max(rounding, 1e-6 * max(norm_of(w) for w in whole.values()))
        now = expected.errors(own, whole, operator.dtype, tolerance)
        if not max(now.values(), key=nan_last) <= tolerance:
            cause = likely_cause(operator.nodes, reference, own, expected.value, now, tolerance, singly)
            problems.append(f"{name} are wrong: {cause}")
        errors = {v: max(errors[v], now[v], key=nan_last) for v in errors}
    if any(not e <= tolerance for e in alone) and not problems:
        worst = max(range(len(alone)), key=lambda b: nan_last(alone[b]))
        problems.append(f"the product of example {worst} alone is wrong, and that of the batch is not: errors cancel")
    problems += expected.blunt(rounding)
    if not double:
        problems.append("note: no float64 copy could be made, differences are in the network's own precision")
    ok = all(p.startswith("note:") for p in problems)
    return Certificate(ok, tuple(alone), errors, tolerance, differences.step, tuple(problems))


def _products(operator: Any, direction: Vectors) -> tuple[Vectors, Vectors]:
    rows = {v: r.unsqueeze(0).to(operator.dtype) for v, r in direction.items()}
    own, whole = whole_products(operator, rows)
    return tuple({v: p[0].double() for v, p in found.items()} for found in (own, whole))  # type: ignore[return-value]


@dataclass(frozen=True)
class _Expected:
    """What the products should be at each node, and how far neighbouring steps differ there."""

    value: Vectors
    doubt: Vectors

    @classmethod
    def mean(cls, found: list[tuple[Vectors, Vectors]]) -> _Expected:
        return cls(
            {v: torch.stack([value[v].double() for value, _ in found]).mean(0) for v in found[0][0]},
            {v: torch.stack([doubt[v].double().abs() for _, doubt in found]).mean(0) for v in found[0][0]},
        )

    def errors(self, own: Vectors, whole: Vectors, dtype: torch.dtype, tolerance: float) -> dict[str, float]:
        """Relative error at each node; where the value is below the roundings of the product and of the difference, it
        counts against those."""
        largest = max(norm_of(e) for e in self.value.values())
        slack = torch.finfo(dtype).eps * 64
        found = {}
        for v, e in self.value.items():
            floor = slack * norm_of(whole[v]) + 20 * norm_of(self.doubt[v]) + 1e-10 * largest
            scale = max(norm_of(e), floor / tolerance)
            error = norm_of(own[v] - e)
            found[v] = error / scale if scale > 0 else (0.0 if error == 0 else math.inf)
        return found

    def blunt(self, rounding: float) -> list[str]:
        """Nodes whose difference is too uncertain to certify anything."""
        if not all(bool(m.isfinite().all()) for m in self.value.values()):
            return ["the gradients are not finite near this point"]
        bad = [v for v, m in self.value.items() if norm_of(self.doubt[v]) > max(0.05 * norm_of(m), rounding)]
        if not bad:
            return []
        return [
            f"the differences do not settle at nodes {bad}: the network has a kink here (a ReLU at 0), or is not smooth"
        ]


def _alone(operator: Any, direction: Vectors, found: list[tuple[Vectors, Vectors]], tolerance: float) -> list[float]:
    """Error of the product of each example alone."""
    if not hasattr(operator, "single"):
        return []
    errors = []
    for b, pair in enumerate(found):
        try:
            own, whole = _products(operator.single(b), direction)
            now = _Expected.mean([pair]).errors(own, whole, operator.dtype, tolerance)
            errors.append(max(now.values(), key=nan_last))
        except (ValueError, RuntimeError):
            errors.append(math.nan)
    return errors
