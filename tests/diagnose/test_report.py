"""What a diagnosis prints and writes: lines, tables, figures, page; resuming; a training."""

import re
import struct

import pytest
import torch
from torch import nn

from runner.curvature import ParameterOperator, trace_estimate
from runner.diagnose.figures import DiagnosisAnalysis
from runner.diagnose.parts import PARTS
from runner.diagnose.target import Snapshot
from runner.store.store import Store
from tests.diagnose import targets
from tests.diagnose.conftest import FIGURES, diagnose, made, table, took

TABLES = {
    "certificate": {"what", "ok", "error", "where", "tolerance", "difference_step", "status"},
    "layers": {"v", "w", "R", "C", "D", "gap", "R_error", "method", "status"},
    "groups": {"v", "w", "R", "C", "share", "D", "gap", "method", "status"},
    "eigenvalues": {"value"}, "density": {"eigenvalue", "density", "low", "high"},
    "scalars": {"quantity", "value", "error", "method", "status"},
    "cost": {"part", "predicted_gradients", "gradients", "seconds", "predicted_bytes", "method"},
    "nodes": {"node", "size"},
    "batches": {"quantity", "value", "error", "estimator_error", "low", "high", "batches",
                "status"},
}  # fmt: skip
SCALARS = {
    "loss", "gradient norm", "parameters", "examples", "discarded share", "lambda_1", "lambda_n",
    "trace", "trace of the square", "lambda_sup", "gradient noise scale",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(lines, folder) of all parts of a network with a loader, with its figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiagnosisAnalysis, "figures", FIGURES)
        return made("loader", tmp_path_factory.mktemp("whole"))


def test_the_cost_is_predicted_before_and_measured_after(whole):
    said, folder = whole
    first, last = said[0], next(line for line in said if "cost: predicted" in line)
    number = re.search(r"predicted cost ([\d.e+]+) gradients", first)
    assert number, first
    again = re.search(r"predicted ([\d.e+]+)", last)
    assert float(number[1]) == pytest.approx(float(again[1]), rel=1e-3)
    text = "\n".join(said[1:])
    for name in PARTS:
        assert -1 < text.find(f"{name}: about ") < text.find(f"{name}: took "), name
    cost = table(folder, "cost")
    assert list(cost["part"]) == list(PARTS)
    assert (cost["gradients"] > 0).all() and cost["method"].notna().all()
    assert f"{cost['gradients'].sum():.4g}" in last


def tables(folder):
    """Names of the tables of a diagnosis."""
    return {path.stem for path in folder.glob("*.csv")}


def test_every_table_has_its_columns_and_no_row_is_without_a_status(whole):
    _, folder = whole
    assert tables(folder) >= set(TABLES)
    for name, columns in TABLES.items():
        found = table(folder, name)
        assert len(found) and columns <= set(found.columns) and (found["step"] == 0).all(), name
        if "status" in columns:
            assert found["status"].notna().all()
    assert set(table(folder, "scalars")["quantity"]) >= SCALARS
    assert table(folder, "certificate")["what"].tolist() == ["between layers", "parameters"]


def test_a_wrong_certificate_comes_first(tmp_path, monkeypatch):
    right = ParameterOperator.matvec
    monkeypatch.setattr(ParameterOperator, "__matmul__", lambda self, z: 1.1 * right(self, z))
    said, folder = made("batch", tmp_path, "parts=certificate", "nodes=0,2")
    wrong = "parameters: NOT certified; products are wrong: first at group"
    assert any(wrong in line for line in said)
    text = (folder / "report.md").read_text()
    title = text.partition("\n")[0]
    assert title.startswith("# Diagnosis of ") and title.endswith("targets.py:batch")
    assert text.index("NOT certified") < text.index("## Numerical check")
    page = (folder / "index.html").read_text()
    assert page.index("NOT certified") < page.index("<h2")
    assert "targets.py:batch (commit" in page or "targets.py:batch (SHA-256" in page


def test_the_page_shows_figures_and_tables_of_the_report(whole):
    _, folder = whole
    names = {p.stem for p in (folder / "figures").glob("*.png")}
    assert names == {"layers", "groups", "spectrum"}
    for name in names:
        data = (folder / "figures" / f"{name}.png").read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data[:4] == b"\x89PNG" and width > 400 and height > 300
    page = (folder / "index.html").read_text()
    assert all(f'src="figures/{name}.png"' in page for name in names)
    headings = (
        "Numbers,Numerical check,Between layers,Between groups of parameters,Eigenvalues,Cost"
    )
    assert all(f">{heading}<" in page for heading in headings.split(","))
    assert "share of its squared norm that block-diagonal methods such as K-FAC discard" in page
    assert "hess-run diagnose target=" in page and "hess-run -m experiment" not in page
    assert "<script src" not in page and not re.search(r'(src|href)="(https?:|//)', page)
    for link in re.findall(r'(?:href|src)="([^"#]+)"', page):
        assert link == "data:," or "${" in link or (folder / link).is_file(), link
    assert ">nan<" not in page.lower()
    assert not (folder / "claims.csv").exists()  # no statements
    text = page[page.index("<h1") :]
    assert text.count(">trace<") == 3  # a number, its error over batches, its cost
    assert "estimator error" in text


