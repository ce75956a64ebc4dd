"""phi_block_diagonal: partitions and Phi against plain sums, and claims that can fall either
way."""

import pandas as pd
import pytest
import torch
from torch import nn

from experiments.phi_block_diagonal.dense import dense_curvature
from experiments.phi_block_diagonal.measure import curvature, labels
from experiments.phi_block_diagonal.networks import network
from runner.contract import Context, analyse
from runner.curvature import ParameterOperator
from runner.curvature.function.groups import layout
from runner.run.config import preview
from tests.draws import normal, seeded

EXPERIMENT = preview("phi_block_diagonal")


@pytest.mark.parametrize(
    "architecture, residual",
    [("mlp", False), ("mlp", True), ("convnet", True), ("transformer", False)],
)
def test_phi_of_every_partition_against_plain_sums(architecture, residual):
    model = network(architecture, residual, 3, 3, seeded())
    x, y = normal(6, 16), torch.arange(6) % 3
    tables = curvature(model, nn.CrossEntropyLoss(), x, y, Context(seed=0))
    rows, layers, (certificate,) = (tables[name] for name in ("phi", "layers", "certificate"))
    assert certificate["ok"], certificate
    operator = ParameterOperator(model, nn.CrossEntropyLoss(), [(x, y)])
    h = operator.dense()
    found = dense_curvature(model, x, y)
    for matrix, expected in zip(
        found, (h, operator.with_part("gauss_newton").dense()), strict=True
    ):
        assert float((matrix - expected).norm()) < 1e-12 * float(expected.norm())
    assert sum(layer["trace"] for layer in layers) == pytest.approx(float(h.trace()))
    names = list(operator.groups)
    for row in (r for r in rows if r["part"] == "hessian"):
        label = labels(layout(model, None), row["partition"])
        inside = sum(
            float(h[label == b][:, label == b].square().sum()) for b in range(row["blocks"])
        )
        known = label >= 0
        assert row["phi"] == pytest.approx(1 - inside / float(h[known][:, known].square().sum()))
        assert 0 <= row["phi"] < 1
        assert row["blocks"] == len(label[known].unique())
    assert rows[0]["blocks"] == len(names)
    by = {r["partition"]: r["phi"] for r in rows if r["part"] == "hessian"}
    assert by["layer"] <= by["neuron"] <= by["parameter"]


def table(phi):
    return pd.DataFrame(
        {"architecture": a, "residual": r, "classes": k, "seed": seed, "step": step,
         "part": "hessian", "partition": partition, "phi": phi(k, partition)}
        for a in EXPERIMENT.architecture for r in (False, True) for k in EXPERIMENT.classes
        for seed in range(3) for step in EXPERIMENT.steps
        for partition in ("layer", "neuron", "parameter", "output neuron")
    )  # fmt: skip


def verdicts(rows):
    return {c.name: c.verdict for c in analyse(EXPERIMENT, {"phi": rows}).claims()}


def test_claims_can_be_confirmed_refuted_and_left_open():
    good = verdicts(table(lambda k, p: 0.5 if p == "layer" else 0.5 / k))
    assert set(good.values()) == {"confirmed"}
    bad = verdicts(table(lambda k, p: 0.05 if p == "layer" else 0.5 + k / 1000))
    assert set(bad.values()) == {"refuted"}
    rows = table(lambda k, p: 0.5)
    assert set(verdicts(rows[rows["seed"] == 0]).values()) == {"inconclusive"}
