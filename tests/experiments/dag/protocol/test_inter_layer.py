"""Predicted costs follow the settings that decide them, and agree with what published cells
took."""

import pytest

from runner.run.config.experiment import preview
from runner.run.config.jobs import build_jobs
from runner.run.config.overrides import arguments
from runner.store.archive import VARIABLE
from runner.store.costs import Costs
from runner.store.identity import Identity
from runner.store.store import Store


def total(*words):
    cells = [cell for _, cell in build_jobs(arguments(["experiment=exp1_deep", *words]))[0].cells()]
    return sum(cell.seconds for cell in cells), max(cell.memory_gib for cell in cells)


def test_width_epochs_examples_and_profile_decide_the_cost():
    seconds, memory = total()
    wide = total("model.width=512")
    assert wide[0] > 4 * seconds and wide[1] > memory
    assert total("training.epochs=100")[0] > 1.5 * seconds
    assert total("metric.examples=256", "metric.memory_gib=8")[0] > 1.5 * seconds
    assert total("metric.examples=256", "metric.memory_gib=8")[1] > memory + 5
    assert total("model.width=8")[1] < 1 and total("profile=quick")[0] < seconds / 20


@pytest.mark.parametrize("name", ["exp1_deep", "exp2_bottleneck", "exp3_gn_gap"])
def test_predictions_are_within_a_factor_of_two_of_published_cells(name, tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    experiment = preview(name)
    key = Identity.of(name, experiment).key
    stored = [cell for cell in Store(tmp_path, name).all() if cell.meta["settings_key"] == key]
    measured = Costs([cell for cell in stored if cell.meta.get("resumed") is False])
    if not stored:
        pytest.skip("no published cells")
    for cell in experiment.cells():
        cost = measured(cell)
        assert 0.5 < cell.seconds / cost.seconds < 2, cell.label
        assert 0.5 < cell.memory_gib / cost.gib < 2, cell.label
