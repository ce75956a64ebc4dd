"""phi_block_diagonal: partitions and Phi against plain sums, and claims that can fall either
way."""

import pytest
import torch
from torch import nn

from experiments.phi_block_diagonal.dense import dense_curvature
from experiments.phi_block_diagonal.measure import curvature, labels
from experiments.phi_block_diagonal.networks import network
from runner.contract import Context
from runner.curvature import ParameterOperator
from runner.curvature.function.groups import parameter_groups
from runner.run.config.experiment import preview
from tests.draws import normal, seeded
from tests.experiments.tables import changed, claims_of, grid

EXPERIMENT = preview("phi_block_diagonal")


def inside(h, label):
    """Sum of the squares of the blocks of a partition."""
    same = label[:, None] == label
    return float(h[same & (label >= 0)].square().sum())


@pytest.mark.parametrize(
    "architecture, residual",
    [("mlp", False), ("mlp", True), ("convnet", True), ("transformer", False)],
)
def test_phi_of_every_partition_against_plain_sums(architecture, residual):
    model, loss = network(architecture, residual, 3, 3, seeded()), nn.CrossEntropyLoss()
    x, y = normal(6, 16), torch.arange(6) % 3
    tables = curvature(model, loss, x, y, Context(seed=0))
    rows, layers, (certificate,) = (tables[name] for name in ("phi", "layers", "certificate"))
    assert certificate["ok"], certificate
    operator = ParameterOperator(model, loss, [(x, y)])
    h, gauss_newton = operator.dense(), operator.with_part("gauss_newton").dense()
    found = dense_curvature(model, x, y)
    for matrix, expected in zip(found, (h, gauss_newton), strict=True):
        assert float((matrix - expected).norm()) < 1e-12 * float(expected.norm())
    assert sum(layer["trace"] for layer in layers) == pytest.approx(float(h.trace()))
    assert rows[0]["blocks"] == len(operator.groups)
    by = {r["partition"]: r for r in rows if r["part"] == "hessian"}
    for name, row in by.items():
        label = labels(parameter_groups(model, None), name)
        known = label >= 0
        total = float(h[known][:, known].square().sum())
        assert row["phi"] == pytest.approx(1 - inside(h, label) / total)
        assert 0 <= row["phi"] < 1
        assert row["blocks"] == len(label[known].unique())
    assert by["layer"]["phi"] <= by["neuron"]["phi"] <= by["parameter"]["phi"]


@pytest.mark.parametrize(
    "of_layers, of_others, seeds, verdict",
    [
        (0.5, lambda classes: 0.5 / classes, 3, "confirmed"),
        (0.05, lambda classes: 0.5 + classes / 1000, 3, "refuted"),
        (0.5, lambda classes: 0.5, 1, "inconclusive"),
    ],
)
def test_claims_can_be_confirmed_refuted_and_left_open(of_layers, of_others, seeds, verdict):
    keys = {"residual": (False, True), "classes": EXPERIMENT.classes, "seed": range(seeds)}
    keys |= {"step": EXPERIMENT.steps, "part": ["hessian"]}
    partitions = ("layer", "neuron", "parameter", "output neuron")
    table = grid(architecture=EXPERIMENT.architecture, **keys, partition=partitions)
    table = table.assign(phi=of_others(table["classes"]))
    table = changed(table, {"partition": "layer"}, phi=of_layers)
    found = claims_of(EXPERIMENT, {"phi": table}).values()
    assert {claim.verdict for claim in found} == {verdict}
