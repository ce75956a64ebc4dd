"""The trust region on functions whose stationary points are known: minima, saddles, valleys, flat
ground."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from experiments.three_layer.ends import SCALE, polish_further, stretched
from experiments.three_layer.polish import Smooth, polish
from experiments.three_layer.trust_region import ball_minimiser
from runner.closed_form import three_layer as tl
from tests.draws import normal, seeded
from tests.errors import refusal


def smooth(value):
    """Derivatives by automatic differentiation of value: (D,) -> ()."""
    one = torch.func
    return Smooth(one.vmap(value), one.vmap(one.grad(value)), one.vmap(one.hessian(value)))


def rows(*points):
    return torch.tensor(points, dtype=torch.float64)


def two_wells(t):
    """Minima at (±1, 0), a saddle at the origin."""
    return (t[0] ** 2 - 1) ** 2 + t[1] ** 2


def test_downhill_leaves_the_saddle_and_nearest_finds_it():
    start = rows([0.05, 0.3], [-0.05, 0.3], [0.0, 0.4])
    goals = ("downhill", "nearest")
    down, near = (polish(smooth(two_wells), start, goal, far=100.0) for goal in goals)
    assert down.kind == ["minimum"] * 3 and near.kind == ["saddle"] * 3
    assert_close(down.theta.abs(), rows([1, 0], [1, 0], [1, 0]), atol=1e-9, rtol=0)
    assert_close(near.theta, torch.zeros(3, 2, dtype=torch.float64), atol=1e-9, rtol=0)
    assert_close(near.eigenvalues, rows(*[[-4, 2]] * 3), atol=1e-8, rtol=0)
    assert bool((down.gradient_norm <= 1e-9).all())


@pytest.mark.parametrize(
    "value, kind",
    [
        # the infimum is not attained
        (lambda t: torch.exp(-t[0]) + t[1] ** 2, "infinity"),
        # all of its curvature vanishes with it
        (lambda t: torch.exp(-t[0]) + torch.exp(-2 * t[1]), "infinity"),
        # attained, with a singular Hessian
        (lambda t: t[0] ** 4 + t[1] ** 2, "degenerate"),
        # a curve of minima
        (lambda t: (t[0] * t[1] - 1) ** 2, "degenerate"),
        # no lower bound
        (lambda t: -t[0] + t[1] ** 2, "infinity"),
        # flat, but regular
        (lambda t: torch.cosh(t[0]) + 1e-6 * t[1] ** 2, "minimum"),
    ],
)
def test_what_is_no_isolated_point(value, kind):
    assert polish(smooth(value), rows([0.7, 0.3]), far=1e4).kind == [kind]


def hyperbola(t):
    """Falls for ever along t0 t1 = 1, toward 0, the slower the farther."""
    return (t[0] * t[1] - 1) ** 2 + 1 / (1 + t[0].abs())


def led(function, start, steps, far):
    """Where a polish of few steps ends that goes on."""
    how = {"far": far, "tolerance": 1e-9}
    stopped = polish(smooth(function), start, steps=steps, **how)
    assert stopped.kind == ["unfinished"] * 2
    ended = polish_further(smooth(function), stopped, steps=60, **how)
    assert bool((ended.steps > stopped.steps).all())
    return ended


def test_going_on_follows_a_valley_to_infinity():
    ended = led(hyperbola, rows([1.5, 0.5], [2.0, 0.9]), 5, far=1e3)
    assert ended.kind == ["infinity"] * 2 and float(ended.theta.norm(dim=1).min()) > 1e3


def test_going_on_ends_at_a_minimum_where_there_is_one():
    ended = led(two_wells, rows([0.05, 0.3], [0.6, 0.2]), 2, far=100.0)
    assert ended.kind == ["minimum"] * 2
    assert_close(ended.theta.abs(), rows([1, 0], [1, 0]), atol=1e-9, rtol=0)


def test_a_gradient_of_rounding_counts_as_none_only_where_it_is_asked_for():
    """No float64 near t0 t1 = 2 has a gradient of 1e-9 where many terms of a curvature of 1e12 have
    to cancel there."""
    levels = 2 + torch.linspace(-1, 1, 21, dtype=torch.float64).sin()
    steep = smooth(lambda t: 1e12 * (t[0] * t[1] - levels).square().sum())
    ends = partial(polish, steep, rows([1.5, 1.2], [0.7, 3.1]), far=100.0)
    assert ends().kind == ["unfinished"] * 2
    told = ends(rounding=True)
    assert told.kind == ["degenerate"] * 2
    assert bool((told.gradient_norm > 1e-9).all()) and bool((told.gradient_norm < 1).all())
    # a slope that is no rounding stays one
    assert ends(steps=1, rounding=True).kind == ["unfinished"] * 2


def test_stretched_has_the_derivatives_of_its_value():
    f, u = stretched(smooth(hyperbola)), rows([5.7, -4.3], [2.0, 0.1])
    want = smooth(lambda v: hyperbola(SCALE * v.sinh()))
    assert_close(f.gradient(u), want.gradient(u), rtol=1e-12, atol=1e-12)
    assert_close(f.hessian(u), want.hessian(u), rtol=1e-12, atol=1e-12)


def test_ball_minimiser_is_no_worse_than_a_fine_search():
    generator = seeded()
    angle = torch.linspace(0, 2 * math.pi, 400, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], -1)
    disc = circle * torch.linspace(0, 1, 60).double().view(-1, 1, 1)
    for _ in range(50):
        c, e = normal(2, 1, 2, generator=generator)
        radius = torch.rand(1, generator=generator, dtype=torch.float64) + 0.1
        found = ball_minimiser(c, e, radius)
        assert float(found.norm()) <= float(radius) * (1 + 1e-12)
        values = []
        for p in (found, disc * radius):
            values.append(float((e * p + 0.5 * c * p.square()).sum(-1).min()))
        assert values[0] <= 0.95 * values[1] + 1e-9


def test_the_hard_case_goes_along_the_least_curvature():
    p = ball_minimiser(rows([-1.0, 2.0]), rows([0.0, 0.5]), torch.ones(1, dtype=torch.float64))
    assert float(p[0, 0].abs()) > 0.9 and float(p.norm()) == pytest.approx(1)


def test_points_do_not_depend_on_their_company():
    generator = seeded(1)
    x = normal(20, 2, generator=generator)
    data = {"x": x, "q": (torch.arange(20) % 2).double()}
    loss = Smooth(*(partial(f, **data) for f in (tl.loss, tl.gradient, tl.hessian)))
    start, others = (normal(6, 9, generator=generator) for _ in range(2))
    together = polish(loss, start, far=300.0, steps=12)
    assert bool((loss.value(together.theta) <= loss.value(start)).all())
    # of as many others: kernels of another size round otherwise, and no step is solved to the end
    for k in range(6):
        company = others.clone()
        company[k] = start[k]
        again = polish(loss, company, far=300.0, steps=12)
        assert_close(again.theta[k], together.theta[k], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"goal": "uphill"}, "expected downhill or nearest"),
        ({"start": torch.zeros(2)}, "finite float64"),
        ({"start": rows([math.nan, math.nan])}, "finite float64"),
        ({"far": 0.0}, "above zero"),
    ],
)
def test_mistakes_are_named(change, words):
    settings = {"start": rows([0.0, 0.0]), "goal": "downhill", "far": 1.0} | change
    with refusal(words):
        polish(smooth(two_wells), **settings)
