"""Spectral norms and Lyapunov exponents of Jacobians, by their definitions."""

import math

import pytest
import torch

from experiments.dag.protocol.dynamics import (
    lyapunov_exponents,
    lyapunov_log_norm,
    mean_spectral_norms,
)
from tests.draws import normal, seeded
from tests.errors import refusal


def test_spectral_norms_of_the_jacobians():
    generator = seeded()
    shapes = {("b", "a"): (4, 3, 2), ("c", "b"): (4, 5, 3)}
    jacobians = {edge: torch.randn(shape, generator=generator) for edge, shape in shapes.items()}
    norms = mean_spectral_norms(jacobians)
    for edge, jacobian in jacobians.items():
        expected = torch.linalg.matrix_norm(jacobian, 2).mean()
        assert norms[edge] == pytest.approx(float(expected))


def test_lyapunov_exponents_of_one_triangular_matrix_are_the_logs_of_its_diagonal():
    j = torch.tensor([[2.0, 0.3], [0.0, 0.5]], dtype=torch.float64).expand(3, 2, 2)
    expected = pytest.approx([math.log(2), math.log(0.5)], abs=1e-12)
    assert lyapunov_exponents([j] * 40).tolist() == expected
    assert lyapunov_log_norm([j] * 400) == pytest.approx(math.log(2), abs=1e-3)


def test_lyapunov_exponents_of_any_matrices_add_up_to_the_log_determinant():
    torch.manual_seed(0)
    steps = [normal(5, 3, 3) for _ in range(7)]
    first = [step[:1] for step in steps]
    product = torch.linalg.multi_dot([step[0] for step in reversed(steps)])
    determinant = float(torch.linalg.slogdet(product)[1])
    assert float(lyapunov_exponents(first).sum()) == pytest.approx(determinant / 7)
    norm = math.log(torch.linalg.matrix_norm(product, 2))
    assert lyapunov_log_norm(first) == pytest.approx(norm / 7)
    examples = zip(*(step.split(1) for step in steps), strict=True)
    each = [lyapunov_log_norm(list(example)) for example in examples]
    assert len(each) == 5
    assert lyapunov_log_norm(steps) == pytest.approx(sum(each) / 5)


def test_products_that_overflow_and_steps_that_do_not_fit():
    overflows = 1e30 * torch.eye(2, dtype=torch.float64).expand(1, 2, 2)
    assert lyapunov_log_norm([overflows] * 50) == pytest.approx(math.log(1e30))
    with refusal("do not fit"):
        lyapunov_exponents([torch.ones(1, 3, 2), torch.ones(1, 2, 2)])
    with refusal("at least one"):
        lyapunov_log_norm([])
