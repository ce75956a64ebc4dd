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
        worst = max(self.nodes, key=lambda v: _nan_last(self.nodes[v]))
        lines = [
            f"{verdict}: products against differences of gradients, step {self.step:.0e}, "
            f"tolerance {self.tolerance:.0e}",
            f"  batch: largest relative error {self.nodes[worst]:.1e}, at node {worst!r}",
        ]
        if self.examples:
            b = max(range(len(self.examples)), key=lambda i: _nan_last(self.examples[i]))
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
            if _largest_ratio(found[1], found[0]) < tolerance / 20:
                return found
        pairs = [self._pair(example, k) for k in range(len(self.steps) - 1)]
        place = min(range(len(pairs)), key=lambda k: _nan_last(_largest_ratio(pairs[k][1], pairs[k][0])))
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
    if tolerance is None:
        tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(operator.dtype, 0.1)
        tolerance = tolerance if getattr(reference, "double", True) else max(tolerance, 1e-2)
    scales = getattr(reference, "scales", {})
    signs = {v: rademacher((1, operator.sizes[v]), torch.float64, generator) for v in operator.nodes}
    direction = {v: s[0] * scales.get(v, 1.0) for v, s in signs.items()}
    if not getattr(reference, "double", True):
        direction = {v: r.to(operator.dtype) for v, r in direction.items()}
    differences = _Differences(reference, direction)
    slack = torch.finfo(operator.dtype).eps * 64
    found = [differences.best(b, tolerance) for b in range(reference.examples)]
    mean = {v: sum(f[0][v].double() for f in found) / len(found) for v in operator.nodes}
    doubt = {v: sum(f[1][v].double().abs() for f in found) / len(found) for v in operator.nodes}
    alone = _alone(operator, direction, found, slack, tolerance)
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
        now = _errors(own, whole, mean, doubt, slack, tolerance)
        if not max(now.values(), key=_nan_last) <= tolerance:
            problems.append(f"{name} are wrong: {_cause(operator, reference, own, mean, now, tolerance, singly)}")
        errors = {v: max(errors[v], now[v], key=_nan_last) for v in errors}
    if any(not e <= tolerance for e in alone) and not problems:
        worst = max(range(len(alone)), key=lambda b: _nan_last(alone[b]))
        problems.append(f"the product of example {worst} alone is wrong, and that of the batch is not: errors cancel")
    problems += _blunt(mean, doubt, rounding)
    if not getattr(reference, "double", True):
        problems.append("note: no float64 copy could be made, differences are in the network's own precision")
    ok = all(p.startswith("note:") for p in problems)
    return Certificate(ok, tuple(alone), errors, tolerance, differences.step, tuple(problems))


def _products(operator: Any, direction: Vectors) -> tuple[Vectors, Vectors]:
    rows = {v: r.unsqueeze(0).to(operator.dtype) for v, r in direction.items()}
    own, whole = whole_products(operator, rows)
    return tuple({v: p[0].double() for v, p in found.items()} for found in (own, whole))  # type: ignore[return-value]


def _errors(
    own: Vectors, whole: Vectors, expected: Vectors, doubt: Vectors, slack: float, tolerance: float
) -> dict[str, float]:
    """Relative error at each node; below the roundings of the product and of the difference it counts against them."""
    largest = max(norm_of(e) for e in expected.values())
    found = {}
    for v, e in expected.items():
        floor = slack * norm_of(whole[v]) + 20 * norm_of(doubt[v]) + 1e-10 * largest
        scale = max(norm_of(e), floor / tolerance)
        error = norm_of(own[v] - e)
        found[v] = error / scale if scale > 0 else (0.0 if error == 0 else math.inf)
    return found


def _alone(operator: Any, direction: Vectors, found: list, slack: float, tolerance: float) -> list[float]:
    """Error of the product of each example alone."""
    if not hasattr(operator, "single"):
        return []
    errors = []
    for b, (expected, doubt) in enumerate(found):
        try:
            own, whole = _products(operator.single(b), direction)
            now = _errors(own, whole, _double(expected), _double(doubt), slack, tolerance)
            errors.append(max(now.values(), key=_nan_last))
        except (ValueError, RuntimeError):
            errors.append(math.nan)
    return errors


