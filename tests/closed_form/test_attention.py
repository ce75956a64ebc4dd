"""Closed-form attention derivatives against float64 automatic differentiation."""

import pytest
import torch

from runner.closed_form import attention as att
from tests.draws import normal, seeded
from tests.errors import refusal

SIZES = [(1, 1), (1, 3), (2, 1), (3, 2), (4, 5), (6, 3)]
GAMMA = 0.3


def instance(n, d, seed=0):
    generator = seeded(seed)
    shapes = ((d, n), (d, d), (d, d), (n, d))
    return [normal(*shape, generator=generator) for shape in shapes]


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
    """x, w, v, b, and where the oracles are differentiated."""
    x, w, v, b = instance(*request.param)
    return x, w, v, b, (att.vec(x), w, v, b)


def test_vec_stacks_columns():
    x = torch.arange(6.0).reshape(2, 3)
    assert att.vec(x).tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(att.unvec(att.vec(x), 2), x)
    with refusal("multiple of d = 4"):
        att.unvec(att.vec(x), 4)


def test_derivatives_of_outputs_against_autodiff(problem):
    x, w, v, _, at = problem
    jacobian, second = torch.func.jacrev(residual)(*at), torch.func.hessian(residual)(*at)
    assert relative(att.jacobian(x, w, v), jacobian) < 1e-10
    found = att.output_hessians(x, w, v)
    assert relative(found, second) < 1e-10
    for one, expected in zip(found.flatten(0, 1), second.flatten(0, 1), strict=True):
        assert relative(one, expected) <= 1e-10
    rows = jacobian.flatten(0, 1)
    assert relative(att.gauss_newton(x, w, v), 2 * rows.T @ rows) < 1e-10


def test_derivatives_of_the_loss_against_autodiff(problem):
    x, w, v, b, at = problem
    assert relative(att.loss(x, w, v, b, GAMMA), objective(*at)) < 1e-12
    gradient = torch.func.grad(objective)(*at)
    assert relative(att.vec(att.gradient(x, w, v, b, GAMMA)), gradient) < 1e-10
    dense, found = torch.func.hessian(objective)(*at), att.hessian(x, w, v, b, GAMMA)
    assert relative(found, dense) < 1e-10 and relative(found, found.mT) < 1e-15
    parts = att.gauss_newton(x, w, v) + att.curvature(x, w, v, b)
    assert relative(found, parts + 2 * GAMMA * torch.eye(x.numel(), dtype=x.dtype)) < 1e-14
    fitted = att.curvature(x, w, v, att.outputs(x, w, v))
    assert fitted.abs().max() < 1e-12, "the tensor part vanishes where the target is fitted"
    directions = normal(4, *x.shape)
    products = att.hessian_vector_product(x, w, v, b, directions, GAMMA)
    assert relative(att.vec(products), att.vec(directions) @ dense) < 1e-10


def test_value_curvature_is_linear_and_the_sum_over_rows():
    x, w, _, first = instance(5, 3, seed=1)
    second = first.flip(0)
    one, other = att.value_curvature(x, w, first), att.value_curvature(x, w, second)
    assert relative(att.value_curvature(x, w, 2 * first - 3 * second), 2 * one - 3 * other) < 1e-12
    assert relative(one, att.value_hessians(x, w, first).sum(0)) < 1e-12


OF_TARGETS = (att.loss, att.gradient, att.residual, att.curvature, att.hessian)


@pytest.mark.parametrize(
    "function", [*OF_TARGETS, att.jacobian, att.gauss_newton, att.output_hessians]
)
def test_batches_match_single_instances(function):
    count = 4 if function in OF_TARGETS else 3
    singles = [instance(4, 3, seed)[:count] for seed in range(3)]
    batch = [torch.stack(parts) for parts in zip(*singles, strict=True)]
    expected = torch.stack([function(*single) for single in singles])
    assert relative(function(*batch), expected) < 1e-13


def test_a_batch_may_share_its_weights():
    x, (_, w, v, b) = normal(3, 3, 4), instance(4, 3)
    shared = att.hessian(x, w, v, b)
    assert relative(shared[2], att.hessian(x[2], w, v, b)) < 1e-13


def test_large_scores_stay_finite():
    """exp(X^T W X) overflows in Definition B.4; the softmax and every derivative do not."""
    x, w, v, b = instance(4, 3)
    scaled = 60 * x
    assert torch.isinf(torch.exp(scaled.T @ w @ scaled)).any()
    assert torch.isfinite(att.hessian(scaled, w, v, b)).all()


@pytest.mark.parametrize("place, name", [(1, "W"), (2, "V"), (3, "B")])
def test_shape_mistakes_are_named(place, name):
    parts = instance(4, 3)
    parts[place] = parts[place][:-1]
    with refusal(f"{name}: expected"):
        att.gradient(*parts)
