"""Results read alike: value, error, low, high, to_dict, one line, a table for notebooks, frames and
figures."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import runner.curvature as rc
from tests.draws import seeded, tanh_net
from tests.errors import refusal


@pytest.fixture(scope="module")
def problem():
    torch.manual_seed(0)
    net = tanh_net(3, 4, 2).double()
    return (
        net,
        rc.Dag.from_sequential(net, names=["a", "b", "out"]),
        torch.randn(5, 3).double(),
        torch.arange(5) % 2,
    )


@pytest.fixture(scope="module")
def results(problem):
    net, dag, x, y = problem
    generator = seeded(1)
    matrix = torch.diag(torch.linspace(-1, 2, 60).double())
    return {
        "Estimate": rc.inter_layer_metrics(dag, x, y)["a", "out"].R,
        "TraceEstimate": rc.trace_estimate(matrix, 12, generator=generator),
        "UpperBound": rc.upper_bound_estimate(matrix, 8, generator=generator),
        "Eigenpairs": rc.top_eigenpairs(matrix, 3, generator=generator),
        "SpectralDensity": rc.spectral_density(matrix, 3, 10, points=50, generator=generator),
        "DiscardedCoupling": rc.discarded_coupling(
            rc.ParameterOperator(net, "cross_entropy", [(x, y)]), 2
        ),
        "Certificate": rc.verify(dag, x, y),
    }


def test_a_result_has_an_interval_a_dictionary_and_two_short_forms(results):
    for name, result in results.items():
        fields = result.to_dict()
        assert list(fields)[:4] == ["value", "error", "low", "high"]
        low, value, high = (torch.as_tensor(fields[key]) for key in ("low", "value", "high"))
        assert bool((low <= value).all()) and bool((value <= high).all()), name
        factor = 1.0 if name == "Eigenpairs" else 1.96
        if name in ("Estimate", "GapEstimate", "Eigenpairs", "Certificate"):
            assert torch.allclose(high - low, 2 * factor * torch.as_tensor(fields["error"])), name
        assert (
            repr(result).startswith(f"{name}(")
            and len(repr(result)) < 120
            and "\n" not in repr(result)
        )
        html = result._repr_html_()
        assert name in html and "value" in html and len(html) < 3000


def test_the_first_four_digits_and_the_reason_are_what_is_read():
    assert repr(rc.Estimate(12.34567, 0.0321, 8)) == "Estimate(12.35 ± 0.032, 8 products)"
    assert repr(rc.Estimate(math.nan, math.nan, 8, "H is zero")) == "Estimate(nan: H is zero)"
    value, error, products, reason = rc.Estimate(1.0, 0.5, 3)
    assert (value, error, products, reason) == (1.0, 0.5, 3, "")


def test_graphs_and_pairs_become_tables_and_a_map(problem):
    _, dag, x, y = problem
    assert repr(dag) == "Dag(3 nodes: a, b, out)"
    metrics = rc.inter_layer_metrics(dag, x, y, ["a", "out"])
    assert repr(metrics) == "InterLayerMetrics(3 pairs of 2 nodes)"
    assert metrics == dict(metrics) and list(metrics) == [("a", "a"), ("a", "out"), ("out", "out")]
    pair = metrics["a", "out"]
    assert metrics.to_dict()["a, out"] == pair.to_dict() and f"R={pair.R.value:.4g}" in repr(pair)
    frame = metrics.to_frame()
    assert (
        frame.loc[("a", "out"), "C"] == pair.C.value
        and frame.loc[("a", "out"), "C_error"] == pair.C.error
    )
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
    ax = pairs.plot().axes[0]
    assert ax.lines[0].get_ydata().tolist() == pairs.values.tolist()
    assert density.plot(ax).axes[0] is ax


def same(a, b):
    """Of one type and equal bit for bit, NaN included."""
    if isinstance(b, Mapping) and not hasattr(b, "to_dict"):
        a, b = dict(a), dict(b)
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    elif isinstance(a, dict):
        same(list(a.items()), list(b.items()))
    elif isinstance(a, float):
        assert np.float64(a).tobytes() == np.float64(b).tobytes()
    elif isinstance(a, tuple | list):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            same(left, right)
    elif dataclasses.is_dataclass(a):
        same(
            {f.name: getattr(a, f.name) for f in dataclasses.fields(a)},
            {f.name: getattr(b, f.name) for f in dataclasses.fields(b)},
        )
    elif hasattr(a, "to_dict"):
        same(vars(a), vars(b))
    else:
        assert a == b


def test_what_is_saved_comes_back_bit_for_bit(results, problem, tmp_path):
    _, dag, x, y = problem
    nan = dataclasses.replace(
        results["Certificate"], nodes={**results["Certificate"].nodes, "nan": math.nan}
    )
    odd = {
        "nan": (math.nan, -math.inf, -0.0, 5e-324, 2**80),
        3: [None, True, "é"],
        "t": torch.randn(3, 2).bfloat16().mT,
    }
    for result in (
        *results.values(),
        nan,
        rc.inter_layer_metrics(dag, x, y),
        dict(rc.exact_blocks(dag, x, y)),
        rc.split_blocks(dag, x, y),
        odd,
    ):
        rc.save(result, tmp_path / "result.npz")
        same(rc.load(str(tmp_path / "result.npz")), result)
        assert [p.name for p in tmp_path.iterdir()] == ["result.npz"]


def test_results_with_tensors_are_compared_by_their_numbers(results):
    for name in ("Eigenpairs", "SpectralDensity"):
        one = results[name]
        other = dataclasses.replace(one, products=one.products + 1)
        assert one == dataclasses.replace(one) and one != other and one != 3


def test_a_damaged_or_foreign_file_is_refused_in_one_line(results, tmp_path):
    path, pairs = tmp_path / "result.npz", results["Eigenpairs"]
    rc.save(pairs, path)
    whole = path.read_bytes()
    refused, places = 0, range(0, len(whole), 17)
    flipped = (whole[:k] + bytes([whole[k] ^ 0x55]) + whole[k + 1 :] for k in places)
    for damaged in [*(whole[:k] for k in places[::20]), *flipped]:
        path.write_bytes(damaged)
        try:
            same(rc.load(path), pairs)
        except ValueError as error:
            refused += 1
            assert "damaged" in str(error) and str(path) in str(error) and "\n" not in str(error)
    assert refused > 0.8 * len(places)
    for foreign in (
        lambda: np.savez(path, a=np.ones(2)),
        lambda: torch.save({}, path),
        lambda: path.write_bytes(b""),
    ):
        foreign()
        with refusal("damaged file or one of another kind"):
            rc.load(path)
    later = {"format": "hess-run result", "version": 2, "content": 1}
    np.savez(path, result=np.frombuffer(json.dumps(later).encode(), np.uint8))
    with refusal("version 1, as `save` writes it, found hess-run result, version 2"):
        rc.load(path)
    with pytest.raises(FileNotFoundError):
        rc.load(tmp_path / "absent.npz")


def test_what_is_no_result_is_not_saved_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "result.npz"
    rc.save(1.5, path)
    for foreign in (nn.Linear(1, 1), {"a": object()}, Path()):
        with refusal("expected a result, a tensor or a number, found"):
            rc.save(foreign, path)
    assert rc.load(path) == 1.5 and list(tmp_path.iterdir()) == [path]


def test_a_certificate_that_an_earlier_version_saved_is_read(tmp_path):
    nothing, nodes = {"mapping": [], "class": ""}, {"mapping": [["a", 1e-9]], "class": ""}
    fields = {"ok": True, "examples": nothing, "nodes": nodes, "tolerance": 1e-6, "piece": "batch"}
    content = {"fields": fields, "class": "Verification"}
    text = json.dumps({"format": "hess-run result", "version": 1, "content": content})
    np.savez(tmp_path / "old.npz", result=np.frombuffer(text.encode(), np.uint8))
    found = rc.load(tmp_path / "old.npz")
    assert found.ok and found.nodes == {"a": 1e-9} and found.gradients == 0
