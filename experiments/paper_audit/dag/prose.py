"""DAG paper, abstract and Sections 1 and 2: facts that introduction and related work state."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.func import grad, hessian
from torch.nn.functional import softplus

from experiments.paper_audit.checks import Checks, Outcome, apart, relative_error, worked
from experiments.paper_audit.tensors import (
    gauss,
    norm_of,
    real,
    seeded,
    spectral_norm,
    unit,
    zeros,
)

CHECKS = Checks()


@CHECKS.clause("dag.abstract.monolithic")
def named_blocks() -> Outcome:
    """Abstract, Section 1: torch returns the Hessian as one tensor: share of the blocks of a loss
    of two named parameters that it returns by name; corrected: each is ∂²L/∂θ_v∂θ_w."""

    def loss(named: dict[str, Tensor]) -> Tensor:
        return (named["a"] * named["b"] - 1).square() / 2

    values = {"a": real(2.0), "b": real(3.0)}
    blocks = hessian(loss)(values)
    by_index = hessian(lambda p: loss({"a": p[0], "b": p[1]}))(torch.stack([*values.values()]))
    errors = []
    named = []
    for (i, v), (j, w) in itertools.product(enumerate("ab"), repeat=2):
        named.append(v in blocks and w in blocks[v])
        errors.append(relative_error(blocks[v][w], by_index[i, j]))
    shown = ", ".join(f"['{v}']['{w}'] = {float(blocks[v][w]):g}" for v in "ab" for w in "ab")
    witness = worked(
        "torch.func.hessian of L = (a b − 1)²/2 over the dict {a: 2, b: 3}",
        "one tensor",
        "blocks by name: b², 2 a b − 1, 2 a b − 1, a²",
        shown,
    )
    return Outcome(sum(named) / len(named), max(errors), len(named), witness)


def wide_layer(width: int) -> tuple[float, float]:
    """(gap, ‖H^T‖₂ √n) of f = Σ_k a_k softplus(z_k) / √n at z = 0, a = ±1, L = (f + 1)²/2."""
    signs = torch.ones(width).double()
    signs[::2] = -1

    def output(z: Tensor) -> Tensor:
        return (signs * softplus(z)).sum() / width**0.5

    at = zeros(width)
    jacobian = grad(output)(at)
    residual = output(at) + 1
    tensor = residual * hessian(output)(at)
    gauss_newton = torch.outer(jacobian, jacobian)
    gap = norm_of(tensor) / norm_of(gauss_newton)
    return gap, float(spectral_norm(tensor)) * width**0.5


def random_chain(width: int, seed: int) -> float:
    """Gap of h_1 of h_1 = φ(W_1 x), h_2 = φ(W_2 h_1), logits W_3 h_2: SiLU, ten classes, weights
    N(0, 1/columns), 16 Gaussian inputs."""
    generator = seeded(seed)
    x = gauss(generator, 16)
    first = gauss(generator, width, 16) / 4
    second = gauss(generator, width, width) / width**0.5
    last = gauss(generator, 10, width) / width**0.5
    z = second @ torch.nn.functional.silu(first @ x)
    s = torch.sigmoid(z)
    slope = s * (1 + z * (1 - s))
    bend = s * (1 - s) * (2 + z * (1 - 2 * s))
    p = torch.softmax(last @ torch.nn.functional.silu(z), 0)
    residual = p - unit(10)[0]
    jacobian = last @ (slope[:, None] * second)
    of_loss = torch.diag(p) - torch.outer(p, p)
    gauss_newton = jacobian.mT @ of_loss @ jacobian
    weights = (residual @ last) * bend
    tensor = second.mT @ (weights[:, None] * second)
    return norm_of(tensor) / norm_of(gauss_newton)


@CHECKS.clause("dag.s2.ntk")
def wide_limit() -> Outcome:
    """Section 2: H^T = 0 in the NTK limit: the gap of a layer at growing width; corrected: it stays
    (1 in the instance), while ‖H^T‖₂ falls as n^(−1/2)."""
    widths = (2, 16, 64, 256)
    gaps, norms = zip(*(wide_layer(width) for width in widths), strict=True)
    random = [random_chain(width, seed) for width in (64, 256, 1024) for seed in range(2)]
    errors = [apart(gap, 1.0) for gap in gaps]
    errors += [apart(norm, norms[0]) for norm in norms]
    witness = worked(
        "f = Σ_k a_k softplus(z_k)/√n, a_k = ±1 in turn, L = (f + 1)²/2, at z = 0: "
        "H^T = diag(a)/(4√n), H^GN = a aᵀ/(4n), gap at n = 2 and n = 256",
        "→ 0",
        "1 at every n",
        f"{gaps[0]:g}, {gaps[-1]:g}; {min(random):.1f} to {max(random):.1f} in chains of two SiLU "
        "layers with softmax cross-entropy and weights N(0, 1/n), n = 64, 256, 1,024",
    )
    return Outcome(min(*gaps, *random), max(errors), len(widths) + len(random), witness)
