"""DAG paper, Theorems 33, 34, 69 and 71: blocks as sums over paths, skip connections, their bounds,
stability."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.paper_audit.checks import (
    Checks,
    Outcome,
    Witness,
    apart,
    attack,
    exists,
    outcome_of,
    random_matrices,
    relative_error,
    worst,
)
from experiments.paper_audit.dag.instances import (
    Instance,
    ScalarNode,
    chain,
    copy,
    diamond,
    linear_chain,
    scalar_nodes,
    skip,
    square_after_identity,
)
from experiments.paper_audit.dag.linear_graphs import WIDTH, Linear, line
from experiments.paper_audit.dag.oracle import Blocks, Example, assembled, examples, first_example
from experiments.paper_audit.dag.paths import equation_11, sources, total_over_paths
from experiments.paper_audit.tensors import (
    diagonal,
    gauss,
    real,
    seeded,
    spectral_norm,
    total,
    unit,
)

CHECKS = Checks()


def path_cases() -> tuple[Instance, ...]:
    return (linear_chain(), square_after_identity(), chain(0), diamond(0), skip(0))


def pairs_of_nodes() -> Iterator[tuple[Instance, Example, str, str]]:
    """Pairs with a block that is not zero."""
    for case in path_cases():
        for e in examples(case):
            for v, w in itertools.product(case.dag.order[:2], case.dag.order[:3]):
                if bool(e.blocks[v, w].abs().max() > 1e-12):
                    yield case, e, v, w


@CHECKS.clause("dag.thm33")
def theorem_33() -> Outcome:
    """Eq. 11 with exact H[c,c]; corrected: every source of curvature once, over pairs of paths."""
    wrong, right, witness = [], [], None
    for case, e, v, w in pairs_of_nodes():
        exact = e.blocks[v, w]
        printed = equation_11(case.dag, e, v, w)
        right.append(relative_error(total(sources(case.dag, e, v, w)), exact))
        wrong.append(relative_error(printed, exact))
        if wrong[-1] > 1e-9 and witness is None:
            value = float(exact)
            witness = Witness(
                f"{case}: H[{v},{w}]",
                f"{float(printed):g} (once for each descendant)",
                f"{value:g}",
                f"{value:g}",
            )
    return Outcome(max(wrong), max(right), len(path_cases()), witness)


def resonances(case: Instance) -> tuple[float, float]:
    """(R(v,v), sum of the resonances of the right path contributions) of the first node."""
    e, v = first_example(case), case.dag.order[0]
    terms = sources(case.dag, e, v, v)
    return float(total(terms).norm()), sum(float(term.norm()) for term in terms)


@CHECKS.clause("dag.thm33.additive")
def additive() -> Outcome:
    """Theorem 33, last sentence: R(v,w) as the sum over pairs of paths; corrected: at most that
    (Corollary 67)."""
    cases = (diamond(0), skip(0), skip(1))
    values = [resonances(case) for case in cases]
    gap = max(abs(summed - whole) / summed for whole, summed in values)
    excess = max((whole - summed) / summed for whole, summed in values)
    whole, summed = values[0]
    witness = Witness(
        f"{cases[0]}: R(stem, stem)",
        f"sum over pairs of paths {summed:.4g}",
        "<= that sum",
        f"{whole:.4g}",
    )
    return Outcome(gap, excess, 3, witness)


@CHECKS.clause("dag.cor67")
def corollary_67() -> Outcome:
    def excess(case: Instance) -> float:
        whole, summed = resonances(case)
        return (whole - summed) / summed

    return worst((diamond(0), skip(0), skip(1), diamond(2)), excess)


def share_of_sum(a: Tensor, b: Tensor) -> float:
    """‖A + B‖ / (‖A‖ + ‖B‖)."""
    return float((a + b).norm() / (a.norm() + b.norm()))


@CHECKS.clause("dag.cor67.equality")
def sign_aligned() -> Outcome:
    """Corollary 67, equality: contributions of one sign, A = diag(1, 0) and B = diag(0, 1);
    corrected: multiples."""
    a, b = diagonal(1.0, 0.0), diagonal(0.0, 1.0)
    multiples = max(abs(1 - share_of_sum(a, k * a)) for k in (0.5, 3.0))
    witness = Witness(
        "contributions diag(1, 0) and diag(0, 1)",
        "R = 1 + 1",
        "equality for non-negative multiples",
        f"R = {float((a + b).norm()):.4f}",
    )
    return Outcome(1 - share_of_sum(a, b), multiples, 3, witness)


@CHECKS.clause("dag.remark72.cancel")
def partial_cancel() -> Outcome:
    """Remark 72: |sum of path terms| >= |each| fails in general."""
    return exists("paths with Jacobians +1 and −0.9", 1 - abs(1 - 0.9), "cancellation is wanted")


@CHECKS.clause("dag.remark72")
def total_of_paths() -> Outcome:
    """Remark 72: J_out,v0 = sum over paths of D_p, so that H^GN[v0,out] = sum_p D_p^T d2 loss."""
    errors = []
    for case in path_cases():
        e, out = first_example(case), case.dag.output
        for v in case.dag.order:
            errors.append(relative_error(total_over_paths(case.dag, e, v, out), e.total[out, v]))
    return outcome_of(errors)


def ratio(z: Tensor, depth: int, k: int, rho: float, skips: bool) -> float:
    """R(v0,vL) / ‖∇²ℓ‖_F of L = depth layers of norm rho, identity skips over every k of them."""
    *raw, root = z.view(depth + 1, WIDTH, WIDTH)
    layers = [rho * m / spectral_norm(m).clamp_min(1e-300) for m in raw]
    base = root @ root.T
    whole = unit(WIDTH)
    for start in range(0, depth, k):
        block = unit(WIDTH)
        for m in layers[start : start + k]:
            block = m @ block
        if skips:
            block = block + unit(WIDTH)
        whole = block @ whole
    return float((whole.T @ base).norm() / base.norm().clamp_min(1e-300))


def searched(
    depth: int, k: int, rho: float, sign: float, bound: float, skips: bool = True
) -> float:
    """Largest sign (R/bound − 1) that searches find from random layers and from layers ± I, which
    nearly attain it."""

    def excess(z: Tensor) -> float:
        return sign * (ratio(z, depth, k, rho, skips) / bound - 1)

    random = gauss(seeded(depth), (depth + 1) * WIDTH**2)
    plus = unit(WIDTH).flatten().repeat(depth + 1, 1)
    minus = plus.clone()
    minus[:depth:k] *= -1
    return max(attack(excess, z, 30)[0] for z in (random, plus.flatten(), minus.flatten()))


SHAPES = ((2, 1), (4, 1), (4, 2), (6, 3), (6, 2))
"""Depth and k."""


@CHECKS.clause("dag.thm34a")
def vanilla() -> Outcome:
    found = [searched(depth, depth, 0.8, 1, 0.8**depth, False) for depth in (1, 3, 6)]
    return Outcome(max(found), instances=90 * len(found))


@CHECKS.clause("dag.thm34b")
def skip_upper() -> Outcome:
    """(b): R <= C rho^k with C = ‖∇²ℓ‖_F; corrected: C (1 + rho^k)^(L/k), attacked."""
    wrong = max(searched(depth, k, 0.8, 1, 0.8**k) for depth, k in SHAPES)
    right = max(searched(depth, k, 0.8, 1, (1 + 0.8**k) ** (depth // k)) for depth, k in SHAPES)
    witness = Witness(
        "f(h) = h + h/2, 20 times (k = 1, rho = 1/2), C = ‖∇²ℓ‖_F: R(v0,v20)",
        "at most C rho = 0.5 C",
        "at most C (1 + rho)^20 = 3325 C",
        f"{1.5**20:.0f} C",
    )
    return Outcome(wrong, right, 180 * len(SHAPES), witness)


@CHECKS.clause("dag.thm34b.lower")
def skip_lower(rho: float = 0.8) -> Outcome:
    """(b'): R >= (1 − rho^k)^(L/k) ‖∇²ℓ‖_F, attacked for several k."""
    found = [searched(depth, k, rho, -1, (1 - rho**k) ** (depth // k)) for depth, k in SHAPES]
    return Outcome(max(found), instances=90 * len(SHAPES))


CHECKS.without["dag.thm34b.lower", "rho < 1"] = lambda: skip_lower(2.2)


@CHECKS.clause("dag.thm34.scaling")
def scaling() -> Outcome:
    """Limit of (1 − (alpha rho)^k)^(L/k), alpha = c/L: printed 1 for every k; for k = 1 it is
    exp(−c rho)."""
    wrong, right = [], []
    depth = 10**9
    for k, c, rho in itertools.product((1, 2, 3, 4), (0.5, 1.0, 2.0), (0.3, 0.9)):
        value = math.exp(depth / k * math.log1p(-((c * rho / depth) ** k)))
        limit = math.exp(-c * rho) if k == 1 else 1.0
        wrong.append(abs(value - 1))
        right.append(abs(value - limit))
    witness = Witness(
        "k = 1, c = 1, rho = 0.9: limit of (1 − 0.9/L)^L",
        "1",
        "exp(−0.9) = 0.4066",
        f"{math.exp(10**9 * math.log1p(-0.9e-9)):.4f}",
    )
    return Outcome(max(wrong), max(right), 24, witness, tolerance=1e-8)


@CHECKS.clause("dag.remark81.skips")
def unscaled() -> Outcome:
    """Remark 81: skips guarantee R >= C > 0 independently of L? the lower bound at L = 200, k = 1,
    rho = 0.5, without residual scaling, and a network that attains it; corrected: with alpha = 1/L
    the bound stays above exp(−rho)/2."""
    bound = 0.5**200
    attained = abs((1 - 0.5) ** 200 / bound - 1)
    scaled = min((1 - 0.5 / L) ** L for L in (10, 100, 10**6))
    witness = Witness(
        "f(h) = h − h/2, 200 times, loss = out²/2: R(v0,vL)",
        ">= C > 0 for all L",
        "with alpha = c/L",
        f"{bound:.1e}",
    )
    vanishes = bound < 1e-6 and attained < 1e-6
    return Outcome(float(vanishes), math.exp(-0.5) / 2 - scaled, 4, witness)


@CHECKS.clause("dag.thm34.rate")
def rates() -> Outcome:
    """Rate of the lower bound, −log(1 − rho^k)/k, against rho^k/k for rho^k ≪ 1: what is left is
    rho^(2k)/(2k), so that neither the leading term nor the logarithm can be another one."""
    errors = []
    for rho, k in ((0.1, 3), (0.2, 5), (0.05, 3)):
        rate, leading = -math.log1p(-(rho**k)) / k, rho**k / k
        errors.append(apart(rate, leading))
        errors.append(apart(rate - leading, rho ** (2 * k) / (2 * k)))
    return Outcome(max(errors), instances=3, tolerance=1e-3)


@CHECKS.clause("dag.footnote2")
def footnote_2() -> Outcome:
    """alpha = L^(−1/2), k = 1: log of the lower bound over −rho √L is 1, less it −rho²/2, in the
    limit."""
    errors, rho = [], 0.8
    for depth in (10**8, 10**10):
        log_bound = depth * math.log1p(-rho / math.sqrt(depth))
        leading = -rho * math.sqrt(depth)
        errors.append(apart(log_bound, leading))
        errors.append(apart(log_bound - leading, -(rho**2) / 2))
    return Outcome(max(errors), instances=2, tolerance=1e-4)


@CHECKS.clause("dag.thm34.sketch")
def summands_psd() -> Outcome:
    """Proof sketch of (b'): the summand D_p^T d2 loss of a skip path is PSD? D_p = ((0, 1), (0,
    0)), d2 loss = I."""
    term = real([[0.0, 1.0], [0.0, 0.0]]).T
    smallest = float(torch.linalg.eigvalsh((term + term.T) / 2)[0])
    witness = Witness(
        "D_p = ((0, 1), (0, 0)), ∇²ℓ = I: smallest eigenvalue of the symmetric part",
        ">= 0",
        "σ_min of the product, as Appendix G has it",
        "−0.5",
    )
    return Outcome(-smallest, skip_lower().printed, 1, witness)


@CHECKS.clause("dag.cor73")
def stability_criterion() -> Outcome:
    """Corollary 73 both ways: paths +1 and −1 (norm 1, R = 0); two edges of 1/2 at each of L layers
    (R = C, each path 2^-L). Corrected: R = ‖J_wv^T H‖ stays away from zero iff the *sum* over paths
    does."""
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


def smallest_resonance(depth: int, skips: int, rho: float) -> float:
    """min R(v,w) / C of scalar layers with |D| = rho and uniform identity skips."""
    span = depth // skips
    inner = []
    for passed, k in itertools.product(range(skips), range(span - 1)):
        inner.append(rho ** (span - 1 - k) * (1 + rho**span) ** passed)
    return min(inner) ** 2


@CHECKS.clause("dag.prop75")
def skip_placement() -> Outcome:
    """Proposition 75: min R >= C rho^(L/B) with B uniform skips: scalar layers with every |D| = rho
    = 1/2."""
    found, later = smallest_resonance(8, 2, 0.5), smallest_resonance(16, 2, 0.5)
    bound, further = 0.5**4, 0.5**8
    witness = Witness(
        "8 scalar layers with |D| = rho = 1/2, B = 2 identity skips over 4 each: min R(v,w)",
        f"at least C rho⁴ = {bound:g}",
        "",
        f"{found:.4g}; at L = 16 {later:.1e} for {further:.1e}",
    )
    return Outcome(1 - max(found / bound, later / further), None, 2, witness)


NODES = ("v", "p", "m", "w", "out")


def inert_skip(eta: float, skip: bool) -> Example:
    """p = 10 v, m = p, w = m (with an identity skip m + p), out = p + eta (3 − 2 w)(p − 1)²/2, loss
    = out²/2, v = 0.1.

    At p = 1 the skip changes no first derivative of out; it turns the sign of the second one.
    """

    def out(p: Tensor, w: Tensor) -> Tensor:
        return p + eta * (3 - 2 * w) * (p - 1) ** 2 / 2

    nodes: list[ScalarNode] = [
        copy("v", "input"),
        ("p", ("v",), lambda v: 10 * v),
        copy("m", "p"),
        ("w", ("m", "p"), torch.add) if skip else copy("w", "m"),
        ("out", ("p", "w"), out),
    ]
    return first_example(scalar_nodes(nodes, [0.1], square=True))


def check_hypotheses(eta: float, base: Example, skipped: Example) -> None:
    """B = 0 and |H^T| <= eta |H^GN| in every block. Raises ValueError otherwise."""
    before, after = base.gauss_newton("out"), skipped.gauss_newton("out")
    moved = max(float((after[pair] - block).norm()) for pair, block in before.items())
    excess = []
    for e in (base, skipped):
        gauss_newton = e.gauss_newton("out")
        for pair, block in e.tensor("out").items():
            excess.append(float(block.norm() - eta * gauss_newton[pair].norm()))
    if max(*excess, moved) > 1e-9:
        raise ValueError(
            f"expected B = 0 and |H^T| <= eta |H^GN|, found another network at eta = {eta}"
        )


def norm_at_v(blocks: Blocks) -> float:
    return float(blocks["v", "v"].norm())


def norm_of_all(blocks: Blocks) -> float:
    return float(assembled(blocks, NODES).norm())


@CHECKS.clause("dag.thm69")
def stabilised() -> Outcome:
    """Theorem 69 on networks that meet its hypotheses (loss convex, B = 0, |H^T| <= eta |H^GN| in
    every block): by how much (1 − eta) R_base exceeds R_res, for (v, v) and the whole matrix;
    corrected: (1 − eta)/(1 + eta) R_base."""
    printed, corrected, shown = [], [], []
    for eta in (0.5, 0.1, 0.9):
        base, skipped = inert_skip(eta, False), inert_skip(eta, True)
        check_hypotheses(eta, base, skipped)
        for norm in (norm_at_v, norm_of_all):
            before, after = norm(base.blocks), norm(skipped.blocks)
            printed.append((1 - eta) * before / after - 1)
            corrected.append((1 - eta) / (1 + eta) * before / after - 1)
            shown.append((before, after))
    (one, one_after), (every, every_after) = shown[:2]
    witness = Witness(
        "p = 10 v, m = p, w = m (with an identity skip: m + p), out = p + (3 − 2 w)(p − 1)²/4, "
        "loss = out²/2, at "
        f"v = 0.1, where B = 0 and η = 1/2; without the skip R(v,v) = {one:.4g}, ‖[H]‖_F = "
        f"{every:.4g}; with it",
        f"R(v,v) >= {one / 2:.4g}, ‖[H]‖_F >= {every / 2:.4g}",
        f">= {one / 3:.4g}, {every / 3:.4g}",
        f"{one_after:.4g}, {every_after:.4g}",
    )
    return Outcome(max(printed), max(corrected), len(shown), witness)


@CHECKS.clause("dag.remark70")
def total_norm(semidefinite: bool = True) -> Outcome:
    """Remark 70: 1 − ‖G + B‖_F / ‖G‖_F for random G >= 0 and B >= 0, or B symmetric."""

    def loss(pair: Tensor) -> float:
        g, b = pair.view(2, 4, 4)
        added = b @ b.T if semidefinite else b + b.T
        return 1 - float((g @ g.T + added).norm() / (g @ g.T).norm())

    return worst(random_matrices(((8, 4),) * 20), loss)


CHECKS.without["dag.remark70", "B >= 0"] = lambda: total_norm(semidefinite=False)


def decayed() -> float:
    """For s = 1 and rho < 1, R(v0,vL) / C at 60 layers of norm 0.9, less 0.9^60."""
    start = Linear.start(line(6), 3)
    z = torch.cat([start.repeat(9)[: 60 * WIDTH**2], start[-(WIDTH**2) :]])
    return ratio(z, 60, 60, 0.9, False) - 0.9**60 * (1 + 1e-9)


@CHECKS.clause("dag.remark81")
def unstable() -> Outcome:
    """Remark 81: with largest norm rho above 1 (or s > 1) curvature explodes? one edge of norm 1.1,
    nineteen of 0.1."""
    size = 1.1 * 0.1**19
    witness = Witness(
        "a chain with one edge of norm 1.1 and 19 of 0.1: ‖Π‖",
        "explodes (rho = 1.1 > 1)",
        "only the upper bound grows",
        f"{size:.1e}",
    )
    return Outcome(float(size < 1), decayed(), 1, witness)
