"""Descent of many starts against a plain loop over one start, and the papers' stop and duplicate
rules."""

import math

import pytest
import torch
from torch.testing import assert_close

from runner.closed_form import three_layer as tl
from runner.training.descent.descent import LossGradient, RowDirection, Switch, descend, duplicates
from tests.draws import normal, seeded
from tests.errors import refusal
from tests.experiments.three_layer.problem import problem

NAMES = sorted(tl.ACTIVATIONS)


def plain(theta, x, q, activation):
    """Points of one start and norms of their gradients, one step at a time, by autograd."""
    points, norms = [], []
    for _ in range(121):
        leaf = theta.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(tl.loss(leaf, x, q, activation), leaf)
        points.append(theta)
        norms.append(float(gradient.norm()))
        theta = theta - 0.01 * gradient
    return points, norms


@pytest.mark.parametrize("name, width", list(zip(NAMES, [1, 4, 4, 1, 4], strict=True)))
def test_every_start_follows_the_plain_loop(name, width):
    """Steeper starts are chaotic under the linear activation."""
    theta, x, q = problem(starts=4, units=width)
    settings = {"rate": 0.01, "max_steps": 120, "stop_ratios": (0.2, 0.03)}
    result = descend(theta, LossGradient(x, q, name), **settings)
    assert sorted(result.endpoints) == [0.03, 0.2]
    assert result.final is result.endpoints[0.03]
    for k, start in enumerate(theta):
        points, norms = plain(start, x, q, name)
        for ratio, ends in result.endpoints.items():
            met = [number for number, norm in enumerate(norms) if norm <= ratio * norms[0]]
            number = min(met, default=120)
            assert (int(ends.steps[k]), bool(ends.converged[k])) == (number, bool(met))
            assert_close(ends.theta[k], points[number], rtol=1e-8, atol=1e-10)


def test_more_starts_than_one_block():
    theta, x, q = problem(starts=1100, units=1, samples=5, scale=3.0)
    settings = {"rate": 0.1, "max_steps": 5, "stop_ratios": (0.9,)}
    whole = descend(theta, LossGradient(x, q), **settings, record=(3, 1099))
    tail = descend(theta[1000:], LossGradient(x, q), **settings)
    assert torch.equal(whole.final.theta[1000:], tail.final.theta)
    assert sorted(whole.trajectories) == [3, 1099]


def test_recorded_points_are_those_of_the_descent():
    theta, x, q = problem(starts=60, scale=3.0)
    gradient, settings = LossGradient(x, q), {"stop_ratios": (0.2,), "record_every": 7}
    result = descend(theta, gradient, rate=0.05, max_steps=100, record=(5, 50), **settings)
    assert sorted(result.trajectories) == [5, 50]
    for start, path in result.trajectories.items():
        end = int(result.final.steps[start])
        assert path.steps.tolist() == sorted({*range(0, end + 1, 7), end})
        assert torch.equal(path.theta[-1], result.final.theta[start])
        for number, point in zip(path.steps.tolist(), path.theta, strict=True):
            again = descend(theta[start, None], gradient, rate=0.05, max_steps=number)
            assert torch.equal(again.final.theta[0], point)


def test_diverged_and_unfinished_starts_are_told_apart():
    theta = torch.tensor([[1.0], [1e-9], [2.0]], dtype=torch.float64)
    # Descent on −theta⁴ blows up from 1 and 2; from 1e-9 it has not moved after 50 steps.
    ends = descend(theta, lambda t, _: -4 * t**3, rate=1.0, max_steps=50).final
    assert ends.status == ["diverged", "not converged", "diverged"]
    assert int(ends.steps[0]) < 50 and int(ends.steps[1]) == 50


def test_a_critical_start_converges_at_once():
    ends = descend(torch.zeros(2, 3), lambda t, _: t, rate=0.1, max_steps=10).final
    assert ends.status == ["converged"] * 2 and ends.steps.tolist() == [0, 0]


def test_ratio_met_before_divergence_stays_met():
    def direction(theta, number):
        return theta if number < 3 else torch.full_like(theta, math.nan)

    settings = {"rate": 0.9, "max_steps": 9, "stop_ratios": (0.5, 1e-9)}
    result = descend(torch.ones(1, 1), RowDirection(direction), **settings)
    met, diverged = result.endpoints[0.5], result.endpoints[1e-9]
    assert (met.status, met.steps.tolist()) == (["converged"], [1])
    assert (diverged.status, diverged.steps.tolist()) == (["diverged"], [3])


def test_two_ratios_met_by_one_step():
    settings = {"rate": 1.0, "max_steps": 5, "stop_ratios": (0.5, 0.1)}
    for ends in descend(torch.ones(2, 3), lambda t, _: t, **settings).endpoints.values():
        assert ends.steps.tolist() == [1, 1]


def test_switch_and_watched_gradient():
    theta, x, q = problem(starts=3, scale=3.0)

    def pull(points, number):
        slope = tl.gradient(points, x, q)
        return slope + points, slope

    direction = Switch(RowDirection(pull), LossGradient(x, q), 20)
    settings = {"rate": 0.05, "max_steps": 60, "stop_ratios": (0.1,), "stop_from": 30}
    result = descend(theta, direction, **settings)
    for k, point in enumerate(theta):
        initial = tl.gradient(point, x, q).norm()
        for number in range(61):
            slope = tl.gradient(point, x, q)
            if number == 60 or (number >= 30 and slope.norm() <= 0.1 * initial):
                break
            point = point - 0.05 * (slope + point if number < 20 else slope)
        assert int(result.final.steps[k]) == number
        assert_close(result.final.theta[k], point, rtol=1e-10, atol=1e-12)


def threshold(theta):
    """Distance below which the papers' rule takes points for duplicates."""
    distance = torch.pdist(theta)
    return float(distance.mean() - 3 * distance.std(correction=0))


def test_duplicates_keep_one_of_each_cluster():
    centres = normal(40, 6, generator=seeded())
    theta = torch.cat([centres, centres[:3] + 1e-6, centres[:1] - 1e-6])
    assert duplicates(theta).nonzero()[:, 0].tolist() == [40, 41, 42, 43]
    assert threshold(theta) > 1e-5
    assert not duplicates(theta[:2]).any()
    assert not duplicates(torch.zeros(0, 3)).any()


def test_a_point_near_a_dropped_one_only_is_kept():
    """Of three points in a row, the middle one repeats the first; the last is too far from what is
    kept."""
    centres = normal(40, 30, generator=seeded(1))
    step = torch.zeros(30).double()
    step[0] = 0.7 * threshold(centres)
    theta = torch.cat([centres, centres[:1] + step, centres[:1] + 2 * step])
    assert float(step[0]) < threshold(theta) < 2 * float(step[0])
    assert duplicates(theta).nonzero()[:, 0].tolist() == [40]


def test_duplicates_with_a_negative_threshold_are_none():
    assert not duplicates(torch.tensor([[0.0], [0.0], [0.0], [100.0]])).any()


def test_wrong_shapes_are_refused():
    theta, x, q = problem()
    about = {"rate": 0.1, "max_steps": 3}
    with refusal("D = M N"):
        descend(theta[:, 1:], LossGradient(x, q), **about)
    with refusal("did you mean"):
        descend(theta, LossGradient(x, q, "tanhh"), **about)
