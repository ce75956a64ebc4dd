"""Results read alike: value, error, low, high, to_dict, one line, a table for notebooks, frames and
figures."""

import dataclasses
import math

import pytest
import torch

import runner.curvature as rc
from tests.draws import normal, tanh_net
from tests.errors import refusal


@pytest.fixture(scope="module")
def problem():
    torch.manual_seed(0)
    dag = rc.Dag.from_sequential(tanh_net(3, 4, 2).double(), names=["a", "b", "out"])
    return dag, normal(5, 3), torch.arange(5) % 2


@pytest.fixture(scope="module")
def results(problem):
    matrix = torch.diag(torch.linspace(-1, 2, 60).double())
    return {
        "Estimate": rc.graph_metrics(*problem)["a", "out"].R,
        "TraceEstimate": rc.trace_estimate(matrix, 12),
        "UpperBound": rc.upper_bound_estimate(matrix, 8),
        "Eigenpairs": rc.top_eigenpairs(matrix, 3),
        "SpectralDensity": rc.spectral_density(matrix, 3, 10, points=50),
        "Certificate": rc.verify(*problem),
    }


def test_a_result_has_an_interval_a_dictionary_and_two_short_forms(results):
    for name, result in results.items():
        fields = result.to_dict()
        assert list(fields)[:4] == ["value", "error", "low", "high"]
        low, value, high = (torch.as_tensor(fields[key]) for key in ("low", "value", "high"))
        assert (low <= value).all() and (value <= high).all(), name
        text, html = repr(result), result._repr_html_()
        assert text.startswith(f"{name}(") and len(text) < 120 and "\n" not in text
        assert name in html and "value" in html and len(html) < 3000


@pytest.mark.parametrize(
    "name, factor", [("Estimate", 1.96), ("Eigenpairs", 1), ("Certificate", 1)]
)
def test_an_interval_of_a_symmetric_error(results, name, factor):
    result = results[name]
    widths = torch.as_tensor(result.high) - torch.as_tensor(result.low)
    assert torch.allclose(widths, 2 * factor * torch.as_tensor(result.error))


def test_the_first_four_digits_and_the_reason_are_what_is_read():
    assert repr(rc.Estimate(12.34567, 0.0321, 8)) == "Estimate(12.35 ± 0.032, 8 products)"
    assert repr(rc.Estimate(math.nan, math.nan, 8, "H is zero")) == "Estimate(nan: H is zero)"
    assert tuple(rc.Estimate(1.0, 0.5, 3)) == (1.0, 0.5, 3, "")


def test_graphs_and_pairs_become_tables_and_a_map(problem):
    dag, x, y = problem
    assert repr(dag) == "Dag(3 nodes: a, b, out)"
    metrics = rc.graph_metrics(dag, x, y, ["a", "out"])
    assert repr(metrics) == "InterLayerMetrics(3 pairs of 2 nodes)"
    assert metrics == dict(metrics) and list(metrics) == [("a", "a"), ("a", "out"), ("out", "out")]
    pair = metrics["a", "out"]
    assert metrics.to_dict()["a, out"] == pair.to_dict() and f"R={pair.R.value:.4g}" in repr(pair)
    row = metrics.to_frame().loc[("a", "out")]
    assert row["C"] == pair.C.value and row["C_error"] == pair.C.error
    figure = metrics.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    shown = figure.axes[0].images[0].get_array()
    assert shown[0, 1] == shown[1, 0] == pair.C.value
    with refusal("expected one of R, C, D, gap"):
        metrics.plot("K")


def test_spectra_are_drawn_with_their_errors(results):
    density, pairs = results["SpectralDensity"], results["Eigenpairs"]
    ax = density.plot().axes[0]
    assert ax.lines[0].get_ydata().tolist() == density.density.tolist()
    assert density.plot(ax).axes[0] is ax
    ax = pairs.plot().axes[0]
    assert ax.lines[0].get_ydata().tolist() == pairs.values.tolist()


def plain(value):
    """Types and digits, which are equal where values are bit for bit, NaN included."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return kind, value.dtype, repr(value.tolist())
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, tuple | list):
        return kind, [plain(part) for part in value]
    return kind, repr(value)


def test_dictionaries_of_results_are_saved_by_torch_without_classes(results, problem, tmp_path):
    for result in (*results.values(), rc.graph_metrics(*problem)):
        torch.save(result.to_dict(), tmp_path / "result.pt")
        found = torch.load(tmp_path / "result.pt", weights_only=True)
        assert plain(found) == plain(result.to_dict())


@pytest.mark.parametrize("name", ["Eigenpairs", "SpectralDensity"])
def test_results_with_tensors_are_compared_by_their_numbers(results, name):
    one = results[name]
    other = dataclasses.replace(one, products=one.products + 1)
    assert one == dataclasses.replace(one) and one != other and one != 3
