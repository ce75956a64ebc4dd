"""Closed-form attention derivatives against float64 automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from runner.curvature.closed_form import attention as att
from runner.curvature.closed_form.attention import Heads, bounds
from runner.curvature.closed_form.attention.bounds import (
    bilinear_norm_bound,
    certificate,
    certified_radius,
    third_derivative_bound,
)

SIZES = [(1, 1), (1, 3), (2, 1), (3, 2), (4, 5), (6, 3)]
GAMMA = 0.3


def instance(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((d, n), (d, d), (d, d), (n, d))
    x, w, v, b = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return x, w, v, b


def residual(flat: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """c(X) straight from Definitions B.4-B.8, one row at a time."""
    x = flat.reshape(b.shape).T
    rows = []
    for i in range(x.shape[1]):
        u = torch.exp(x.T @ w @ x[:, i])
        rows.append(torch.stack([(u / u.sum()) @ (x.T @ v[:, j]) for j in range(v.shape[1])]))
    return torch.stack(rows) - b


def objective(flat: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return residual(flat, w, v, b).square().sum() + GAMMA * flat.square().sum()


def relative(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).norm() / expected.norm().clamp_min(1e-3))


@pytest.fixture(params=SIZES, ids=lambda size: f"n{size[0]}d{size[1]}")
def problem(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return instance(*request.param)


def test_vec_stacks_columns() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert att.vec(x).tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(att.unvec(att.vec(x), 2), x)
    with pytest.raises(ValueError, match="multiple of d = 4"):
        att.unvec(att.vec(x), 4)


def test_value_and_gradient(problem: tuple[Tensor, ...]) -> None:
    x, w, v, b = problem
    flat = att.vec(x)
    assert relative(att.loss(x, w, v, b, GAMMA), objective(flat, w, v, b)) < 1e-12
    expected = torch.func.grad(objective)(flat, w, v, b)
    assert relative(att.vec(att.gradient(x, w, v, b, GAMMA)), expected) < 1e-10


def test_jacobian(problem: tuple[Tensor, ...]) -> None:
    x, w, v, b = problem
    expected = torch.func.jacrev(residual)(att.vec(x), w, v, b)
    assert relative(att.jacobian(x, w, v), expected) < 1e-10


def test_output_hessians_and_their_blocks(problem: tuple[Tensor, ...]) -> None:
    x, w, v, b = problem
    d, n = x.shape
    expected = torch.func.hessian(residual)(att.vec(x), w, v, b)
    found = att.output_hessians(x, w, v)
    assert relative(found, expected) < 1e-10
    blocks = expected.reshape(n, d, n, d, n, d)
    cases = set()
    for i0, i1, i2 in torch.cartesian_prod(*[torch.arange(n)] * 3).tolist():
        cases.add(att.index_case(i0, i1, i2))
        block = att.hessian_block(x, w, v, (i0, d - 1), i1, i2)
        scale = expected[i0, d - 1].norm().clamp_min(1e-3)
        assert (block - blocks[i0, d - 1, i1, :, i2]).norm() <= 1e-10 * scale
    assert cases == ({1} if n == 1 else {1, 2, 3, 4})


def test_loss_hessian_and_its_split(problem: tuple[Tensor, ...]) -> None:
    x, w, v, b = problem
    expected = torch.func.hessian(objective)(att.vec(x), w, v, b)
    found = att.hessian(x, w, v, b, GAMMA)
    assert relative(found, expected) < 1e-10
    assert torch.equal(found, found.mT) or relative(found, found.mT) < 1e-15
    jac = torch.func.jacrev(residual)(att.vec(x), w, v, b).flatten(0, 1)
    assert relative(att.gauss_newton(x, w, v), 2 * jac.T @ jac) < 1e-10
    regulariser = 2 * GAMMA * torch.eye(x.numel(), dtype=x.dtype)
    split = att.gauss_newton(x, w, v) + att.curvature(x, w, v, b) + regulariser
    assert relative(found, split) < 1e-14


def test_curvature_vanishes_where_the_target_is_fitted(problem: tuple[Tensor, ...]) -> None:
    x, w, v, _ = problem
    assert att.curvature(x, w, v, att.outputs(x, w, v)).abs().max() < 1e-12


def test_value_curvature_is_linear_and_the_sum_over_rows() -> None:
    x, w, _, b = instance(5, 3, seed=1)
    first, second = b, b.flip(0)
    combined = att.value_curvature(x, w, 2 * first - 3 * second)
    separate = 2 * att.value_curvature(x, w, first) - 3 * att.value_curvature(x, w, second)
    assert relative(combined, separate) < 1e-12
    assert relative(att.value_curvature(x, w, first), att.value_hessians(x, w, first).sum(0)) < 1e-12


def test_hessian_vector_product_needs_no_matrix(problem: tuple[Tensor, ...]) -> None:
    x, w, v, b = problem
    directions = torch.randn(4, *x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
    dense = torch.func.hessian(objective)(att.vec(x), w, v, b)
    found = att.hessian_vector_product(x, w, v, b, directions, GAMMA)
    assert relative(att.vec(found), att.vec(directions) @ dense) < 1e-10


def test_batches_match_single_instances() -> None:
    singles = [instance(4, 3, seed) for seed in range(3)]
    x, w, v, b = (torch.stack(parts) for parts in zip(*singles, strict=True))
    for function in (att.loss, att.gradient, att.residual, att.curvature, att.hessian):
        expected = torch.stack([function(*single) for single in singles])
        assert relative(function(x, w, v, b), expected) < 1e-13, function.__name__
    for function in (att.jacobian, att.gauss_newton, att.output_hessians):
        expected = torch.stack([function(*single[:3]) for single in singles])
        assert relative(function(x, w, v), expected) < 1e-13, function.__name__
    shared = att.hessian(x, w[0], v[0], b[0])
    assert relative(shared[2], att.hessian(x[2], w[0], v[0], b[0])) < 1e-13


def test_laws_of_the_layer() -> None:
    """Rows of F sum to one, and permuting the tokens permutes outputs, targets and Hessian blocks."""
    x, w, v, b = instance(5, 3, seed=2)
    assert torch.allclose(att.attention(x, w).sum(-1), torch.ones(5, dtype=x.dtype))
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(att.outputs(x[:, order], w, v), att.outputs(x, w, v)[order])
    entries = (order[:, None] * 3 + torch.arange(3)).flatten()
    permuted = att.hessian(x[:, order], w, v, b[order])
    assert relative(permuted, att.hessian(x, w, v, b)[entries][:, entries]) < 1e-12


def test_large_scores_stay_finite() -> None:
    """exp(X^T W X) overflows in Definition B.4; the softmax and every derivative do not."""
    x, w, v, b = instance(4, 3)
    scaled = 60 * x
    assert torch.isinf(torch.exp(scaled.T @ w @ scaled)).any()
    assert torch.isfinite(att.hessian(scaled, w, v, b)).all()


@pytest.mark.parametrize("broken", ["W", "V", "B"])
def test_shape_mistakes_are_named(broken: str) -> None:
    x, w, v, b = instance(4, 3)
    parts = {"W": w, "V": v, "B": b}
    parts[broken] = parts[broken][:-1]
    with pytest.raises(ValueError, match=f"{broken}: expected"):
        att.gradient(x, parts["W"], parts["V"], parts["B"])


def draw(n: int, d: int, radius: float, draws: int, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((d, n), (d, n), (d, d), (d, d))
    raw = (torch.randn(draws, *shape, generator=generator, dtype=torch.float64) for shape in shapes)
    b = 2 * torch.rand(draws, n, d, generator=generator, dtype=torch.float64) - 1
    return (*(bounds.scale_to_norm(m, radius) for m in raw), b * radius**2)


def test_attention_jacobian_matches_autodiff() -> None:
    x, _, w, _, _ = (m[0] for m in draw(4, 3, 2.0, 1))
    expected = torch.func.jacrev(lambda flat: att.attention(att.unvec(flat, 3), w))(att.vec(x))
    assert (bounds.attention_jacobian(x, w) - expected).abs().max() < 1e-12


def test_case_norms_are_those_of_the_blocks() -> None:
    x, _, w, v, _ = (m[0] for m in draw(3, 2, 1.5, 1))
    expected = [0.0] * 4
    for i0, j0, i1, i2 in torch.cartesian_prod(torch.arange(3), torch.arange(2), *[torch.arange(3)] * 2).tolist():
        norm = float(torch.linalg.matrix_norm(att.hessian_block(x, w, v, (i0, j0), i1, i2), 2))
        case = att.index_case(i0, i1, i2) - 1
        expected[case] = max(expected[case], norm)
    assert bounds.case_norms(x, w, v).tolist() == pytest.approx(expected)
    alone = (m[0] for m in draw(1, 2, 1.5, 1))
    x, _, w, v, _ = alone
    assert bounds.case_norms(x, w, v).isnan().tolist() == [False, True, True, True]


@pytest.mark.parametrize("radius", [1.01, 2.0, 4.0])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (2, 3), (4, 3)])
def test_sharper_constants_hold_and_are_sharper(n: int, d: int, radius: float) -> None:
    x, y, w, v, b = draw(n, d, radius, 50)
    near = 0.98 * x + 0.01 * y
    values = {name: measure(x, w, v, b) for name, measure in bounds.POINT.items()}
    values |= {name: bounds.pair_value(name, x, near, w, v, b) for name in bounds.MOVED}
    assert values.keys() == bounds.BOUNDS.keys()
    for name, bound in bounds.BOUNDS.items():
        assert values[name].shape == (50,)
        constant = bound.printed(n, d, radius)
        if bound.sharper is not None:
            sharper = bound.sharper(n, d, radius)
            assert sharper <= constant
            constant = sharper
        assert values[name].max() <= constant * (1 + 1e-9), name


def test_batches_are_independent() -> None:
    x, _, w, v, b = draw(3, 2, 2.0, 4)
    for measure in bounds.POINT.values():
        alone, together = measure(x[2], w[2], v[2], b[2]), measure(x, w, v, b)
        assert float(alone) == pytest.approx(float(together[2]), rel=1e-10, abs=1e-12)


DTYPE = torch.float64


def weights(n: int, d: int, seed: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
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
    x0, w, v = weights(n, d, 5, scale)
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
    x, w, v = weights(3, 2, seed)
    b, radius = att.outputs(x, w, v), certified_radius(x, w, v)
    assert 0 < radius < float(x.norm())
    away = torch.randn(12, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)
    at = x + 0.999 * radius * away / away.norm(dim=(-2, -1), keepdim=True)
    for _ in range(12):
        move = torch.linalg.solve(att.jacobian(at, w, v).flatten(1, 2), att.residual(at, w, v, b).flatten(1))
        at = at - att.unvec(move, 2)
    torch.testing.assert_close(at, x.expand_as(at), rtol=0, atol=1e-9)


def test_certificate_bounds_the_distance_to_the_solution() -> None:
    x, w, v = weights(3, 2, 1)
    b, radius = att.outputs(x, w, v), certified_radius(x, w, v)
    start = x + 0.2 * radius / 6**0.5
    found = certificate(start, w, v, b)
    assert found.certified and float((start - x).norm()) <= found.radius <= 2 * found.eta
    far = certificate(x + 1.0, w, v, b)
    assert not far.certified and far.radius != far.radius


def test_singular_problems_are_never_certified() -> None:
    x, w, _ = weights(3, 2, 2)
    v = torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=DTYPE)
    assert certified_radius(x, w, v) == 0.0
    assert not certificate(x, w, v, att.outputs(x, w, v)).certified


torch.set_num_threads(1)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)


@pytest.mark.parametrize(
    ("heads", "n", "d", "k", "causal"),
    [(1, 4, 3, 3, False), (2, 5, 4, 2, True), (3, 3, 4, 1, False), (1, 1, 2, 2, True)],
)
def test_jacobian_is_that_of_autodiff(heads: int, n: int, d: int, k: int, causal: bool) -> None:
    layer = Heads(random(heads, d, d, seed=1), random(heads, d, k, seed=2), causal)
    x = random(2, d, n, seed=3)
    found = layer.jacobian(x)
    assert found.shape == (2, n, heads * k, n * d) and layer.seen == heads * k
    for i in range(2):
        wanted = torch.autograd.functional.jacobian(lambda flat: layer.outputs(att.unvec(flat, d)), att.vec(x[i]))
        torch.testing.assert_close(found[i], wanted, rtol=1e-12, atol=1e-12)


def test_one_head_is_the_paper_s() -> None:
    x, w, v = random(3, 4, seed=4), random(3, 3, seed=5), random(3, 3, seed=6)
    layer = Heads(w[None], v[None])
    torch.testing.assert_close(layer.outputs(x), att.outputs(x, w, v), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(layer.jacobian(x), att.jacobian(x, w, v), rtol=1e-12, atol=1e-12)


def test_outputs_are_torch_s_attention() -> None:
    heads, d, k, n = 2, 4, 3, 5
    query, key, value = (random(heads, k, d, seed=s) for s in (7, 8, 9))
    x = random(d, n, seed=10)
    layer = Heads(key.mT @ query / k**0.5, value.mT, causal=True)
    wanted = nn.functional.scaled_dot_product_attention(*(x.mT @ m.mT for m in (query, key, value)), is_causal=True)
    torch.testing.assert_close(layer.outputs(x), wanted.transpose(0, 1).flatten(1), rtol=1e-12, atol=1e-12)


def test_a_causal_row_depends_on_no_later_token() -> None:
    layer = Heads(random(1, 3, 3, seed=11), random(1, 3, 3, seed=12), causal=True)
    blocks = layer.jacobian(random(3, 4, seed=13)).unflatten(-1, (4, 3))
    for i in range(4):
        assert not blocks[i, :, i + 1 :].any() and blocks[i, :, i].any()


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="W: expected"):
        Heads(torch.zeros(2, 3), torch.zeros(1, 3, 3))
    with pytest.raises(ValueError, match="V: expected"):
        Heads(torch.zeros(1, 3, 3), torch.zeros(2, 3, 3))
    with pytest.raises(ValueError, match="X: expected"):
        Heads(torch.zeros(1, 3, 3), torch.zeros(1, 3, 3)).outputs(torch.zeros(2, 3))
