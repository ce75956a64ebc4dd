"""Closed-form attention derivatives against float64 automatic differentiation."""

import pytest
import torch

from runner.curvature.closed_form import attention as att
from tests.draws import normal, seeded
from tests.errors import refusal

SIZES = [(1, 1), (1, 3), (2, 1), (3, 2), (4, 5), (6, 3)]
GAMMA = 0.3


def instance(n, d, seed=0):
    generator = seeded(seed)
    shapes = ((d, n), (d, d), (d, d), (n, d))
    x, w, v, b = (normal(shape, generator=generator) for shape in shapes)
    return x, w, v, b


def residual(flat, w, v, b):
    """c(X) straight from Definitions B.4-B.8, one row at a time."""
    x = flat.reshape(b.shape).T
    rows = []
    for i in range(x.shape[1]):
        u = torch.exp(x.T @ w @ x[:, i])
        rows.append(torch.stack([(u / u.sum()) @ (x.T @ v[:, j]) for j in range(v.shape[1])]))
    return torch.stack(rows) - b


def objective(flat, w, v, b):
    return residual(flat, w, v, b).square().sum() + GAMMA * flat.square().sum()


def relative(found, expected):
    assert found.shape == expected.shape
    return float((found - expected).norm() / expected.norm().clamp_min(1e-3))


@pytest.fixture(params=SIZES, ids=lambda size: f"n{size[0]}d{size[1]}")
def problem(request):
    return instance(*request.param)


def test_vec_stacks_columns():
    x = torch.arange(6.0).reshape(2, 3)
    assert att.vec(x).tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(att.unvec(att.vec(x), 2), x)
    with refusal("multiple of d = 4"):
        att.unvec(att.vec(x), 4)


def test_every_closed_form_against_autodiff(problem):
    x, w, v, b = problem
    flat = att.vec(x)
    assert relative(att.loss(x, w, v, b, GAMMA), objective(flat, w, v, b)) < 1e-12
    assert (
        relative(
            att.vec(att.gradient(x, w, v, b, GAMMA)), torch.func.grad(objective)(flat, w, v, b)
        )
        < 1e-10
    )
    jacobian, second = (f(residual)(flat, w, v, b) for f in (torch.func.jacrev, torch.func.hessian))
    assert relative(att.jacobian(x, w, v), jacobian) < 1e-10
    assert relative(att.output_hessians(x, w, v), second) < 1e-10
    for found, expected in zip(
        att.output_hessians(x, w, v).flatten(0, 1), second.flatten(0, 1), strict=True
    ):
        assert (found - expected).norm() <= 1e-10 * expected.norm().clamp_min(1e-3)
    dense, found = torch.func.hessian(objective)(flat, w, v, b), att.hessian(x, w, v, b, GAMMA)
    assert relative(found, dense) < 1e-10 and relative(found, found.mT) < 1e-15
    rows = jacobian.flatten(0, 1)
    assert relative(att.gauss_newton(x, w, v), 2 * rows.T @ rows) < 1e-10
    regulariser = 2 * GAMMA * torch.eye(x.numel(), dtype=x.dtype)
    assert (
        relative(found, att.gauss_newton(x, w, v) + att.curvature(x, w, v, b) + regulariser) < 1e-14
    )
    fitted = att.curvature(x, w, v, att.outputs(x, w, v))
    assert fitted.abs().max() < 1e-12, "the tensor part vanishes where the target is fitted"
    directions = torch.randn(4, *x.shape, generator=seeded(3), dtype=x.dtype)
    products = att.hessian_vector_product(x, w, v, b, directions, GAMMA)
    assert relative(att.vec(products), att.vec(directions) @ dense) < 1e-10


def test_value_curvature_is_linear_and_the_sum_over_rows():
    x, w, _, b = instance(5, 3, seed=1)
    first, second = b, b.flip(0)
    combined = att.value_curvature(x, w, 2 * first - 3 * second)
    separate = 2 * att.value_curvature(x, w, first) - 3 * att.value_curvature(x, w, second)
    assert relative(combined, separate) < 1e-12
    assert (
        relative(att.value_curvature(x, w, first), att.value_hessians(x, w, first).sum(0)) < 1e-12
    )


def test_batches_match_single_instances():
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


def test_large_scores_stay_finite():
    """exp(X^T W X) overflows in Definition B.4; the softmax and every derivative do not."""
    x, w, v, b = instance(4, 3)
    scaled = 60 * x
    assert torch.isinf(torch.exp(scaled.T @ w @ scaled)).any()
    assert torch.isfinite(att.hessian(scaled, w, v, b)).all()


@pytest.mark.parametrize("broken", ["W", "V", "B"])
def test_shape_mistakes_are_named(broken):
    x, w, v, b = instance(4, 3)
    parts = {"W": w, "V": v, "B": b}
    parts[broken] = parts[broken][:-1]
    with refusal(f"{broken}: expected"):
        att.gradient(x, parts["W"], parts["V"], parts["B"])
