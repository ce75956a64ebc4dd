"""Attention paper, Sections G to I: steps of proofs that do not hold, with an instance and a
corrected step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad

from experiments.attention.bounds import BOUNDS, attention_jacobian
from experiments.paper_audit.attention.bounds import DRAWS, GRID, RADII, SIZES, draw
from experiments.paper_audit.checks import BothErrors, Checks, Outcome, digits, worked
from experiments.paper_audit.tensors import gauss, ones, real, seeded, spectral_norm
from runner.closed_form import attention as att

CHECKS = Checks()
INSTANCES = len(GRID) * DRAWS


@CHECKS.clause("attention.g.2.part_3", instances=INSTANCES)
def one_sided() -> BothErrors:
    """Lemma G.2, Part 3 with b <= R^2 as Assumption G.1 prints it, and with |b| <= R^2."""
    for n, d, radius in GRID:
        x, _, w, v, b = draw(n, d, radius)
        far = att.residual(x, w, v, b - 9 * radius**2).abs().max()
        near = att.residual(x, w, v, b).abs().max()
        limit = 2 * radius**2
        printed = float(far) / limit - 1
        yield printed, float(near) / limit - 1
    one = ones(1, 1, 1)
    value = float(att.residual(one, one, one, -10 * one).abs())
    return worked(
        "n = d = 1, X = V = 1, b = −10 <= R², R = 1.01: |c|",
        "at most 2 R² = 2.0402",
        "",
        f"{value:.5g}",
    )


@CHECKS.clause("attention.h.8.proof")
def modulus_of_means() -> Outcome:
    """Lemmas H.8 and H.9, proofs: no factor of C_i and D_i has a Lipschitz constant above 4 R^2.
    Slope of z_{1,1} at x = 0, R/√2, -R/√2 (n = 3, d = 1) over 4 R^2, less 1; corrected: 5 R^4, the
    constant of Lemma H.7."""
    radius = 5.0
    w = radius * ones(1, 1)
    entry = radius / 2**0.5
    x = real([[0.0, entry, -entry]])

    def mean(first: Tensor) -> Tensor:
        moved = torch.cat([first.view(1, 1), x[:, 1:]], 1)
        keys = moved.mT @ w
        scores = keys @ moved[:, 0]
        f = torch.softmax(scores, 0)
        return (f * keys[:, 0]).sum()

    slope = float(grad(mean)(x[0, 0]))
    witness = worked(
        "n = 3, d = 1, W = R = 5, X = (0, R/√2, −R/√2): dz_{1,1}/dx_{1,1}",
        "at most 4 R² = 100",
        "at most 5 R⁴ = 3125",
        f"{slope:.4g}",
    )
    right = BOUNDS["H.7"].printed(3, 1, radius)
    printed = slope / (4 * radius**2) - 1
    return Outcome(printed, slope / right - 1, 1, witness)


@CHECKS.clause("attention.h.3.proof", instances=INSTANCES)
def columns_as_norm() -> BothErrors:
    """Proof of Lemma H.3: the bound of each column df/dx_{i1,j1} taken as that of the Jacobian;
    then R^2 instead."""
    for n, d, radius in GRID:
        x, _, w, _, _ = draw(n, d, radius)
        jacobian = attention_jacobian(x, w)  # (..., i0, p, n d)
        operator = spectral_norm(jacobian)
        ratio = operator / jacobian.norm(dim=-2).amax(-1).clamp_min(1e-12)
        printed = float(ratio.max()) - 1
        corrected = float(operator.max()) / radius**2 - 1
        yield printed, corrected
    by_hand = attention_jacobian(ones(1, 2), ones(1, 1))[0]
    column = by_hand[:, 0].norm()
    return worked(
        f"X = (1, 1), W = 1, R = √2: df_1/d vec X = {digits(by_hand)}, its norm",
        f"{float(column):.5g}, that of a column",
        "at most R² = 2",
        f"{float(spectral_norm(by_hand)):.5g}",
    )


def token_blocks(matrix: Tensor, n: int) -> Tensor:
    """The n × n blocks (…, i1, i2, j1, j2) of (…, n d, n d)."""
    d = matrix.shape[-1] // n
    return matrix.unflatten(-1, (n, d)).unflatten(-3, (n, d)).transpose(-3, -2)


@CHECKS.clause("attention.i.1.order")
def block_symmetry() -> Outcome:
    """Lemma I.1: asymmetry of the blocks with i1 != i2, and of those with i1 = i2 (the corrected
    statement)."""
    printed = [0.0]
    corrected = []
    witness = None
    for n, d in SIZES:
        x, _, w, v, _ = draw(n, d, RADII[0], 3)
        blocks = token_blocks(att.output_hessians(x, w, v), n)
        skew = (blocks - blocks.mT).norm(dim=(-2, -1)) / blocks.norm().clamp_min(1e-12)
        same_token = torch.eye(n, dtype=torch.bool).expand(skew.shape)
        corrected.append(float(skew[same_token].max()))
        if n == 1:
            continue
        largest = float(skew[~same_token].max())
        if largest > 1e-9:
            printed.append(largest)
            witness = witness or worked(
                f"n = {n}, d = {d}: skew part of a block with i1 != i2, relative",
                "0",
                "spectral norm instead of the order",
                f"{largest:.5g}",
            )
    count = 3 * len(SIZES)
    return Outcome(max(printed), max(corrected), count, witness)


@CHECKS.clause("attention.i.2.proof", instances=151)
def blocks_bound_matrix() -> BothErrors:
    """Proof of Lemma I.2: norm of an n x n block matrix against the largest norm of its blocks;
    then n times that."""
    generator = seeded(0)
    all_ones = ones(1, 2, 2)
    cases = [(2, all_ones)]
    for n in (2, 3, 4):
        cases.append((n, gauss(generator, 50, 2 * n, 2 * n)))
    for n, raw in cases:
        matrix = raw + raw.mT
        largest_block = spectral_norm(token_blocks(matrix, n)).amax((-2, -1))
        ratio = spectral_norm(matrix) / largest_block
        printed = float(ratio.max()) - 1
        yield printed, float((ratio / n).max()) - 1
    largest = float(torch.linalg.eigvalsh(all_ones[0])[-1])
    where = "((1, 1), (1, 1)): blocks of norm 1, largest eigenvalue"
    return worked(where, "1", "<= n = 2", f"{largest:.5g}")


@CHECKS.clause("attention.i.1.proof", instances=INSTANCES)
def term_bound() -> BothErrors:
    """Proofs of Lemmas I.1 and H.9: |B_i| <= R^6; corrected: 4 R^6, for B_1 = 2 s f² w wᵀ and for
    B_2 = 2 f s (w zᵀ + z wᵀ), whose norm is 2 |f s| (|w·z| + |w| |z|)."""
    for n, d, radius in GRID:
        x, _, w, v, _ = draw(n, d, radius)
        if (n, d) == (1, 1):
            x = w = v = radius * torch.ones_like(x)
        f = att.attention(x, w)
        s = f @ x.mT @ v  # (..., i0, j0)
        own = f.diagonal(dim1=-2, dim2=-1)
        # columns w(X)_{i0,*} and z(X)_{i0,*}
        left = w @ x
        right = w.mT @ x @ f.mT
        first = own * left.square().sum(-2)
        products = (left * right).sum(-2).abs()
        second = products + left.norm(dim=-2) * right.norm(dim=-2)
        larger = torch.maximum(first, second)
        norms = 2 * s.abs().amax(-1) * own * larger
        largest = float(norms.max())
        printed = largest / radius**6 - 1
        yield printed, largest / (4 * radius**6) - 1
    where = "n = d = 1, X = W = V = R = 2: |B_2|"
    return worked(where, "at most R⁶ = 64", "at most 4 R⁶ = 256", "256")


@CHECKS.clause("attention.h.10.display")
def moduli() -> BothErrors:
    """Proof of Lemma H.10: a a' − b b' in two moduli, the second |a · b| |b'| as printed;
    corrected: |a − b| |b'|."""
    draws = gauss(seeded(0), 50, 2, 2)
    for a, b in draws:
        exact = float((a[0] * b[1] - b[0] * b[1]).abs())
        by_product = (a[0] * b[0]).abs() * b[1].abs()
        by_difference = (a[0] - b[0]).abs() * b[1].abs()
        printed = abs(float(by_product) - exact)
        corrected = abs(float(by_difference) - exact)
        yield printed, corrected
    return worked("dc(X) = dc(Y) = 1 in both factors: second modulus", "1", "0", "0")


