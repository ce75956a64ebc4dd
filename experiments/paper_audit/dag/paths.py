"""DAG paper, Theorems 33 and 65: blocks as sums over paths, and what single paths say of them."""

from __future__ import annotations

import itertools

import torch

from experiments.paper_audit.checks import exists, relative_error, worst
from experiments.paper_audit.dag import printed
from experiments.paper_audit.dag.networks import Instance, by_hand, chain, diamond, skip
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.formula import Entry, Outcome, Witness


def path_cases() -> tuple[Instance, ...]:
    return (by_hand()[2], by_hand()[0], chain(0), diamond(0), skip(0))


def theorem_33() -> Outcome:
    """Eq. 11 with exact H[c,c]; corrected: every source of curvature once, over pairs of paths."""
    wrong, right, witness = 0.0, 0.0, None
    for case in path_cases():
        for e in examples(case):
            for v, w in itertools.product(case.dag.order[:2], case.dag.order[:3]):
                truth = e.blocks[v, w]
                if not bool(truth.abs().max() > 1e-12):
                    continue
                found = printed.equation_11(case.dag, e, v, w)
                right = max(right, relative_error(torch.stack(printed.sources(case.dag, e, v, w)).sum(0), truth))
                error = relative_error(found, truth)
                if error > 1e-9 and witness is None:
                    text = f"{case}: H[{v},{w}]"
                    witness = Witness(
                        text, f"{float(found):g} (once for each descendant)", f"{float(truth):g}", f"{float(truth):g}"
                    )
                wrong = max(wrong, error)
    return Outcome(wrong, right, len(path_cases()), witness)


def resonances(case: Instance) -> tuple[float, float]:
    """(R(v,v), sum of the resonances of the right path contributions) of the first node."""
    e, v = examples(case)[0], case.dag.order[0]
    terms = printed.sources(case.dag, e, v, v)
    return float(torch.stack(terms).sum(0).norm()), sum(float(t.norm()) for t in terms)


def additive() -> Outcome:
    """Theorem 33, last sentence: R(v,w) as the sum over pairs of paths; corrected: at most that (Corollary 67)."""
    values = [resonances(case) for case in (diamond(0), skip(0), skip(1))]
    printed_error = max(abs(total - whole) / total for whole, total in values)
    excess = max((whole - total) / total for whole, total in values)
    whole, total = values[0]
    witness = Witness(
        f"{diamond(0)}: R(stem, stem)", f"sum over pairs of paths {total:.4g}", "<= that sum", f"{whole:.4g}"
    )
    return Outcome(printed_error, excess, 3, witness)


def corollary_67() -> Outcome:
    return worst((diamond(0), skip(0), skip(1), diamond(2)), lambda c: (lambda r: (r[0] - r[1]) / r[1])(resonances(c)))


def sign_aligned() -> Outcome:
    """Corollary 67, equality: contributions of one sign, A = diag(1, 0) and B = diag(0, 1); corrected: multiples."""
    a, b = (torch.diag(torch.tensor(v).double()) for v in ([1.0, 0.0], [0.0, 1.0]))
    gap = 1 - float((a + b).norm() / (a.norm() + b.norm()))
    multiples = max(abs(1 - float((a + k * a).norm() / (a.norm() + k * a.norm()))) for k in (0.5, 3.0))
    witness = Witness(
        "contributions diag(1, 0) and diag(0, 1)",
        "R = 1 + 1",
        "equality for non-negative multiples",
        f"R = {float((a + b).norm()):.4f}",
    )
    return Outcome(gap, multiples, 3, witness)


def partial_cancel() -> Outcome:
    """Remark 72: |sum of path terms| >= |each| fails in general."""
    return exists("paths with Jacobians +1 and −0.9", 1 - abs(1 - 0.9), "cancellation is wanted")


def total_of_paths() -> Outcome:
    """Remark 72: J_out,v0 = sum over paths of D_p, so that H^GN[v0,out] = sum_p D_p^T d2 loss."""
    errors = []
    for case in path_cases():
        e, out = examples(case)[0], case.dag.output
        for v in case.dag.order:
            found = torch.stack([printed.path_jacobian(e, p) for p in printed.paths(case.dag, v, out)]).sum(0)
            errors.append(relative_error(found, e.total[out, v]))
    return Outcome(max(errors), instances=len(errors))


CHECKS: dict[str, Entry] = {
    "dag.thm33": theorem_33,
    "dag.thm33.additive": additive,
    "dag.remark72": total_of_paths,
    "dag.remark72.cancel": partial_cancel,
    "dag.cor67": corollary_67,
    "dag.cor67.equality": sign_aligned,
}
