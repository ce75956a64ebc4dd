"""Levenberg-Marquardt from many starts: against SciPy's, on rank-deficient and unsolvable problems,
stops and caps."""

import numpy as np
import torch
from scipy.optimize import least_squares
from torch.testing import assert_close

from experiments.attention.levenberg_marquardt import LeastSquares, levenberg_marquardt, polished
from tests.draws import normal, seeded
from tests.errors import refusal


def rows(*points):
    return torch.tensor(points, dtype=torch.float64)


def residual(p):
    """(10 (y - x^2), 1 - x), with its one zero at (1, 1)."""
    x, y = p.unbind(-1)
    return torch.stack([10 * (y - x**2), 1 - x], -1)


def jacobian(p):
    entries = torch.zeros(len(p), 2, 2, dtype=p.dtype)
    entries[:, 0, 0] = -20 * p[:, 0]
    entries[:, 0, 1] = 10
    entries[:, 1, 0] = -1
    return entries


ROSENBROCK = LeastSquares(residual, jacobian)
FAR = rows([-1.2, 1.0])


def linear(matrix, right):
    return LeastSquares(
        lambda x: x @ matrix.T - right, lambda x: matrix.expand(len(x), *matrix.shape)
    )


def test_finds_the_zero_from_every_start_as_scipy_does():
    start = 3 * normal(12, 2, generator=seeded())
    ends = levenberg_marquardt(ROSENBROCK, start)
    assert not ends.capped.any() and (ends.square < 1e-20).all()
    for row, end in zip(start.numpy(), ends.points.numpy(), strict=True):
        theirs = least_squares(lambda p: residual(torch.tensor(p)).numpy(), row, method="lm")
        np.testing.assert_allclose(end, theirs.x, atol=1e-6)


def test_linear_problem_has_its_closed_form():
    generator = seeded(1)
    matrix, right = normal(5, 3, generator=generator), normal(5, generator=generator)
    wanted = torch.linalg.lstsq(matrix, right[:, None]).solution[:, 0]
    ends = levenberg_marquardt(linear(matrix, right), rows([0, 0, 0]), decrease=1e-14)
    assert_close(ends.points[0], wanted, rtol=1e-6, atol=1e-6)
    assert_close(ends.square[0], (matrix @ wanted - right).square().sum())


def test_starts_do_not_depend_on_each_other():
    start = torch.cat([FAR, rows([2.0, -2.0], [1.0, 1.0])])
    together = levenberg_marquardt(ROSENBROCK, start)
    alone = torch.cat([levenberg_marquardt(ROSENBROCK, row[None]).points for row in start])
    assert_close(together.points, alone, rtol=0, atol=1e-12)
    assert int(together.steps[2]) <= 2  # the solution itself: no step, or one that changes nothing


def test_a_cap_is_reported_and_an_overflow_ends():
    assert bool(levenberg_marquardt(ROSENBROCK, FAR, max_steps=2).capped)
    lost = levenberg_marquardt(ROSENBROCK, rows([torch.inf, 1.0]))
    assert int(lost.steps) == 0 and not bool(lost.capped)
    with refusal("expected \\(starts, variables\\)"):
        levenberg_marquardt(ROSENBROCK, FAR[0])


def test_polishing_never_raises_the_residual_and_takes_the_shortest_step():
    problem = linear(rows([1.0, 0.0], [0.0, 0.0]), rows(2.0, 0.0))
    assert_close(polished(problem, rows([1.9, 5.0])), rows([2.0, 5.0]))
    start = normal(8, 2, generator=seeded(2))
    before, after = (residual(p).norm(dim=-1) for p in (start, polished(ROSENBROCK, start)))
    assert (after <= before).all()