def test_an_interrupted_diagnosis_continues_where_it_stopped(tmp_path, monkeypatch):
    part = PARTS["density"]

    def interrupted(problem):
        stop = KeyboardInterrupt()
        stop.partial = trace_estimate(torch.eye(5), 4)
        raise stop

    said = []
    monkeypatch.setitem(PARTS, "density", part._replace(tables=interrupted))
    with pytest.raises(KeyboardInterrupt):
        diagnose("batch", tmp_path, "parts=network,layers,density", tell=said.append)
    assert len(list(Store(tmp_path, "it").all())) == 2
    assert any("density, when it was interrupted: 5 ± " in line for line in said)
    assert set(table(tmp_path / "it", "layers")["v"]) == {"0", "2", "4"}  # the report is there
    monkeypatch.setitem(PARTS, "density", part)
    said, folder = made("batch", tmp_path, "parts=network,layers,density")
    assert "1 parts to measure, 2 stored" in said[0] and took(said) == ["density"]
    kept = tables(folder)
    assert {"layers", "density", "scalars"} <= kept
    said, folder = made("batch", tmp_path, "parts=network")
    assert took(said) == [] and tables(folder) == kept


def test_the_certificate_of_every_checkpoint_and_the_curves_of_a_training(tmp_path, monkeypatch):
    monkeypatch.setattr(DiagnosisAnalysis, "figures", FIGURES)
    said, folder = made("training", tmp_path, "parts=network,certificate,trace")
    steps = [line.split(":")[0] for line in said if "predicted" in line and line.startswith("step")]
    assert steps == ["step 0", "step 1", "step 2"]
    certificate = table(folder, "certificate")
    assert certificate["step"].tolist() == [0, 0, 1, 1, 2, 2] and certificate["ok"].all()
    scalars = table(folder, "scalars")
    for quantity in ("loss", "trace", "lambda_sup"):
        rows = scalars[scalars["quantity"] == quantity]
        assert rows["step"].tolist() == [0, 1, 2] and rows["value"].nunique() == 3
    losses = [loss(module(x), y).item() for _, module, loss, (x, y) in targets.training()]
    found = scalars[scalars["quantity"] == "loss"]["value"]
    assert found.tolist() == pytest.approx(losses, rel=1e-12)
    assert (folder / "figures" / "training.png").is_file()
    assert "3 snapshots" in (folder / "index.html").read_text()
    assert "| quantity | step 0 | step 1 | step 2 | method |" in (folder / "report.md").read_text()


def test_batch_dim_reaches_the_engine(tmp_path):
    words = ("parts=network,certificate,layers", "batch_dim=1")
    _, folder = made("time_first_masked", tmp_path, *words)
    assert table(folder, "certificate")["ok"].all(), table(folder, "certificate")["status"].tolist()
    assert table(folder, "scalars").set_index("quantity")["value"]["examples"] == 4
    assert (table(folder, "layers")["status"] == "ok").all()


class Watched(nn.Module):
    """BatchNorm with statistics that a forward pass in training mode would move, and a frozen
    weight."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)
        self.last.bias.requires_grad_(False)

    def forward(self, t):
        return self.last(torch.tanh(self.norm(self.first(t))))


def state(module):
    """All that a module is, as text."""
    parameters = dict(module.named_parameters())
    return str(
        [
            {k: t.tolist() for k, t in module.state_dict().items()},
            {k: (p.requires_grad, p.grad) for k, p in parameters.items()},
            {k: m.training for k, m in module.named_modules()},
        ]
    )


BAD = {
    "": lambda x, y: (x, y),
    "training mode": lambda x, y: (x, y),
    "summed loss": lambda x, y: (x, y),
    "label": lambda x, y: (x, y + 7),
    "width": lambda x, y: (x[:, :3], y),
    "nan": lambda x, y: (x * torch.nan, y),
}
"""Kind -> change of the data."""


@pytest.mark.parametrize("kind", BAD)
def test_a_diagnosis_leaves_the_module_as_it_was(kind, tmp_path, monkeypatch):
    module, batch = Watched().double().train(kind == "training mode"), BAD[kind](*targets.data())
    loss = nn.CrossEntropyLoss(reduction="sum" if kind == "summed loss" else "mean")
    before = state(module)
    taken = Snapshot(0, module, loss, [batch], False)
    monkeypatch.setattr("runner.diagnose.experiment.snapshots", lambda *_: iter([taken]))
    try:
        status, _, _ = diagnose("batch", tmp_path, "parts=network,certificate,layers,trace")
        assert kind or status == 0
    except ValueError:
        assert kind
    assert state(module) == before


def test_an_output_that_is_an_object_is_measured_by_the_name_of_its_tensor(tmp_path):
    words = ("output=logits", "parts=network,layers,trace")
    said, folder = made("returns_an_object", tmp_path, *words)
    assert any("3 parts measured, 0 were stored before" in line for line in said)
    assert (folder / "report.md").is_file() and not any("failed" in line for line in said)
