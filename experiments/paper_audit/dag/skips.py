"""DAG paper, Theorem 34: skip connections and their bounds."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from experiments.paper_audit.checks import (
    BothErrors,
    Checks,
    Errors,
    Outcome,
    apart,
    attack,
    outcome_of,
    worked,
)
from experiments.paper_audit.dag.linear_graphs import WIDTH
from experiments.paper_audit.dag.oracle import transmitted
from experiments.paper_audit.tensors import (
    gauss,
    real,
    seeded,
    spectral_norm,
    unit,
)

CHECKS = Checks()


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
    transmitted_base = whole.T @ base
    return float(transmitted_base.norm() / base.norm().clamp_min(1e-300))


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
    return max(attack(excess, start, 30) for start in (random, plus.flatten(), minus.flatten()))


SHAPES = ((2, 1), (4, 1), (4, 2), (6, 3), (6, 2))
"""Depth and k."""


@CHECKS.clause("dag.thm34a")
def vanilla() -> Outcome:
    found = []
    for depth in (1, 3, 6):
        found.append(searched(depth, depth, 0.8, 1, 0.8**depth, False))
    return outcome_of(found, instances=90 * len(found))


@CHECKS.clause("dag.thm34b")
def skip_upper() -> Outcome:
    """(b): R <= C rho^k with C = ‖∇²ℓ‖_F; corrected: C (1 + rho^k)^(L/k), attacked."""
    wrong = max(searched(depth, k, 0.8, 1, 0.8**k) for depth, k in SHAPES)
    right = max(searched(depth, k, 0.8, 1, (1 + 0.8**k) ** (depth // k)) for depth, k in SHAPES)
    witness = worked(
        "f(h) = h + h/2, 20 times (k = 1, rho = 1/2), C = ‖∇²ℓ‖_F: R(v0,v20)",
        "at most C rho = 0.5 C",
        "at most C (1 + rho)^20 = 3325 C",
        f"{transmitted([lambda h: h + h / 2] * 20):.0f} C",
    )
    return Outcome(wrong, right, 180 * len(SHAPES), witness)


@CHECKS.clause("dag.thm34b.lower")
def skip_lower(rho: float = 0.8) -> Outcome:
    """(b'): R >= (1 − rho^k)^(L/k) ‖∇²ℓ‖_F, attacked for several k."""
    found = []
    for depth, k in SHAPES:
        found.append(searched(depth, k, rho, -1, (1 - rho**k) ** (depth // k)))
    return outcome_of(found, instances=90 * len(SHAPES))


CHECKS.without["dag.thm34b.lower", "rho < 1"] = lambda: skip_lower(2.2)


@CHECKS.clause("dag.thm34.scaling", tolerance=1e-8)
def scaling() -> BothErrors:
    """Limit of (1 − (alpha rho)^k)^(L/k), alpha = c/L: printed 1 for every k; for k = 1 it is
    exp(−c rho)."""
    depth = 10**9
    settings = itertools.product((1, 2, 3, 4), (0.5, 1.0, 2.0), (0.3, 0.9))
    for k, c, rho in settings:
        shrinkage = (c * rho / depth) ** k
        value = math.exp(depth / k * math.log1p(-shrinkage))
        limit = 1.0
        if k == 1:
            limit = math.exp(-c * rho)
        yield abs(value - 1), abs(value - limit)
    return worked(
        "k = 1, c = 1, rho = 0.9: limit of (1 − 0.9/L)^L",
        "1",
        "exp(−0.9) = 0.4066",
        f"{math.exp(10**9 * math.log1p(-0.9e-9)):.4f}",
    )


def shrunk(depth: int, share: float) -> float:
    """R(v0,vL) / ‖∇²ℓ‖_F of f(h) = h − share h, `depth` times."""
    return transmitted([lambda h: h - share * h] * depth)


@CHECKS.clause("dag.remark81.skips")
def unscaled() -> Outcome:
    """Remark 81: skips guarantee R >= C > 0 independently of L? the lower bound at L = 200, k = 1,
    rho = 0.5, without residual scaling, and a network that attains it; corrected: with alpha = 1/L
    the bound stays above exp(−rho)/2."""
    bound = 0.5**200
    reached = shrunk(200, 0.5)
    scaled = min(shrunk(depth, 0.5 / depth) for depth in (10, 100, 400))
    witness = worked(
        "f(h) = h − h/2, 200 times, loss = out²/2: R(v0,vL)",
        ">= C > 0 for all L",
        "with alpha = c/L",
        f"{reached:.1e}",
    )
    vanishes = reached < 1e-6 and apart(reached, bound) < 1e-6
    corrected = math.exp(-0.5) / 2 - scaled
    return Outcome(float(vanishes), corrected, 4, witness)


@CHECKS.clause("dag.thm34.rate", instances=3, tolerance=1e-3)
def rates() -> Errors:
    """Rate of the lower bound, −log(1 − rho^k)/k, against rho^k/k for rho^k ≪ 1: what is left is
    rho^(2k)/(2k), so that neither the leading term nor the logarithm can be another one."""
    cases = ((0.1, 3), (0.2, 5), (0.05, 3))
    for rho, k in cases:
        rate = -math.log1p(-(rho**k)) / k
        leading = rho**k / k
        yield apart(rate, leading)
        second_order = rho ** (2 * k) / (2 * k)
        yield apart(rate - leading, second_order)


@CHECKS.clause("dag.footnote2", instances=2, tolerance=1e-4)
def footnote_2() -> Errors:
    """alpha = L^(−1/2), k = 1: log of the lower bound over −rho √L is 1, less it −rho²/2, in the
    limit."""
    rho = 0.8
    for depth in (10**8, 10**10):
        log_bound = depth * math.log1p(-rho / math.sqrt(depth))
        leading = -rho * math.sqrt(depth)
        yield apart(log_bound, leading)
        yield apart(log_bound - leading, -(rho**2) / 2)


@CHECKS.clause("dag.thm34.sketch")
def summands_psd() -> Outcome:
    """Proof sketch of (b'): the summand D_p^T d2 loss of a skip path is PSD? D_p = ((0, 1), (0,
    0)), d2 loss = I."""
    term = real([[0.0, 1.0], [0.0, 0.0]]).T
    smallest = float(torch.linalg.eigvalsh((term + term.T) / 2)[0])
    witness = worked(
        "D_p = ((0, 1), (0, 0)), ∇²ℓ = I: smallest eigenvalue of the symmetric part",
        ">= 0",
        "σ_min of the product, as Appendix G has it",
        f"{smallest:g}".replace("-", "−"),
    )
    return Outcome(-smallest, skip_lower().printed, 1, witness)
