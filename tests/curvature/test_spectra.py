"""Spectra of operators against dense matrices; errors by their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import aslinearoperator, cg
from torch import Tensor, nn

from runner.curvature import (
    CurvatureOperator,
    ParameterOperator,
    as_linear_operator,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    upper_bound_estimate,
)
from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from runner.curvature.spectra.symmetric import Symmetric
from tests.curvature.cases import make


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def symmetric(values: Tensor, seed: int = 0) -> Tensor:
    q, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64, generator=seeded(seed)))
    return (q * values) @ q.mT


SPECTRA = {
    "even": torch.linspace(-1, 1, 150, dtype=torch.float64),
    "flat": torch.linspace(1, 2, 150, dtype=torch.float64),
    "decaying": 0.8 ** torch.arange(150, dtype=torch.float64),
    "indefinite": torch.cat([torch.linspace(-1, 1, 146), torch.tensor([5.0, 8.0, -6.0, -3.0])]).double(),
}


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
@pytest.mark.parametrize("k", [1, 4, 100])
@pytest.mark.parametrize("name", SPECTRA)
def test_eigenpairs_against_the_dense_matrix(name, k, which):
    values = SPECTRA[name]
    matrix = symmetric(values)
    found = top_eigenpairs(matrix, k, which, generator=seeded(1))
    if (name, which) == ("decaying", "smallest") and k < 100:  # nothing converges below the rounding of the largest
        assert not bool(found.converged.any())
        return
    key = {"largest": -values, "smallest": values, "magnitude": -values.abs()}[which]
    expected = values[key.argsort()[:k]]
    same = (found.values.abs(), expected.abs()) if which == "magnitude" else (found.values, expected)  # +-t are ties
    assert torch.allclose(*same, atol=1e-8)
    assert found.vectors.shape == (150, k)
    assert torch.allclose(found.vectors.mT @ found.vectors, torch.eye(k).double(), atol=1e-7)
    assert torch.allclose(matrix @ found.vectors, found.vectors * found.values, atol=1e-7)
    assert torch.allclose(
        (matrix @ found.vectors - found.vectors * found.values).norm(dim=0), found.residuals, atol=1e-12
    )
    assert bool(found.converged.all())
    assert found.products >= k


def test_eigenpairs_that_do_not_converge_say_so():
    matrix = symmetric(torch.linspace(1, 1.001, 300, dtype=torch.float64))
    found = top_eigenpairs(matrix, 3, max_products=20, generator=seeded(0))
    assert len(found.values) == 3
    assert not bool(found.converged.all())
    assert found.products < 60


def parameters(dtype: torch.dtype = torch.float64) -> ParameterOperator:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    return ParameterOperator(module, nn.CrossEntropyLoss(), [(torch.randn(20, 6, dtype=dtype), torch.arange(20) % 3)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_method_takes_a_parameter_operator(dtype):
    operator = parameters(dtype)
    values = torch.linalg.eigvalsh(operator.dense().double())
    tolerance = 1e-4 if dtype == torch.float32 else 1e-8
    found = top_eigenpairs(operator, 3, generator=seeded(0))
    assert torch.allclose(found.values, values.flip(0)[:3], atol=tolerance)
    assert bool(found.converged.all())
    trace = trace_estimate(operator, 200)
    assert (trace.method, trace.error) == ("exact", 0.0)
    assert trace.value == pytest.approx(float(values.sum()), rel=tolerance)
    bound = upper_bound_estimate(operator, 200)
    n = len(values)
    expected = float(wolkowicz_styan_upper(n, values.sum(), values.square().sum()))
    assert bound.low == bound.value == bound.high == pytest.approx(expected, rel=tolerance)
    assert bound.value >= float(values.max())
    density = spectral_density(operator, 3, 30, generator=seeded(0))
    assert float(torch.trapezoid(density.density, density.grid)) == pytest.approx(1, abs=0.01)


def test_activation_operators_matrices_and_scipy_operators_are_taken():
    case = make("chain")
    operator = CurvatureOperator(case.dag, case.x, case.y)
    dense = Symmetric(operator).dense()
    expected = torch.linalg.eigvalsh(dense)[-1]
    for form in (operator, dense, aslinearoperator(dense.numpy())):
        assert float(top_eigenpairs(form, 1).values[0]) == pytest.approx(float(expected))
    with pytest.raises(ValueError, match="expected an operator"):
        top_eigenpairs(3.0, 1)


def test_the_view_for_scipy():
    matrix = symmetric(SPECTRA["flat"])
    view = as_linear_operator(matrix)
    b = np.arange(150.0)
    solution, status = cg(view, b, rtol=1e-10)
    assert status == 0
    assert np.allclose(matrix.numpy() @ solution, b, atol=1e-6)


@pytest.mark.parametrize("method", ["hutchinson", "hutch++", "xtrace", "auto"])
@pytest.mark.parametrize("name", SPECTRA)
def test_trace_errors_cover(name, method):
    matrix, expected = symmetric(SPECTRA[name]), float(SPECTRA[name].sum())
    z = []
    for seed in range(80):
        found = trace_estimate(matrix, 60, method, generator=seeded(seed))
        assert found.products <= 62
        z.append((found.value - expected) / found.error)
    assert sum(abs(v) <= 1.96 for v in z) >= 69  # 95 % of 80 is 76, four standard deviations less is 68
    assert abs(sum(z) / len(z)) < 0.5


def test_sketches_win_where_the_spectrum_decays():
    matrix, expected = symmetric(SPECTRA["decaying"]), float(SPECTRA["decaying"].sum())

    def worst(method: str) -> float:
        runs = (trace_estimate(matrix, 60, method, generator=seeded(s)).value for s in range(10))  # type: ignore[arg-type]
        return max(abs(v - expected) for v in runs)

    assert worst("xtrace") < worst("hutchinson") / 20
    assert worst("hutch++") < worst("hutchinson") / 8
    assert trace_estimate(matrix, 60, generator=seeded(0)).method == "xtrace"
    assert trace_estimate(symmetric(SPECTRA["even"]), 60, generator=seeded(0)).method == "hutchinson"


@pytest.mark.parametrize("name", SPECTRA)
def test_the_interval_of_the_upper_bound_covers(name):
    values = SPECTRA[name]
    matrix, hits = symmetric(values), 0
    expected = float(wolkowicz_styan_upper(len(values), values.sum(), values.square().sum()))
    for seed in range(80):
        found = upper_bound_estimate(matrix, 20, generator=seeded(seed))
        assert found.low <= found.value <= found.high
        assert found.products == 20
        hits += found.low <= expected <= found.high
    assert hits >= 70


def test_density_against_the_eigenvalues():
    values = torch.cat([torch.linspace(-1, 1, 196, dtype=torch.float64), torch.tensor([6.0, 8.0, 9.0, -7.0]).double()])
    found = spectral_density(symmetric(values), 12, 60, generator=seeded(0))
    normal = torch.exp(-(((found.grid[:, None] - values) / found.bandwidth) ** 2) / 2)
    expected = normal.mean(1) / (found.bandwidth * math.sqrt(2 * math.pi))
    inside = (found.density - expected).abs() <= 2.5 * found.error + 1e-3 * expected.max()
    assert float(inside.double().mean()) > 0.9
    assert found.outliers == pytest.approx((9.0, 8.0, 6.0, -7.0), abs=1e-6)
    assert torch.allclose(found.weights.sum(1), torch.ones(12, dtype=torch.float64))
    assert found.products == 12 * 60


def test_density_of_a_multiple_of_the_identity():
    found = spectral_density(3 * torch.eye(20, dtype=torch.float64), 2, 5, generator=seeded(0))
    assert torch.allclose(found.nodes, torch.full_like(found.nodes, 3.0))
    assert float(torch.trapezoid(found.density, found.grid)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: top_eigenpairs(m, 0), "k must lie between"),
        (lambda m: top_eigenpairs(m, 1, "biggest"), "which must be one of"),
        (lambda m: spectral_density(m, 1), "at least 2 probes"),
        (lambda m: trace_estimate(m, 10), "needs at least"),
        (lambda m: trace_estimate(m, 60, "magic"), "method must be"),
        (lambda m: upper_bound_estimate(m, 2), "at least 4 probes"),
        (lambda m: top_eigenpairs(m[:3], 1), "expected a symmetric operator"),
    ],
)
def test_mistakes_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call(symmetric(SPECTRA["flat"]))


def test_a_product_that_is_not_finite_gives_nan_with_a_reason():
    matrix = symmetric(SPECTRA["flat"])
    matrix[3, 3] = math.nan
    found = trace_estimate(matrix, 60, "hutchinson")
    assert math.isnan(found.value)
    assert "finite" in found.reason
