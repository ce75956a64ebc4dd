"""What a report shows and does not judge: cells outside the paper's grid and seeds."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from runner.contract import Claim
from runner.report.answers.findings import Failures, Material, Subject, ask, within_scope
from runner.report.answers.judged import scope_of
from runner.report.answers.scope import Scope
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_job


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
        ([stored(42), stored(42, "tanh")], ("activation tanh",)),
        ([stored(47, "tanh")], ("activation tanh", "seed 47")),
    ],
)
def test_cells_that_no_verdict_reads_are_named(paper, cells, shown):
    assert scope_of(paper, paper, "paper", cells).shown == shown


@pytest.mark.parametrize(
    "seeds, failed, lost",
    [
        (range(42, 47), 0, ()),
        ((), 0, ()),
        ((42, 44, 45), 0, ("2 of 5 seeds missing (43, 46)",)),
        (range(42, 48), 3, ("3 of 25 cells failed",)),
    ],
)
def test_a_seed_without_cells_and_a_cell_that_failed_leave_nothing_decided(
    paper, seeds, failed, lost
):
    scope = scope_of(paper, paper, "paper", [stored(seed) for seed in seeds], failed)
    assert scope.lost == lost and Scope.of({"scope": scope.record()}) == scope
    assert any("nothing is decided" in line for line in scope.lines) == bool(lost)
    claim = Claim("a", "s", "Fig. 1", "confirmed", detail="n = 3", seeds_needed=4)
    kept = within_scope(claim, scope)
    assert kept.verdict == ("inconclusive" if lost else "confirmed")
    assert kept.detail == "; ".join([*lost, "n = 3"])
    trifle = within_scope(replace(claim, verdict="minor error"), scope)
    assert trifle.verdict == ("inconclusive" if lost else "minor error")
    theorem = replace(claim, independent=True)
    assert within_scope(theorem, scope) == theorem


@pytest.mark.parametrize("name", experiment_names())
def test_without_a_cell_to_judge_nothing_is_asked(name):
    experiment = build_job([f"experiment={name}"]).experiment
    scope = scope_of(experiment, experiment, "paper", [stored(99)])
    failures = Failures()
    nothing = Subject(experiment, {})
    found = ask(Material(scope=scope, shown=nothing, judged=nothing), failures)
    assert failures.records == [] and len(found.claims) == len(found.stats) == 0
