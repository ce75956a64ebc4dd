"""Bounds on softmax-attention regression when |W|, |V|, |X| <= R in spectral norm and |b| <= R^2 (Assumption G.1).

`BOUNDS` holds each bound of Sections G, H and I of the attention paper with its constant, and a sharper constant
where one follows in a line from the compact form in `attention`. `POINT` and `MOVED` measure the left-hand sides.
Derivation of the sharper ones, in operator norm with respect to vec X, with the names of `attention`:

- |A_i| <= |k_i| + |X^T W| <= 2 R^2, and |diag(f) - f f^T| <= 1/2, so |grad f_i| <= R^2;
- r = (diag(f) - f f^T) X^T v, so |r| <= R^2 / 2 and |grad c_ij| <= |A^T r| + |f| |v| <= R^4 + R;
- grad^2 c_ij = A^T diag(r) A + sym(A^T (diag f - f f^T) G - A^T f r^T A) + sym(sum_p r_p E_i^T W^T E_p) with
  sym(M) = M + M^T: at most 2 R^6 + 2 R^3 + 4 R^6 + R^3 = 6 R^6 + 3 R^3, for each of its blocks as well;
- grad^2 L >= 2 sum_i Hess phi_i(V c_i), linear in V c_i, |V c_i| <= R |c_i| <= 2 R^3 sqrt(d):
  at least -4 n sqrt(d) R^2 (6 R^6 + 3 R^3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.closed_form import attention as att


@dataclass(frozen=True)
class Bound:
    """One inequality: measured quantity <= printed(n, d, R), and <= sharper(n, d, R) where that is known.

    symbol: the quantity in plain text; over: "point" (a value at X) or "pair" (a ratio over |vec X - vec Y|).
    """

    place: str
    symbol: str
    over: str
    printed: Callable[[int, int, float], float]
    sharper: Callable[[int, int, float], float] | None = None


BOUNDS: dict[str, Bound] = {
    "G.2.1": Bound("Lemma G.2, Part 1", "|f_i|", "point", lambda n, d, r: 1.0),
    "G.2.2": Bound("Lemma G.2, Part 2", "|h_j|", "point", lambda n, d, r: r**2),
    "G.2.3": Bound("Lemma G.2, Part 3", "|c_ij|", "point", lambda n, d, r: 2 * r**2),
    "G.2.4": Bound("Lemma G.2, Part 4", "|X^T W_{*,j}|", "point", lambda n, d, r: r**2),
    "G.2.5": Bound("Lemma G.2, Part 5", "|w_ij|", "point", lambda n, d, r: r**2),
    "G.2.6": Bound("Lemma G.2, Part 6", "|z_ij|", "point", lambda n, d, r: r**2),
    "G.3": Bound("Lemma G.3", "|df_i/dx|", "point", lambda n, d, r: 4 * r**2, lambda n, d, r: r**2),
    "G.4": Bound("Lemma G.4", "|dc_ij/dx|", "point", lambda n, d, r: 5 * r**4, lambda n, d, r: r**4 + r),
    "H.3": Bound("Lemma H.3", "Lipschitz f_i", "pair", lambda n, d, r: 4 * r**2, lambda n, d, r: r**2),
    "H.4": Bound("Lemma H.4", "Lipschitz c_ij", "pair", lambda n, d, r: 5 * r**4, lambda n, d, r: r**4 + r),
    "H.5": Bound("Lemma H.5", "Lipschitz h_j", "pair", lambda n, d, r: r),
    "H.6": Bound("Lemma H.6", "Lipschitz w_ij", "pair", lambda n, d, r: r),
    "H.7": Bound("Lemma H.7", "Lipschitz z_ij", "pair", lambda n, d, r: 5 * r**4, lambda n, d, r: r**4 + r),
    "H.8": Bound(
        "Lemma H.8", "Lipschitz dc_ij/dx", "pair", lambda n, d, r: 320 * r**6, lambda n, d, r: 6 * r**6 + 3 * r**3
    ),
    "H.9": Bound("Lemma H.9", "Lipschitz d2c_ij/dx dx", "pair", lambda n, d, r: 2688 * r**8),
    "H.10": Bound("Lemma H.10", "Lipschitz grad^2 L", "pair", lambda n, d, r: 9193 * (n * d) ** 3 * r**10),
    "I.1": Bound("Lemma I.1", "|H_k^(i1,i2)|", "point", lambda n, d, r: 21 * r**6, lambda n, d, r: 6 * r**6 + 3 * r**3),
    "I.2": Bound("Lemma I.2", "|grad^2 c_ij|", "point", lambda n, d, r: 21 * r**6, lambda n, d, r: 6 * r**6 + 3 * r**3),
    "I.3": Bound(
        "Lemma I.3",
        "-lambda_min(grad^2 L)",
        "point",
        lambda n, d, r: 42 * n * d * r**8,
        lambda n, d, r: 4 * n * d**0.5 * r**2 * (6 * r**6 + 3 * r**3),
    ),
}
"""Constants as printed; H.10 and I.3 with the constants of their proofs (9193 and 42), the statements having O(.)."""


def scale_to_norm(matrix: Tensor, norm: float) -> Tensor:
    """matrix (..., a, b) scaled to the spectral norm given (Assumption G.1 with equality)."""
    return matrix * (norm / torch.linalg.matrix_norm(matrix, 2)[..., None, None])


def attention_jacobian(x: Tensor, w: Tensor) -> Tensor:
    """df_{i,p}/d vec X (..., n, n, n d) = (diag f_i - f_i f_i^T) A_i (Lemma B.14)."""
    d, n = x.shape[-2:]
    directions = att.unvec(torch.eye(n * d, dtype=x.dtype), d)
    x, w = x.unsqueeze(-3), w.unsqueeze(-3)
    slopes = (directions.mT @ w @ x + x.mT @ w @ directions).mT  # (..., direction, i, p)
    f = att.attention(x, w)
    return (f * (slopes - (f * slopes).sum(-1, keepdim=True))).movedim(-3, -1)


def _means(x: Tensor, w: Tensor) -> Tensor:
    """z(X) (..., n, d): row i is (W^T X f_i)^T."""
    return att.attention(x, w) @ x.mT @ w


def _largest(values: Tensor, dims: int) -> Tensor:
    return values.abs().flatten(-dims).amax(-1)


def case_norms(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Largest spectral norm of a block H_k^{(i1,i2)} over all outputs, by case k = 1..4: (..., 4); NaN for no block."""
    d, n = x.shape[-2:]
    blocks = att.output_hessians(x, w, v).unflatten(-1, (n, d)).unflatten(-3, (n, d)).transpose(-3, -2)
    norms = torch.linalg.matrix_norm(blocks, 2)  # (..., i0, j0, i1, i2)
    own = torch.eye(n, dtype=torch.bool)
    first, second = own[:, None, :, None], own[:, None, None, :]
    masks = (first & second, first & ~second, ~first & second, ~first & ~second)
    found = [torch.where(mask, norms, -1.0).flatten(-4).amax(-1) for mask in masks]
    return torch.stack([torch.where(norm < 0, torch.nan, norm) for norm in found], dim=-1)


