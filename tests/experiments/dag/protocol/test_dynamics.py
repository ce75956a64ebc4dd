"""Spectral norms and Lyapunov exponents of Jacobians, by their definitions."""

import math

import pytest
import torch

from experiments.dag.protocol import dynamics
from tests.draws import normal, seeded
from tests.errors import refusal


def test_spectral_norms_of_the_jacobians():
    generator = seeded()
    shapes = {("b", "a"): (4, 3, 2), ("c", "b"): (4, 5, 3)}
    jacobians = {edge: torch.randn(shape, generator=generator) for edge, shape in shapes.items()}
    norms = dynamics.mean_spectral_norms(jacobians)
    assert norms["b", "a"] == pytest.approx(
        float(torch.linalg.matrix_norm(jacobians["b", "a"], 2).mean())
    )
    assert norms["c", "b"] == pytest.approx(
        float(torch.linalg.matrix_norm(jacobians["c", "b"], 2).mean())
    )


def test_lyapunov_exponents():
    """Of one triangular matrix the logs of its diagonal; of any matrices they add up to the
    log-determinant."""
    j = torch.tensor([[2.0, 0.3], [0.0, 0.5]], dtype=torch.float64).expand(3, 2, 2)
    assert dynamics.lyapunov_exponents([j] * 40).tolist() == pytest.approx(
        [math.log(2), math.log(0.5)], abs=1e-12
    )
    assert dynamics.lyapunov_log_norm([j] * 400) == pytest.approx(math.log(2), abs=1e-3)
    torch.manual_seed(0)
    steps = [normal(5, 3, 3) for _ in range(7)]
    product = torch.linalg.multi_dot([s[0] for s in reversed(steps)])
    first = [s[:1] for s in steps]
    assert float(dynamics.lyapunov_exponents(first).sum()) == pytest.approx(
        float(torch.linalg.slogdet(product)[1]) / 7
    )
    assert dynamics.lyapunov_log_norm(first) == pytest.approx(
        math.log(torch.linalg.matrix_norm(product, 2)) / 7
    )
    examples = zip(*(s.split(1) for s in steps), strict=True)
    each = [dynamics.lyapunov_log_norm(list(example)) for example in examples]
    assert len(each) == 5
    assert dynamics.lyapunov_log_norm(steps) == pytest.approx(sum(each) / 5)
    overflows = 1e30 * torch.eye(2, dtype=torch.float64).expand(1, 2, 2)
    assert dynamics.lyapunov_log_norm([overflows] * 50) == pytest.approx(math.log(1e30))
    with refusal("do not fit"):
        dynamics.lyapunov_exponents([torch.ones(1, 3, 2), torch.ones(1, 2, 2)])
    with refusal("at least one"):
        dynamics.lyapunov_log_norm([])
