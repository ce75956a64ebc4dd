"""The regulariser from probes on a network: same start for every method, claims from constructed tables."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from experiments.hsr.stochastic.measure import _Spread, digits, network
from experiments.hsr.stochastic.report import final
from runner.contract import Context, SettingError, analyse, measure
from runner.run.config import build_job


@pytest.fixture(scope="module")
def experiment():
    torch.set_num_threads(1)
    job = build_job(["experiment=hsr_stochastic", "profile=quick", "experiment.epochs=1", "experiment.batch=300"])
    return replace(job.experiment, widths=[6] * 5, lanczos_steps=5, repeats=50)


@pytest.fixture(scope="module")
def tables(experiment):
    found: dict[str, list[pd.DataFrame]] = {}
    for cell in experiment.cells():
        for name, columns in measure(experiment, cell, Context(1)).items():
            found.setdefault(name, []).append(pd.DataFrame(columns).assign(**cell.params, seed=1))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in found.items()}


def test_five_hidden_layers_and_ten_classes(experiment):
    model = network(experiment, Context(1))
    linear = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    assert len(linear) == 6 and linear[0].in_features == 64 and linear[-1].out_features == 10
    (x, y), (test_x, _) = digits(experiment, Context(1))
    assert len(x) + len(test_x) == 1797 and float(x.max()) <= 1 and set(y.tolist()) == set(range(10))
    assert torch.equal(network(experiment, Context(1))[0].weight, model[0].weight)


def test_methods_start_alike_and_part(tables):
    history = tables["history"]
    first, last = (history[history["epoch"] == e].set_index("part") for e in (0, 1))
    assert first["train_loss"].nunique() == first["lambda_max"].nunique() == 1
    assert last["train_loss"].nunique() == 3
    assert (last["train_loss"] < first["train_loss"]).all()
    assert (first["bound"] > first["lambda_max"]).all()


def test_running_mean_of_the_spread():
    spread = _Spread(0.5)
    assert spread.std is None
    spread.update(4.0)
    assert spread.std == pytest.approx(2.0)
    spread.update(16.0)
    assert spread.std == pytest.approx(((4 + 2 * 16) / 3) ** 0.5)
    spread.update(-1000.0)
    assert spread.std is None


def constructed(hsr):
    rows = [
        {
            "seed": seed,
            "part": part,
            "epoch": epoch,
            "train_loss": 1.0,
            "test_accuracy": 0.9,
            "bound": 1.0,
            "lambda_max": (hsr if part == "hsr" else 1.0) + 0.01 * seed,
        }
        for seed in range(5)
        for part in ("sgd", "sam", "hsr")
        for epoch in (0, 1)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("hsr", "verdict"), [(0.5, "confirmed"), (2.0, "refuted")])
def test_claims_follow_the_tables(experiment, hsr, verdict):
    found = {c.name: c.verdict for c in analyse(experiment, {"history": constructed(hsr)}).claims()}
    assert set(found.values()) == {"not comparable"}, "one untuned rate decides nothing"
    said = {c.name: c.detail for c in analyse(experiment, {"history": constructed(hsr)}).claims()}
    assert f"it would be {verdict}" in said["flatter than SGD"] and "hsr_flat_training" in said["flatter than SAM"]
    assert final({"history": constructed(hsr)}, "lambda_max")["hsr"].iloc[0] == hsr


def test_report_parts_can_be_made_from_the_tables(experiment, tables):
    for make in analyse(experiment, tables).figures().values():
        make()
    assert {c.verdict for c in analyse(experiment, tables).claims()} == {"inconclusive", "not comparable"}
    assert any(s.name == "exponent of the error in probes" for s in analyse(experiment, tables).statistics())
    assert len(analyse(experiment, tables).notes()) == 3


def test_what_cannot_be_used_is_refused(experiment):
    with pytest.raises(SettingError, match="at least 2"):
        replace(experiment, probes=1)
    with pytest.raises(SettingError, match="memory"):
        replace(experiment, memory=1.0)
