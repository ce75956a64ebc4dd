"""DAG paper: ranks and dimensions of blocks, low-rank approximation."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import apart, attack, excess, exists, random_matrices, relative_error, worst
from experiments.paper_audit.dag import printed
from experiments.paper_audit.dag.networks import Instance, diamond, layer, skip, smooth
from experiments.paper_audit.dag.oracle import exact, examples
from experiments.paper_audit.formula import Formula, Outcome, Witness
from runner.curvature import Dag, Node


def singular(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix)


def rank(matrix: Tensor) -> int:
    values = singular(matrix)
    return int((values > 1e-11 * values[0]).sum()) if float(values[0]) else 0


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
    rows = [
        a @ b
        for a, b in zip(
            random_matrices(((3, 2), (6, 6), (4, 1), (1, 1))),
            random_matrices(((2, 5), (6, 6), (1, 7), (1, 1)), 1),
            strict=True,
        )
    ]
    rows += [torch.diag(torch.tensor(v).double()) for v in ([1.0, 1.0, 0.0], [1.0, 1e-8], [2.0, 2.0, 2.0])]
    return rows + [b[0] for case in smooth()[:4] for b in exact(case).values() if float(b[0].norm()) > 1e-9]


def dimensions() -> Outcome:
    """1 <= D <= d_eff <= rank and d_eff <= √(rank D), on samples and attacked over 4 × 4 matrices."""

    def violation(m: Tensor) -> float:
        d, e, r = stable(m), effective(m), rank(m)
        return max(1 - d, d / e - 1, e / r - 1, d / r - 1, e / math.sqrt(r * d) - 1)

    found = attack(
        lambda z: violation(z.view(4, 4)),
        torch.randn(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        150,
    )[0]
    return Outcome(max(found, *(violation(m) for m in samples())), instances=len(samples()) + 150)


def equality_cases() -> Outcome:
    """(ii) value 1 iff rank 1, (iii) value = rank iff equal singular values: 1 for each sample where an iff fails."""
    wrong = 0.0
    for m in samples():
        values, r = singular(m), rank(m)
        flat = bool((values[:r] / values[0] > 1 - 1e-9).all())
        for value in (stable(m), effective(m)):
            if not values[1:2].numel() or float(values[1] / values[0]) < 1e-3:
                continue  # numerically of rank one: both sides hold within rounding
            wrong = max(wrong, float((abs(value - 1) < 1e-9) != (r == 1)), float((abs(value - r) < 1e-9) != flat))
        if r == 1:
            wrong = max(wrong, abs(stable(m) - 1), abs(effective(m) - 1))
    return Outcome(wrong, instances=len(samples()))


def bottleneck(seed: int, width: int, batch: int = 8, bypass: bool = False) -> Instance:
    """v → m → u (narrow) → w → out; bypass: a skip from v to the output as well."""
    torch.manual_seed(seed)
    middle = layer(6, 6, nn.Tanh)
    with torch.no_grad():
        middle.get_parameter("0.weight").mul_(4)  # far from linear, or all examples have nearly the same Jacobian
    head = nn.Linear(6, 5).double()
    nodes = [
        Node("v", ("input",), layer(4, 6, nn.Tanh)),
        Node("m", ("v",), middle),
        Node("u", ("m",), layer(6, width, nn.Tanh)),
        Node("w", ("u",), layer(width, 6, nn.Tanh)),
    ]
    if bypass:
        nodes.append(Node("out", ("w", "v"), lambda a, b: head(a + b)))
    else:
        nodes.append(Node("out", ("w",), head))
    x = torch.randn(batch, 4, dtype=torch.float64)
    return Instance(f"bottleneck of width {width}", Dag(nodes), x, torch.randint(0, 5, (batch,)))


def beyond(blocks: Tensor, width: int) -> float:
    """σ_{width+1} / σ_1 of a batch of blocks, the largest."""
    values = singular(blocks)
    return float((values[..., width] / values[..., 0]).max())


def narrow(case: Instance) -> dict[tuple[str, str], Tensor]:
    return {
        p: torch.stack([e.gauss_newton("out")[p] for e in examples(case)]) for p in (("v", "v"), ("v", "m"), ("m", "m"))
    }


def proposition_31(bypass: bool = False) -> Outcome:
    errors = []
    for seed, width in enumerate((1, 2, 3)):
        errors += [beyond(block, width) for block in narrow(bottleneck(seed, width, 4, bypass)).values()]
    return Outcome(max(errors), instances=4 * len(errors))


def measured_rank() -> Outcome:
    """Section 5.2: batch means, as Exp. 2 measures, against d_u; corrected: at most B d_u (here B = 2, d_u = 1)."""
    mean, right = 0.0, 0.0
    for seed in range(3):
        block = narrow(bottleneck(seed, 1, 2))["v", "v"].mean(0)
        mean, right = max(mean, beyond(block, 1)), max(right, beyond(block, 2))
    witness = Witness(
        "d_u = 1, mean of two examples, block (v, v): σ_2/σ_1", "0 (rank <= d_u)", "rank <= B d_u", f"{mean:.3g}"
    )
    return Outcome(mean, right, 3, witness)


def text_before_31() -> Outcome:
    """'If all paths between v and w pass through a bottleneck': v → u → w → out with a skip v → out; corrected: all
    paths to the output."""
    case = bottleneck(0, 1, 2, bypass=True)
    block = torch.stack([e.gauss_newton("out")["v", "w"] for e in examples(case)])
    wrong = beyond(block, 1)
    witness = Witness(
        "v → m → u → w → out, d_u = 1, and a skip v → out: σ_2/σ_1 of H^GN[v,w]",
        "0",
        "0 without the skip",
        f"{wrong:.3g}",
    )
    return Outcome(wrong, proposition_31().printed, 3, witness)


def full_rank_again() -> Outcome:
    return exists(
        "a skip around a bottleneck of width 1",
        beyond(narrow(bottleneck(1, 1, 2, True))["v", "v"], 1),
        "σ_2/σ_1 > 0 is wanted",
    )


def large_norm() -> Outcome:
    case = bottleneck(0, 1, 2)
    return exists(
        "‖H^GN[v,v]‖_F behind a bottleneck of width 1, logits times 10",
        100 * float(narrow(case)["v", "v"][0].norm()),
        "a norm away from zero is wanted",
    )


def softmax_rank() -> Outcome:
    def smallest(classes: int) -> float:
        p = torch.softmax(
            torch.randn(classes, generator=torch.Generator().manual_seed(classes), dtype=torch.float64), 0
        )
        values = singular(torch.diag(p) - torch.outer(p, p))
        return float(values[-1] / values[0])

    return worst((2, 3, 10), smallest)


def remark_60() -> Outcome:
    """D(v,w) − min(d_u, K − 1) of H[v,v] itself (D is defined for H, Eq. 7); corrected: of H^GN, single examples."""
    full, gn, witness = -1.0, -1.0, None
    for seed in range(4):
        case = bottleneck(seed, 1, 2)
        for e in examples(case):
            d = stable(e.blocks["v", "v"])
            if d - 1 > 1e-9 and witness is None:
                witness = Witness(
                    "d_u = 1, K = 5, tanh, one example: D(v,v)", "at most 1", "at most 1 for H^GN", f"{d:.3f}"
                )
            full, gn = max(full, d - 1), max(gn, stable(e.gauss_newton("out")["v", "v"]) - 1)
    return Outcome(full, gn, 8, witness)


def proposition_55() -> Outcome:
    """rank(Γ) minus the smallest rank of a Jacobian along its two paths; sums are subadditive."""
    worst_case = -1.0
    for case in (bottleneck(0, 2, 1), bottleneck(1, 1, 1), skip(0), diamond(1)):
        e, out = examples(case)[0], case.dag.output
        for v in case.dag.order[:2]:
            gammas = []
            for a, b in itertools.product(printed.paths(case.dag, v, out), printed.paths(case.dag, v, out)):
                gamma = printed.path_jacobian(e, a).T @ e.base @ printed.path_jacobian(e, b)
                least = min(rank(e.jacobian[y, x]) for path in (a, b) for x, y in itertools.pairwise(path))
                worst_case = max(worst_case, rank(gamma) - least)
                gammas.append(gamma)
            worst_case = max(worst_case, rank(torch.stack(gammas).sum(0)) - sum(rank(g) for g in gammas))
    return Outcome(float(worst_case), instances=8)


def hutchinson() -> Outcome:
    """E|A z|² = ‖A‖_F² = tr AᵀA over all sign vectors z, exactly."""

    def error(a: Tensor) -> float:
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=a.shape[1])), dtype=torch.float64)
        return abs(float((signs @ a.mT).square().sum(1).mean() / a.square().sum()) - 1) + abs(
            float((a.T @ a).trace() / a.square().sum()) - 1
        )

    return worst(random_matrices(((4, 1), (4, 3), (2, 6))), error)


def algorithm_4() -> Outcome:
    """Power iteration and all probes of Algorithm 4 on rectangular matrices: |estimate / D − 1|."""

    def error(h: Tensor) -> float:
        q = torch.randn(h.shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        q = q / q.norm()
        for _ in range(400):
            p = h @ q
            q = h.T @ p
            q = q / q.norm()
        sigma = float((h @ q).square().sum())
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=h.shape[1])), dtype=torch.float64)
        total = float((signs @ h.mT).square().sum())
        return abs(total / (len(signs) * sigma) / stable(h) - 1)

    return worst(random_matrices(((4, 3), (2, 5), (5, 5)), 3), error)


def power_rate() -> Outcome:
    """Remark 63: relative error of σ² after T steps over (σ2/σ1)^(2T), at most tan² of the starting angle."""

    def violation(h: Tensor) -> float:
        _, s, v = torch.linalg.svd(h)
        q = torch.ones(h.shape[1], dtype=torch.float64) / math.sqrt(h.shape[1])
        angle = float((1 - (v[0] @ q) ** 2) / (v[0] @ q) ** 2)
        found = []
        for steps in (1, 3, 6):
            p = q
            for _ in range(steps):
                p = h.T @ (h @ p)
                p = p / p.norm()
            error = 1 - float((h @ p).square().sum() / s[0] ** 2)
            found.append(error / (angle * float(s[1] / s[0]) ** (2 * steps)) - 1)
        return max(found)

    return worst(random_matrices(((4, 4), (3, 5), (6, 2)), 5), violation)


def coupling_violations() -> Outcome:
    """Remark 51: the share of independent estimates with C > 1 falls as O(1/m)? for v = w it stays near 1/2."""
    m, generator = (
        torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        torch.Generator().manual_seed(1),
    )

    def share(left: Tensor, right: Tensor, cross: Tensor, probes: int) -> float:
        def estimate(a: Tensor) -> Tensor:
            z = torch.randint(0, 2, (400, probes, a.shape[1]), generator=generator).double() * 2 - 1
            return (z @ a.mT).square().sum(-1).mean(-1).sqrt()

        return float((estimate(cross) > (estimate(left) * estimate(right)).sqrt()).double().mean())

    h = m @ m.T
    stays = [share(h, h, h, probes) for probes in (10, 160)]
    a, b = m[:3], m[3:]
    falls = [share(a @ a.T, b @ b.T, a @ b.T, probes) for probes in (1, 160)]
    witness = Witness(
        "H[v,v] = H[w,w] = H[v,w], 10 and 160 probes: share with Ĉ > 1",
        "falls as 1/m",
        "where C < 1",
        f"{stays[0]:.2f}, {stays[1]:.2f}",
    )
    return Outcome(max(0.0, stays[1] - stays[0] / 4), max(0.0, falls[1] - 0.02), 1600, witness)


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


FORMULAS: tuple[Formula, ...] = (
    Formula(
        "dag.prop62",
        "Eq. 7; Definition 24; Proposition 58 (i); Proposition 62 (i), (iv)",
        "1 <= D <= d_eff <= rank and d_eff <= sqrt(rank D)",
        dimensions,
    ),
    Formula(
        "dag.prop62.iff",
        "Proposition 58 (ii), (iii); Proposition 62 (ii), (iii); Definition 24",
        "value 1 iff rank 1; value = rank iff all nonzero singular values are equal",
        equality_cases,
    ),
    Formula(
        "dag.prop31",
        "Proposition 31; Corollary 56; Remark 53",
        "rank H^GN[v,w] <= d_u when all paths to the output pass through u, one example",
        proposition_31,
        dropped=(("all paths pass through u", lambda: proposition_31(True)),),
    ),
    Formula(
        "dag.prop31.text",
        "before Proposition 31",
        "the same when all paths between v and w pass through u",
        text_before_31,
        "holds after correction",
        "dag.prop31.text",
        "all paths to the output, as the proposition says",
    ),
    Formula(
        "dag.exp2.rank",
        "Section 5.2",
        "D_far <= min(d_u, K-1) on batch means verifies the rank constraint of Proposition 31",
        measured_rank,
        "holds after correction",
        "dag.exp2",
        "the constraint is for each example; a mean of B has rank up to B d_u",
    ),
    Formula("dag.remark32", "Remark 32; Remark 61", "with a skip around u the rank may exceed d_u", full_rank_again),
    Formula("dag.remark59", "Remark 59", "at rank <= d_u the norm can remain large", large_norm),
    Formula(
        "dag.remark60",
        "Remark 60, consequence",
        "D(v,w) <= min(d_u, K - 1)",
        remark_60,
        "holds after correction",
        "dag.remark60",
        "for H^GN of single examples",
    ),
    Formula(
        "dag.remark60.rank", "Remark 60", "rank of the softmax cross-entropy Hessian is at most K - 1", softmax_rank
    ),
    Formula(
        "dag.prop55",
        "Proposition 55",
        "rank of a path contribution <= smallest rank along its paths; sums are subadditive",
        proposition_55,
    ),
    Formula(
        "dag.remark54",
        "Remark 54; Remark 63; Corollary 90 (1); Algorithm 4",
        "||A||_F^2 = tr A^T A = E |A z|^2 over Rademacher z",
        hutchinson,
    ),
    Formula("dag.algorithm4", "Algorithm 4", "S / (m sigma^2) estimates D(v,w)", algorithm_4),
    Formula(
        "dag.remark63",
        "Remark 63, power iteration",
        "relative error O((sigma_2/sigma_1)^(2T)) after T steps",
        power_rate,
    ),
    Formula(
        "dag.remark51",
        "Remark 51",
        "the probability that an estimate of C exceeds 1 decreases as O(1/m)",
        coupling_violations,
        "holds after correction",
        "dag.remark51",
        "where C < 1",
    ),
    Formula(
        "dag.prop92",
        "Proposition 92, Eq. K.2; Definition 91",
        "GN factors of v from those of its children, at most |Ch(v)||Ch(w)| r columns",
        proposition_92,
    ),
    Formula(
        "dag.thm93",
        "Theorem 93, Eq. K.3",
        "||H - H_r||_F = sqrt(sum_{i>r} sigma_i^2) <= sqrt(d_min - r) sigma_{r+1}",
        theorem_93,
    ),
    Formula(
        "dag.cor94",
        "Theorem 93, in particular; Corollary 94",
        "sigma_{r+1}/sigma_1 <= eps/sqrt(d_min - r) gives relative accuracy eps",
        relative_rank,
    ),
    Formula(
        "dag.cor94.decay",
        "Corollary 94, last sentence; Appendix K, first sentence; Remark 95",
        "resonance decay makes a very small rank suffice for distant pairs",
        decay_is_not_low_rank,
        "fails",
        "dag.cor94",
        "decay of the norm says nothing about the rank",
    ),
    Formula("dag.remark95", "Remark 95, storage", "rank-r factors take O((d_v + d_w) r) numbers", storage),
)