def constant(name: str) -> float:
    """The printed constant of a lemma."""
    return BOUNDS[name].printed(1, 1, 1.0)


def excess(steps: list[tuple[float, float]]) -> float:
    """By how much a constant that a step needs exceeds the printed one, the largest."""
    return max(need / have - 1 for need, have in steps)


@CHECKS.clause("attention.h.8-h.10.constants")
def constants() -> Outcome:
    """Constants of the proofs of Lemmas H.8 to H.10 recomputed from the lemmas that they use.

    Fact H.2 with n factors of the largest Lipschitz constant 4 R^2 gives 2^{n-1} 4 for each of the
    terms; what a lemma prints must be at least that. 23 R^6 5 R^4 <= 105 R^10 is the step that is
    off.
    """
    shared = [
        (2**3 * 4 * 5, constant("H.8")),
        (2**5 * 4 * 21, constant("H.9")),
        (2 * constant("G.4") * constant("H.8"), 3200),
        (2 * constant("H.9"), 5376),
        (3200 + 5376 + 105, constant("H.10")),
    ]
    last_printed = (23 * constant("G.4"), 105)
    printed = [*shared, last_printed]
    last_right = (constant("I.1") * constant("G.4"), 105)
    corrected = [*shared, last_right]
    witness = worked(
        "last line of the proof: |D| |c(X) − c(Y)|",
        "23 R⁶ · 5 R⁴ <= 105 R¹⁰",
        "21 R⁶ · 5 R⁴",
        "115, 105",
    )
    return Outcome(excess(printed), excess(corrected), len(printed), witness)
