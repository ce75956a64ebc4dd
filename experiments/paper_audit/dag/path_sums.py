"""DAG paper, Theorems 33 and 71: blocks as sums over paths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import Tensor

from experiments.paper_audit.checks import (
    BothErrors,
    Checks,
    Errors,
    Outcome,
    exists,
    relative_error,
    worked,
)
from experiments.paper_audit.dag.instances import (
    Instance,
    chain,
    diamond,
    linear_chain,
    skip,
    square_after_identity,
)
from experiments.paper_audit.dag.oracle import Example, examples, first_example, transmitted
from experiments.paper_audit.dag.paths import equation_11, sources, total_over_paths
from experiments.paper_audit.tensors import diagonal, norm_of, total

CHECKS = Checks()


def path_cases() -> tuple[Instance, ...]:
    return (linear_chain(), square_after_identity(), chain(0), diamond(0), skip(0))


def pairs_of_nodes() -> Iterator[tuple[Instance, Example, str, str]]:
    """Pairs with a block that is not zero."""
    for case in path_cases():
        for e in examples(case):
            order = case.dag.order
            pairs = itertools.product(order[:2], order[:3])
            for v, w in pairs:
                if bool(e.blocks[v, w].abs().max() > 1e-12):
                    yield case, e, v, w


@CHECKS.clause("dag.thm33", instances=5)
def theorem_33() -> BothErrors:
    """Eq. 11 with exact H[c,c]; corrected: every source of curvature once, over pairs of paths."""
    witness = None
    for case, e, v, w in pairs_of_nodes():
        exact = e.blocks[v, w]
        printed = equation_11(e, v, w)
        wrong = relative_error(printed, exact)
        right = relative_error(total(sources(e, v, w)), exact)
        yield wrong, right
        if wrong > 1e-9 and witness is None:
            value = float(exact)
            witness = worked(
                f"{case}: H[{v},{w}]",
                f"{float(printed):g}",
                f"{value:g}",
                f"{value:g}",
            )
    return witness


def resonances(case: Instance) -> tuple[float, float]:
    """(R(v,v), sum of the resonances of the right path contributions) of the first node."""
    e = first_example(case)
    v = case.dag.order[0]
    terms = sources(e, v, v)
    norm_of_sum = norm_of(total(terms))
    sum_of_norms = sum(norm_of(term) for term in terms)
    return norm_of_sum, sum_of_norms


@CHECKS.clause("dag.thm33.additive")
def additive() -> Outcome:
    """Theorem 33, last sentence: R(v,w) as the sum over pairs of paths; corrected: at most that
    (Corollary 67)."""
    cases = (diamond(0), skip(0), skip(1))
    values = [resonances(case) for case in cases]
    gap = max(abs(summed - whole) / summed for whole, summed in values)
    excess = max((whole - summed) / summed for whole, summed in values)
    whole, summed = values[0]
    witness = worked(
        f"{cases[0]}: R(stem, stem)",
        f"sum over pairs of paths {summed:.4g}",
        "<= that sum",
        f"{whole:.4g}",
    )
    return Outcome(gap, excess, 3, witness)


@CHECKS.errors("dag.cor67", lambda: (diamond(0), skip(0), skip(1), diamond(2)))
def corollary_67(case: Instance) -> float:
    whole, summed = resonances(case)
    return (whole - summed) / summed


def share_of_sum(a: Tensor, b: Tensor) -> float:
    """‖A + B‖ / (‖A‖ + ‖B‖)."""
    return float((a + b).norm() / (a.norm() + b.norm()))


@CHECKS.clause("dag.cor67.equality")
def sign_aligned() -> Outcome:
    """Corollary 67, equality: contributions of one sign, A = diag(1, 0) and B = diag(0, 1);
    corrected: multiples."""
    a = diagonal(1.0, 0.0)
    b = diagonal(0.0, 1.0)
    multiples = max(abs(1 - share_of_sum(a, k * a)) for k in (0.5, 3.0))
    witness = worked(
        "contributions diag(1, 0) and diag(0, 1)",
        "R = 1 + 1",
        "equality for non-negative multiples",
        f"R = {norm_of(a + b):.4f}",
    )
    printed = 1 - share_of_sum(a, b)
    return Outcome(printed, multiples, 3, witness)


@CHECKS.clause("dag.remark72.cancel")
def partial_cancel() -> Outcome:
    """Remark 72: |sum of path terms| >= |each| fails in general."""
    path = transmitted([lambda h: h])
    both = transmitted([lambda h: h - 0.9 * h])
    return exists("paths with Jacobians +1 and −0.9", path - both, "cancellation is wanted")


@CHECKS.clause("dag.remark72")
def total_of_paths() -> Errors:
    """Remark 72: J_out,v0 = sum over paths of D_p, so that H^GN[v0,out] = sum_p D_p^T d2 loss."""
    for case in path_cases():
        e = first_example(case)
        out = case.dag.output
        for v in case.dag.order:
            yield relative_error(total_over_paths(e, v, out), e.total[out, v])
