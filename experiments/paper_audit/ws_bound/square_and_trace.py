"""WS-bound paper, Proposition 8, Eq. 67 and Section VI: what the traces say of the bound."""

from __future__ import annotations

import math

from torch import Tensor

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    exists,
    outcome_of,
)
from experiments.paper_audit.tensors import grid
from experiments.paper_audit.three_layer import instances
from experiments.paper_audit.ws_bound.limits import at_its_label, attacked_gram
from experiments.paper_audit.ws_bound.trace_bounds import upper_bound

CHECKS = Checks()


@CHECKS.clause("ws.discussion.sizes")
def sizes_raise() -> Outcome:
    """sup ||J + XᵀX||² and ||J + RᵀR||², attacked, at sizes (I, M) and one larger: how far it
    falls."""
    falls = []
    shapes = ((1, 1), (2, 3), (4, 2))
    for samples, width in shapes:
        smaller = attacked_gram(samples, width)
        falls.append(smaller / attacked_gram(samples + 1, width) - 1)
        falls.append(smaller / attacked_gram(samples, width + 1) - 1)
    return outcome_of(falls, instances=len(falls) * 160)


def traces(hessian: Tensor) -> tuple[float, float]:
    """tr H and tr H²."""
    return float(hessian.trace()), float(hessian.square().sum())


@CHECKS.clause("ws.proposition8")
def proposition_eight(semidefinite: bool = True) -> Errors:
    """tr(H)²/D <= tr H² <= tr(H)² where H is positive semi-definite, and the left half wherever."""
    for instance in instances():
        for case in (instance, at_its_label(instance)):
            trace, square = traces(case.hessian)
            least = trace**2 / len(case.theta)
            yield (least - square) / square
            if case is not instance or not semidefinite:
                yield (square - trace**2) / square


CHECKS.without["ws.proposition8", "H >= 0"] = lambda: proposition_eight(semidefinite=False)


@CHECKS.clause("ws.eq67")
def variance_limit() -> Outcome:
    """max p(1 − p) = 1/4 at p = 1/2."""
    p = grid(0, 1, 1001)
    largest = float((p * (1 - p)).max())
    return Outcome(abs(largest - 0.25), instances=len(p))


def bound_from_traces(trace: float, square: float, dimension: int) -> float:
    """λ_sup of Theorem 1 from tr H and tr H²."""
    mean = trace / dimension
    variance = max(square / dimension - mean**2, 0.0)
    return mean + math.sqrt((dimension - 1) * variance)


@CHECKS.clause("ws.discussion.square")
def square_raises() -> Errors:
    """λ_sup at equal tr H and a tr H² larger by 1 %, over λ_sup: how far it falls (<= 0: it
    rises)."""
    for instance in instances():
        hessian = instance.hessian
        trace, square = traces(hessian)
        reference = upper_bound(hessian)
        before = bound_from_traces(trace, square, len(hessian))
        after = bound_from_traces(trace, 1.01 * square, len(hessian))
        yield (before - after) / abs(reference)
        yield abs(before - reference) / abs(reference)


@CHECKS.clause("ws.discussion.trace")
def trace_does_both() -> Outcome:
    """dλ_sup/dtr H at equal tr H² of the instances: largest and smallest, which must have both
    signs."""
    slopes = []
    step = 1e-5
    for instance in instances():
        trace, square = traces(instance.hessian)
        dimension = len(instance.theta)
        above = bound_from_traces(trace + step, square, dimension)
        below = bound_from_traces(trace - step, square, dimension)
        slopes.append((above - below) / (2 * step))
    where = "random networks: dλ_sup/dtr H at equal tr H²"
    return exists(where, min(max(slopes), -min(slopes)), "both signs")
