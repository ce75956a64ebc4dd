"""The same function of u = asinh(θ/s), coordinate by coordinate: a valley toward infinity becomes short and straight.

A loss of a network often falls for ever along v w = const while w grows: a hyperbola, on which steps in θ shrink as its
curvature tells them to. In u, linear below s = `SCALE` and ± log 2|θ/s| above, it is the line u_v + u_w = const, and a
step of fixed length multiplies w. Critical points are the same in both; with θ = s sinh u, D = diag(s cosh u),

    ∇_u f = D ∇f        H_u = D H D + diag(θ ∇f)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from runner.training.polish import Goal, Polished, Smooth, polish

SCALE = 1e-2
"""Size of θ below which u is linear in it. Of 357 softplus ends of one search, 289 unfinished after 200 steps, 400 in u
leave 63 with a scale of 1, and 27 with this one; 1,400 more steps in θ leave 163."""


def to_theta(u: Tensor) -> Tensor:
    """s sinh u."""
    return SCALE * u.sinh()


def from_theta(theta: Tensor) -> Tensor:
    """asinh(θ/s)."""
    return (theta / SCALE).asinh()


def stretched(function: Smooth) -> Smooth:
    """`function` of u = asinh(θ/s); its size is still that of θ.

    >>> import torch
    >>> square = Smooth(lambda t: t.square().sum(-1), lambda t: 2 * t, lambda t: 2 * torch.eye(1).expand(len(t), 1, 1))
    >>> f = stretched(square)
    >>> u = torch.tensor([[0.7]])
    >>> bool(torch.isclose(f.gradient(u), SCALE**2 * (2 * u).sinh()).all())
    True
    """

    def hessian(u: Tensor) -> Tensor:
        theta, scale = to_theta(u), SCALE * u.cosh()
        own = torch.diag_embed(function.gradient(theta) * theta)
        return function.hessian(theta) * scale.unsqueeze(-1) * scale.unsqueeze(-2) + own

    return Smooth(
        lambda u: function.value(to_theta(u)),
        lambda u: function.gradient(to_theta(u)) * SCALE * u.cosh(),
        hessian,
        lambda u: function.size(to_theta(u)),
    )


def polish_further(
    function: Smooth,
    found: Polished,
    goal: Goal = "downhill",
    *,
    far: float,
    tolerance: float,
    steps: int,
    rounding: bool = False,
) -> Polished:
    """Go on with the unfinished of `found`: at most `steps` in u, then as many in θ, where it is said what they are.

    rounding: as `polish` has it.
    Finished points stay what they are; `steps` of the result counts all trials. A point runs to infinity if it gets
    beyond `far`, or if its valley goes on in either variable (`polish`); what is finished in one of them is finished.
    """
    left = torch.tensor([kind == "unfinished" for kind in found.kind])
    if not bool(left.any()):
        return found
    how: dict[str, Any] = {"far": far, "tolerance": tolerance, "steps": steps, "rounding": rounding}
    away = polish(stretched(function), from_theta(found.theta[left]), goal, **how)
    ended = polish(function, to_theta(away.theta), goal, **how)
    kinds, led = list(found.kind), zip(away.kind, ended.kind, strict=True)
    for i, pair in zip(left.nonzero()[:, 0].tolist(), led, strict=True):
        kinds[i] = "infinity" if "infinity" in pair else pair[0] if pair[1] == "unfinished" else pair[1]

    def put(old: Tensor, new: Tensor) -> Tensor:
        result = old.clone()
        result[left] = new
        return result

    return Polished(
        put(found.theta, ended.theta),
        put(found.gradient_norm, ended.gradient_norm),
        put(found.newton_step, ended.newton_step),
        put(found.eigenvalues, ended.eigenvalues),
        put(found.steps, found.steps[left] + away.steps + ended.steps),
        kinds,
    )
