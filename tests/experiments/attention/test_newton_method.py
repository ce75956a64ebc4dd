"""Newton's method with its two steps, on functions whose answer is known."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from experiments.attention import newton_steps as newton
from experiments.attention.newton_method import minimise, observed_order
from experiments.attention.newton_steps import Objective
from experiments.attention.problem import recovery_objective
from runner.closed_form import attention as att
from tests.draws import normal, seeded
from tests.errors import refusal

close = partial(assert_close, rtol=1e-7, atol=1e-8)


def from_function(function):  # type: ignore[no-untyped-def]
    """Objective of a scalar function of one point, differentiated automatically."""
    gradient, hessian = torch.func.grad(function), torch.func.hessian(function)
    return Objective(*(torch.vmap(f) for f in (function, gradient, hessian)))


@from_function
def rosenbrock(x):
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


@from_function
def double_well(x):
    """Minima at (+-1, 0), a saddle at the origin."""
    return (x[0] ** 2 - 1) ** 2 + x[1] ** 2


def points(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def near(found, row, error=1e-8):
    assert (found - points(row)).norm() < error


@pytest.mark.parametrize("step", newton.STEPS)
def test_quadratic_is_solved_and_batched_starts_do_not_mix(step):
    generator = seeded()
    root, offset = normal(5, 5, generator=generator), normal(5, generator=generator)
    matrix = root @ root.T + torch.eye(5)
    objective = from_function(lambda x: 0.5 * x @ matrix @ x - offset @ x)
    start = normal(4, 5, generator=generator)
    trace, alone = (minimise(objective, s, step, tolerance=1e-10) for s in (start, start[2:3]))
    solution = torch.linalg.solve(matrix, offset)
    assert trace.converged.all()
    assert (trace.points[-1] - solution).norm(dim=-1).max() < 1e-10
    assert (trace.steps <= 2).all()
    shared = trace.points[: len(alone.points), 2]
    assert_close(alone.points[:, 0], shared, rtol=1e-10, atol=1e-12)


def test_line_search_reaches_the_minimum_of_rosenbrock():
    start = points((-1.2, 1.0, -0.5), (0.0, 0.0, 0.0), (2.0, -1.0, 1.5))
    trace = minimise(rosenbrock, start, "line search", max_steps=300, tolerance=1e-9)
    assert trace.converged.all()
    assert (trace.loss.diff(dim=0) <= 1e-12).all()
    # the first start may also end in the function's second minimum near (-1, 1, 1): a minimum all
    # the same
    assert (torch.linalg.eigvalsh(rosenbrock.hessian(trace.points[-1])) > 0).all()
    assert (trace.points[-1, 1:] - 1).abs().max() < 1e-6


def test_full_step_goes_to_the_saddle_and_says_so():
    trace = minimise(double_well, points((0.2, 0.3), (1.4, 0.5)), "full")
    near(trace.points[-1, 0], (0.0, 0.0))
    assert newton.INDEFINITE in trace.status[:, 0]
    near(trace.points[-1, 1], (1.0, 0.0))
    assert (trace.status[:, 1] == newton.OK).all()


def test_line_search_leaves_the_saddle_region():
    trace = minimise(double_well, points((0.2, 0.3)), "line search")
    assert newton.INDEFINITE in trace.status[:, 0]
    near(trace.points[-1, 0], (1.0, 0.0))


def test_singular_hessian_takes_the_pseudo_inverse():
    """f = (x + y - 1)^2 has a line of minima; the nearest one is reached and the step is marked."""
    trace = minimise(from_function(lambda x: (x.sum() - 1) ** 2), points((2.0, 0.0)), "full")
    assert trace.status[0, 0] == newton.SINGULAR
    near(trace.points[-1, 0], (1.5, -0.5))


def test_overflow_is_recorded_and_stops_only_that_start():
    """log-cosh: the full step from beyond 1.09 overshoots ever further until the Hessian
    underflows."""
    objective = from_function(lambda x: (torch.cosh(x).log()).sum())
    trace = minimise(objective, points((1.5,), (0.5,)), "full", max_steps=30)
    assert trace.status[:, 0].max() >= newton.SINGULAR
    assert not trace.converged[0] or trace.points[-1, 0].abs() > 1
    assert trace.converged[1] and trace.points[-1, 1].abs() < 1e-10


def test_unbounded_objective_stalls_or_overflows_instead_of_looping():
    falling = from_function(lambda x: -x.exp().sum())
    trace = minimise(falling, points((650.0,)), "line search", max_steps=200)
    assert trace.steps[0] < 200
    assert trace.status[-1, 0] in (newton.STALLED, newton.NOT_FINITE)


def test_spectral_step_floors_and_flips():
    hessian = torch.diag_embed(points((2.0, -4.0), (1.0, 0.0)))
    g = points((2.0, 4.0), (1.0, 0.0))
    flipped, status = newton.spectral_step(hessian, g, absolute=True)
    close(flipped[0], points((-1.0, -1.0))[0])
    assert status.tolist() == [newton.INDEFINITE, newton.SINGULAR]
    plain, _ = newton.spectral_step(hessian, g, absolute=False)
    close(plain, points((-1.0, 1.0), (-1.0, 0.0)))


K = torch.arange(5, dtype=torch.float64)
QUADRATIC = 0.3 ** (2**K)


@pytest.mark.parametrize(
    "errors, order",
    [
        (0.1 * 0.5**K, 1.0),
        (QUADRATIC, 2.0),
        (torch.cat([QUADRATIC, torch.full((3,), 1e-16)]), 2.0),  # rounding
        (torch.tensor([1.0, 2.0, 3.0]), math.nan),
        (torch.tensor([0.05, 0.01]), math.nan),
        (torch.full((4,), 0.05), math.nan),
    ],
)
def test_observed_order(errors, order):
    assert observed_order(errors) == pytest.approx(order, nan_ok=True)


def test_observed_order_of_a_zigzag():
    zigzag = torch.tensor([2.2e-3, 1.8e-3, 1.4e-5, 2.6e-6, 2.4e-11])
    assert observed_order(zigzag, pairs=5) == pytest.approx(2.0, abs=0.1)


def test_mistakes_are_named():
    with refusal("expected one of full"):
        minimise(rosenbrock, points((0.0, 0.0)), "dogleg")  # type: ignore[arg-type]
    with refusal("starts, variables"):
        minimise(rosenbrock, points((0.0, 0.0))[0])


def test_objective_is_the_regularised_loss():
    generator = seeded(4)
    x, w, v = (normal(2, n, generator=generator) for n in (3, 2, 2))
    b = torch.ones(3, 2, dtype=torch.float64)
    found = recovery_objective(w, v, b, 0.2)

    @from_function
    def expected(flat):
        points = att.unvec(flat, 2)
        rows = torch.softmax((points.mT @ w @ points).mT, -1) @ (points.mT @ v)
        return (rows - b).square().sum() + 0.2 * flat.square().sum()

    at = torch.stack([att.vec(x), att.vec(-0.5 * x)])
    for name in ("value", "gradient", "hessian"):
        close(getattr(found, name)(at), getattr(expected, name)(at))
