"""Bounds on softmax-attention regression when |W|, |V|, |X| <= R in spectral norm and |b| <= R^2
(Assumption G.1).

`BOUNDS` holds each bound of Sections G, H and I of the attention paper with its constant, and a
sharper constant where one follows in a line from the compact form in `attention`. `POINT` and
`MOVED` measure the left-hand sides. Derivation of the sharper ones, in operator norm with respect
to vec X, with the names of `attention`:

- |A_i| <= |k_i| + |X^T W| <= 2 R^2, and |diag(f) - f f^T| <= 1/2, so |grad f_i| <= R^2;
- r = (diag(f) - f f^T) X^T v, so |r| <= R^2 / 2 and |grad c_ij| <= |A^T r| + |f| |v| <= R^4 + R;
- grad^2 c_ij = A^T diag(r) A + sym(A^T (diag f - f f^T) G - A^T f r^T A) + sym(sum_p r_p E_i^T W^T
  E_p) with sym(M) = M + M^T: at most 2 R^6 + 2 R^3 + 4 R^6 + R^3 = 6 R^6 + 3 R^3, for each of its
  blocks as well;
- grad^2 L >= 2 sum_i Hess phi_i(V c_i), linear in V c_i, |V c_i| <= R |c_i| <= 2 R^3 sqrt(d):
  at least -4 n sqrt(d) R^2 (6 R^6 + 3 R^3).

`certificate` and `certified_radius` are of Newton's method on attention(X) = B: balls in which it
provably converges, per instance, in place of Theorem J.1 of the attention paper, whose convergence
is that of a problem without the data in it. For the n d equations r(X) = attention(X) - B in the n
d entries of X, the affine-covariant Newton-Kantorovich theorem (Deuflhard, Newton Methods for
Nonlinear Problems, Theorem 2.1) and the ball of Rheinboldt (1978) and Traub and Wozniakowski (1979)
say:

- *from a start.* With eta = |J(X0)^-1 r(X0)| and omega >= |J(X0)^-1 J''| on the ball of radius 2
  eta around X0, h = eta omega <= 1/2 makes Newton's iteration converge from X0, to a solution
  within (1 - sqrt(1 - 2h)) / omega of it. omega <= beta L with beta = 1/sigma_min(J(X0)) and L a
  Lipschitz constant of J: h <= beta eta L.
- *around a solution.* With omega >= |J(X*)^-1 J''| on the ball of radius rho around a solution X*,
  Newton's iteration converges to X* from every start nearer than min(rho, 2 / (3 omega)).

omega is an upper bound, not an estimate: at the centre from the closed form of grad^2 c (the
spectral norm of an unfolding bounds the norm of a bilinear map), away from it by
`third_derivative_bound`. Both statements are those of exact arithmetic; the numbers here are
float64, so a certificate within rounding of 1/2 proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.closed_form import attention as att


@dataclass(frozen=True)
class Bound:
    """One inequality: measured quantity <= printed(n, d, R), and <= sharper(n, d, R) where that is
    known.

    symbol: the quantity in plain text; over: "point" (a value at X) or "pair" (a ratio over |vec X
    - vec Y|).
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
    "G.4": Bound(
        "Lemma G.4", "|dc_ij/dx|", "point", lambda n, d, r: 5 * r**4, lambda n, d, r: r**4 + r
    ),
    "H.3": Bound(
        "Lemma H.3", "Lipschitz f_i", "pair", lambda n, d, r: 4 * r**2, lambda n, d, r: r**2
    ),
    "H.4": Bound(
        "Lemma H.4", "Lipschitz c_ij", "pair", lambda n, d, r: 5 * r**4, lambda n, d, r: r**4 + r
    ),
    "H.5": Bound("Lemma H.5", "Lipschitz h_j", "pair", lambda n, d, r: r),
    "H.6": Bound("Lemma H.6", "Lipschitz w_ij", "pair", lambda n, d, r: r),
    "H.7": Bound(
        "Lemma H.7", "Lipschitz z_ij", "pair", lambda n, d, r: 5 * r**4, lambda n, d, r: r**4 + r
    ),
    "H.8": Bound(
        "Lemma H.8",
        "Lipschitz dc_ij/dx",
        "pair",
        lambda n, d, r: 320 * r**6,
        lambda n, d, r: 6 * r**6 + 3 * r**3,
    ),
    "H.9": Bound("Lemma H.9", "Lipschitz d2c_ij/dx dx", "pair", lambda n, d, r: 2688 * r**8),
    "H.10": Bound(
        "Lemma H.10", "Lipschitz grad^2 L", "pair", lambda n, d, r: 9193 * (n * d) ** 3 * r**10
    ),
    "I.1": Bound(
        "Lemma I.1",
        "|H_k^(i1,i2)|",
        "point",
        lambda n, d, r: 21 * r**6,
        lambda n, d, r: 6 * r**6 + 3 * r**3,
    ),
    "I.2": Bound(
        "Lemma I.2",
        "|grad^2 c_ij|",
        "point",
        lambda n, d, r: 21 * r**6,
        lambda n, d, r: 6 * r**6 + 3 * r**3,
    ),
    "I.3": Bound(
        "Lemma I.3",
        "-lambda_min(grad^2 L)",
        "point",
        lambda n, d, r: 42 * n * d * r**8,
        lambda n, d, r: 4 * n * d**0.5 * r**2 * (6 * r**6 + 3 * r**3),
    ),
}
"""Constants as printed; H.10 and I.3 with the constants of their proofs (9193 and 42), the
statements having O(.)."""


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
    """Largest spectral norm of a block H_k^{(i1,i2)} over all outputs, by case k = 1..4: (..., 4);
    NaN for no block."""
    d, n = x.shape[-2:]
    blocks = (
        att.output_hessians(x, w, v).unflatten(-1, (n, d)).unflatten(-3, (n, d)).transpose(-3, -2)
    )
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
"""Left-hand sides of the bounds at a point (X, W, V, B), each (...): the largest over all
indices."""

