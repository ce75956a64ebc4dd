"""DAG paper, Section 5.1, Remarks 27, 30, 38, Corollary 29, Definition 79: what decay is said to
imply."""

from __future__ import annotations

import itertools
import math
from statistics import linear_regression

import torch
from torch import Tensor
from torch.func import hessian

from experiments.paper_audit.checks import Checks, Outcome, apart, worked
from experiments.paper_audit.dag.printed_ranges import (
    CHECKPOINTS,
    authors_means,
    largest_rho,
    normalised,
    slope,
)
from experiments.paper_audit.dag.probes import sign_vectors
from experiments.paper_audit.tensors import diagonal, gauss, ones, real, seeded, spectral_norm, unit

CHECKS = Checks()
PLAIN = ("exp1", "plain")
RESIDUAL = ("exp1", "residual")
NORMALISED = ("exp1b", "plain")
DEPTHS = {PLAIN: (8, 10, 12), RESIDUAL: (8, 10, 12), NORMALISED: (8, 12, 16)}
"""Depths of the networks with published resonances, by file and architecture."""


@CHECKS.clause("dag.cor29")
def parameter_blocks() -> Outcome:
    """Corollary 29 on f = a_1 ... a_12, all a = rho = 1/2, L = (f − 1)²/2: share of the discarded
    squares at distances beyond log eps / log rho, over eps; corrected: block (v, w) is the one that
    Corollary 28 bounds, J_out,v J_out,w D_v D_w, and the remainder δ f / rho² of Corollary 17."""
    depth = 12
    rho = 0.5
    eps = 0.1
    weights = torch.full((depth,), rho).double()
    exact = hessian(lambda a: (a.prod() - 1).square() / 2)(weights)
    threshold = math.ceil(math.log(eps) / math.log(rho))
    output = rho**depth
    near = 0.0
    far = 0.0
    errors = []
    pairs = itertools.combinations(range(1, depth + 1), 2)
    for v, w in pairs:
        square = float(exact[v - 1, w - 1]) ** 2
        if w - v > threshold:
            far += square
        else:
            near += square
        between_activations = rho ** (depth - v) * rho ** (depth - w)
        before = rho ** (v - 1)
        bounded = before * between_activations * rho ** (w - 1)
        remainder = (output - 1) * output / rho**2
        errors.append(apart(bounded + remainder, float(exact[v - 1, w - 1])))
    witness = worked(
        "f = a_1 ... a_12, a = 1/2, loss = (f − 1)²/2, ε = 0.1: squares that a block-diagonal "
        "method discards at dist > 4; entries (1, 2) and (1, 12)",
        "at most 10 %; a fall by 2⁻¹⁰",
        "no bound: the mixed terms of Eq. 5 do not fall",
        f"{far / (near + far):.0%}; {float(exact[0, 1]):.3e}, {float(exact[0, -1]):.3e}",
    )
    printed = far / (near + far) / eps - 1
    return Outcome(printed, max(errors), len(errors), witness)


def resonance_behind(layers: Tensor, curvature: Tensor) -> float:
    """‖Πᵀ ∇²ℓ‖_F."""
    return float((layers.mT @ curvature).norm())


@CHECKS.clause("dag.remark30.necessary")
def necessary() -> Outcome:
    """Remarks 27, 30: no decay where λ_1 > 0; corrected: R >= σ_min(∇²ℓ) ‖Π‖₂, which says so for
    ∇²ℓ > 0. Layers diag(2, 1/2), softmax of two classes behind the head ((1, 1), (1, −1))."""
    head = real([[1.0, 1.0], [1.0, -1.0]])
    softmax = real([[0.25, -0.25], [-0.25, 0.25]])
    curvature = head.mT @ softmax @ head
    whole = torch.linalg.matrix_power(diagonal(2.0, 0.5), 20)
    exponent = math.log(float(spectral_norm(whole))) / 20
    without = resonance_behind(unit(2), curvature)
    kept = resonance_behind(whole, curvature) / without
    excess = []
    for k in range(4):
        root, product = gauss(seeded(k), 2, 3, 3)
        if k == 0:  # attained: one direction, and the identity
            root = unit(3)
            product = torch.outer(product[0], product[1])
        convex = root @ root.mT
        least = float(torch.linalg.eigvalsh(convex)[0])
        bound = least * float(spectral_norm(product))
        excess.append(bound / resonance_behind(product, convex) - 1)
    witness = worked(
        "J = diag(2, 1/2), 20 layers, two classes, logits (h_1 + h_2, h_1 − h_2) at h = 0: λ_1 and "
        "R(v_0, v_20) / R(v_20, v_20)",
        "no decay, since λ_1 > 0",
        "decay is excluded where ∇²ℓ is positive definite",
        f"{exponent:+.2f}, {kept:.2g}",
    )
    printed = float(exponent > 0) * (1 - kept)
    return Outcome(printed, max(excess), 5, witness)


GREATER = 0.9
LESSER = 0.1
"""Diagonal of the layers of two linear chains, each of norm and spectral radius 0.9."""


