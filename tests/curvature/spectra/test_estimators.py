"""Estimators: reasons for NaN, and errors of searches and of discarded shares."""

import math
from functools import partial

import pytest
import torch

import runner.curvature as rc
from runner.curvature.graphs import block_metrics as metrics
from tests.curvature.cases import X, Y, between, make, mlp, node_operator
from tests.curvature.matrices import cut_short
from tests.draws import seeded
from tests.errors import refusal


def reasons(operator):
    """Of estimates that are NaN."""
    for found in (rc.trace_estimate(operator, 4), rc.upper_bound_estimate(operator)):
        assert math.isnan(found.value) and math.isnan(found.error)
        yield found.reason


@pytest.mark.parametrize("kind", ["module", "function"])
def test_values_that_are_not_finite(kind):
    x = X.clone()
    x[1, 2] = math.nan
    dag = rc.Dag.from_sequential(mlp())
    if kind == "function":
        dag = between(lambda t: t.sin() ** 2)
    for measure in (rc.exact_blocks, rc.split_blocks):
        with refusal(r"input.*not finite.*example 1"):
            measure(dag, x, Y)
    for reason in reasons(node_operator(dag, x, Y, check=False)):
        assert "not finite" in reason
    columns = metrics.block_metrics(rc.split_blocks(dag, x, Y, check=False))
    assert math.isnan(columns["D"][0]) and columns["status"][0] == "block is not finite"


def test_a_second_derivative_that_is_not_finite_is_nan_with_a_reason():
    dag = between(lambda t: (t * 0).abs().add(t.abs() * 0).pow(1.5) + torch.tanh(t))
    for reason in reasons(node_operator(dag, X, Y, check=False)):
        assert "not finite" in reason


# ----------------------------------------------------- error bars (of R, C and D: test_coverage.py)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_eigenvalue_lies_within_the_error_of_a_search_cut_short(dtype):
    """In float32 the residual alone is too small by the rounding of the products."""
    case, zeros = make("chain"), torch.zeros(70, 70)
    exact = node_operator(*case.given).dense()
    truth = torch.linalg.eigvalsh(torch.block_diag(exact, zeros))
    operator = node_operator(case.dag.to(dtype), case.x.to(dtype), case.y)
    matrix = torch.block_diag(operator.dense(), zeros).to(dtype)
    for products in (2, 6, 40):
        for seed in range(3):
            search = partial(rc.top_eigenpairs, k=1, generator=seeded(seed))
            found = cut_short(search, matrix, products)
            gap = (truth - found.value).abs().min()
            assert float(gap) <= float(found.error), (products, seed)
