"""Levenberg-Marquardt from many starts: against SciPy's, on rank-deficient and unsolvable problems,
stops and caps."""

import numpy as np
import torch
from scipy.optimize import least_squares
from torch.testing import assert_close

from experiments.attention.levenberg_marquardt import (
    LeastSquares,
    along_ladder,
    levenberg_marquardt,
    polished,
)
from tests.draws import normal, seeded
from tests.errors import refusal

DTYPE = torch.float64


def rosenbrock():
    """(10 (y - x^2), 1 - x), with its one zero at (1, 1)."""

    def jacobian(p):
        zero, one = torch.zeros_like(p[:, 0]), torch.ones_like(p[:, 0])
        return torch.stack(
            [torch.stack([-20 * p[:, 0], 10 * one], -1), torch.stack([-one, zero], -1)], -2
        )

    return LeastSquares(
        lambda p: torch.stack([10 * (p[:, 1] - p[:, 0] ** 2), 1 - p[:, 0]], -1), jacobian
    )


def linear(matrix, right):
    return LeastSquares(
        lambda x: x @ matrix.T - right, lambda x: matrix.expand(len(x), *matrix.shape)
    )


def test_finds_the_zero_from_every_start_as_scipy_does():
    start = 3 * normal(12, 2, generator=seeded())
    problem = rosenbrock()
    ends = levenberg_marquardt(problem, start)
    assert not ends.capped.any() and (ends.square < 1e-20).all()
    for row, end in zip(start.numpy(), ends.points.numpy(), strict=True):
        theirs = least_squares(
            lambda p: problem.value(torch.tensor(p)[None])[0].numpy(), row, method="lm"
        )
        np.testing.assert_allclose(end, theirs.x, atol=1e-6)


def test_regularised_linear_problem_has_its_closed_form():
    generator = seeded(1)
    matrix, right = (
        normal(5, 3, generator=generator),
        normal(5, generator=generator),
    )
    gamma = 0.3
    wanted = torch.linalg.solve(
        matrix.T @ matrix + gamma * torch.eye(3, dtype=DTYPE), matrix.T @ right
    )
    ends = levenberg_marquardt(
        linear(matrix, right), torch.zeros(1, 3, dtype=DTYPE), gamma=gamma, decrease=1e-14
    )
    assert_close(ends.points[0], wanted, rtol=1e-6, atol=1e-6)


def test_starts_do_not_depend_on_each_other():
    start = torch.tensor([[-1.2, 1.0], [2.0, -2.0], [1.0, 1.0]], dtype=DTYPE)
    together = levenberg_marquardt(rosenbrock(), start)
    alone = torch.cat([levenberg_marquardt(rosenbrock(), row[None]).points for row in start])
    assert_close(together.points, alone, rtol=0, atol=1e-12)
    assert int(together.steps[2]) <= 2  # the solution itself: no step, or one that changes nothing


def test_a_cap_is_reported_and_an_overflow_ends():
    start = torch.tensor([[-1.2, 1.0]], dtype=DTYPE)
    assert bool(levenberg_marquardt(rosenbrock(), start, max_steps=2).capped)
    lost = levenberg_marquardt(rosenbrock(), torch.tensor([[torch.inf, 1.0]], dtype=DTYPE))
    assert int(lost.steps) == 0 and not bool(lost.capped)
    with refusal("expected \\(starts, variables\\)"):
        levenberg_marquardt(rosenbrock(), torch.zeros(2, dtype=DTYPE))


def test_the_ladder_counts_all_its_steps_and_leads_to_the_solution():
    start = torch.tensor([[-1.2, 1.0], [3.0, 3.0]], dtype=DTYPE)
    ladder = along_ladder(rosenbrock(), start, [1e-1, 1e-3])
    ends = levenberg_marquardt(rosenbrock(), ladder.points)
    assert_close(ends.points, torch.ones(2, 2, dtype=DTYPE), atol=1e-6, rtol=0)
    assert (ladder.steps > 2).all() and not torch.allclose(
        ladder.points, ends.points, atol=1e-6, rtol=0
    )


def test_polishing_never_raises_the_residual_and_takes_the_shortest_step():
    matrix, right = (
        torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=DTYPE),
        torch.tensor([2.0, 0.0], dtype=DTYPE),
    )
    near = torch.tensor([[1.9, 5.0]], dtype=DTYPE)
    assert_close(polished(linear(matrix, right), near), torch.tensor([[2.0, 5.0]], dtype=DTYPE))
    start = normal(8, 2, generator=seeded(2))
    problem = rosenbrock()
    before, after = (problem.value(p).norm(dim=-1) for p in (start, polished(problem, start)))
    assert (after <= before).all()
