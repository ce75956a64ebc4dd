"""What a report shows and does not judge: cells outside the paper's grid and seeds."""

from types import SimpleNamespace

import pytest

from runner.report.departures import departures, scope_of
from runner.run.config import build_job


@pytest.fixture(scope="module")
def paper():
    return build_job(["experiment=exp3_gn_gap"]).experiment


def stored(seed, activation="relu"):
    return SimpleNamespace(meta={"seed": seed, "params": {"activation": activation}})


@pytest.mark.parametrize(
    "cells, shown",
    [
        ([stored(42)], ()),
        ([stored(42), stored(47)], ("seed 47",)),
        ([stored(47), stored(42), stored(48)], ("seeds 47, 48",)),
        ([stored(42), stored(42, "tanh")], ("activation=tanh",)),
        ([stored(47, "tanh")], ("activation=tanh", "seed 47")),
    ],
)
def test_cells_that_no_verdict_reads_are_named(paper, cells, shown):
    assert scope_of(paper, paper, "paper", cells).shown == shown


@pytest.mark.parametrize(
    ("words", "departs"),
    [("far=20", ["far"]), ("draws=3", []), ("tight=1.2", []), ("activation=[tanh]", [])],
)
def test_settings_that_change_what_is_measured_depart_from_the_paper(words, departs):
    paper = build_job(["experiment=ws_bound"]).experiment
    changed = build_job(["experiment=ws_bound", f"experiment.{words}"]).experiment
    assert [one.setting for one in departures(changed, paper)] == departs
