"""Products of an operator as it is, over all its data, next to differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from runner.curvature.estimators.work import progress_bar
from runner.curvature.function.errors import MeasurementError, some
from runner.curvature.function.function import Point, Tensors, dot, gradients, less, moved, norm
from runner.curvature.function.identities import (
    STEPS,
    STEPS_IN_FLOAT32,
    Comparison,
    by_group,
    in_double,
    noise,
)
from runner.curvature.function.trees import tree_flatten
from runner.curvature.function.variables import Values
from runner.curvature.operators.checked import rounding
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.operators.products import FactoredGraph
from runner.curvature.result import Estimated


@dataclass(frozen=True, repr=False)
class Verification(Estimated):
    """What `verify` found of an operator.

    ok: every group whose differences tell anything agrees within `tolerance`, and at least one
    does. nodes: relative error of the product in each group of parameters, or at each layer.
    reasons: what is wrong, and notes on groups with a kink within every step. gradients: what it
    cost, in gradients of all data. value: the largest of `nodes`.
    """

    ok: bool
    nodes: dict[str, float]
    tolerance: float
    reasons: tuple[str, ...] = ()
    noun: str = "group"
    gradients: float = 0.0
    step: float = STEPS[0]
    kinks: tuple[int, ...] = ()
    examples: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        return max(self.nodes.values(), default=math.nan)

    @property
    def error(self) -> float:
        return 0.0

    @property
    def verdict(self) -> str:
        return "certified" if self.ok else "NOT certified"

    def summary(self) -> str:
        error = f"largest relative error {self.value:.1e}, tolerance {self.tolerance:.0e}"
        return f"{self.verdict}, {error}"

    def __str__(self) -> str:
        first = f"{self.summary()}, cost {self.gradients:.0f} gradients"
        return "\n".join([first, *(f"  {reason}" for reason in self.reasons)])


@torch.inference_mode(False)
def verified(
    operator: FunctionOperator,
    generator: torch.Generator | None = None,
    tolerance: float | None = None,
    most: float = 60.0,
    progress: bool | None = None,
) -> Verification:
    """The product with one random direction next to differences, in steps until each group agrees
    or `most` gradients are spent."""
    if operator.processes.size > 1:
        raise MeasurementError("verify an operator without process_group in each process")
    allowed = {torch.float64: 1e-6, torch.float32: 1e-3}.get(operator.dtype, 0.1)
    seed = 11
    if generator is not None:
        seed = int(torch.randint(0, 2**31, (), generator=generator, device="cpu"))
    allowed = allowed if tolerance is None else tolerance
    errors: list[str] = []
    with progress_bar("numerical check", most, progress, " gradients") as bar:
        for wide in (True, False):
            try:
                return _verified(_Look(operator, wide, bar), seed, allowed, most)
            except (MeasurementError, RuntimeError) as error:
                errors.append(str(error))
    nothing = dict.fromkeys(operator.nodes, math.nan)
    return Verification(False, nothing, allowed, (errors[-1],), operator.noun)


@dataclass(frozen=True)
class _Look:
    """An operator, whether its float64 copy is looked at, and the bar that counts gradients."""

    operator: FunctionOperator
    wide: bool
    bar: Any

    @property
    def gradients(self) -> int:
        """What one difference costs."""
        return 3 if self.wide else 2


def _verified(look: _Look, seed: int, tolerance: float, most: float) -> Verification:
    operator, wide = look.operator, look.wide
    function, values = operator.function, operator.values
    start = in_double(values) if wide else values
    direction = noise(function, start, seed)
    own = operator @ operator.flat.join([d.to(operator.dtype) for d in direction])
    product = [t.to(d.dtype) for t, d in zip(operator.flat.split(own), direction, strict=True)]
    double = wide or operator.dtype == torch.float64
    eps = 2.2e-16 if double else 1.2e-7
    spent = operator.cost
    difference = {"hessian": _of_gradients, "empirical_fisher": _of_examples}.get(
        operator.part, _of_outputs
    )
    groups = by_group(function, product)
    largest = max((norm(part) for part in groups.values()), default=0.0)
    floors = dict.fromkeys(groups, 10 * float(torch.finfo(operator.dtype).eps) * largest)
    compared = Comparison("3 product", groups, floors, tolerance)
    for t in STEPS if double else STEPS_IN_FLOAT32:
        found, bend, size = difference(look, start, direction, t)
        apart = by_group(function, found)
        sizes, bends = by_group(function, size), by_group(function, bend)
        live = {
            name: norm(part) * 2 * t > 100 * eps * norm(sizes[name]) for name, part in apart.items()
        }
        compared.add(apart, {name: norm(part) for name, part in bends.items()}, live)
        spent += look.gradients
        if not compared.open or spent > most:
            break
    outcome, reasons = compared.outcome(), []
    if outcome.status != "right":
        rounds = rounding(function, Point(start, wide, 1), operator.data.first, eps)
        fitted = {name for name in compared.open if compared.best[name] <= rounds}
        if fitted:
            compared.open -= fitted
            outcome, tolerance = compared.outcome(), max(tolerance, rounds)
            reasons.append(f"note: examples are fitted; their loss allows errors of {rounds:.0e}")
    if outcome.status == "wrong":
        reasons.append(f"products are wrong at {operator.noun} {some(map(repr, outcome.what), 3)}")
    inconclusive = compared.open - set(outcome.what if outcome.status == "wrong" else ())
    if inconclusive:
        reasons.append(
            f"note: nothing can be told of {operator.noun} "
            f"{some(map(repr, sorted(inconclusive)), 3)}: a kink within every step, or rounding"
        )
    if not wide:
        reasons.append(
            "note: no float64 copy could be made, differences are in the network's own precision"
        )
    nodes = {
        name: compared.best[name] if math.isfinite(compared.best[name]) else math.nan
        for name in groups
    }
    ok = outcome.status != "wrong" and len(inconclusive) < len(groups)
    return Verification(ok, nodes, tolerance, tuple(reasons), operator.noun, spent, t)


Differences = tuple[Tensors, Tensors, Tensors]
"""The difference quotient, the second difference over the step, and what both are rounded relative
to."""


def _totals(look: _Look, parts: Callable[[Any], Differences]) -> Differences:
    operator = look.operator
    totals: list[Tensors] = []
    for batch, share in operator.data.weighed():
        if share == 0:
            continue
        found = parts(batch)
        look.bar.update(look.gradients * share)
        shares = [_scaled(tensors, share) for tensors in found]
        if totals:
            totals = [_added(one, other) for one, other in zip(totals, shares, strict=True)]
        else:
            totals = shares
    quotient, bend, size = totals
    return quotient, bend, size


def _scaled(tensors: Tensors, factor: float) -> Tensors:
    return [factor * t for t in tensors]


def _added(one: Tensors, other: Tensors) -> Tensors:
    return [a + b for a, b in zip(one, other, strict=True)]


def _of_gradients(look: _Look, start: Values, direction: Tensors, t: float) -> Differences:
    function, wide = look.operator.function, look.wide

    def of(batch: Any) -> Differences:
        at = [
            function.gradient(Point(moved(start, direction, s * t), wide, 1), batch).gradient
            for s in (1, 0, -1)
        ]
        above, here, below = at
        bend = [(u - 2 * v + w) / t for u, v, w in zip(above, here, below, strict=True)]
        return [u / (2 * t) for u in less(above, below)], bend, here

    return _totals(look, of)


def _of_examples(look: _Look, start: Values, direction: Tensors, t: float) -> Differences:
    function, wide = look.operator.function, look.wide

    def of(batch: Any) -> Differences:
        layout = look.operator.data.require_layout(batch)
        total = [torch.zeros_like(v) for v in start.values()]
        for i in range(layout.examples):
            g = function.gradient(Point(start, wide, 1), layout.cut(batch, i, i + 1)).gradient
            along = dot(g, direction) / layout.examples
            total = [s + along * u for s, u in zip(total, g, strict=True)]
        zero = [torch.zeros_like(v) for v in start.values()]
        return total, zero, zero

    return _totals(look, of)


def _of_outputs(look: _Look, start: Values, direction: Tensors, t: float) -> Differences:
    """J^T (A J d): outputs and slopes by differences, and one backward pass."""
    function, wide = look.operator.function, look.wide

    def of(batch: Any) -> Differences:
        leaves = {k: v.detach().requires_grad_() for k, v in start.items()}
        with function.at(Point(leaves, wide, 1)):
            graph = FactoredGraph(function, leaves, batch, 1.0, None, wide)
        ends = []
        for s in (1, -1):
            with function.at(Point(moved(start, direction, s * t), wide, 1)):
                found, _ = tree_flatten(function.output(batch.input, wide))
            ends.append([found[i].detach() for i in graph.places])
        base = [f.detach() for f in graph.outputs]
        tangents = [u / (2 * t) for u in less(ends[0], ends[1])]
        slopes = []
        with function.at(Point(leaves, wide, 1)):
            for s in (1, -1):
                at = [(f + s * t * j).requires_grad_() for f, j in zip(base, tangents, strict=True)]
                slopes.append(gradients(graph.loss_at(at), at))
            curved = [u.detach() / (2 * t) for u in less(slopes[0], slopes[1])]
            images = graph.pull(curved, False)
        filled = [
            torch.zeros_like(v) if g is None else g
            for v, g in zip(start.values(), images, strict=True)
        ]
        bends = [(u - 2 * v + w) / t for u, v, w in zip(ends[0], base, ends[1], strict=True)]
        share = norm(bends) / max(norm(tangents), 1e-300)
        return filled, [share * g for g in filled], [torch.zeros_like(g) for g in filled]

    return _totals(look, of)
