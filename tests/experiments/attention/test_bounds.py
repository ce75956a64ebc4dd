"""Bounds of the attention paper, and balls in which Newton's method provably converges."""

import pytest
import torch

from experiments.attention import bounds
from experiments.attention.certified import (
    bilinear_norm_bound,
    certificate,
    certified_radius,
    third_derivative_bound,
)
from runner.curvature.closed_form import attention as att
from tests.draws import normal, seeded


def draw(n, d, radius, draws):
    generator = seeded()
    shapes = ((d, n), (d, n), (d, d), (d, d))
    raw = (normal(draws, *shape, generator=generator) for shape in shapes)
    b = 2 * torch.rand(draws, n, d, generator=generator, dtype=torch.float64) - 1
    return (*(bounds.scale_to_norm(m, radius) for m in raw), b * radius**2)


def draw_one(n, d, radius):
    """x, w and v of one draw."""
    x, _, w, v, _ = (m[0] for m in draw(n, d, radius, 1))
    return x, w, v


def test_attention_jacobian_matches_autodiff():
    x, w, _ = draw_one(4, 3, 2.0)
    expected = torch.func.jacrev(lambda flat: att.attention(att.unvec(flat, 3), w))(att.vec(x))
    assert (bounds.attention_jacobian(x, w) - expected).abs().max() < 1e-12


def test_case_norms_are_those_of_the_blocks():
    x, w, v = draw_one(3, 2, 1.5)
    expected = [0.0] * 4
    blocks = att.output_hessians(x, w, v).unflatten(-2, (3, 2)).unflatten(-1, (3, 2))
    norms = torch.linalg.matrix_norm(blocks.transpose(-3, -2), 2)
    for i0, j0, i1, i2 in torch.cartesian_prod(*map(torch.arange, (3, 2, 3, 3))).tolist():
        case = 2 * (i1 != i0) + (i2 != i0)  # of Definition E.2
        expected[case] = max(expected[case], float(norms[i0, j0, i1, i2]))
    assert bounds.case_norms(x, w, v).tolist() == pytest.approx(expected)
    alone = bounds.case_norms(*draw_one(1, 2, 1.5))
    assert alone.isnan().tolist() == [False, True, True, True]


@pytest.mark.parametrize("radius", [1.01, 2.0, 4.0])
@pytest.mark.parametrize("n, d", [(1, 1), (2, 1), (2, 3), (4, 3)])
def test_sharper_constants_hold_and_are_sharper(n, d, radius):
    x, y, w, v, b = draw(n, d, radius, 50)
    near = 0.98 * x + 0.01 * y
    for name, bound in bounds.BOUNDS.items():
        values = bounds.left_side(name, x, near, w, v, b)
        assert values.shape == (50,)
        constant = printed = bound.printed(n, d, radius)
        if bound.sharper is not None:
            constant = bound.sharper(n, d, radius)
        assert constant <= printed and values.max() <= constant * (1 + 1e-9), name


def test_batches_are_independent():
    x, _, w, v, b = draw(3, 2, 2.0, 4)
    names = [name for name, bound in bounds.BOUNDS.items() if bound.over == "point"]
    for name in names:
        alone = bounds.point_value(name, x[2], w[2], v[2], b[2])
        together = bounds.point_value(name, x, w, v, b)[2]
        assert float(alone) == pytest.approx(float(together), rel=1e-10, abs=1e-12)


def weights(n, d, seed, scale=1.0):
    generator = seeded(seed)
    x, w, v = (normal(*s, generator=generator) for s in ((d, n), (d, d), (d, d)))
    return x, scale * w / d**0.5, v / d**0.5


def derivative(function):
    """Of a function of one number, by forward differentiation."""
    return lambda t: torch.func.jvp(function, (t,), (torch.ones_like(t),))[1]


def third(x, u, w, v):
    """|d^3 outputs(X + t U) / dt^3| at t = 0, |U|_F = 1, by nested forward differentiation."""
    u = u / u.norm()
    along = derivative(derivative(derivative(lambda t: att.outputs(x + t * u, w, v))))
    return along(torch.zeros((), dtype=torch.float64)).norm()


@pytest.mark.parametrize("n, d, scale", [(2, 1, 1.0), (3, 2, 0.3), (3, 2, 3.0)])
def test_no_ascent_breaks_the_bound_of_the_third_derivative(n, d, scale):
    x0, w, v = weights(n, d, 5, scale)
    radius, generator, best = 0.3, seeded(6), 0.0
    bound = third_derivative_bound(x0, w, v, radius)
    for _ in range(2):
        u, away = (normal(d, n, generator=generator).requires_grad_() for _ in range(2))
        optimizer = torch.optim.Adam([u, away], lr=0.2)
        for _ in range(12):
            value = third(x0 + radius * away / away.norm(), u, w, v)
            optimizer.zero_grad()
            (-value).backward()
            optimizer.step()
            best = max(best, float(value.detach()))
    assert 0 < best <= bound


def test_norm_of_a_bilinear_map_is_bounded_from_above():
    tensor = normal(4, 3, 3, generator=seeded(7))
    tensor = tensor + tensor.mT
    u = normal(2000, 3, generator=seeded(8))
    u = u / u.norm(dim=-1, keepdim=True)
    values = torch.einsum("mij,si,sj->sm", tensor, u, u).norm(dim=-1)
    assert values.max() <= bilinear_norm_bound(tensor) <= tensor.norm()
    single = torch.zeros(2, 2, 2, dtype=torch.float64)
    single[0, 0, 0] = 3.0
    assert bilinear_norm_bound(single) == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(4))
def test_newton_converges_from_the_whole_certified_ball(seed):
    x, w, v = weights(3, 2, seed)
    b, radius = att.outputs(x, w, v), certified_radius(x, w, v)
    assert 0 < radius < float(x.norm())
    away = normal(12, 2, 3, generator=seeded(seed))
    at = x + 0.999 * radius * away / away.norm(dim=(-2, -1), keepdim=True)
    for _ in range(12):
        jacobian, residual = att.jacobian(at, w, v), att.residual(at, w, v, b)
        move = torch.linalg.solve(jacobian.flatten(1, 2), residual.flatten(1))
        at = at - att.unvec(move, 2)
    torch.testing.assert_close(at, x.expand_as(at), rtol=0, atol=1e-9)


def test_certificate_bounds_the_distance_to_the_solution():
    x, w, v = weights(3, 2, 1)
    b = att.outputs(x, w, v)
    start = x + 0.2 * certified_radius(x, w, v) / 6**0.5
    found, far = (certificate(at, w, v, b) for at in (start, x + 1.0))
    assert found.certified and float((start - x).norm()) <= found.radius <= 2 * found.eta
    assert not far.certified and far.radius != far.radius


def test_singular_problems_are_never_certified():
    x, w, v = weights(3, 2, 2)
    v = torch.ones_like(v)
    assert certified_radius(x, w, v) == 0.0
    assert not certificate(x, w, v, att.outputs(x, w, v)).certified
