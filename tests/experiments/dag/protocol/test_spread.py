"""The spread from rounding, on tables with known answers."""

import math
from dataclasses import replace

import pytest

from experiments.dag.protocol.inter_layer import ROUNDING, companions
from experiments.dag.protocol.scores import with_rounding
from runner.contract import analyse
from runner.run.config.experiment import preview
from runner.run.config.jobs import build_job
from runner.stats.tables import chosen
from runner.store.identity import Identity
from tests.experiments.dag.inter_layer_tables import gaps, origin, scores
from tests.experiments.tables import grid

LAYER_NORM = preview("exp3b_layernorm")


def tables(**change):
    values = {"relu": 0.3, "silu": 0.36} | change
    found = gaps(values, dict.fromkeys(values, 0.1), {"relu": 0.5, "silu": 0.52})
    records = {"test_records": "official: first 32", "fingerprint": "f"}
    return {**found, "origin": origin(activation=values).assign(**records)}


def test_rounding_is_the_interval_of_paired_rows():
    analysis = analyse(LAYER_NORM, tables())
    perturbed = {name: t[t["seed"] < 45] for name, t in tables(relu=0.3 * 1.01).items()}
    repeated = replace(analysis, beside={ROUNDING: perturbed})  # three of five
    where = {"metric": "gap_global", "activation": "relu", "checkpoint": "final"}
    rows = chosen(repeated.measured(), **where)
    assert len(rows) == 5 and set(rows["rounding_df"]) == {3}
    squares = [(0.003 * (1 + 0.001 * (seed - 44))) ** 2 for seed in (42, 43, 44)]
    assert rows["rounding_std"].iloc[0] == pytest.approx(math.sqrt(sum(squares) / 3))
    found = scores(repeated, "exp3b_layernorm")
    row = chosen(found, **where).iloc[0]
    assert "other probes or another device's rounding" in row["reason"] and row["df"] == 3
    assert row["standard_error"] == pytest.approx(row["rounding_std"] / math.sqrt(5))
    plain = scores(analysis, "exp3b_layernorm")
    assert len(plain) == len(found) and not plain["reason"].str.contains("another device").any()


def test_companions_are_other_settings_and_have_none_themselves():
    found = companions(LAYER_NORM)
    assert list(found) == [ROUNDING]
    perturbed = found[ROUNDING].experiment
    assert Identity.of("x", perturbed).key != Identity.of("x", LAYER_NORM).key
    assert companions(perturbed) == {}
    asked = build_job(["experiment=exp3b_layernorm", "training.perturbation=1e-7"]).experiment
    assert Identity.of("x", asked) == Identity.of("x", perturbed)


def test_values_that_were_not_repeated_have_no_rounding():
    own = grid(metric=["m"], d=(1.0, 2.0, math.nan), seed=range(4))
    own["value"] = own["seed"] / 2
    other = own.assign(value=own["value"] + 0.25)
    first = {1.0: 1, 2.0: 2}  # two pairs alone at 2
    other = other[other["seed"] >= other["d"].map(first).fillna(0)]
    found = with_rounding(own, other, ["metric", "d"]).groupby("d", dropna=False).first()
    assert found["rounding_std"].fillna(-1).tolist() == [0.25, -1, 0.25]
    assert found["rounding_df"].fillna(-1).tolist() == [3, -1, 4]
