"""The parts over the parameters against torch's dense Hessian, exact and estimated; predicted cost
against measured cost."""

import time

import pytest
import torch
from torch import nn

from runner.diagnose import parts
from runner.diagnose.experiment import predict
from runner.diagnose.parts import PARTS
from runner.diagnose.problem import Problem
from runner.diagnose.settings import Request
from runner.diagnose.target import Snapshot
from tests.curvature.module_cases import UNet
from tests.curvature.oracles import parameter_matrix
from tests.diagnose import targets
from tests.diagnose.conftest import made, table
from tests.draws import seeded


@pytest.fixture(scope="module")
def dense():
    """(H in the parameters over all batches, slices of the modules' parameters)."""
    module, loss, batches = targets.loader()
    x, y = (torch.cat(t) for t in zip(*batches, strict=True))
    named = dict(module.named_parameters())
    spans, start = {}, 0
    for name, layer in module.named_children():
        end = start + sum(p.numel() for p in layer.parameters())
        spans[name] = slice(start, end)
        start = end
    return parameter_matrix("hessian", module, loss, x, y, named), spans


def run(folder, parts):
    _, folder = made("loader", folder, f"parts={parts}")
    read = {path.stem: table(folder, path.stem) for path in folder.glob("*.csv")}
    return read, read["scalars"].set_index("quantity")


def truth(matrix, spans):
    values = torch.linalg.eigvalsh(matrix)
    n, trace, squares = len(matrix), matrix.trace(), matrix.square().sum()
    inside = sum(matrix[s, s].square().sum() for s in spans.values())
    return {
        "lambda_1": values[-1],
        "lambda_n": values[0],
        "trace": trace,
        "trace of the square": squares,
        "lambda_sup": trace / n + (n - 1) ** 0.5 * (squares / n - (trace / n) ** 2).sqrt(),
        "discarded share": 1 - inside / squares,
    }


def test_exact_where_the_matrix_is_small(tmp_path, dense):
    tables, scalars = run(tmp_path, "groups,eigenvalues,density,trace")
    for name, value in truth(*dense).items():
        assert scalars["value"][name] == pytest.approx(float(value), rel=1e-9)
        assert scalars["error"][name] <= 1e-12
    matrix, spans = dense
    for row in tables["groups"].to_dict("records"):
        block = matrix[spans[row["v"]], spans[row["w"]]]
        assert row["R"] == pytest.approx(float(block.norm()), rel=1e-9)
        rank = float(block.norm() / torch.linalg.matrix_norm(block, 2)) ** 2
        assert row["D"] == pytest.approx(rank, rel=1e-8)
    values = torch.linalg.eigvalsh(matrix).flip(0)
    assert tables["eigenvalues"]["value"].tolist() == pytest.approx(values[:10].tolist(), rel=1e-9)
    density = tables["density"]
    area = torch.trapezoid(torch.tensor(density["density"]), torch.tensor(density["eigenvalue"]))
    assert float(area) == pytest.approx(1, abs=0.01)


def test_estimated_where_it_is_not(tmp_path, dense, monkeypatch):
    monkeypatch.setattr(parts, "FEW", 0)
    monkeypatch.setattr("runner.curvature.pairs.metrics.FEW_COLUMNS", 0)
    monkeypatch.setattr(parts, "TRACE_PRODUCTS", 20)
    tables, scalars = run(tmp_path, "groups,eigenvalues,trace")
    for name, value in truth(*dense).items():
        found, error = scalars["value"][name], scalars["error"][name]
        assert abs(found - float(value)) <= 4 * error + 1e-9 * abs(float(value)), name
    matrix, spans = dense
    for row in tables["groups"].to_dict("records"):
        block = float(matrix[spans[row["v"]], spans[row["w"]]].norm())
        assert abs(row["R"] - block) <= 6 * row["R_error"] + 0.05 * block
    assert tables["eigenvalues"]["converged"].all()
    assert scalars["error"]["trace"] > 0


def test_errors_over_batches_are_those_of_the_jackknife(tmp_path, dense):
    tables, _ = run(tmp_path, "network,batches")
    rows = tables["batches"].set_index("quantity")
    module, loss, batches = targets.loader()
    values = dict(module.named_parameters())
    traces = []
    for x, y in batches:
        traces.append(float(parameter_matrix("hessian", module, loss, x, y, values).trace()))
    spread = torch.tensor(traces, dtype=torch.float64).std() / len(traces) ** 0.5
    assert rows["value"]["trace"] == pytest.approx(float(dense[0].trace()), rel=1e-9)
    assert rows["error"]["trace"] == pytest.approx(float(spread), rel=1e-9)
    assert {"lambda_1", "R[0, 2]", "C[0, 2]", "D[0, 2]", "gap[0, 2]"} <= set(rows.index)
    assert (rows["batches"] == 3).all() and (rows["status"] == "ok").all()


WITHIN = 5.0
"""Factor of processor time, of parts that take more than LONG seconds."""
LONG = 0.3


@pytest.mark.slow
def test_the_predicted_costs_agree_with_the_measured_ones():
    g = seeded()
    x = torch.randn(4, 1, 8, 8, generator=g)
    torch.manual_seed(0)
    batches = [(x, (x[:, 0] > 0).long())]
    snapshot = Snapshot(0, UNet().eval(), nn.CrossEntropyLoss(), batches, False)
    problem = Problem(snapshot, Request())
    names = ["certificate", "layers", "groups", "eigenvalues", "density", "trace"]
    costs, ratios = predict(problem, names, 0, print), {}
    for name in names:
        started = time.process_time()
        PARTS[name].tables(problem)
        seconds = time.process_time() - started
        if seconds > LONG:
            ratios[name] = costs[name].gradients * problem.first.seconds / seconds
    assert len(ratios) >= 2
    assert all(1 / WITHIN < ratio < WITHIN for ratio in ratios.values()), ratios
