"""Newton's method with its three steps, on functions whose answer is known."""

import pytest
import torch

from experiments.attention import newton_steps as newton
from experiments.attention.lbfgs import lbfgs
from experiments.attention.newton_method import minimise, observed_order
from experiments.attention.newton_steps import Objective
from experiments.attention.problem import recovery_objective
from runner.curvature.closed_form import attention as att
from tests.draws import normal, seeded
from tests.errors import refusal


def from_function(function):  # type: ignore[no-untyped-def]
    """Objective of a scalar function of one point, differentiated automatically."""
    gradient, hessian = torch.func.grad(function), torch.func.hessian(function)

    def product(points, directions):
        return torch.vmap(lambda x, p: torch.func.jvp(gradient, (x,), (p,))[1])(points, directions)

    batched = [torch.vmap(f) for f in (function, gradient, hessian)]
    return Objective(*batched, product)


def rosenbrock(x):
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


def double_well(x):
    """Minima at (+-1, 0), a saddle at the origin."""
    return (x[0] ** 2 - 1) ** 2 + x[1] ** 2


def points(*rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("step", newton.STEPS)
def test_quadratic_is_solved_and_batched_starts_do_not_mix(step):
    generator = seeded()
    root = normal(5, 5, generator=generator)
    matrix, offset = (
        root @ root.T + torch.eye(5),
        normal(5, generator=generator),
    )
    objective = from_function(lambda x: 0.5 * x @ matrix @ x - offset @ x)
    start = normal(4, 5, generator=generator)
    trace = minimise(objective, start, step, tolerance=1e-10)
    solution = torch.linalg.solve(matrix, offset)
    assert trace.converged.all()
    assert (trace.points[-1] - solution).norm(dim=-1).max() < 1e-10
    if step != "truncated CG":
        assert (trace.steps <= 2).all()
    alone = minimise(objective, start[2:3], step, tolerance=1e-10)
    shared = trace.points[: len(alone.points), 2]
    assert torch.allclose(alone.points[:, 0], shared, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("step", ["line search", "truncated CG"])
def test_globalised_steps_reach_the_minimum_of_rosenbrock(step):
    start = points((-1.2, 1.0, -0.5), (0.0, 0.0, 0.0), (2.0, -1.0, 1.5))
    trace = minimise(from_function(rosenbrock), start, step, max_steps=300, tolerance=1e-9)
    assert trace.converged.all()
    assert (trace.loss.diff(dim=0) <= 1e-12).all()
    # the first start may also end in the function's second minimum near (-1, 1, 1): a minimum all
    # the same
    values = torch.linalg.eigvalsh(from_function(rosenbrock).hessian(trace.points[-1]))
    assert (values > 0).all()
    assert (trace.points[-1, 1:] - 1).abs().max() < 1e-6


def test_full_step_goes_to_the_saddle_and_says_so():
    start = points((0.2, 0.3), (1.4, 0.5))
    trace = minimise(from_function(double_well), start, "full")
    assert trace.points[-1, 0].norm() < 1e-8
    assert newton.INDEFINITE in trace.status[:, 0]
    assert (trace.points[-1, 1] - points((1.0, 0.0))[0]).norm() < 1e-8
    assert (trace.status[:, 1] == newton.OK).all()


@pytest.mark.parametrize("step", ["line search", "truncated CG"])
def test_globalised_steps_leave_the_saddle_region(step):
    trace = minimise(from_function(double_well), points((0.2, 0.3)), step)
    assert newton.INDEFINITE in trace.status[:, 0]
    assert (trace.points[-1, 0] - points((1.0, 0.0))[0]).norm() < 1e-8


def test_singular_hessian_takes_the_pseudo_inverse():
    """f = (x + y - 1)^2 has a line of minima; the nearest one is reached and the step is marked."""
    trace = minimise(from_function(lambda x: (x.sum() - 1) ** 2), points((2.0, 0.0)), "full")
    assert trace.status[0, 0] == newton.SINGULAR
    assert torch.allclose(trace.points[-1, 0], points((1.5, -0.5))[0])


def test_overflow_is_recorded_and_stops_only_that_start():
    """log-cosh: the full step from beyond 1.09 overshoots ever further until the Hessian
    underflows."""
    objective = from_function(lambda x: (torch.cosh(x).log()).sum())
    trace = minimise(objective, points((1.5,), (0.5,)), "full", max_steps=30)
    assert trace.status[:, 0].max() >= newton.SINGULAR
    assert not trace.converged[0] or trace.points[-1, 0].abs() > 1
    assert trace.converged[1] and trace.points[-1, 1].abs() < 1e-10


def test_unbounded_objective_stalls_or_overflows_instead_of_looping():
    trace = minimise(
        from_function(lambda x: -x.exp().sum()), points((650.0,)), "line search", max_steps=200
    )
    assert trace.steps[0] < 200
    assert trace.status[-1, 0] in (newton.STALLED, newton.NOT_FINITE)


def test_spectral_step_floors_and_flips():
    hessian = torch.diag_embed(points((2.0, -4.0), (1.0, 0.0)))
    g = points((2.0, 4.0), (1.0, 0.0))
    flipped, status = newton.spectral_step(hessian, g, absolute=True)
    assert torch.allclose(flipped[0], points((-1.0, -1.0))[0])
    assert status.tolist() == [newton.INDEFINITE, newton.SINGULAR]
    plain, _ = newton.spectral_step(hessian, g, absolute=False)
    assert torch.allclose(plain, points((-1.0, 1.0), (-1.0, 0.0)))


def test_truncated_cg_counts_products_and_cuts_at_negative_curvature():
    matrix = torch.diag(torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64))
    g = points((1e-9, 1e-9, 0.0), (0.0, 0.0, 1.0))
    step, status, products = newton.conjugate_gradients(lambda p: p @ matrix, g)
    assert torch.allclose(step[0], -torch.tensor([1e-9, 0.5e-9, 0.0], dtype=torch.float64))
    assert status.tolist() == [newton.OK, newton.INDEFINITE]
    assert torch.equal(step[1], -g[1])
    assert products.tolist() == [2.0, 1.0]


def test_lbfgs_agrees_with_newton_and_reports_its_work():
    start = points((-1.2, 1.0), (0.5, 0.5))
    objective = from_function(rosenbrock)
    trace = lbfgs(objective, start, tolerance=1e-8)
    assert trace.converged.all()
    assert (trace.points[-1] - 1).abs().max() < 1e-6
    assert torch.equal(trace.points[0], start)
    assert (trace.work.sum(0) >= trace.steps).all()
    assert trace.steps.max() > minimise(objective, start, "line search", tolerance=1e-8).steps.max()


def test_observed_order():
    k = torch.arange(5, dtype=torch.float64)
    assert observed_order(0.1 * 0.5**k) == pytest.approx(1.0)
    assert observed_order(0.3 ** (2**k)) == pytest.approx(2.0)
    rounding = torch.full((3,), 1e-16)
    assert observed_order(torch.cat([0.3 ** (2**k), rounding])) == pytest.approx(2.0)
    zigzag = torch.tensor([2.2e-3, 1.8e-3, 1.4e-5, 2.6e-6, 2.4e-11])
    assert observed_order(zigzag, pairs=5) == pytest.approx(2.0, abs=0.1)
    for hopeless in (
        torch.tensor([1.0, 2.0, 3.0]),
        torch.tensor([0.05, 0.01]),
        torch.full((4,), 0.05),
    ):
        assert torch.isnan(torch.tensor(observed_order(hopeless)))


def test_mistakes_are_named():
    objective = from_function(rosenbrock)
    with refusal("expected one of full"):
        minimise(objective, points((0.0, 0.0)), "dogleg")  # type: ignore[arg-type]
    with refusal("starts, variables"):
        minimise(objective, points((0.0, 0.0))[0])


GAMMA = 0.2


def instance():
    generator = seeded(4)
    x, w, v = (normal(2, n, generator=generator) for n in (3, 2, 2))
    return x, w, v


def test_objective_is_the_regularised_loss():
    x, w, v = instance()
    b = torch.ones(3, 2, dtype=torch.float64)
    objective = recovery_objective(w, v, b, GAMMA)

    def loss(flat):
        points = att.unvec(flat, 2)
        rows = torch.softmax((points.mT @ w @ points).mT, -1) @ (points.mT @ v)
        return (rows - b).square().sum() + GAMMA * flat.square().sum()

    points = torch.stack([att.vec(x), att.vec(-0.5 * x)])
    direction = points.flip(0)
    hessians = torch.stack([torch.func.hessian(loss)(p) for p in points])
    assert torch.allclose(objective.value(points), torch.stack([loss(p) for p in points]))
    assert torch.allclose(
        objective.gradient(points), torch.stack([torch.func.grad(loss)(p) for p in points])
    )
    assert torch.allclose(objective.hessian(points), hessians)
    assert torch.allclose(
        objective.product(points, direction), (hessians @ direction.unsqueeze(-1)).squeeze(-1)
    )
