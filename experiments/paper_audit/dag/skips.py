"""DAG paper, Theorems 33, 34, 65, 69 and 71: blocks as sums over paths, skip connections, their bounds, stability."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from experiments.paper_audit.checks import (
    Entry,
    Outcome,
    Witness,
    apart,
    attack,
    exists,
    needs,
    random_matrices,
    relative_error,
    worst,
)
from experiments.paper_audit.dag import recursion
from experiments.paper_audit.dag.instances import (
    WIDTH,
    Instance,
    Linear,
    chain,
    diamond,
    identity,
    line,
    linear_chain,
    scalar_nodes,
    skip,
    square_after_identity,
)
from experiments.paper_audit.dag.oracle import Example, assembled, examples
from experiments.paper_audit.tensors import gauss, real, seeded, spectral_norm, unit


def path_cases() -> tuple[Instance, ...]:
    return (linear_chain(), square_after_identity(), chain(0), diamond(0), skip(0))


def theorem_33() -> Outcome:
    """Eq. 11 with exact H[c,c]; corrected: every source of curvature once, over pairs of paths."""
    wrong, right, witness = 0.0, 0.0, None
    for case in path_cases():
        for e in examples(case):
            for v, w in itertools.product(case.dag.order[:2], case.dag.order[:3]):
                truth = e.blocks[v, w]
                if not bool(truth.abs().max() > 1e-12):
                    continue
                found = recursion.equation_11(case.dag, e, v, w)
                right = max(
                    right,
                    relative_error(torch.stack(recursion.sources(case.dag, e, v, w)).sum(0), truth),
                )
                error = relative_error(found, truth)
                if error > 1e-9 and witness is None:
                    text = f"{case}: H[{v},{w}]"
                    witness = Witness(
                        text,
                        f"{float(found):g} (once for each descendant)",
                        f"{float(truth):g}",
                        f"{float(truth):g}",
                    )
                wrong = max(wrong, error)
    return Outcome(wrong, right, len(path_cases()), witness)


def resonances(case: Instance) -> tuple[float, float]:
    """(R(v,v), sum of the resonances of the right path contributions) of the first node."""
    e, v = examples(case)[0], case.dag.order[0]
    terms = recursion.sources(case.dag, e, v, v)
    return float(torch.stack(terms).sum(0).norm()), sum(float(t.norm()) for t in terms)


def additive() -> Outcome:
    """Theorem 33, last sentence: R(v,w) as the sum over pairs of paths; corrected: at most that (Corollary 67)."""
    values = [resonances(case) for case in (diamond(0), skip(0), skip(1))]
    printed_error = max(abs(total - whole) / total for whole, total in values)
    excess = max((whole - total) / total for whole, total in values)
    whole, total = values[0]
    witness = Witness(
        f"{diamond(0)}: R(stem, stem)",
        f"sum over pairs of paths {total:.4g}",
        "<= that sum",
        f"{whole:.4g}",
    )
    return Outcome(printed_error, excess, 3, witness)


def corollary_67() -> Outcome:
    return worst(
        (diamond(0), skip(0), skip(1), diamond(2)),
        lambda c: (lambda r: (r[0] - r[1]) / r[1])(resonances(c)),
    )


def sign_aligned() -> Outcome:
    """Corollary 67, equality: contributions of one sign, A = diag(1, 0) and B = diag(0, 1); corrected: multiples."""
    a, b = (torch.diag(torch.tensor(v).double()) for v in ([1.0, 0.0], [0.0, 1.0]))
    gap = 1 - float((a + b).norm() / (a.norm() + b.norm()))
    multiples = max(
        abs(1 - float((a + k * a).norm() / (a.norm() + k * a.norm()))) for k in (0.5, 3.0)
    )
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
            found = torch.stack(
                [recursion.path_jacobian(e, p) for p in recursion.paths(case.dag, v, out)]
            ).sum(0)
            errors.append(relative_error(found, e.total[out, v]))
    return Outcome(max(errors), instances=len(errors))


def branches(z: Tensor, count: int, size: float) -> list[Tensor]:
    """`count` matrices of spectral norm `size`, and the rest of z makes ∇²ℓ."""
    raw = z[: count * WIDTH**2].view(count, WIDTH, WIDTH)
    return [size * m / spectral_norm(m).clamp_min(1e-300) for m in raw]


def ratio(z: Tensor, depth: int, k: int, rho: float, skips: bool) -> float:
    """R(v0,vL) / ‖∇²ℓ‖_F of L = depth layers of norm rho, identity skips over every k of them."""
    layers = branches(z, depth, rho)
    base = z[depth * WIDTH**2 :].view(WIDTH, WIDTH)
    base = base @ base.T
    total = unit(WIDTH)
    for start in range(0, depth, k):
        block = unit(WIDTH)
        for m in layers[start : start + k]:
            block = m @ block
        total = (block + unit(WIDTH) if skips else block) @ total
    return float((total.T @ base).norm() / base.norm().clamp_min(1e-300))


def _search(depth: int, k: int, rho: float, sign: float, bound: float, skips: bool = True) -> float:
    """Largest sign (R/bound − 1) that searches find from random layers and from layers ± I, which nearly attain it."""
    start = gauss(seeded(depth), (depth + 1) * WIDTH**2)
    plus = unit(WIDTH).flatten().repeat(depth + 1, 1)
    minus = plus.clone()
    minus[:depth:k] *= -1
    starts = (start, plus.flatten(), minus.flatten())
    return max(
        attack(lambda z: sign * (ratio(z, depth, k, rho, skips) / bound - 1), z, 30)[0]
        for z in starts
    )


SHAPES = ((2, 1), (4, 1), (4, 2), (6, 3), (6, 2))


def vanilla() -> Outcome:
    found = [_search(depth, depth, 0.8, 1, 0.8**depth, False) for depth in (1, 3, 6)]
    return Outcome(max(found), instances=90 * len(found))


def skip_upper() -> Outcome:
    """(b): R <= C rho^k with C = ‖∇²ℓ‖_F; corrected: C (1 + rho^k)^(L/k), attacked."""
    wrong = max(_search(depth, k, 0.8, 1, 0.8**k) for depth, k in SHAPES)
    right = max(_search(depth, k, 0.8, 1, (1 + 0.8**k) ** (depth // k)) for depth, k in SHAPES)
    witness = Witness(
        "f(h) = h + h/2, 20 times (k = 1, rho = 1/2), C = ‖∇²ℓ‖_F: R(v0,v20)",
        "at most C rho = 0.5 C",
        "at most C (1 + rho)^20 = 3325 C",
        f"{1.5**20:.0f} C",
    )
    return Outcome(wrong, right, 180 * len(SHAPES), witness)


def skip_lower(rho: float) -> Outcome:
    """(b'): R >= (1 − rho^k)^(L/k) ‖∇²ℓ‖_F, attacked for several k."""
    found = [_search(depth, k, rho, -1, (1 - rho**k) ** (depth // k)) for depth, k in SHAPES]
    return Outcome(max(found), instances=90 * len(SHAPES))


def scaling() -> Outcome:
    """Limit of (1 − (alpha rho)^k)^(L/k), alpha = c/L: printed 1 for every k; for k = 1 it is exp(−c rho)."""
    wrong = right = 0.0
    depth = 10**9
    for k, c, rho in itertools.product((1, 2, 3, 4), (0.5, 1.0, 2.0), (0.3, 0.9)):
        value = math.exp(depth / k * math.log1p(-((c * rho / depth) ** k)))
        wrong = max(wrong, abs(value - 1))
        right = max(right, abs(value - (math.exp(-c * rho) if k == 1 else 1.0)))
    witness = Witness(
        "k = 1, c = 1, rho = 0.9: limit of (1 − 0.9/L)^L",
        "1",
        "exp(−0.9) = 0.4066",
        f"{math.exp(10**9 * math.log1p(-0.9e-9)):.4f}",
    )
    return Outcome(wrong, right, 24, witness, tolerance=1e-8)


def unscaled() -> Outcome:
    """Remark 81: skips guarantee R >= C > 0 independently of L? the lower bound at L = 200, k = 1, rho = 0.5, without
    residual scaling, and a network that attains it; corrected: with alpha = 1/L the bound stays above exp(−rho)/2."""
    bound = 0.5**200
    attained = abs((1 - 0.5) ** 200 / bound - 1)
    scaled = min((1 - 0.5 / L) ** L for L in (10, 100, 10**6))
    witness = Witness(
        "f(h) = h − h/2, 200 times, loss = out²/2: R(v0,vL)",
        ">= C > 0 for all L",
        "with alpha = c/L",
        f"{bound:.1e}",
    )
    return Outcome(
        1.0 if bound < 1e-6 and attained < 1e-6 else 0.0, math.exp(-0.5) / 2 - scaled, 4, witness
    )


def rates() -> Outcome:
    """Rate of the lower bound, −log(1 − rho^k)/k, against rho^k/k for rho^k ≪ 1: what is left is rho^(2k)/(2k), so
    that neither the leading term nor the logarithm can be another one."""
    found = []
    for rho, k in ((0.1, 3), (0.2, 5), (0.05, 3)):
        rate, leading = -math.log1p(-(rho**k)) / k, rho**k / k
        found += [apart(rate, leading), apart(rate - leading, rho ** (2 * k) / (2 * k))]
    return Outcome(max(found), instances=3, tolerance=1e-3)


def footnote_2() -> Outcome:
    """alpha = L^(−1/2), k = 1: log of the lower bound over −rho √L is 1, less it −rho²/2, in the limit."""
    found, rho = [], 0.8
    for depth in (10**8, 10**10):
        log_bound, leading = depth * math.log1p(-rho / math.sqrt(depth)), -rho * math.sqrt(depth)
        found += [apart(log_bound, leading), apart(log_bound - leading, -(rho**2) / 2)]
    return Outcome(max(found), instances=2, tolerance=1e-4)


def summands_psd() -> Outcome:
    """Proof sketch of (b'): the summand D_p^T d2 loss of a skip path is PSD? D_p = ((0, 1), (0, 0)), d2 loss = I."""
    d = real([[0.0, 1.0], [0.0, 0.0]])
    term = d.T
    witness = Witness(
        "D_p = ((0, 1), (0, 0)), ∇²ℓ = I: smallest eigenvalue of the symmetric part",
        ">= 0",
        "σ_min of the product, as Appendix G has it",
        "−0.5",
    )
    return Outcome(
        float(-torch.linalg.eigvalsh((term + term.T) / 2)[0]), skip_lower(0.8).printed, 1, witness
    )


def stability_criterion() -> Outcome:
    """Corollary 73 both ways: paths +1 and −1 (norm 1, R = 0); two edges of 1/2 at each of L layers (R = C, each path
    2^-L). Corrected: R = ‖J_wv^T H‖ stays away from zero iff the *sum* over paths does."""
    cancel = abs(1.0 - 1.0)
    many, each = 2**20 * 0.5**20, 0.5**20
    wrong = float(cancel == 0.0) + float(many == 1.0 and each < 1e-5)
    witness = Witness(
        "out = v − v (two paths of norm 1); 20 layers of two edges 1/2",
        "R > 0; R → 0",
        "‖sum over paths‖ decides",
        f"R = {cancel:g}; R = {many:g} C, paths {each:.1e}",
    )
    return Outcome(wrong, total_of_paths().printed, 2, witness)


def skip_placement() -> Outcome:
    """Proposition 75: min R >= C rho^(L/B) with B uniform skips: scalar layers with every |D| = rho = 1/2."""

    def smallest(depth: int, skips: int, rho: float) -> float:
        span = depth // skips
        inner = [
            rho ** (span - 1 - k) * (1 + rho**span) ** s
            for s in range(skips)
            for k in range(span - 1)
        ]
        return min(inner) ** 2

    rows = [(depth, smallest(depth, 2, 0.5), 0.5 ** (depth / 2)) for depth in (8, 16)]
    where = "8 scalar layers with |D| = rho = 1/2, B = 2 identity skips over 4 each: min R(v,w)"
    (_, found, bound), (_, later, further) = rows
    witness = Witness(
        where,
        f"at least C rho⁴ = {bound:g}",
        "",
        f"{found:.4g}; at L = 16 {later:.1e} for {further:.1e}",
    )
    return Outcome(1 - max(f / b for _, f, b in rows), None, len(rows), witness)


NODES = ("v", "p", "m", "w", "out")


def inert_skip(eta: float, skip: bool) -> Example:
    """p = 10 v, m = p, w = m (with an identity skip m + p), out = p + eta (3 − 2 w)(p − 1)²/2, loss = out²/2, v = 0.1.

    At p = 1 the skip changes no first derivative of out; it turns the sign of the second one.
    """

    def out(p: Tensor, w: Tensor) -> Tensor:
        return p + eta * (3 - 2 * w) * (p - 1) ** 2 / 2

    merge = ("w", ("m", "p"), torch.add) if skip else ("w", ("m",), identity)
    first = (("v", ("input",), identity), ("p", ("v",), lambda v: 10 * v), ("m", ("p",), identity))
    return examples(scalar_nodes((*first, merge, ("out", ("p", "w"), out)), [0.1], square=True))[0]


def stabilised() -> Outcome:
    """Theorem 69 on networks that meet its hypotheses (loss convex, B = 0, |H^T| <= eta |H^GN| in every block): by how
    much (1 − eta) R_base exceeds R_res, for (v, v) and the whole matrix; corrected: (1 − eta)/(1 + eta) R_base."""
    printed, corrected, shown = -math.inf, -math.inf, []
    for eta in (0.5, 0.1, 0.9):
        pair = [inert_skip(eta, skip) for skip in (False, True)]
        parts = [e.gauss_newton("out") for e in pair]
        curved = [
            max(float(t.norm() - eta * g[k].norm()) for k, t in e.tensor("out").items())
            for e, g in zip(pair, parts, strict=True)
        ]
        if max(curved) > 1e-9 or any(
            float((parts[1][k] - g).norm()) > 1e-9 for k, g in parts[0].items()
        ):
            raise ValueError(
                f"expected B = 0 and |H^T| <= eta |H^GN|, found another network at eta = {eta}"
            )
        for norm in (
            lambda blocks: blocks["v", "v"].norm(),
            lambda blocks: assembled(blocks, NODES).norm(),
        ):
            base, res = (float(norm(e.blocks)) for e in pair)
            printed = max(printed, (1 - eta) * base / res - 1)
            corrected = max(corrected, (1 - eta) / (1 + eta) * base / res - 1)
            shown.append((base, res))
    (base, res), (all_base, all_res) = shown[:2]
    witness = Witness(
        "p = 10 v, m = p, w = m (with an identity skip: m + p), out = p + (3 − 2 w)(p − 1)²/4, loss = out²/2, at "
        f"v = 0.1, where B = 0 and η = 1/2; without the skip R(v,v) = {base:.4g}, ‖[H]‖_F = {all_base:.4g}; with it",
        f"R(v,v) >= {base / 2:.4g}, ‖[H]‖_F >= {all_base / 2:.4g}",
        f">= {base / 3:.4g}, {all_base / 3:.4g}",
        f"{res:.4g}, {all_res:.4g}",
    )
    return Outcome(printed, corrected, len(shown), witness)


def total_norm(semidefinite: bool) -> Outcome:
    """Remark 70: 1 − ‖G + B‖_F / ‖G‖_F for random G >= 0 and B >= 0, or B symmetric."""

    def loss(pair: Tensor) -> float:
        g, b = pair.view(2, 4, 4)
        return 1 - float(
            (g @ g.T + (b @ b.T if semidefinite else b + b.T)).norm() / (g @ g.T).norm()
        )

    return worst(random_matrices(((8, 4),) * 20), loss)


def unstable() -> Outcome:
    """Remark 81: with largest norm rho above 1 (or s > 1) curvature explodes? one edge of norm 1.1, nineteen of 0.1."""
    size = 1.1 * 0.1**19
    witness = Witness(
        "a chain with one edge of norm 1.1 and 19 of 0.1: ‖Π‖",
        "explodes (rho = 1.1 > 1)",
        "only the upper bound grows",
        f"{size:.1e}",
    )
    return Outcome(1.0 if size < 1 else 0.0, decayed(), 1, witness)


def decayed() -> float:
    """For s = 1 and rho < 1, R(v0,vL) / C at 60 layers of norm 0.9, less 0.9^60."""
    z = Linear.start(line(6), 3)
    return ratio(
        torch.cat([z.repeat(9)[: 60 * WIDTH**2], z[-(WIDTH**2) :]]), 60, 60, 0.9, False
    ) - 0.9**60 * (1 + 1e-9)


CHECKS: dict[str, Entry] = {
    "dag.thm33": theorem_33,
    "dag.thm33.additive": additive,
    "dag.remark72": total_of_paths,
    "dag.remark72.cancel": partial_cancel,
    "dag.cor67": corollary_67,
    "dag.cor67.equality": sign_aligned,
    "dag.thm34a": vanilla,
    "dag.thm34b": skip_upper,
    "dag.thm34b.lower": needs(lambda: skip_lower(0.8), ("rho < 1", lambda: skip_lower(2.2))),
    "dag.thm34.scaling": scaling,
    "dag.thm34.rate": rates,
    "dag.footnote2": footnote_2,
    "dag.thm34.sketch": summands_psd,
    "dag.remark81.skips": unscaled,
    "dag.remark81": unstable,
    "dag.thm69": stabilised,
    "dag.remark70": needs(lambda: total_norm(True), ("B >= 0", lambda: total_norm(False))),
    "dag.cor73": stability_criterion,
    "dag.prop75": skip_placement,
}
