"""Balls in which Newton's method on attention(X) = B provably converges.

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

from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.closed_form import attention as att

HALVINGS = 60
"""Steps of the bisection for the certified radius."""


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
    scale, values = (float(torch.linalg.matrix_norm(matrix, 2)) for matrix in (w, v))
    widest = torch.cdist(x.mT, x.mT).max()
    spread = float(widest) + 2**0.5 * radius
    norms = (w @ x).norm(dim=0)
    keys = norms + scale * radius
    a = 2**0.5 * keys + spread * scale
    a2 = (1 + 2**0.5) * scale
    bends = 1.5 * (a.square() + a2)
    twists = 0.875 * a**3 + 1.5 * a * a2
    rows = bends + spread / 2**0.5 * twists
    return float(values * rows.norm())


def bilinear_norm_bound(tensor: Tensor) -> float:
    """Upper bound of sup |T[u, u]| over |u| = 1, T (M, N, N): the smaller spectral norm of two
    unfoldings."""
    norms = []
    unfoldings = (tensor.flatten(1), tensor.movedim(1, 0).flatten(1))
    for unfolding in unfoldings:
        gram = unfolding @ unfolding.mT  # small, the unfolding is wide
        square = float(torch.linalg.matrix_norm(gram, 2))
        norms.append(square**0.5)
    return min(norms)


class _Centre:
    """J^-1 and |J^-1 J''| at a point; None of it where J is singular to rounding."""

    def __init__(self, x: Tensor, w: Tensor, v: Tensor) -> None:
        self.x = x
        self.w = w
        self.v = v
        blocks = att.jacobian(x, w, v)
        jac = blocks.flatten(0, 1)
        values = torch.linalg.svdvals(jac)
        eps = torch.finfo(x.dtype).eps
        rounding = len(jac) * eps * values[0]
        self.regular = bool(values[-1] > rounding)
        self.beta = float(1 / values[-1]) if self.regular else torch.inf
        if self.regular:
            self.inverse = torch.linalg.inv(jac)
            hessians = att.output_hessians(x, w, v)
            second = hessians.flatten(0, 1)
            scaled = self.inverse @ second.flatten(1)
            self.bend = bilinear_norm_bound(scaled.view_as(second))

    def omega(self, radius: float) -> float:
        """Bound of |J(x)^-1 J''| on the ball of this radius."""
        third = third_derivative_bound(self.x, self.w, self.v, radius)
        return self.bend + self.beta * radius * third


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
    residual = att.residual(x, w, v, b)
    step = centre.inverse @ residual.flatten()
    eta = float(step.norm())
    omega = centre.omega(2 * eta)
    h = eta * omega
    radius = 2 * eta / (1 + (1 - 2 * h) ** 0.5) if h <= 0.5 else torch.nan
    return Certificate(centre.beta, eta, omega, h, radius)


def certified_radius(x: Tensor, w: Tensor, v: Tensor) -> float:
    """Radius of a ball around the solution x (d, n) from which Newton's iteration provably
    converges to it.

    The largest rho with rho <= 2 / (3 omega(rho)), by bisection, since omega rises with rho; 0
    where J is singular.
    """
    centre = _Centre(x, w, v)
    if not centre.regular:
        return 0.0
    low = 0.0
    high = 2 / (3 * centre.bend)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle * centre.omega(middle) <= 2 / 3:
            low = middle
        else:
            high = middle
    return low
