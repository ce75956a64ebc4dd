"""What a certificate says, and the likely cause of a product that is not certified."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from runner.curvature.matrix_free.base import norm_of
from runner.curvature.matrix_free.reference import Reference, Vectors
from runner.curvature.result import Estimated


def likely_cause(
    operator: Any,
    reference: Reference,
    direction: Vectors,
    own: Vectors,
    mean: Vectors,
    errors: dict[str, float],
    tolerance: float,
    singly: bool,
) -> str:
    """One line: where it first goes wrong on the way back, and why. singly: every example alone is right."""
    nodes = operator.nodes
    wrong = [v for v in nodes if not errors[v] <= tolerance]
    where = f"first at {getattr(operator, 'noun', 'node')} {wrong[-1]!r} on the way back from the output"
    if not all(bool(p.isfinite().all()) for p in own.values()):
        return f"{where}: they are not finite"
    if _rounds(operator, direction, mean, tolerance):
        return f"{where}: rounding of {name_of(operator.dtype)}, in float64 they are right: measure a copy in float64"
    a, b = (torch.cat([t[v].reshape(-1) for v in nodes]) for t in (own, mean))
    if not bool(a.any()):
        return (
            f"{where}: they are zero. Gradients are off, or a backward has no second derivative"
            + (f" (node {node!r})" if (node := reference.wrong_node(0, 1e-4)) else "")
        )
    factor = float(a @ b) / float(b @ b) if bool(b.any()) else math.nan
    if norm_of(a - factor * b) <= 10 * tolerance * norm_of(a) and abs(factor - 1) > tolerance:
        summed = factor > 1.5 and abs(factor - round(factor)) < 10 * tolerance * factor
        hint = ". Is the loss a sum, not a mean?" if summed else ", at every node alike"
        return f"{where}: they are {factor:.4g} times the mean over the examples{hint}"
    if singly:
        return f"{where}: every example alone is right. The examples of the batch mix, or the loss is not their mean"
    if _kink(reference, direction):
        return f"{where}: the network has a kink here (a ReLU at 0): it has no second derivative at this point"
    if node := reference.wrong_node(0, tolerance):
        return f"{where}: the backward of node {node!r} is not differentiated rightly (a custom Function, or a detach)"
    ones = {v: torch.ones_like(r) * reference.scales.get(v, 1.0) for v, r in direction.items()}
    if reference.slope_error(ones, 0, 1e-5 if reference.double else 1e-2) > 1e-3:
        return f"{where}: the gradient is not that of the loss (a part without gradient, or a wrong backward)"
    return f"{where}: the operator is of other weights, data or functions than the network has now"


def _rounds(operator: Any, direction: Vectors, mean: Vectors, tolerance: float) -> bool:
    """Whether the operator's products are right in float64 alone: what is wrong is the precision."""
    if operator.dtype == torch.float64 or not hasattr(operator, "in_float64"):
        return False

    def right(of: Any) -> bool:
        found = of.apply({v: r.to(of.dtype).unsqueeze(0) for v, r in direction.items()})
        return all(
            norm_of(found[v][0].double() - m) <= tolerance * norm_of(m) for v, m in mean.items()
        )

    try:
        return right(operator.in_float64()) and not right(operator)
    except (ValueError, RuntimeError, TypeError):
        return False


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kink(reference: Reference, direction: Vectors) -> bool:
    """Whether the gradient turns at the point itself: its differences ahead and behind do not agree, however near."""
    if not reference.scales:
        return False
    step = 1e-6 if reference.double else 1e-2
    with reference.quiet():
        for b in range(min(reference.examples, 8)):
            ends = []
            for s in (-step, 0.0, step):
                shift = {
                    v: torch.ones_like(r) * s * reference.scales[v] for v, r in direction.items()
                }
                found = reference.gradient(shift, b)
                ends.append(torch.cat([found[v].double().reshape(-1) for v in direction]))
            if norm_of(ends[2] - 2 * ends[1] + ends[0]) > 0.1 * norm_of(ends[2] - ends[0]) > 0:
                return True
    return False


def largest_ratio(doubt: Vectors, of: Vectors) -> float:
    """Largest relative size of `doubt` at a node; nodes far below the others count against those."""
    largest = max(norm_of(t) for t in of.values())
    if largest == 0:
        return max(norm_of(t) for t in doubt.values())
    return max((norm_of(doubt[v]) / max(norm_of(of[v]), 1e-6 * largest) for v in of), key=nan_last)


def nan_last(value: float) -> float:
    """The value for comparisons in which NaN is the largest."""
    return math.inf if math.isnan(value) else value


@dataclass(frozen=True, repr=False)
class Certificate(Estimated):
    """ok: every error is within the tolerance, and every difference was sharp enough to tell, except near kinks.

    examples: relative error of the product of each example alone (empty where there is one, or the operator cannot
    say); nodes: of the
    batch's product, at each node; step: of the differences, relative to the size of the nodes' outputs; reasons: what
    is wrong, the likely cause and the node, and notes. noun, piece: what nodes and examples are (groups of parameters,
    batches).

    kinks: examples with a kink within every usable step (a ReLU so near 0 that rounding decides on which side it is,
    two equal entries under a maximum). Differences tell nothing there: such an example counts in the batch with the
    engine's own product, its entry of `examples` is NaN, and the certificate is of the others; `ok` needs half of all.

    gradients: what it cost, in gradients of all examples. value: the largest of `nodes`; error: 0, since it is not an
    estimate.
    """

    ok: bool
    examples: tuple[float, ...]
    nodes: dict[str, float]
    tolerance: float
    step: float
    reasons: tuple[str, ...] = ()
    noun: str = "node"
    piece: str = "example"
    kinks: tuple[int, ...] = ()
    gradients: float = 0.0

    @property
    def value(self) -> float:
        return worst_of(self.nodes)

    @property
    def error(self) -> float:
        return 0.0

    def summary(self) -> str:
        return f"{self.verdict}, largest relative error {self.value:.1e}, tolerance {self.tolerance:.0e}"

    @property
    def verdict(self) -> str:
        return "certified" if self.ok else "NOT certified"

    def __str__(self) -> str:
        worst = max(self.nodes, key=lambda v: nan_last(self.nodes[v]))
        lines = [
            f"{self.verdict}: products against differences of gradients, step {self.step:.0e}, "
            f"tolerance {self.tolerance:.0e}"
            + (f", cost {self.gradients:.0f} gradients" if self.gradients else ""),
            f"  batch: largest relative error {self.nodes[worst]:.1e}, at {self.noun} {worst!r}",
        ]
        told = [b for b in range(len(self.examples)) if b not in self.kinks]
        if told:
            b = max(told, key=lambda i: nan_last(self.examples[i]))
            alone = f"{len(told)} {plural(self.piece)} alone"
            lines.append(f"  {alone}: largest {self.examples[b]:.1e}, of {self.piece} {b}")
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


def plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("h") else f"{noun}s"


def is_note(reason: str) -> bool:
    return reason.startswith("note:")


def worst_of(errors: dict[str, float]) -> float:
    """The largest error, NaN before all."""
    return max(errors.values(), key=nan_last, default=math.nan)
