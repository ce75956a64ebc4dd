"""DAG paper, Appendix K: low-rank factors of blocks, their errors and what they cost."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from experiments.paper_audit.checks import apart, excess, relative_error
from experiments.paper_audit.dag.networks import diamond
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.dag.ranks import rank, samples, singular
from experiments.paper_audit.formula import Entry, Outcome, Witness


def proposition_92() -> Outcome:
    """U Σ Vᵀ of the children pulled back: Σ_u,w D_uvᵀ H^GN[u,w] D_wv, and at most |Ch(v)||Ch(w)| r columns."""
    errors = []
    for seed in range(3):
        case = diamond(seed)
        e = examples(case)[0]
        blocks, columns, total = e.gauss_newton("out"), [], torch.zeros(4, 4, dtype=torch.float64)
        largest = 0
        for u, w in itertools.product(("a", "b"), repeat=2):
            left, values, right = torch.linalg.svd(blocks[u, w], full_matrices=False)
            r = rank(blocks[u, w])
            largest = max(largest, r)
            columns.append(e.jacobian[u, "stem"].T @ left[:, :r])
            total = total + columns[-1] @ torch.diag(values[:r]) @ right[:r] @ e.jacobian[w, "stem"]
        errors.append(relative_error(total, blocks["stem", "stem"]))
        errors.append(float(torch.cat(columns, 1).shape[1] != 4 * largest))  # the bound, attained by equal ranks
    return Outcome(max(errors), instances=3)


def tails() -> list[tuple[Tensor, int, float, float]]:
    """(matrix, r, ‖H − H_r‖_F of the truncated SVD, √(d_min − r) σ_{r+1}) of the samples."""
    rows = []
    for m in samples():
        left, values, right = torch.linalg.svd(m, full_matrices=False)
        for r in range(len(values)):
            low = left[:, :r] @ torch.diag(values[:r]) @ right[:r]
            rows.append((m, r, float((m - low).norm()), math.sqrt(len(values) - r) * float(values[r])))
    return rows


def theorem_93() -> Outcome:
    """The error against the root of the dropped squares, and against the bound, both relative to σ_1."""
    errors = []
    for m, r, error, bound in tails():
        dropped = float(singular(m)[r:].square().sum())
        errors += [apart(error**2, dropped), excess(error, bound)] if dropped > 1e-12 * float(m.norm()) ** 2 else []
    return Outcome(max(errors), instances=len(errors) // 2)


def relative_rank() -> Outcome:
    """'In particular' and Corollary 94: σ_{r+1} <= eps σ_1/√(d_min − r) gives ‖H − H_r‖_F <= eps ‖H‖_F.

    Attained by σ = (1, s, s, s) and r = 1 as s → 0, where the bound is 1 + 3 s²/2 times the error.
    """
    errors = []
    for m, _, error, bound in tails():
        if bound > 1e-6 * float(m.norm()):
            errors.append(excess(error, allowed(m, bound / float(singular(m)[0]))))
    s = 1e-6
    m = torch.diag(torch.tensor([1.0, s, s, s], dtype=torch.float64))
    errors.append(apart(math.sqrt(3) * s, allowed(m, math.sqrt(3) * s)))
    return Outcome(max(errors), instances=len(errors))


def allowed(m: Tensor, eps: float) -> float:
    """eps ‖H‖_F."""
    return eps * float(m.norm())


def decay_is_not_low_rank() -> Outcome:
    """Corollary 94, last sentence: rank that relative accuracy 0.1 needs at distance 20 on a chain with D = I/2."""
    block = 0.5**20 * torch.eye(4, dtype=torch.float64)
    values = singular(block)
    need = next(r for r in range(5) if float(values[r:].norm()) <= 0.1 * float(values.norm()))
    witness = Witness(
        "chain with D = I/2 (4 × 4), 20 edges apart, eps = 0.1: rank needed",
        "O(1), very small",
        "the norm falls, the rank does not",
        f"{need} of 4, ‖H‖ = {float(block.norm()):.1e}",
    )
    return Outcome(1.0 if need == 4 else 0.0, None, 1, witness)


def storage() -> Outcome:
    """Remark 95: numbers in rank-r factors, (d_v + d_w + 1) r, over (d_v + d_w) r: below 2 at every size."""
    found = [((a + b + 1) * r) / ((a + b) * r) - 2 for a, b, r in ((4, 4, 1), (64, 32, 5), (512, 512, 10))]
    return Outcome(max(found), instances=3)


CHECKS: dict[str, Entry] = {
    "dag.prop92": proposition_92,
    "dag.thm93": theorem_93,
    "dag.cor94": relative_rank,
    "dag.cor94.decay": decay_is_not_low_rank,
    "dag.remark95": storage,
}
