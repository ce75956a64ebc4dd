"""DAG paper, Section 4 and Appendix K: effective dimensions, and low-rank approximation of
blocks."""

from __future__ import annotations

import itertools
import math
from functools import partial

import torch
from torch import Tensor, diag

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    apart,
    attack,
    excess,
    outcome_of,
    relative_error,
    worked,
)
from experiments.paper_audit.dag.instances import ScalarNode, copy, diamond, scalar_nodes, smooth
from experiments.paper_audit.dag.oracle import end_block, exact, first_example
from experiments.paper_audit.tensors import (
    diagonal,
    gauss,
    norm_of,
    ones,
    random_matrices,
    seeded,
    zeros,
)

CHECKS = Checks()


def singular(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix)


def rank(matrix: Tensor) -> int:
    values = singular(matrix)
    if not float(values[0]):
        return 0
    return int((values > 1e-11 * values[0]).sum())


def stable(matrix: Tensor) -> float:
    """D of Eq. 7."""
    values = singular(matrix)
    return float(values.square().sum() / values[0] ** 2)


def effective(matrix: Tensor) -> float:
    """d_eff of Definition 57."""
    values = singular(matrix)
    return float(values.sum() / values[0])


def samples() -> list[Tensor]:
    """Random matrices of several ranks, equal singular values, and blocks of networks."""
    left = random_matrices(((3, 2), (6, 6), (4, 1), (1, 1)))
    right = random_matrices(((2, 5), (6, 6), (1, 7), (1, 1)), 1)
    matrices = [a @ b for a, b in zip(left, right, strict=True)]
    projection = diagonal(1.0, 1.0, 0.0)
    small = diagonal(1.0, 1e-8)
    scaled = diagonal(2.0, 2.0, 2.0)
    matrices += [projection, small, scaled]
    for case in smooth()[:4]:
        blocks = [block[0] for block in exact(case).values()]
        matrices += [block for block in blocks if norm_of(block) > 1e-9]
    return matrices


@CHECKS.clause("dag.prop62")
def dimensions() -> Outcome:
    """1 <= D <= d_eff <= rank and d_eff <= √(rank D), on samples and attacked over 4 × 4
    matrices."""

    def violation(m: Tensor) -> float:
        d = stable(m)
        e = effective(m)
        r = rank(m)
        geometric = math.sqrt(r * d)
        return max(1 - d, d / e - 1, e / r - 1, d / r - 1, e / geometric - 1)

    start = gauss(seeded(0), 16)
    searched = attack(lambda z: violation(z.view(4, 4)), start, 150)
    found = [searched, *(violation(m) for m in samples())]
    return outcome_of(found, instances=len(found) + 149)


@CHECKS.clause("dag.prop62.iff")
def equality_cases() -> Outcome:
    """(ii) value 1 iff rank 1, (iii) value = rank iff equal singular values: 1 for each sample
    where an iff fails."""
    wrong = [0.0]
    for m in samples():
        values = singular(m)
        r = rank(m)
        if r == 1:
            of_stable = abs(stable(m) - 1)
            of_effective = abs(effective(m) - 1)
            wrong += [of_stable, of_effective]
        if len(values) < 2 or float(values[1] / values[0]) < 1e-3:
            continue  # numerically of rank one: both sides hold within rounding
        flat = bool((values[:r] / values[0] > 1 - 1e-9).all())
        for value in (stable(m), effective(m)):
            wrong.append(float((abs(value - 1) < 1e-9) != (r == 1)))
            wrong.append(float((abs(value - r) < 1e-9) != flat))
    return outcome_of(wrong, instances=len(samples()))


@CHECKS.clause("dag.prop92", instances=3)
def proposition_92() -> Errors:
    """U Σ Vᵀ of the children pulled back: Σ_u,w D_uvᵀ H^GN[u,w] D_wv, and at most |Ch(v)||Ch(w)| r
    columns."""
    for seed in range(3):
        e = first_example(diamond(seed))
        blocks = e.gauss_newton
        columns = []
        ranks = []
        pulled = zeros(4, 4)
        for u, w in itertools.product(("a", "b"), repeat=2):
            block = blocks[u, w]
            decomposition = torch.linalg.svd(block, full_matrices=False)
            left, values, right = decomposition
            r = rank(block)
            ranks.append(r)
            column = e.jacobian[u, "stem"].T @ left[:, :r]
            columns.append(column)
            term = column @ diag(values[:r]) @ right[:r]
            pulled = pulled + term @ e.jacobian[w, "stem"]
        yield relative_error(pulled, blocks["stem", "stem"])
        width = torch.cat(columns, 1).shape[1]
        yield float(width != 4 * max(ranks))  # the bound, attained by equal ranks


def tails() -> list[tuple[Tensor, int, float, float]]:
    """(matrix, r, ‖H − H_r‖_F of the truncated SVD, √(d_min − r) σ_{r+1}) of the samples."""
    rows = []
    for m in samples():
        left, values, right = torch.linalg.svd(m, full_matrices=False)
        for r in range(len(values)):
            low = left[:, :r] @ diag(values[:r]) @ right[:r]
            bound = math.sqrt(len(values) - r) * float(values[r])
            rows.append((m, r, norm_of(m - low), bound))
    return rows