def _block_norm(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return case_norms(x, w, v).nan_to_num(0.0).amax(-1)


def _spectral(hessians: Tensor) -> Tensor:
    """Largest absolute eigenvalue of symmetric matrices."""
    return torch.linalg.eigvalsh(hessians).abs().amax(-1)


POINT: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "G.2.1": lambda x, w, v, b: att.attention(x, w).norm(dim=-1).amax(-1),
    "G.2.2": lambda x, w, v, b: (x.mT @ v).norm(dim=-2).amax(-1),
    "G.2.3": lambda x, w, v, b: _largest(att.residual(x, w, v, b), 2),
    "G.2.4": lambda x, w, v, b: (x.mT @ w).norm(dim=-2).amax(-1),
    "G.2.5": lambda x, w, v, b: _largest(w @ x, 2),
    "G.2.6": lambda x, w, v, b: _largest(_means(x, w), 2),
    "G.3": lambda x, w, v, b: _largest(attention_jacobian(x, w).norm(dim=-2), 2),
    "G.4": lambda x, w, v, b: _largest(att.jacobian(x, w, v), 3),
    "I.1": lambda x, w, v, b: _block_norm(x, w, v),
    "I.2": lambda x, w, v, b: _spectral(att.output_hessians(x, w, v)).flatten(-2).amax(-1),
    "I.3": lambda x, w, v, b: -torch.linalg.eigvalsh(att.hessian(x, w, v, b))[..., 0],
}
"""Left-hand sides of the bounds at a point (X, W, V, B), each (...): the largest over all indices."""

MOVED: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "H.3": lambda x, y, w, v, b: (att.attention(x, w) - att.attention(y, w)).norm(dim=-1).amax(-1),
    "H.4": lambda x, y, w, v, b: _largest(att.outputs(x, w, v) - att.outputs(y, w, v), 2),
    "H.5": lambda x, y, w, v, b: ((x - y).mT @ v).norm(dim=-2).amax(-1),
    "H.6": lambda x, y, w, v, b: _largest(w @ (x - y), 2),
    "H.7": lambda x, y, w, v, b: _largest(_means(x, w) - _means(y, w), 2),
    "H.8": lambda x, y, w, v, b: _largest(att.jacobian(x, w, v) - att.jacobian(y, w, v), 3),
    "H.9": lambda x, y, w, v, b: _largest(att.output_hessians(x, w, v) - att.output_hessians(y, w, v), 4),
    "H.10": lambda x, y, w, v, b: _spectral(att.hessian(x, w, v, b) - att.hessian(y, w, v, b)),
}
"""How far a function moves from X to Y, each (...): the largest over all indices. X and Y must differ."""


def pair_value(name: str, x: Tensor, y: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Left-hand side of a Lipschitz bound over |vec X - vec Y|, (...)."""
    return MOVED[name](x, y, w, v, b) / (x - y).norm(dim=(-2, -1))


def point_values(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> dict[str, Tensor]:
    """All of `POINT` at once."""
    return {name: measure(x, w, v, b) for name, measure in POINT.items()}


def pair_values(x: Tensor, y: Tensor, w: Tensor, v: Tensor, b: Tensor) -> dict[str, Tensor]:
    """All of `MOVED` over |vec X - vec Y|."""
    return {name: pair_value(name, x, y, w, v, b) for name in MOVED}
