"""The likely cause of a product that is not certified, looked up after it has failed."""

from __future__ import annotations

import math
from typing import Any

import torch

from runner.curvature.certificate.compare import distance, finite
from runner.curvature.certificate.reference import Vectors
from runner.curvature.estimators.estimate import norm_of


def likely_cause(
    comparison: Any, own: Vectors, mean: Vectors, wrong: list[str], right_alone: bool
) -> str:
    """One line: where it first goes wrong on the way back, and why. right_alone: the examples alone
    are right."""
    why = _why(comparison, own, mean, right_alone)
    return f"first at {comparison.noun} {wrong[-1]!r} on the way back from the output: {why}"


def _why(comparison: Any, own: Vectors, mean: Vectors, right_alone: bool) -> str:
    operator, reference, tolerance = comparison.operator, comparison.reference, comparison.tolerance
    direction = comparison.direction
    if not finite(own):
        return "they are not finite"
    if _rounds(operator, direction, mean, tolerance):
        name = name_of(operator.dtype)
        return f"rounding of {name}, in float64 they are right: measure a copy in float64"
    if not any(bool(p.any()) for p in own.values()):
        node = reference.wrong_node(0, 1e-4)
        named = f" (node {node!r})" if node else ""
        return f"they are zero. Gradients are off, or a backward has no second derivative{named}"
    factor = _common_factor(own, mean, tolerance)
    if factor:
        whole = factor > 1.5 and abs(factor - round(factor)) < 10 * tolerance * factor
        hint = ". Is the loss a sum, not a mean?" if whole else ", at every node alike"
        return f"they are {factor:.4g} times the mean over the examples{hint}"
    if right_alone:
        return (
            "every example alone is right. The examples of the batch mix, or the loss is not "
            "their mean"
        )
    if node := reference.wrong_node(0, tolerance):
        return (
            f"the backward of node {node!r} is not differentiated rightly (a custom Function, or "
            "a detach)"
        )
    ones = {v: torch.ones_like(r) * reference.scales.get(v, 1.0) for v, r in direction.items()}
    if reference.slope_error(ones, 0, 1e-5 if reference.double else 1e-2) > 1e-3:
        return "the gradient is not that of the loss (a part without gradient, or a wrong backward)"
    return "the operator is of other weights, data or functions than the network has now"


def _common_factor(own: Vectors, mean: Vectors, tolerance: float) -> float:
    """The factor by which they differ at every node alike; 0 where there is none."""
    a = torch.cat([own[v].reshape(-1) for v in mean])
    b = torch.cat([mean[v].reshape(-1) for v in mean])
    factor = float(a @ b) / float(b @ b) if bool(b.any()) else math.nan
    alike = norm_of(a - factor * b) <= 10 * tolerance * norm_of(a) and abs(factor - 1) > tolerance
    return factor if alike else 0.0


def _rounds(operator: Any, direction: Vectors, mean: Vectors, tolerance: float) -> bool:
    """Whether the operator's products are right in float64 alone: what is wrong is the
    precision."""
    if operator.dtype == torch.float64 or not hasattr(operator, "in_float64"):
        return False

    def right(of: Any) -> bool:
        products = of.apply({v: r.to(of.dtype).unsqueeze(0) for v, r in direction.items()})
        return distance(mean, {v: products[v][0].double() for v in mean}) <= tolerance

    try:
        return right(operator.in_float64()) and not right(operator)
    except (ValueError, RuntimeError, TypeError):
        return False


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
