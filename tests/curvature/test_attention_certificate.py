"""The certificate: its bounds against an ascent that tries to break them, and what it certifies against Newton."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from runner.curvature.closed_form import attention as att
from runner.curvature.closed_form.attention.certificate import (
    bilinear_norm_bound,
    certificate,
    certified_radius,
    third_derivative_bound,
)

torch.set_num_threads(1)
DTYPE = torch.float64


def instance(n: int, d: int, seed: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, w, v = (torch.randn(*s, generator=generator, dtype=DTYPE) for s in ((d, n), (d, d), (d, d)))
    return x, scale * w / d**0.5, v / d**0.5


def third(x: Tensor, u: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """|d^3 outputs(X + t U) / dt^3| at t = 0, |U|_F = 1, by nested forward differentiation."""
    u = u / u.norm()
    function = lambda t: att.outputs(x + t * u, w, v)  # noqa: E731
    for _ in range(3):
        function = (lambda inner: lambda t: torch.func.jvp(inner, (t,), (torch.ones_like(t),))[1])(function)
    return function(torch.zeros((), dtype=DTYPE)).norm()


@pytest.mark.parametrize(("n", "d", "scale"), [(2, 1, 1.0), (3, 2, 0.3), (3, 2, 3.0)])
def test_no_ascent_breaks_the_bound_of_the_third_derivative(n: int, d: int, scale: float) -> None:
    x0, w, v = instance(n, d, 5, scale)
    radius = 0.3
    bound = third_derivative_bound(x0, w, v, radius)
    generator = torch.Generator().manual_seed(6)
    best = 0.0
    for _ in range(2):
        u, away = (torch.randn(d, n, generator=generator, dtype=DTYPE).requires_grad_() for _ in range(2))
        optimizer = torch.optim.Adam([u, away], lr=0.2)
        for _ in range(12):
            x = x0 + radius * away / away.norm()
            value = third(x, u, w, v)
            optimizer.zero_grad()
            (-value).backward()
            optimizer.step()
            best = max(best, float(value.detach()))
    assert 0 < best <= bound


def test_norm_of_a_bilinear_map_is_bounded_from_above() -> None:
    tensor = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(7), dtype=DTYPE)
    tensor = tensor + tensor.mT
    u = torch.randn(2000, 3, generator=torch.Generator().manual_seed(8), dtype=DTYPE)
    u = u / u.norm(dim=-1, keepdim=True)
    values = torch.einsum("mij,si,sj->sm", tensor, u, u).norm(dim=-1)
    assert values.max() <= bilinear_norm_bound(tensor) <= tensor.norm()
    single = torch.zeros(2, 2, 2, dtype=DTYPE)
    single[0, 0, 0] = 3.0
    assert bilinear_norm_bound(single) == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(4))
def test_newton_converges_from_the_whole_certified_ball(seed: int) -> None:
    x, w, v = instance(3, 2, seed)
    b, radius = att.outputs(x, w, v), certified_radius(x, w, v)
    assert 0 < radius < float(x.norm())
    away = torch.randn(12, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)
    at = x + 0.999 * radius * away / away.norm(dim=(-2, -1), keepdim=True)
    for _ in range(12):
        move = torch.linalg.solve(att.jacobian(at, w, v).flatten(1, 2), att.residual(at, w, v, b).flatten(1))
        at = at - att.unvec(move, 2)
    torch.testing.assert_close(at, x.expand_as(at), rtol=0, atol=1e-9)


def test_certificate_bounds_the_distance_to_the_solution() -> None:
    x, w, v = instance(3, 2, 1)
    b, radius = att.outputs(x, w, v), certified_radius(x, w, v)
    start = x + 0.2 * radius / 6**0.5
    found = certificate(start, w, v, b)
    assert found.certified and float((start - x).norm()) <= found.radius <= 2 * found.eta
    far = certificate(x + 1.0, w, v, b)
    assert not far.certified and far.radius != far.radius


def test_singular_problems_are_never_certified() -> None:
    x, w, _ = instance(3, 2, 2)
    v = torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=DTYPE)
    assert certified_radius(x, w, v) == 0.0
    assert not certificate(x, w, v, att.outputs(x, w, v)).certified