def rate_of_a_chain(turning: bool) -> float:
    """Slope of −log R(d) of a chain of 8 layers diag(0.9, 0.1), or of that and diag(0.1, 0.9) in
    turn, with the loss ‖out‖²/2; R(d) is the mean over the pairs at distance d."""
    length = 8
    diagonal = torch.tensor([GREATER, LESSER]).double()
    layers = [diagonal.flip(0) if turning and k % 2 else diagonal for k in range(length)]

    def loss(shifts: Tensor) -> Tensor:
        h = torch.ones(2).double()
        for layer, shift in zip(layers, shifts, strict=True):
            h = layer * h + shift
        return h.square().sum() / 2

    blocks = hessian(loss)(torch.zeros(length, 2).double())
    logs = []
    for d in range(length):
        sizes = [float(blocks[k, :, k + d].norm()) for k in range(length - d)]
        logs.append(math.log(sum(sizes) / len(sizes)))
    slope_of_logs, _ = linear_regression(range(length), logs)
    return -slope_of_logs


@CHECKS.clause("dag.footnote1.rate")
def rate_and_norm() -> Outcome:
    """Footnote 1: the rate of decay is determined by ρ: difference of the rates of two chains of
    one ρ; next to it networks before training, which have rates on both sides of −ln ρ."""
    throughout, in_turn = (rate_of_a_chain(turning) for turning in (False, True))
    shown = []
    count = 2
    for source, depths in DEPTHS.items():
        for depth in depths:
            (rho,) = authors_means(source[0], f"{depth}/{source[1]}/init/rho", "rho_max")
            rate = slope(source[1], depth, "init", source[0])
            count += 1
            if depth == 8:
                shown.append((-math.log(rho), rate))
    bounds = ", ".join(f"{bound:.2f}" for bound, _ in shown)
    rates = ", ".join(f"{rate:.2g}" for _, rate in shown)
    witness = worked(
        "8 layers diag(0.9, 0.1), or diag(0.9, 0.1) and diag(0.1, 0.9) in turn, ρ = 0.9 in each: "
        "rate b; −ln ρ and b of the authors' results, L = 8, plain, residual, spectral "
        "normalisation, before training",
        f"one rate; {bounds}",
        "",
        f"{throughout:.2g} and {in_turn:.2g}; {rates}",
    )
    return Outcome(abs(in_turn - throughout), None, count, witness)


@CHECKS.clause("dag.s51.premise")
def premise_of_corollary_26() -> Outcome:
    """Section 5.1 (a): the plain networks of Table 2 confirm Corollary 26, whose premise is ρ < 1;
    corrected: those of Table N.2 before training have it."""
    outside = []
    settings = itertools.product(("8", "10", "12"), CHECKPOINTS)
    for depth, checkpoint in settings:
        outside.append(largest_rho(depth, "plain", checkpoint))
    inside = [normalised("rho_max", depth, "init") for depth in ("8", "12", "16")]
    witness = worked(
        "Table 2, plain networks: smallest ρ_max; bound (10) at L = 8 with ρ = 2.59",
        "< 1, decay",
        f"{max(inside):g} in Exp. 1b",
        f"{min(outside):g}; grows to {2.59**7:.0f} ‖∇²ℓ‖",
    )
    printed = min(outside) - 1
    right = max(inside) - 1
    return Outcome(printed, right, len(outside), witness)


def pairs_within(radius: int, parents: list[int]) -> list[int]:
    """Of a tree that is given by the parent of each node (the root is its own): how many nodes lie
    within a distance of each node."""

    def ancestors(node: int) -> list[int]:
        line = [node]
        while parents[line[-1]] != line[-1]:
            line.append(parents[line[-1]])
        return line

    lines = [ancestors(node) for node in range(len(parents))]
    counts = []
    for first in lines:
        count = 0
        for second in lines:
            common = len(set(first) & set(second))
            count += len(first) + len(second) - 2 * common <= radius
        counts.append(count)
    return counts


@CHECKS.clause("dag.def79")
def radius_count() -> Outcome:
    """Definition 79: n (2k + 1) blocks within distance k, on a binary tree of 127 nodes whose edges
    lead to the root (one child each, so s = 1); corrected: n times the largest ball, which is 2k +
    1 on a chain: there n (2k + 1) − k (k + 1) blocks."""
    tree = [max(node - 1, 0) // 2 for node in range(127)]
    chain = [max(node - 1, 0) for node in range(50)]
    printed = []
    right = []
    for radius in (2, 4, 6, 8):
        counts = pairs_within(radius, tree)
        pairs = sum(counts)
        allowed = len(tree) * (2 * radius + 1)
        printed.append(pairs / allowed - 1)
        attained = len(tree) * max(counts)
        right.append(sum(counts) / attained - 1)
        on_chain = sum(pairs_within(radius, chain))
        at_ends = radius * (radius + 1)
        expected = 50 * (2 * radius + 1) - at_ends
        right.append(abs(on_chain - expected))
    witness = worked(
        "binary tree of 127 nodes, edges to the root, s = 1: blocks within distance k = 2, 8",
        "at most 127 (2k + 1) = 635, 2159",
        "127 times the largest ball",
        f"{sum(pairs_within(2, tree))}, {sum(pairs_within(8, tree))}",
    )
    return Outcome(max(printed), max(right), len(right), witness)


@CHECKS.clause("dag.remark38.variance")
def variance_of_signs() -> Outcome:
    """Remark 38: the variance of a mean of B random signs falls as 1/√B; corrected: as 1/B. All
    sign vectors."""
    variance = {}
    for size in (2, 8):
        means = sign_vectors(size) @ ones(size) / size
        variance[size] = float(means.var(correction=0))
    fall = variance[2] / variance[8]
    witness = worked(
        "mean of B = 2 and of B = 8 random signs: quotient of the variances",
        "2",
        "4; of the standard deviations 2",
        f"{fall:.4g}",
    )
    right = max(abs(variance[size] - 1 / size) for size in variance)
    return Outcome(apart(fall, 2.0), right, 2, witness)
