"""DAG paper: ranks and dimensions of blocks, low-rank approximation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import (
    Entry,
    Outcome,
    Witness,
    apart,
    attack,
    excess,
    exists,
    needs,
    random_matrices,
    relative_error,
    worst,
)
from experiments.paper_audit.dag import recursion
from experiments.paper_audit.dag.instances import (
    Instance,
    diamond,
    identity,
    layer,
    scalar_nodes,
    skip,
    smooth,
)
from experiments.paper_audit.dag.oracle import exact, examples
from experiments.paper_audit.tensors import gauss, real, seeded, unit
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
    rows += [
        torch.diag(torch.tensor(v).double())
        for v in ([1.0, 1.0, 0.0], [1.0, 1e-8], [2.0, 2.0, 2.0])
    ]
    return rows + [
        b[0] for case in smooth()[:4] for b in exact(case).values() if float(b[0].norm()) > 1e-9
    ]


def dimensions() -> Outcome:
    """1 <= D <= d_eff <= rank and d_eff <= √(rank D), on samples and attacked over 4 × 4 matrices."""

    def violation(m: Tensor) -> float:
        d, e, r = stable(m), effective(m), rank(m)
        return max(1 - d, d / e - 1, e / r - 1, d / r - 1, e / math.sqrt(r * d) - 1)

    found = attack(
        lambda z: violation(z.view(4, 4)),
        gauss(seeded(0), 16),
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
            wrong = max(
                wrong,
                float((abs(value - 1) < 1e-9) != (r == 1)),
                float((abs(value - r) < 1e-9) != flat),
            )
        if r == 1:
            wrong = max(wrong, abs(stable(m) - 1), abs(effective(m) - 1))
    return Outcome(wrong, instances=len(samples()))


def bottleneck(seed: int, width: int, batch: int = 8, bypass: bool = False) -> Instance:
    """v → m → u (narrow) → w → out; bypass: a skip from v to the output as well."""
    torch.manual_seed(seed)
    middle = layer(6, 6, nn.Tanh)
    with torch.no_grad():
        middle.get_parameter("0.weight").mul_(
            4
        )  # far from linear, or all examples have nearly the same Jacobian
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
        p: torch.stack([e.gauss_newton("out")[p] for e in examples(case)])
        for p in (("v", "v"), ("v", "m"), ("m", "m"))
    }


def proposition_31(bypass: bool = False) -> Outcome:
    errors = []
    for seed, width in enumerate((1, 2, 3)):
        errors += [
            beyond(block, width) for block in narrow(bottleneck(seed, width, 4, bypass)).values()
        ]
    return Outcome(max(errors), instances=4 * len(errors))


def measured_rank() -> Outcome:
    """Section 5.2: batch means, as Exp. 2 measures, against d_u; corrected: at most B d_u (here B = 2, d_u = 1)."""
    mean, right = 0.0, 0.0
    for seed in range(3):
        block = narrow(bottleneck(seed, 1, 2))["v", "v"].mean(0)
        mean, right = max(mean, beyond(block, 1)), max(right, beyond(block, 2))
    witness = Witness(
        "d_u = 1, mean of two examples, block (v, v): σ_2/σ_1",
        "0 (rank <= d_u)",
        "rank <= B d_u",
        f"{mean:.3g}",
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
            gauss(seeded(classes), classes),
            0,
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
                    "d_u = 1, K = 5, tanh, one example: D(v,v)",
                    "at most 1",
                    "at most 1 for H^GN",
                    f"{d:.3f}",
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
            for a, b in itertools.product(
                recursion.paths(case.dag, v, out), recursion.paths(case.dag, v, out)
            ):
                gamma = recursion.path_jacobian(e, a).T @ e.base @ recursion.path_jacobian(e, b)
                least = min(
                    rank(e.jacobian[y, x]) for path in (a, b) for x, y in itertools.pairwise(path)
                )
                worst_case = max(worst_case, rank(gamma) - least)
                gammas.append(gamma)
            worst_case = max(
                worst_case, rank(torch.stack(gammas).sum(0)) - sum(rank(g) for g in gammas)
            )
    return Outcome(float(worst_case), instances=8)


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
        errors.append(
            float(torch.cat(columns, 1).shape[1] != 4 * largest)
        )  # the bound, attained by equal ranks
    return Outcome(max(errors), instances=3)


def tails() -> list[tuple[Tensor, int, float, float]]:
    """(matrix, r, ‖H − H_r‖_F of the truncated SVD, √(d_min − r) σ_{r+1}) of the samples."""
    rows = []
    for m in samples():
        left, values, right = torch.linalg.svd(m, full_matrices=False)
        for r in range(len(values)):
            low = left[:, :r] @ torch.diag(values[:r]) @ right[:r]
            rows.append(
                (m, r, float((m - low).norm()), math.sqrt(len(values) - r) * float(values[r]))
            )
    return rows


def theorem_93() -> Outcome:
    """The error against the root of the dropped squares, and against the bound, both relative to σ_1."""
    errors = []
    for m, r, error, bound in tails():
        dropped = float(singular(m)[r:].square().sum())
        errors += (
            [apart(error**2, dropped), excess(error, bound)]
            if dropped > 1e-12 * float(m.norm()) ** 2
            else []
        )
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
    m = torch.diag(real([1.0, s, s, s]))
    errors.append(apart(math.sqrt(3) * s, allowed(m, math.sqrt(3) * s)))
    return Outcome(max(errors), instances=len(errors))


def allowed(m: Tensor, eps: float) -> float:
    """eps ‖H‖_F."""
    return eps * float(m.norm())


def decay_is_not_low_rank() -> Outcome:
    """Corollary 94, last sentence: rank that relative accuracy 0.1 needs at distance 20 on a chain with D = I/2."""
    block = 0.5**20 * unit(4)
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
    found = [
        ((a + b + 1) * r) / ((a + b) * r) - 2
        for a, b, r in ((4, 4, 1), (64, 32, 5), (512, 512, 10))
    ]
    return Outcome(max(found), instances=3)


def one_sum() -> Outcome:
    """Eq. K.2 with one sum over the children u, as our text has it; corrected: over pairs of children. v → a, b = x,
    out = a + b, loss = out²/2."""
    nodes: list[tuple[str, tuple[str, ...], Callable[..., Tensor]]] = [
        ("v", ("input",), identity),
        ("a", ("v",), identity),
        ("b", ("v",), identity),
        ("out", ("a", "b"), lambda a, b: a + b),
    ]
    e = examples(scalar_nodes(nodes, [1.0], square=True))[0]
    blocks, pairs = e.gauss_newton("out"), [(u, w) for u in "ab" for w in "ab"]
    terms = {
        (u, w): float(e.jacobian[u, "v"].T @ blocks[u, w] @ e.jacobian[w, "v"]) for u, w in pairs
    }
    exact = float(blocks["v", "v"])
    one, two = terms["a", "a"] + terms["b", "b"], sum(terms.values())
    witness = Witness(
        "v → a, b = v, out = a + b, loss = out²/2: H^GN[v, v]", f"{one:g}", f"{two:g}", f"{exact:g}"
    )
    return Outcome(abs(one / exact - 1), abs(two / exact - 1), 1, witness)


CHECKS: dict[str, Entry] = {
    "dag.prop62": dimensions,
    "dag.prop62.iff": equality_cases,
    "dag.prop31": needs(proposition_31, ("all paths pass through u", lambda: proposition_31(True))),
    "dag.prop31.text": text_before_31,
    "dag.exp2.rank": measured_rank,
    "dag.remark32": full_rank_again,
    "dag.remark59": large_norm,
    "dag.remark60": remark_60,
    "dag.remark60.rank": softmax_rank,
    "dag.prop55": proposition_55,
    "dag.prop92": proposition_92,
    "dag.thm93": theorem_93,
    "dag.cor94": relative_rank,
    "dag.cor94.decay": decay_is_not_low_rank,
    "dag.remark95": storage,
    "dag.prop92.sum": one_sum,
}
