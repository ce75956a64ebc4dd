"""Directions toward flat minima against automatic differentiation of their objectives; adaptive SAM
start by start."""

import math

import pytest
import torch

from experiments.paper_audit.three_layer import loss as plain_loss
from experiments.three_layer.flatness import METHODS, AdaptiveSam, Regularised, training_direction
from experiments.three_layer.penalties import CONTRACTIONS
from runner.closed_form import three_layer as tl
from runner.training.descent.descent import LossGradient, Switch, descend
from tests.draws import seeded
from tests.errors import refusal
from tests.experiments.three_layer.problem import problem

NAMES = sorted(tl.ACTIVATIONS)
SIZES = [(20, 2, 3), (7, 1, 1), (9, 4, 5)]  # I, M, N


def objective(kind, theta, x, q, activation):
    """1.3 loss + 0.7 penalty."""
    loss = plain_loss(theta, x, q, activation)
    hessian = torch.func.hessian(plain_loss)(theta, x, q, activation)
    trace, dimension = torch.trace(hessian), len(theta)
    mean = trace / dimension
    deviator = hessian - mean * torch.eye(dimension, dtype=theta.dtype)
    share = math.sqrt((dimension - 1) / dimension)
    spread = share * deviator.norm()
    penalties = {"trace": trace, "bound": mean + spread, "mean": mean, "spread": spread}
    penalties["square"] = share * (hessian @ hessian).trace().sqrt()
    return 1.3 * loss + 0.7 * penalties[kind]


def step(direction, theta):
    move, watched = direction.bind(len(theta))(theta.t().contiguous(), 0)
    return move.t(), watched.t()


def close(found, expected, tolerance=1e-10):
    error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert float(error.max()) < tolerance


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", CONTRACTIONS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_regularised_is_the_gradient_of_its_objective(kind, name, size):
    theta, x, q = problem(*size, starts=3)
    move, watched = step(Regularised(x, q, kind, name, strength=0.7, loss_weight=1.3), theta)
    total = torch.func.grad(objective, argnums=1)
    close(move, torch.stack([total(kind, t, x, q, name) for t in theta]))
    close(watched, torch.stack([torch.func.grad(plain_loss)(t, x, q, name) for t in theta]))


@pytest.mark.parametrize("name", NAMES)
def test_regularised_agrees_with_the_closed_forms_far_from_the_origin(name):
    """Where units saturate and the Hessian is nearly singular, and on more starts than fill one
    vector."""
    theta, x, q = problem(samples=50, starts=60, scale=6.0)
    for kind, reference in (("trace", tl.trace_gradient), ("bound", tl.upper_bound_gradient)):
        move, _ = step(Regularised(x, q, kind, name, loss_weight=0.0), theta)
        close(move, reference(theta, x, q, name), 1e-9)


@pytest.fixture
def saturated():
    """A start with saturated outputs and v = 0, and its data: every derivative underflows to 0."""
    _, x, q = problem()
    theta = torch.zeros(1, 13, dtype=torch.float64)
    theta[0, 9] = 2000.0
    return theta, x, torch.ones_like(q)


@pytest.mark.parametrize("kind", ["spread", "square"])
def test_a_vanishing_norm_has_no_gradient(saturated, kind):
    """E = 0 where its norm is 0."""
    theta, x, q = saturated
    move, _ = step(Regularised(x, q, kind, loss_weight=0.0), theta)
    assert not move.any()


def test_a_vanishing_spread_leaves_the_gradient_of_the_mean(saturated):
    """σ = 0 exactly, for one of two starts."""
    theta, x, q = saturated
    both = torch.cat([theta, problem(starts=2)[0][1:]])
    move, _ = step(Regularised(x, q, "bound", loss_weight=0.0), both)
    assert torch.isfinite(move).all() and not move[0].any()


def by_hand(theta, x, q, activation, radius):
    """Adaptive SAM of one start, one parameter at a time."""
    units = tl.hidden_width(len(theta), x.shape[1])
    biases = {*range(units), units * (x.shape[1] + 1)}
    gradient = torch.func.grad(plain_loss)(theta, x, q, activation)
    operator = [1.0 if k in biases else abs(float(theta[k])) + 0.01 for k in range(len(theta))]
    norm = math.sqrt(sum((t * float(g)) ** 2 for t, g in zip(operator, gradient, strict=True)))
    moved = theta.clone()
    for k, t in enumerate(operator):
        moved[k] += radius * t * t * float(gradient[k]) / norm
    return torch.func.grad(plain_loss)(moved, x, q, activation), gradient


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_adaptive_sam_against_one_start_at_a_time(size):
    theta, x, q = problem(*size, scale=2.0)
    move, watched = step(AdaptiveSam(x, q, "tanh", 0.3), theta)
    for k, start in enumerate(theta):
        expected, gradient = by_hand(start, x, q, "tanh", 0.3)
        close(move[k], expected)
        close(watched[k], gradient)


def test_a_radius_of_zero_or_a_zero_gradient_leave_plain_descent(saturated):
    theta, x, q = problem()
    close(step(AdaptiveSam(x, q, radius=0.0), theta)[0], tl.gradient(theta, x, q))
    flat, x, q = saturated
    move, _ = step(AdaptiveSam(x, q), flat)
    assert not move.any()


@pytest.mark.parametrize("method", METHODS)
def test_methods_turn_to_plain_descent(method):
    theta, x, q = problem(starts=5)

    def after(steps, start, direction):
        return descend(start, direction, rate=0.01, stop_ratios=(1e-9,), max_steps=steps).final

    how = {"strength": 0.5, "radius": 0.2}
    first = after(6, theta, training_direction(method, x, q, **how)).theta
    second = after(5, first, LossGradient(x, q)).theta
    direction = training_direction(method, x, q, **how, until=6)
    assert isinstance(direction, Switch) or method == "gd"
    whole = after(11, theta, direction).theta
    torch.testing.assert_close(whole, second, rtol=1e-12, atol=1e-13)
    assert torch.equal(after(6, theta, LossGradient(x, q)).theta, first) is (method == "gd")


@pytest.mark.parametrize("method", METHODS)
def test_a_start_does_not_depend_on_its_company(method):
    theta, x, q = problem(samples=50, starts=150, scale=3.0)
    how = {"rate": 0.01, "max_steps": 80, "stop_ratios": (0.3,)}
    direction = training_direction(method, x, q, until=50)
    order = torch.randperm(150, generator=seeded(1))[:61]
    whole, part = (descend(start, direction, **how).final for start in (theta, theta[order]))
    assert torch.equal(part.theta, whole.theta[order])
    assert torch.equal(part.steps, whole.steps[order])


def test_what_cannot_be_used_is_refused():
    theta, x, q = problem()
    with refusal("expected a method out of gd, asam, trace, hsr, mean.*found 'sgd'"):
        training_direction("sgd", x, q)
    with refusal("penalty out of trace, bound"):
        Regularised(x, q, "norm")
    with refusal("radius"):
        AdaptiveSam(x, q, radius=-1.0)
    with refusal("one label per row"):
        step(Regularised(x, q[:3], "bound"), theta)
    with refusal("D = M N"):
        step(Regularised(x, q, "trace"), theta[:, :-1])
