"""The step of a trust region: the least value of a quadratic in a ball, many at once."""

from __future__ import annotations

import torch
from torch import Tensor

SECULAR_STEPS = 15
"""Safeguarded Newton steps of the multiplier; the radius needs to be met to a tenth only."""


def ball_minimiser(c: Tensor, e: Tensor, radius: Tensor) -> Tensor:
    """p (S, D) that minimises e·p + ½ Σ_k c_k p_k² over ||p|| <= radius (S,), for any signs of c
    (S, D).

    p = −e/(c + μ) with the least μ >= max(0, −min c) at which p fits, found on 1/radius −
    1/||p(μ)||, nearly linear in μ; where even that p is short of the sphere (the hard case) the
    rest of the way is along the least c.
    """
    lowest, place = c.min(-1)
    newton = _shifted(c, e, torch.zeros_like(lowest))
    inside = (lowest > 0) & (newton.norm(dim=-1) <= radius)
    low = (-lowest).clamp(min=0)
    high = low + e.norm(dim=-1) / radius
    mu = (low + high) / 2
    for _ in range(SECULAR_STEPS):
        p = _shifted(c, e, mu)
        length = p.norm(dim=-1)
        long = length > radius
        low = torch.where(long, mu, low)
        high = torch.where(long, high, mu)
        bent = (p * _shifted(c, p, mu)).sum(-1)  # −½ d||p||²/dμ, with the sign of _shifted
        mu = mu + (length / radius - 1) * length.square() / -bent
        mu = torch.where((mu > low) & (mu < high), mu, (low + high) / 2)
    p = _shifted(c, e, torch.where(inside, 0.0, mu))
    shrinking = (radius / p.norm(dim=-1)).clamp(max=1)
    p = p * shrinking.unsqueeze(-1)
    rest = (radius.square() - p.square().sum(-1)).clamp(min=0).sqrt()
    hard = ~inside & (lowest <= 0) & (p.norm(dim=-1) < 0.9 * radius)
    at = place.unsqueeze(-1)
    sign = torch.where(e.gather(-1, at).squeeze(-1) > 0, -1.0, 1.0)
    along_least = torch.where(hard, sign * rest, 0.0)
    return p.scatter_add(-1, at, along_least.unsqueeze(-1))


def _shifted(c: Tensor, e: Tensor, mu: Tensor) -> Tensor:
    """−e / (c + μ), 0 where the denominator is not positive."""
    below = c + mu.unsqueeze(-1)
    return -e / torch.where(below > 0, below, torch.inf)
