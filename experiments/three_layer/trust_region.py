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
    short = newton.norm(dim=-1) <= radius
    inside = (lowest > 0) & short
    low = (-lowest).clamp(min=0)
    high = low + e.norm(dim=-1) / radius
    mu = (low + high) / 2
    for _ in range(SECULAR_STEPS):
        p = _shifted(c, e, mu)
        length = p.norm(dim=-1)
        long = length > radius
        low = torch.where(long, mu, low)
        high = torch.where(long, high, mu)
        derivative = _shifted(c, p, mu)
        bent = (p * derivative).sum(-1)  # −½ d||p||²/dμ, with the sign of _shifted
        excess = length / radius - 1
        mu = mu + excess * length.square() / -bent
        bracketed = (mu > low) & (mu < high)
        mu = torch.where(bracketed, mu, (low + high) / 2)
    p = _shifted(c, e, torch.where(inside, 0.0, mu))
    shrinking = (radius / p.norm(dim=-1)).clamp(max=1)
    p = p * shrinking.unsqueeze(-1)
    rest = (radius.square() - p.square().sum(-1)).clamp(min=0).sqrt()
    small = p.norm(dim=-1) < 0.9 * radius
    hard = ~inside & (lowest <= 0) & small
    at = place.unsqueeze(-1)
    gradient = e.gather(-1, at).squeeze(-1)
    sign = torch.where(gradient > 0, -1.0, 1.0)
    correction = torch.where(hard, sign * rest, 0.0).unsqueeze(-1)
    return p.scatter_add(-1, at, correction)


def _shifted(c: Tensor, e: Tensor, mu: Tensor) -> Tensor:
    """−e / (c + μ), 0 where the denominator is not positive."""
    below = c + mu.unsqueeze(-1)
    return -e / torch.where(below > 0, below, torch.inf)
