"""Estimators: convergence to the exact values under a budget, calibrated errors, reasons for
NaN."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import runner.curvature as rc
from runner.curvature.estimators import blocks as metrics
from tests.curvature.cases import X, Y, between, make, mlp
from tests.draws import normal, seeded
from tests.errors import refusal

PARTS = ("total", "tensor", "gauss_newton")


CASE = make("diamond_cat")
EXACT = rc.split_blocks(CASE.dag, CASE.x, CASE.y)
OPERATOR = rc.CurvatureOperator(CASE.dag, CASE.x, CASE.y)


# ----------------------------------------------------------- scales, and values that are not finite


def scaled(factor):
    return lambda output, target: factor * F.cross_entropy(output, target, reduction="none")


def nan_with_a_reason(estimates, reason):
    return all(
        math.isnan(e.value) and math.isnan(e.error) and reason in e.reason for e in estimates
    )


def of_operator(operator, pair):
    return [rc.trace_estimate(operator, 4), rc.upper_bound_estimate(operator)]


def test_values_that_are_not_finite():
    x = X.clone()
    x[1, 2] = math.nan
    for dag in (rc.Dag.from_sequential(mlp()), between(lambda t: t.sin() ** 2)):
        for measure in (rc.exact_blocks, rc.split_blocks):
            with refusal(r"input.*not finite.*example 1"):
                measure(dag, x, Y)
        pair = (dag.order[0], dag.order[0])
        found = of_operator(rc.CurvatureOperator(dag, x, Y, part="tensor"), pair)
        assert nan_with_a_reason(found, "not finite") and all(
            "example 1" in e.reason for e in found
        )
    columns = metrics.block_metrics(rc.split_blocks(dag, x, Y, check=False))
    assert math.isnan(columns["D"][0]) and columns["status"][0] == "block is not finite"


def test_a_second_derivative_that_is_not_finite_is_nan_with_a_reason():
    dag = between(lambda t: (t * 0).abs().add(t.abs() * 0).pow(1.5) + torch.tanh(t))
    assert nan_with_a_reason(of_operator(rc.CurvatureOperator(dag, X, Y), ("h", "h")), "not finite")


# ----------------------------------------------------- error bars (of R, C and D: test_coverage.py)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_eigenvalue_lies_within_the_error_of_a_search_cut_short(dtype):
    """In float32 the residual alone is too small by the rounding of the products."""
    case = make("chain")
    truth = torch.linalg.eigvalsh(rc.CurvatureOperator(*case.given).dense())
    dag = case.dag if dtype == torch.float64 else case.dag.to(dtype)
    operator = rc.CurvatureOperator(dag, case.x.to(dtype), case.y)
    matrix = torch.block_diag(operator.dense(), *[torch.zeros(1, 1)] * 70).to(dtype)
    for budget in (2, 6, 40):
        for seed in range(3):
            found = rc.top_eigenpairs(matrix, 1, budget=budget, generator=seeded(seed))
            gaps = torch.cat([truth, torch.zeros(1)]) - found.value
            assert float(gaps.abs().min()) <= float(found.error), (budget, seed)


class DenseGroups:
    """A matrix over groups of parameters as an operator."""

    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, matrix, operator):
        self.matrix, self.groups, self.sizes = matrix, operator.groups, operator.sizes
        self.shape = matrix.shape

    def __matmul__(self, v):
        return self.matrix @ v


@pytest.mark.parametrize("part", ["gauss_newton", pytest.param("hessian", marks=pytest.mark.slow)])
def test_the_interval_of_the_discarded_share_covers(part):
    """As far as it is said to, with few probes and with many; in [0, 1) always."""
    layers = [nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3)]
    data = [(normal(40, 8), torch.randint(3, (40,)))]
    operator = rc.ParameterOperator(
        nn.Sequential(*layers).double(), nn.CrossEntropyLoss(), data, part=part
    )
    matrix = operator.dense()
    inside = sum(float(matrix[s, s].square().sum()) for s in operator.groups.values())
    truth = 1 - inside / float(matrix.square().sum())
    for probes, repeats in ((4, 150), (30, 60)):
        dense = DenseGroups(matrix, operator)
        found = [rc.discarded_coupling(dense, probes, generator=seeded(s)) for s in range(repeats)]
        assert all(0 <= f.low <= f.value <= f.high < 1 for f in found)
        covered = sum(f.low <= truth <= f.high for f in found) / repeats
        assert 0.90 <= covered <= 0.995, (probes, covered)


def test_a_matrix_in_place_of_an_operator_is_answered_in_one_line():
    with refusal("expected a LayerOperator, a ParameterOperator or a Dag"):
        rc.inter_layer_metrics(torch.eye(3))
