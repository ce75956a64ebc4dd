"""Results read alike: value, error, low, high, to_dict, one line, a table for notebooks, frames and figures."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from runner.curvature import (
    CurvatureOperator,
    Dag,
    Estimate,
    ParameterOperator,
    discarded_coupling,
    frobenius_norms,
    gn_gaps,
    inter_layer_metrics,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    upper_bound_estimate,
    verify,
)


@pytest.fixture(scope="module")
def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return net, Dag.from_sequential(net, names=["a", "b", "out"]), torch.randn(5, 3).double(), torch.arange(5) % 2


@pytest.fixture(scope="module")
def results(problem):
    net, dag, x, y = problem
    operator = CurvatureOperator(dag, x, y)
    generator = torch.Generator().manual_seed(1)
    matrix = torch.diag(torch.linspace(-1, 2, 60).double())
    return {
        "Estimate": frobenius_norms(operator, [("a", "out")], 8, generator)["a", "out"],
        "GapEstimate": gn_gaps(dag, x, y, ["a"], probes=4, generator=generator)["a", "a"],
        "TraceEstimate": trace_estimate(matrix, 12, generator=generator),
        "UpperBound": upper_bound_estimate(matrix, 8, generator=generator),
        "Eigenpairs": top_eigenpairs(matrix, 3, generator=generator),
        "SpectralDensity": spectral_density(matrix, 3, 20, points=50, generator=generator),
        "DiscardedCoupling": discarded_coupling(ParameterOperator(net, "cross_entropy", [(x, y)]), 2),
        "Certificate": verify(dag, x, y),
    }


NAMES = (
    *("Estimate", "GapEstimate", "TraceEstimate", "UpperBound"),
    *("Eigenpairs", "SpectralDensity", "DiscardedCoupling", "Certificate"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_has_an_interval_a_dictionary_and_two_short_forms(results, name):
    result = results[name]
    fields = result.to_dict()
    assert list(fields)[:4] == ["value", "error", "low", "high"]
    low, value, high = (torch.as_tensor(fields[key]) for key in ("low", "value", "high"))
    assert bool((low <= value).all()) and bool((value <= high).all())
    factor = 1.0 if name == "Eigenpairs" else 1.96
    if name not in ("UpperBound", "DiscardedCoupling"):
        assert torch.allclose(high - low, 2 * factor * torch.as_tensor(fields["error"]))
    assert repr(result).startswith(f"{name}(") and len(repr(result)) < 120 and "\n" not in repr(result)
    html = result._repr_html_()
    assert name in html and "value" in html and len(html) < 3000


def test_the_first_four_digits_and_the_reason_are_what_is_read():
    assert repr(Estimate(12.34567, 0.0321, 8)) == "Estimate(12.35 ± 0.032, 8 products)"
    assert repr(Estimate(math.nan, math.nan, 8, "H is zero")) == "Estimate(nan: H is zero)"
    value, error, products, reason = Estimate(1.0, 0.5, 3)
    assert (value, error, products, reason) == (1.0, 0.5, 3, "")


def test_pairs_become_a_table_and_a_map(problem):
    _, dag, x, y = problem
    metrics = inter_layer_metrics(dag, x, y, ["a", "out"])
    assert repr(metrics) == "InterLayerMetrics(3 pairs of 2 nodes)"
    assert metrics == dict(metrics) and list(metrics) == [("a", "a"), ("a", "out"), ("out", "out")]
    pair = metrics["a", "out"]
    assert metrics.to_dict()["a, out"] == pair.to_dict() and f"R={pair.R.value:.4g}" in repr(pair)
    frame = metrics.to_frame()
    assert frame.loc[("a", "out"), "C"] == pair.C.value and frame.loc[("a", "out"), "C_error"] == pair.C.error
    assert "<table" in metrics._repr_html_()
    figure = metrics.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    shown = figure.axes[0].images[0].get_array()
    assert shown[0, 1] == shown[1, 0] == pair.C.value
    with pytest.raises(ValueError, match="expected one of R, C, D, gap"):
        metrics.plot("K")


def test_spectra_are_drawn_with_their_errors(results):
    density, pairs = results["SpectralDensity"], results["Eigenpairs"]
    ax = density.plot().axes[0]
    assert ax.lines[0].get_ydata().tolist() == density.density.tolist()
    ax = pairs.plot().axes[0]
    assert ax.lines[0].get_ydata().tolist() == pairs.values.tolist()
    assert density.plot(ax).axes[0] is ax


def test_a_graph_reads_as_its_nodes(problem):
    _, dag, *_ = problem
    assert repr(dag) == "Dag(3 nodes: a, b, out)"
    assert dag._repr_html_().count("<tr>") == 4
