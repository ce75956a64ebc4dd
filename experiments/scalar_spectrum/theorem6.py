"""Theorem 6 of the scalar paper: five eigenvalues of the network with bias, and bounds of three of
them."""

from __future__ import annotations

import torch
from torch import Tensor

from runner.closed_form.scalar.linear import as_weights


def theorem6_outliers(
    w: Tensor, v: Tensor, b: Tensor, tolerance: float = 1e-9
) -> tuple[Tensor, Tensor]:
    """Theorem 6: (pair (2,), triple (3,)), each descending, of the network with bias on whitened,
    uncorrelated data.

    Assumes mean x = mean y = mean xy = 0 and mean x² = 1, so mean xδ = ⟨w, v⟩ and mean δ = ⟨w, b⟩,
    and needs ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖ (relative to ‖v‖² within `tolerance`, else ValueError: use
    `bias_spectrum`). pair: ½s ± ½√(s² + 12 r²); triple: s/3 + 2√(−p/3) cos(φ − 2πk/3), with s =
    ‖v‖² + ‖w‖², r² = ⟨w, v⟩² + ⟨w, b⟩².
    """
    w, v, b = as_weights(w=w, v=v, b=b)
    s, r2, ww, vv = _invariants(w, v, b)
    vb = torch.dot(v, b)
    bb = torch.dot(b, b)
    allowed = tolerance * vv
    if abs(vb) > allowed or abs(bb - vv) > allowed:
        raise ValueError(
            "theorem6_outliers needs ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖, found ⟨v, b⟩ = "
            f"{float(vb):.3g}, ‖v‖² = {float(vv):.6g}, ‖b‖² = {float(bb):.6g}; use bias_spectrum "
            "for other weights"
        )
    gap = torch.sqrt(s**2 + 12 * r2)
    pair = torch.stack([s + gap, s - gap]) / 2
    p = -r2 - s**2 / 3
    q = -2 / 27 * s**3 - vv * r2 / 3 + 2 / 3 * ww * r2
    k = torch.arange(3, dtype=s.dtype)
    if p == 0:
        return pair, torch.zeros_like(k)
    cosine = 1.5 * q / p * torch.sqrt(-3 / p)
    angle = torch.arccos(cosine.clamp(-1, 1)) / 3
    radius = 2 * torch.sqrt(-p / 3)
    turns = angle - 2 * torch.pi * k / 3
    triple = s / 3 + radius * torch.cos(turns)
    return pair, triple.sort(descending=True).values


def triple_bounds(w: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(lower, upper) = s/3 ∓ t' bounds of Theorem 6's triple, t' = ⅔√(s² + 3 r²)."""
    w, v, b = as_weights(w=w, v=v, b=b)
    s, r2, _, _ = _invariants(w, v, b)
    middle = s / 3
    reach = 2 / 3 * torch.sqrt(s**2 + 3 * r2)
    return middle - reach, middle + reach


def _invariants(w: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """s = ‖v‖² + ‖w‖², r² = ⟨w, v⟩² + ⟨w, b⟩², ‖w‖², ‖v‖²."""
    ww = torch.dot(w, w)
    vv = torch.dot(v, v)
    r2 = torch.dot(w, v) ** 2 + torch.dot(w, b) ** 2
    return vv + ww, r2, ww, vv
