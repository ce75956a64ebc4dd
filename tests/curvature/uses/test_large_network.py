"""The bench of large networks on a tiny one: all quantities against double backward in float64, by
torch alone."""

from types import SimpleNamespace

import pytest
import torch

from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from tests.bench.bench_large import CASES, Clock, measured
from tests.curvature.matrices import exact_metrics
from tests.curvature.module_cases import ModuleCase, hessian_by_hooks
from tests.curvature.oracles import parameter_matrix

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny():
    """The case, and its results by their names."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case, clock = CASES["tiny"](), Clock()
    measured(case, clock)
    return case, clock.results


def within(estimate, value, errors=3, rounding=0.0):
    return abs(estimate.value - float(value)) <= errors * estimate.error + rounding


def test_eigenpairs_trace_bound_and_density(tiny):
    case, found = tiny
    operator = found["operator, hessian"]
    module, names = case.module.double(), operator.layout.parameters
    hessian = parameter_matrix("hessian", module, case.loss, *case.batch, names)
    n, values = len(hessian), torch.linalg.eigvalsh((hessian + hessian.mT) / 2).flip(0)
    pairs = found["5 eigenpairs"]
    assert pairs.converged.all() and ((pairs.value - values[:5]).abs() <= pairs.error).all()
    trace, square = hessian.trace(), hessian.square().sum()
    assert within(found["trace"], trace)
    assert within(found["λ_sup"], wolkowicz_styan_upper(n, trace, square))
    density = found["spectral density"]
    mean = float((density.weights * density.nodes).sum(1).mean())
    assert mean == pytest.approx(float(trace) / n, abs=4 * float(square) ** 0.5 / n)
    assert float(density.nodes.max()) == pytest.approx(float(values[0]), rel=0.02)


def test_metrics_between_blocks(tiny):
    case, results = tiny
    found, nodes = results["R, C, D between blocks"], ["blocks.0", "blocks.1"]
    assert {pair.method for pair in found.values()} == {"exact blocks"}
    block = hessian_by_hooks(ModuleCase(case.module.double(), *case.batch, case.loss), nodes)
    split = SimpleNamespace(total=block, tensor=block, gauss_newton=block)
    for pair, expected in exact_metrics(split, found).items():
        for name in ("R", "C", "D"):
            value = expected[name]
            assert within(getattr(found[pair], name), value, 3, 1e-6 * value), (pair, name)