MOVED: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "H.3": lambda x, y, w, v, b: (att.attention(x, w) - att.attention(y, w)).norm(dim=-1).amax(-1),
    "H.4": lambda x, y, w, v, b: _largest(att.outputs(x, w, v) - att.outputs(y, w, v), 2),
    "H.5": lambda x, y, w, v, b: ((x - y).mT @ v).norm(dim=-2).amax(-1),
    "H.6": lambda x, y, w, v, b: _largest(w @ (x - y), 2),
    "H.7": lambda x, y, w, v, b: _largest(_means(x, w) - _means(y, w), 2),
    "H.8": lambda x, y, w, v, b: _largest(att.jacobian(x, w, v) - att.jacobian(y, w, v), 3),
    "H.9": lambda x, y, w, v, b: _largest(
        att.output_hessians(x, w, v) - att.output_hessians(y, w, v), 4
    ),
    "H.10": lambda x, y, w, v, b: _spectral(att.hessian(x, w, v, b) - att.hessian(y, w, v, b)),
}
"""How far a function moves from X to Y, each (...): the largest over all indices. X and Y must
differ."""


def pair_value(name: str, x: Tensor, y: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Left-hand side of a Lipschitz bound over |vec X - vec Y|, (...)."""
    return MOVED[name](x, y, w, v, b) / (x - y).norm(dim=(-2, -1))


@dataclass(frozen=True)
class Certificate:
    """What Newton-Kantorovich says of one start.

    beta = 1/sigma_min(J), eta: length of the first Newton step, omega: bound of |J(X0)^-1 J''| on
    the ball of 2 eta, h = eta omega, radius: a solution lies within it, NaN where nothing is
    certified.
    """

    beta: float
    eta: float
    omega: float
    h: float
    radius: float

    @property
    def certified(self) -> bool:
        """h <= 1/2: Newton's iteration converges from here."""
        return self.h <= 0.5


def third_derivative_bound(x: Tensor, w: Tensor, v: Tensor, radius: float) -> float:
    """sup |d^3 outputs(X + t U) / dt^3| over |U|_F = 1 and all X within radius of x (d, n); W, V
    (d, d).

    Along U, with a_p = x_p^T W x_i, K_i >= |W x_i| and D the largest distance of two tokens, both
    on the whole ball: a' has the range A_i = sqrt(2) K_i + D |W|, a'' at most A2 = (1 + sqrt(2))
    |W|, a''' = 0. The softmax weights' first three derivatives are f o g with |g| rms at most A/2,
    A^2/2 + A2/2 and 7 A^3/8 + 3 A A2/2, so

        |o_i'''| <= |V| (3 (A_i^2 + A2) / 2 + D (7 A_i^3 / 8 + 3 A_i A2 / 2) / sqrt(2)),

    and the norm of all rows together is the root of the sum of squares.
    """
    scale, values = float(torch.linalg.matrix_norm(w, 2)), float(torch.linalg.matrix_norm(v, 2))
    spread = float(torch.cdist(x.mT, x.mT).max()) + 2**0.5 * radius
    a = 2**0.5 * ((w @ x).norm(dim=0) + scale * radius) + spread * scale
    a2 = (1 + 2**0.5) * scale
    rows = 1.5 * (a.square() + a2) + spread / 2**0.5 * (0.875 * a**3 + 1.5 * a * a2)
    return float(values * rows.norm())


def bilinear_norm_bound(tensor: Tensor) -> float:
    """Upper bound of sup |T[u, u]| over |u| = 1, T (M, N, N): the smaller spectral norm of two
    unfoldings."""
    flat, long = tensor.flatten(1), tensor.movedim(1, 0).flatten(1)
    # the Gram matrix is small, the unfolding wide
    norms = [float(torch.linalg.matrix_norm(m @ m.mT, 2)) ** 0.5 for m in (flat, long)]
    return min(norms)


class _Centre:
    """J^-1 and |J^-1 J''| at a point; None of it where J is singular to rounding."""

    def __init__(self, x: Tensor, w: Tensor, v: Tensor) -> None:
        self.x, self.w, self.v = x, w, v
        jac = att.jacobian(x, w, v).flatten(0, 1)
        values = torch.linalg.svdvals(jac)
        self.regular = bool(values[-1] > len(jac) * torch.finfo(x.dtype).eps * values[0])
        self.beta = float(1 / values[-1]) if self.regular else torch.inf
        if self.regular:
            self.inverse = torch.linalg.inv(jac)
            second = att.output_hessians(x, w, v).flatten(0, 1)
            self.bend = bilinear_norm_bound((self.inverse @ second.flatten(1)).view_as(second))

    def omega(self, radius: float) -> float:
        """Bound of |J(x)^-1 J''| on the ball of this radius."""
        return self.bend + self.beta * radius * third_derivative_bound(
            self.x, self.w, self.v, radius
        )


def certificate(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Certificate:
    """Newton-Kantorovich at x (d, n) for attention(X) = B, W, V (d, d), B (n, d); h infinite where
    J is singular.

    >>> x = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    >>> w, v = (torch.ones(1, 1, dtype=torch.float64) for _ in range(2))
    >>> certificate(x, w, v, att.outputs(x, w, v)).certified      # a solution certifies itself
    True
    """
    centre = _Centre(x, w, v)
    if not centre.regular:
        return Certificate(torch.inf, torch.inf, torch.inf, torch.inf, torch.nan)
    eta = float((centre.inverse @ att.residual(x, w, v, b).flatten()).norm())
    omega = centre.omega(2 * eta)
    h = eta * omega
    radius = 2 * eta / (1 + (1 - 2 * h) ** 0.5) if h <= 0.5 else torch.nan
    return Certificate(centre.beta, eta, omega, h, radius)


def certified_radius(x: Tensor, w: Tensor, v: Tensor, halvings: int = 60) -> float:
    """Radius of a ball around the solution x (d, n) from which Newton's iteration provably
    converges to it.

    The largest rho with rho <= 2 / (3 omega(rho)), by bisection, since omega rises with rho; 0
    where J is singular.
    """
    centre = _Centre(x, w, v)
    if not centre.regular:
        return 0.0
    low, high = 0.0, 2 / (3 * centre.bend)
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * centre.omega(middle) <= 2 / 3 else (low, middle)
    return low