def _double(vectors: Vectors) -> Vectors:
    return {v: t.double() for v, t in vectors.items()}


def _blunt(mean: Vectors, doubt: Vectors, rounding: float) -> list[str]:
    """Nodes whose difference is too uncertain to certify anything."""
    bad = [v for v, m in mean.items() if norm_of(doubt[v]) > max(0.05 * norm_of(m), rounding)]
    if not all(bool(m.isfinite().all()) for m in mean.values()):
        return ["the gradients are not finite near this point"]
    if not bad:
        return []
    return [
        f"the differences do not settle at nodes {bad}: the network has a kink here (a ReLU at 0), or is not smooth"
    ]


# ------------------------------------------------------------------ the likely cause


def _cause(
    operator: Any,
    reference: Any,
    own: Vectors,
    mean: Vectors,
    errors: dict[str, float],
    tolerance: float,
    singly: bool,
) -> str:
    wrong = [v for v in operator.nodes if not errors[v] <= tolerance]
    where = f"first at node {wrong[-1]!r} on the way back from the output"
    if not all(bool(p.isfinite().all()) for p in own.values()):
        return f"{where}: they are not finite"
    a, b = (torch.cat([t[v].reshape(-1) for v in operator.nodes]) for t in (own, mean))
    if not bool(a.any()):
        return f"{where}: they are zero. Gradients are off, or a backward has no second derivative{_at(reference)}"
    factor = float(a @ b) / float(b @ b) if bool(b.any()) else math.nan
    if norm_of(a - factor * b) <= 10 * tolerance * norm_of(a) and abs(factor - 1) > tolerance:
        return f"{where}: they are {factor:.4g} times the mean over the examples. Is the loss a sum, not a mean?"
    if singly:
        return f"{where}: every example alone is right. The examples of the batch mix, or the loss is not their mean"
    if _kink(reference, mean):
        return f"{where}: the network has a kink here (a ReLU at 0): it has no second derivative at this point"
    node = reference.wrong_node(0, tolerance) if hasattr(reference, "wrong_node") else ""
    if node:
        return f"{where}: the backward of node {node!r} is not differentiated rightly (a custom Function, or a detach)"
    if hasattr(reference, "slope_error"):
        step = 1e-5 if reference.double else 1e-2
        direction = {v: torch.ones_like(m) * reference.scales[v] for v, m in mean.items()}
        direction = direction if reference.double else {v: r.to(operator.dtype) for v, r in direction.items()}
        if reference.slope_error(direction, 0, step) > 1e-3:
            return f"{where}: the gradient is not that of the loss (a part without gradient, or a wrong backward)"
    return f"{where}: the operator is of other weights, data or functions than the network has now"


def _kink(reference: Any, like: Vectors) -> bool:
    """Whether the gradient turns at the point itself: its differences ahead and behind do not agree, however near."""
    if not isinstance(reference, FiniteDifferences):
        return False
    step = 1e-6 if reference.double else 1e-2
    with reference.quiet():
        for b in range(min(reference.examples, 8)):
            ends = []
            for s in (-step, 0.0, step):
                shift = {v: torch.full_like(m, s * reference.scales[v]) for v, m in like.items()}
                if not reference.double:
                    shift = {v: t.to(reference.x.dtype) for v, t in shift.items()}
                found = reference.gradient(shift, b)
                ends.append(torch.cat([found[v].double().reshape(-1) for v in like]))
            if norm_of(ends[2] - 2 * ends[1] + ends[0]) > 0.1 * norm_of(ends[2] - ends[0]) > 0:
                return True
    return False


def _at(reference: Any) -> str:
    node = reference.wrong_node(0, 1e-4) if hasattr(reference, "wrong_node") else ""
    return f" (node {node!r})" if node else ""


def _largest_ratio(doubt: Vectors, of: Vectors) -> float:
    largest = max(norm_of(t) for t in of.values())
    if largest == 0:
        return max(norm_of(t) for t in doubt.values())
    return max((norm_of(doubt[v]) / max(norm_of(of[v]), 1e-6 * largest) for v in of), key=_nan_last)


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value
