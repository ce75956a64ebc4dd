"""The recovery objective against automatic differentiation, and Newton's method on it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from runner.curvature.closed_form import attention as att
from runner.training import newton
from runner.training.recovery import recovery_objective

GAMMA = 0.2


def instance() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    x, w, v = (torch.randn(2, n, generator=generator, dtype=torch.float64) for n in (3, 2, 2))
    return x, w, v


def test_objective_is_the_regularised_loss() -> None:
    x, w, v = instance()
    b = torch.ones(3, 2, dtype=torch.float64)
    objective = recovery_objective(w, v, b, GAMMA)

    def loss(flat: Tensor) -> Tensor:
        points = att.unvec(flat, 2)
        rows = torch.softmax((points.mT @ w @ points).mT, -1) @ (points.mT @ v)
        return (rows - b).square().sum() + GAMMA * flat.square().sum()

    points = torch.stack([att.vec(x), att.vec(-0.5 * x)])
    direction = points.flip(0)
    hessians = torch.stack([torch.func.hessian(loss)(p) for p in points])
    assert torch.allclose(objective.value(points), torch.stack([loss(p) for p in points]))
    assert torch.allclose(objective.gradient(points), torch.stack([torch.func.grad(loss)(p) for p in points]))
    assert torch.allclose(objective.hessian(points), hessians)
    assert torch.allclose(objective.product(points, direction), (hessians @ direction.unsqueeze(-1)).squeeze(-1))


@pytest.mark.parametrize("step", newton.STEPS)
def test_newton_recovers_the_input_from_nearby(step: newton.Step) -> None:
    x, w, v = instance()
    objective = recovery_objective(w, v, att.outputs(x, w, v), 0.0)
    start = att.vec(x) + 1e-3 * torch.ones(1, 6, dtype=torch.float64)
    trace = newton.minimise(objective, start, step, tolerance=1e-13)
    errors = (trace.points[:, 0] - att.vec(x)).norm(dim=-1)
    assert errors[-1] < 1e-9
    assert (trace.status == newton.OK).all()
