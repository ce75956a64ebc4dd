"""The trust region on functions whose stationary points are known: minima, saddles, valleys, flat
ground."""

import pytest
import torch
from torch.testing import assert_close

from experiments.three_layer.ends import SCALE, polish_further, stretched
from experiments.three_layer.polish import Smooth, polish
from experiments.three_layer.trust_region import ball_minimiser
from runner.curvature.closed_form import three_layer as tl
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
    down, near = (
        polish(smooth(two_wells), start, goal, far=100.0) for goal in ("downhill", "nearest")
    )
    assert down.kind == ["minimum"] * 3 and near.kind == ["saddle"] * 3
    assert_close(down.theta.abs(), rows([1, 0], [1, 0], [1, 0]), atol=1e-9, rtol=0)
    assert_close(near.theta, torch.zeros(3, 2, dtype=torch.float64), atol=1e-9, rtol=0)
    assert_close(near.eigenvalues, rows(*[[-4, 2]] * 3), atol=1e-8, rtol=0)
    assert bool((down.gradient_norm <= 1e-9).all())


@pytest.mark.parametrize(
    "value, kind",
    [
        (lambda t: torch.exp(-t[0]) + t[1] ** 2, "infinity"),  # the infimum is not attained
        (
            lambda t: torch.exp(-t[0]) + torch.exp(-2 * t[1]),
            "infinity",
        ),  # all of its curvature vanishes with it
        (lambda t: t[0] ** 4 + t[1] ** 2, "degenerate"),  # attained, with a singular Hessian
        (lambda t: (t[0] * t[1] - 1) ** 2, "degenerate"),  # a curve of minima
        (lambda t: -t[0] + t[1] ** 2, "infinity"),  # no lower bound
        (lambda t: torch.cosh(t[0]) + 1e-6 * t[1] ** 2, "minimum"),  # flat, but regular
    ],
)
def test_what_is_no_isolated_point(value, kind):
    assert polish(smooth(value), rows([0.7, 0.3]), far=1e4).kind == [kind]


def hyperbola(t):
    """Falls for ever along t0 t1 = 1, toward 0, the slower the farther."""
    return (t[0] * t[1] - 1) ** 2 + 1 / (1 + t[0].abs())


def test_going_on_follows_a_valley_to_infinity():
    start, limits = rows([1.5, 0.5], [2.0, 0.9]), {"far": 1e3, "tolerance": 1e-9}
    crept = polish(smooth(hyperbola), start, steps=5, **limits)
    led = polish_further(smooth(hyperbola), crept, steps=60, **limits)
    assert crept.kind == ["unfinished"] * 2 and led.kind == ["infinity"] * 2
    assert float(led.theta.norm(dim=1).min()) > 1e3 and bool((led.steps > crept.steps).all())


def test_going_on_ends_at_a_minimum_where_there_is_one():
    limits = {"far": 100.0, "tolerance": 1e-9}
    stopped = polish(smooth(two_wells), rows([0.05, 0.3], [0.6, 0.2]), steps=2, **limits)
    ended = polish_further(smooth(two_wells), stopped, steps=60, **limits)
    assert stopped.kind == ["unfinished"] * 2 and ended.kind == ["minimum"] * 2
    assert_close(ended.theta.abs(), rows([1, 0], [1, 0]), atol=1e-9, rtol=0)


def test_a_gradient_of_rounding_counts_as_none_only_where_it_is_asked_for():
    """No float64 near t0 t1 = 2 has a gradient of 1e-9 where many terms of a curvature of 1e12 have
    to cancel there."""
    levels = 2 + torch.linspace(-1, 1, 21, dtype=torch.float64).sin()

    def steep(t):
        return 1e12 * (t[0] * t[1] - levels).square().sum()

    start = rows([1.5, 1.2], [0.7, 3.1])
    plain, told = (
        polish(smooth(steep), start, far=100.0, rounding=rounding) for rounding in (False, True)
    )
    assert plain.kind == ["unfinished"] * 2 and told.kind == ["degenerate"] * 2
    assert bool((told.gradient_norm > 1e-9).all()) and bool((told.gradient_norm < 1).all())
    hill = polish(smooth(steep), start, far=100.0, steps=1, rounding=True)
    assert hill.kind == ["unfinished"] * 2  # a slope that is no rounding stays one


def test_stretched_has_the_derivatives_of_its_value():
    f, u = stretched(smooth(hyperbola)), rows([5.7, -4.3], [2.0, 0.1])
    want = smooth(lambda v: hyperbola(SCALE * v.sinh()))
    assert_close(f.gradient(u), want.gradient(u), rtol=1e-12, atol=1e-12)
    assert_close(f.hessian(u), want.hessian(u), rtol=1e-12, atol=1e-12)


def test_ball_minimiser_is_no_worse_than_a_fine_search():
    generator = seeded()
    for _ in range(50):
        c, e = normal(2, 1, 2, generator=generator)
        radius = torch.rand(1, generator=generator, dtype=torch.float64) + 0.1
        p = ball_minimiser(c, e, radius)
        assert float(p.norm()) <= float(radius) * (1 + 1e-12)
        angle = torch.linspace(0, 6.2832, 400, dtype=torch.float64)
        disc = (
            torch.stack([angle.cos(), angle.sin()], -1)[None]
            * torch.linspace(0, 1, 60).double()[:, None, None]
        )
        model = lambda p, c=c, e=e: (e * p).sum(-1) + 0.5 * (c * p.square()).sum(-1)  # noqa: E731
        best = float(model(disc * radius).min())
        assert float(model(p)[0]) <= 0.95 * best + 1e-9


def test_the_hard_case_goes_along_the_least_curvature():
    p = ball_minimiser(rows([-1.0, 2.0]), rows([0.0, 0.5]), torch.ones(1, dtype=torch.float64))
    assert float(p[0, 0].abs()) > 0.9 and float(p.norm()) == pytest.approx(1)


def test_points_do_not_depend_on_their_company():
    generator = seeded(1)
    x = normal(20, 2, generator=generator)
    q = (torch.arange(20) % 2).double()
    loss = Smooth(
        lambda t: tl.loss(t, x, q), lambda t: tl.gradient(t, x, q), lambda t: tl.hessian(t, x, q)
    )
    start = normal(6, 9, generator=generator)
    together = polish(loss, start, far=300.0, steps=12)
    assert bool((loss.value(together.theta) <= loss.value(start)).all())
    others = normal(6, 9, generator=generator)
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
        ({"start": torch.full((1, 2), torch.nan, dtype=torch.float64)}, "finite float64"),
        ({"far": 0.0}, "above zero"),
    ],
)
def test_mistakes_are_named(change, words):
    settings = {"start": rows([0.0, 0.0]), "goal": "downhill", "far": 1.0} | change
    with refusal(words):
        polish(smooth(two_wells), settings.pop("start"), settings.pop("goal"), **settings)