@CHECKS.clause("dag.thm93")
def theorem_93() -> Outcome:
    """The error against the root of the dropped squares, and against the bound, both relative to
    σ_1."""
    errors = []
    for m, r, error, bound in tails():
        tail = singular(m)[r:]
        dropped = float(tail.square().sum())
        if dropped > 1e-12 * norm_of(m) ** 2:
            of_error = apart(error**2, dropped)
            errors += [of_error, excess(error, bound)]
    return outcome_of(errors, instances=len(errors) // 2)


def nearer_than_truncated(z: Tensor, m: Tensor, r: int) -> float:
    """By how much the product of two factors of rank r is nearer to m than its truncated SVD."""
    rows = m.shape[0]
    left, right = z[: rows * r], z[rows * r :]
    distance = norm_of(m - left.view(rows, r) @ right.view(r, -1))
    return 1 - distance / norm_of(singular(m)[r:])


@CHECKS.clause("dag.def91", instances=604)
def best_of_rank() -> Errors:
    """Definition 91: no matrix of rank r is nearer in Frobenius norm than the truncated SVD:
    attacked over factors of rank r, from random ones and from those of the SVD, which attain it."""
    for size, r in (((4, 5), 1), ((5, 3), 2)):
        m = random_matrices((size,))[0]
        nearer = partial(nearer_than_truncated, m=m, r=r)
        left, values, right = torch.linalg.svd(m, full_matrices=False)
        truncated = torch.cat([(left[:, :r] * values[:r]).flatten(), right[:r].flatten()])
        yield abs(nearer(truncated))
        for start in (truncated, gauss(seeded(r), len(truncated))):
            yield attack(nearer, start, 150)


def allowed(m: Tensor, bound: float) -> float:
    """eps ‖H‖_F for the eps at which √(d_min − r) σ_{r+1} = `bound` is eps σ_1."""
    eps = bound / float(singular(m)[0])
    return eps * norm_of(m)


@CHECKS.clause("dag.cor94")
def relative_rank() -> Errors:
    """'In particular' and Corollary 94: σ_{r+1} <= eps σ_1/√(d_min − r) gives ‖H − H_r‖_F <= eps
    ‖H‖_F.

    Attained by σ = (1, s, s, s) and r = 1 as s → 0, where the bound is 1 + 3 s²/2 times the error.
    """
    for m, _, error, bound in tails():
        if bound > 1e-6 * norm_of(m):
            yield excess(error, allowed(m, bound))
    s = 1e-6
    attained = diagonal(1.0, s, s, s)
    error = norm_of(singular(attained)[1:])
    yield apart(error, allowed(attained, math.sqrt(3) * s))


@CHECKS.clause("dag.cor94.decay")
def decay_is_not_low_rank() -> Outcome:
    """Corollary 94, last sentence: rank that relative accuracy 0.1 needs at distance 20 on a chain
    with D = I/2."""
    block = end_block([lambda h: h / 2] * 20, ones(4))
    values = singular(block)
    accuracy = 0.1 * norm_of(values)
    need = next(r for r in range(5) if norm_of(values[r:]) <= accuracy)
    witness = worked(
        "chain with D = I/2 (4 × 4), 20 edges apart, eps = 0.1: rank needed",
        "O(1), very small",
        "the norm falls, the rank does not",
        f"{need} of 4, ‖H‖ = {norm_of(block):.1e}",
    )
    return Outcome(float(need == 4), None, 1, witness)


@CHECKS.clause("dag.remark95")
def storage() -> Errors:
    """Remark 95: numbers in rank-r factors, (d_v + d_w + 1) r, over (d_v + d_w) r: below 2 at every
    size."""
    shapes = ((4, 4, 1), (64, 32, 5), (512, 512, 10))
    for a, b, r in shapes:
        with_values = (a + b + 1) * r
        without = (a + b) * r
        yield with_values / without - 2


@CHECKS.clause("dag.prop92.sum")
def one_sum() -> Outcome:
    """Eq. K.2 with one sum over the children u, as our text has it; corrected: over pairs of
    children. v → a, b = x, out = a + b, loss = out²/2."""
    nodes: list[ScalarNode] = [
        copy("v", "input"),
        copy("a", "v"),
        copy("b", "v"),
        ("out", ("a", "b"), lambda a, b: a + b),
    ]
    e = first_example(scalar_nodes(nodes, [1.0], square=True))
    blocks = e.gauss_newton
    terms = {}
    for u, w in itertools.product("ab", repeat=2):
        left = e.jacobian[u, "v"]
        right = e.jacobian[w, "v"]
        terms[u, w] = float(left.T @ blocks[u, w] @ right)
    exact = float(blocks["v", "v"])
    one = terms["a", "a"] + terms["b", "b"]
    two = sum(terms.values())
    where = "v → a, b = v, out = a + b, loss = out²/2: H^GN[v, v]"
    witness = worked(where, f"{one:g}", f"{two:g}", f"{exact:g}")
    printed = abs(one / exact - 1)
    corrected = abs(two / exact - 1)
    return Outcome(printed, corrected, 1, witness)
