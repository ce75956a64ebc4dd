"""The bench of large networks on a tiny one: all quantities against double backward in float64, by
torch alone."""

import pytest
import torch

from runner.curvature.estimators.bounds import wolkowicz_styan_upper
from tests.bench.bench_large import CASES, Clock, measured
from tests.curvature.module_cases import ModuleCase, hessian_by_hooks
from tests.curvature.oracles import parameter_matrix

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case, clock = CASES["tiny"](), Clock()
    measured(case, clock)
    return case, clock.results


@pytest.fixture(scope="module")
def hessian(tiny):
    """By the parameters, in the order of the groups."""
    case, found = tiny
    names = found["operator, hessian"].layout.parameters
    return parameter_matrix("hessian", case.module.double(), case.loss, *case.batch, names)


def test_eigenpairs_trace_bound_density_and_coupling(tiny, hessian):
    found, n = tiny[1], len(hessian)
    values = torch.linalg.eigvalsh((hessian + hessian.mT) / 2).flip(0)
    pairs = found["5 eigenpairs"]
    assert bool(pairs.converged.all()) and bool(
        ((pairs.value - values[:5]).abs() <= pairs.error).all()
    )
    trace, square = hessian.trace(), hessian.square().sum()
    assert abs(found["trace"].value - float(trace)) <= 3 * found["trace"].error
    bound = float(wolkowicz_styan_upper(n, trace, square))
    assert abs(found["λ_sup"].value - bound) <= 3 * found["λ_sup"].error
    density = found["spectral density"]
    mean = float((density.weights * density.nodes).sum(1).mean())
    assert mean == pytest.approx(float(trace) / n, abs=4 * (2 * float(square)) ** 0.5 / n / 2**0.5)
    assert float(density.nodes.max()) == pytest.approx(float(values[0]), rel=0.02)
    inside = sum(
        float(hessian[at, at].square().sum()) for at in found["operator, hessian"].groups.values()
    )
    assert abs(found["Φ"].value - (1 - inside / float(square))) <= 3 * found["Φ"].error


def test_metrics_between_blocks(tiny):
    case, results = tiny
    found, nodes = results["R, C, D between blocks"], ["blocks.0", "blocks.1"]
    assert {pair.method for pair in found.values()} == {"exact blocks"}
    block = hessian_by_hooks(ModuleCase(case.module.double(), *case.batch, case.loss), nodes)
    norm = {pair: float(b.norm()) for pair, b in block.items()}
    for v, w in found:
        top = float(torch.linalg.matrix_norm(block[v, w], 2))
        expected = {
            "R": norm[v, w],
            "C": norm[v, w] / (norm[v, v] * norm[w, w]) ** 0.5,
            "D": (norm[v, w] / top) ** 2,
        }
        for name, value in expected.items():
            estimate = getattr(found[v, w], name)
            assert abs(estimate.value - value) <= 3 * estimate.error + 1e-6 * value, (v, w, name)
