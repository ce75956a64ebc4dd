"""The spread from rounding, on tables with known answers."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments.dag.protocol import spread
from experiments.dag.protocol.inter_layer import ROUNDING, companions
from runner.contract import analyse
from runner.report.compare import scorecard
from runner.report.reference import read_reference, reference_path
from runner.run.config import build_job
from runner.store.identity import Identity
from tests.experiments.dag.inter_layer_tables import SEEDS, gaps

GAPS = {"relu": 0.3, "silu": 0.36}
ACCURACY = {"relu": 0.5, "silu": 0.52}


@pytest.fixture(scope="module")
def layernorm():
    return build_job(["experiment=exp3b_layernorm"]).experiment


def tables(**change):
    found = gaps({k: change.get(k, v) for k, v in GAPS.items()}, dict.fromkeys(GAPS, 0.1), ACCURACY)
    rows = [
        {"activation": a, "seed": s, "initial": "published", "order": "published"}
        | {"train_records": "official", "test_records": "official: first 32", "fingerprint": "f"}
        for a in GAPS
        for s in SEEDS
    ]
    return {**found, "origin": pd.DataFrame(rows)}


def test_rounding_is_the_interval_of_paired_rows(layernorm):
    analysis = analyse(layernorm, tables())
    perturbed = tables(relu=0.3 * 1.01)
    perturbed = {k: t[t["seed"] < 45] for k, t in perturbed.items()}  # three of five repeated
    found = replace(analysis, beside={ROUNDING: perturbed}).measured()
    rows = found[
        (found["metric"] == "gap_global")
        & (found["activation"] == "relu")
        & (found["checkpoint"] == "final")
    ]
    moved = [0.003 * (1 + 0.001 * (s - 44)) for s in (42, 43, 44)]
    assert len(rows) == 5 and set(rows["rounding_df"]) == {3}
    assert rows["rounding_std"].iloc[0] == pytest.approx(math.sqrt(np.mean(np.square(moved))))
    scores = scorecard(found, read_reference(reference_path("exp3b_layernorm")))
    row = scores[
        (scores["metric"] == "gap_global")
        & (scores["activation"] == "relu")
        & (scores["checkpoint"] == "final")
    ]
    row = row.iloc[0]
    assert "other probes or another device's rounding" in row["reason"] and row["df"] == 3
    assert row["standard_error"] == pytest.approx(row["rounding_std"] / math.sqrt(5))
    plain = scorecard(analysis.measured(), read_reference(reference_path("exp3b_layernorm")))
    assert len(plain) == len(scores) and not plain["reason"].str.contains("another device").any()


def test_companions_are_other_settings_and_have_none_themselves(layernorm):
    found = companions(layernorm)
    assert list(found) == [ROUNDING]
    perturbed = found[ROUNDING].experiment
    assert Identity.of("x", perturbed).key != Identity.of("x", layernorm).key
    assert companions(perturbed) == {}
    asked = build_job(["experiment=exp3b_layernorm", "training.perturbation=1e-7"]).experiment
    assert Identity.of("x", asked) == Identity.of("x", perturbed)


def test_values_that_were_not_repeated_have_no_rounding():
    rows = [
        {"metric": "m", "d": d, "seed": s, "value": s / 2}
        for d in (1.0, 2.0, float("nan"))
        for s in range(4)
    ]
    own = pd.DataFrame(rows)
    other = own[(own["seed"] > 0) | own["d"].isna()].assign(value=lambda t: t["value"] + 0.25)
    other = other[(other["d"] != 2.0) | (other["seed"] > 1)]  # two pairs alone
    found = (
        spread.with_rounding(own, other)
        .groupby("d", dropna=False)[["rounding_std", "rounding_df"]]
        .first()
    )
    assert found["rounding_std"].fillna(-1).tolist() == [0.25, -1, 0.25]
    assert found["rounding_df"].fillna(-1).tolist() == [3, -1, 4]
