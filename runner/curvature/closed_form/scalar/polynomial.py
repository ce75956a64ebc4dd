"""The network with bias as the paper treats it: the polynomial of degree 6, and its explicit roots under Theorem 6.

With r² = mean(xδ)² + mean(δ)² the characteristic polynomial of the Hessian is [λ(λ² − r²)]^(m−2) times a polynomial of
degree 6 that depends on the weights through six inner products only. Zero is always one of its roots. Its coefficients
here are for any second moments S of (x, 1); the paper has S = I.
"""

from __future__ import annotations

import torch
from torch import Tensor

from runner.curvature.closed_form.scalar.bias import InputMoments
from runner.curvature.closed_form.scalar.common import as_weights


def _product(p: Tensor, q: Tensor) -> Tensor:
    """Coefficients of the product of two polynomials, highest power first."""
    return torch.nn.functional.conv1d(p.view(1, 1, -1), q.flip(0).view(1, 1, -1), padding=len(q) - 1).flatten()


def _sum(*polynomials: Tensor) -> Tensor:
    length = max(len(p) for p in polynomials)
    return torch.stack([torch.nn.functional.pad(p, (length - len(p), 0)) for p in polynomials]).sum(0)


def bias_polynomial(w: Tensor, v: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The 7 coefficients of det(L I − S B), highest power first: 1 for λ⁶ down to 0 for λ⁰.

    L = λ(λ² − r²), B the 2×2 matrix of Eq. (85), S = mean (x,1)(x,1)ᵀ; S = I gives the expansion after Eq. (85).
    Its roots with the bulk 0 and ±r, m−2 times each, are the whole spectrum (m >= 2).
    """
    w, v, b = as_weights(w=w, v=v, b=b)
    moments = InputMoments.with_bias(x, y)
    s = moments.xx
    dx, d0 = moments.residual_covariance(w, torch.stack([v, b], dim=1))
    ww, wv, wb = torch.dot(w, w), torch.dot(w, v), torch.dot(w, b)
    b11 = torch.stack([torch.dot(v, v) + ww, 2 * dx * wv, -(d0**2) * ww])
    b22 = torch.stack([torch.dot(b, b) + ww, 2 * d0 * wb, -(dx**2) * ww])
    b12 = torch.stack([torch.dot(v, b), d0 * wv + dx * wb, d0 * dx * ww])
    zero = torch.zeros_like(dx)
    cubic = torch.stack([torch.ones_like(dx), zero, -(dx**2 + d0**2), zero])
    trace = s[0, 0] * b11 + 2 * s[0, 1] * b12 + s[1, 1] * b22
    determinant = _sum(_product(b11, b22), -_product(b12, b12))
    scale = s[0, 0] * s[1, 1] - s[0, 1] ** 2
    coefficients = _sum(_product(cubic, cubic), -_product(cubic, trace), scale * determinant)
    return torch.cat([coefficients[:6], zero[None]])  # the constant term is zero: dx² d0² ww² cancels in det B


def polynomial_roots(coefficients: Tensor) -> Tensor:
    """Real parts of the roots, descending, by the companion matrix of the polynomial without its root at zero.

    coefficients: (7,) from `bias_polynomial`. All roots are real (the Hessian is symmetric). A k-fold root is found to
    about eps^(1/k) only; `bias_spectrum` has no such loss.
    """
    quintic = coefficients[:-1] / coefficients[0]
    degree = len(quintic) - 1
    companion = torch.diag(torch.ones(degree - 1, dtype=quintic.dtype), -1)
    companion[0] = -quintic[1:]
    roots = torch.linalg.eigvals(companion).real
    return torch.cat([roots, roots.new_zeros(1)]).sort(descending=True).values


def theorem6_outliers(w: Tensor, v: Tensor, b: Tensor, tolerance: float = 1e-9) -> tuple[Tensor, Tensor]:
    """Theorem 6: (pair (2,), triple (3,)), each descending, of the network with bias on whitened, uncorrelated data.

    Assumes mean x = mean y = mean xy = 0 and mean x² = 1, so mean xδ = ⟨w, v⟩ and mean δ = ⟨w, b⟩, and needs
    ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖ (relative to ‖v‖² within `tolerance`, else ValueError: use `bias_spectrum`).
    pair: ½s ± ½√(s² + 12 r²); triple: s/3 + 2√(−p/3) cos(φ − 2πk/3), with s = ‖v‖² + ‖w‖², r² = ⟨w, v⟩² + ⟨w, b⟩².
    """
    w, v, b = as_weights(w=w, v=v, b=b)
    s, r2, ww, vv = _invariants(w, v, b)
    if abs(torch.dot(v, b)) > tolerance * vv or abs(torch.dot(b, b) - vv) > tolerance * vv:
        raise ValueError(
            f"theorem6_outliers needs ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖, found ⟨v, b⟩ = {float(torch.dot(v, b)):.3g}, "
            f"‖v‖² = {float(vv):.6g}, ‖b‖² = {float(torch.dot(b, b)):.6g}; use bias_spectrum for other weights"
        )
    gap = torch.sqrt(s**2 + 12 * r2)
    p = -r2 - s**2 / 3
    q = -2 / 27 * s**3 - vv * r2 / 3 + 2 / 3 * ww * r2
    if p == 0:
        return torch.zeros(2, dtype=s.dtype), torch.zeros(3, dtype=s.dtype)
    angle = torch.arccos((1.5 * q / p * torch.sqrt(-3 / p)).clamp(-1, 1)) / 3
    k = torch.arange(3, dtype=s.dtype)
    triple = s / 3 + 2 * torch.sqrt(-p / 3) * torch.cos(angle - 2 * torch.pi * k / 3)
    return torch.stack([s + gap, s - gap]) / 2, triple.sort(descending=True).values


def triple_bounds(w: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(lower, upper) = s/3 ∓ t' bounds of Theorem 6's triple, t' = ⅔√(s² + 3 r²)."""
    w, v, b = as_weights(w=w, v=v, b=b)
    s, r2, _, _ = _invariants(w, v, b)
    reach = 2 / 3 * torch.sqrt(s**2 + 3 * r2)
    return s / 3 - reach, s / 3 + reach


def _invariants(w: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """s = ‖v‖² + ‖w‖², r² = ⟨w, v⟩² + ⟨w, b⟩², ‖w‖², ‖v‖²."""
    ww, vv = torch.dot(w, w), torch.dot(v, v)
    return vv + ww, torch.dot(w, v) ** 2 + torch.dot(w, b) ** 2, ww, vv
