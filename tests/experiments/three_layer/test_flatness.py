"""Directions toward flat minima against automatic differentiation of their objectives; adaptive SAM
start by start."""

import math

import pytest
import torch

from experiments.paper_audit.three_layer import loss as plain_loss
from experiments.three_layer.flatness import METHODS, AdaptiveSam, Regularised, training_direction
from runner.curvature.closed_form import three_layer as tl
from runner.training.descent.descent import LossGradient, Switch, descend
from tests.draws import seeded
from tests.errors import refusal
from tests.experiments.three_layer.problem import problem

NAMES = sorted(tl.ACTIVATIONS)
SIZES = [(20, 2, 3), (7, 1, 1), (9, 4, 5)]  # I, M, N


def penalty(kind, theta, x, q, activation):
    hessian = torch.func.hessian(plain_loss)(theta, x, q, activation)
    if kind == "trace":
        return torch.trace(hessian)
    dimension, mean = len(theta), torch.trace(hessian) / len(theta)
    deviator = hessian - mean * torch.eye(dimension, dtype=theta.dtype)
    return mean + math.sqrt((dimension - 1) / dimension) * deviator.norm()


def step(direction, theta):
    move, watched = direction.bind(len(theta))(theta.t().contiguous(), 0)
    return move.t(), watched.t()


def close(found, expected, tolerance=1e-10):
    error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert float(error.max()) < tolerance


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["trace", "bound"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_regularised_is_the_gradient_of_its_objective(kind, name, size):
    theta, x, q = problem(*size, starts=3)
    move, watched = step(Regularised(x, q, kind, name, strength=0.7, loss_weight=1.3), theta)
    loss_gradients = torch.stack([torch.func.grad(plain_loss)(t, x, q, name) for t in theta])
    total = torch.stack(
        [
            torch.func.grad(
                lambda t: 1.3 * plain_loss(t, x, q, name) + 0.7 * penalty(kind, t, x, q, name)
            )(t)
            for t in theta
        ]
    )
    close(move, total)
    close(watched, loss_gradients)


@pytest.mark.parametrize("name", NAMES)
def test_regularised_agrees_with_the_closed_forms_far_from_the_origin(name):
    """Where units saturate and the Hessian is nearly singular, and on more starts than fill one
    vector."""
    theta, x, q = problem(samples=50, starts=60, scale=6.0)
    for kind, reference in (("trace", tl.trace_gradient), ("bound", tl.upper_bound_gradient)):
        move, _ = step(Regularised(x, q, kind, name, loss_weight=0.0), theta)
        close(move, reference(theta, x, q, name), 1e-9)


def test_a_vanishing_spread_leaves_the_gradient_of_the_mean():
    """With saturated outputs and v = 0 every second derivative underflows to 0, so σ = 0
    exactly."""
    theta, x, q = problem(starts=2)
    theta[0] = 0.0
    theta[0, 9] = 2000.0
    q = torch.ones_like(q)
    move, _ = step(Regularised(x, q, "bound", loss_weight=0.0), theta)
    assert torch.isfinite(move).all()
    assert torch.equal(move[0], torch.zeros(13, dtype=torch.float64))


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


def test_a_radius_of_zero_or_a_zero_gradient_leave_plain_descent():
    theta, x, q = problem()
    close(step(AdaptiveSam(x, q, radius=0.0), theta)[0], tl.gradient(theta, x, q))
    flat, q = torch.zeros(1, 13, dtype=torch.float64), torch.ones_like(q)
    flat[0, 9] = 2000.0
    move, _ = step(AdaptiveSam(x, q), flat)
    assert torch.equal(move, torch.zeros_like(move))


@pytest.mark.parametrize("method", METHODS)
def test_methods_turn_to_plain_descent(method):
    theta, x, q = problem(starts=5)
    rows = {"rate": 0.01, "stop_ratios": (1e-9,)}
    direction = training_direction(method, x, q, strength=0.5, radius=0.2, until=6)
    first = descend(
        theta, training_direction(method, x, q, strength=0.5, radius=0.2), max_steps=6, **rows
    ).final
    second = descend(first.theta, LossGradient(x, q), max_steps=5, **rows).final
    assert isinstance(direction, Switch) or method == "gd"
    torch.testing.assert_close(
        descend(theta, direction, max_steps=11, **rows).final.theta,
        second.theta,
        rtol=1e-12,
        atol=1e-13,
    )
    plain = descend(theta, LossGradient(x, q), max_steps=6, **rows).final
    assert torch.equal(plain.theta, first.theta) is (method == "gd")


@pytest.mark.parametrize("method", METHODS)
def test_a_start_does_not_depend_on_its_company(method):
    theta, x, q = problem(samples=50, starts=150, scale=3.0)
    arguments = {"rate": 0.01, "max_steps": 80, "stop_ratios": (0.3,)}
    direction = training_direction(method, x, q, until=50)
    whole = descend(theta, direction, **arguments).final
    order = torch.randperm(150, generator=seeded(1))[:61]
    part = descend(theta[order], direction, **arguments).final
    assert torch.equal(part.theta, whole.theta[order]) and torch.equal(
        part.steps, whole.steps[order]
    )


def test_what_cannot_be_used_is_refused():
    theta, x, q = problem()
    with refusal("expected a method out of gd, trace, asam, hsr, found 'sgd'"):
        training_direction("sgd", x, q)
    with refusal("penalty trace or bound"):
        Regularised(x, q, "norm")
    with refusal("radius"):
        AdaptiveSam(x, q, radius=-1.0)
    with refusal("one label per row"):
        step(Regularised(x, q[:3], "bound"), theta)
    with refusal("D = M N"):
        step(Regularised(x, q, "trace"), theta[:, :-1])
