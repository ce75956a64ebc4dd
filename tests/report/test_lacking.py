"""Cells that some of the paper's seeds lack: which they are, and which verdicts read them."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from runner.contract import Statement
from runner.report.answers.judged import Lacking, lacking, scope_of, with_lacking
from runner.report.answers.scope import Scope
from runner.run.config.jobs import build_job
from runner.stats import over_seeds
from runner.stats.scorecard import scorecard


@pytest.fixture(scope="module")
def paper():
    return build_job(["experiment=exp3_gn_gap"]).experiment


def stored(paper, *lacking):
    """The cells of seeds 42 to 45 but for (number in the grid, seed)."""
    grid = list(paper.cells())
    return [
        SimpleNamespace(meta={"seed": seed, "params": dict(cell.params)})
        for seed in range(42, 46)
        for i, cell in enumerate(grid)
        if (i, seed) not in lacking
    ]


def test_a_cell_is_unmeasured_where_a_begun_seed_lacks_what_another_has(paper):
    grid = list(paper.cells())
    seeds = range(42, 47)  # none of 46: that is a missing seed
    assert lacking(paper, stored(paper), seeds) == []
    found = lacking(paper, stored(paper, (1, 42), (1, 45), (2, 44)), seeds)
    assert [(cell.params, cell.seed, cell.like) for cell in found] == [
        (grid[1].params, 42, 43),
        (grid[1].params, 45, 43),
        (grid[2].params, 44, 42),
    ]
    nobody = [(0, seed) for seed in seeds]
    assert lacking(paper, stored(paper, *nobody), seeds) == []


def test_the_scope_says_what_is_lacking(paper):
    scope = scope_of(paper, paper, "paper", stored(paper, (1, 42), (2, 44)))
    text = f"2 of {5 * len(list(paper.cells()))} cells are not measured (seeds 42, 44)"
    assert scope.unmeasured == text and Scope.of({"scope": scope.record()}) == scope
    assert f"nothing that reads them is decided: {text}" in scope.lines


def test_an_unmeasured_cell_has_the_rows_of_another_seed_without_values():
    rows = {"depth": [2, 3, 2], "seed": [42, 42, 43], "step": [0, 0, 0], "R": [1.0, 2.0, 3.0]}
    made = with_lacking({"t": pd.DataFrame(rows)}, [Lacking({"depth": 3}, 43, 42)])["t"]
    assert made.iloc[:3].to_dict("list") == rows
    last = made.iloc[3].to_dict()
    assert math.isnan(last.pop("R")) and last == {"depth": 3, "seed": 43, "step": 0}
    tables = {"t": pd.DataFrame(rows)}
    assert with_lacking(tables, []) is tables


def test_a_verdict_over_a_group_that_lacks_a_cell_is_inconclusive():
    rows = [(depth, seed, depth + seed / 1e3) for depth in (2, 3) for seed in range(42, 47)]
    table = pd.DataFrame(rows, columns=["depth", "seed", "R"])
    part = table[(table["depth"] != 3) | (table["seed"] != 46)]
    whole = with_lacking({"t": part}, [Lacking({"depth": 3}, 46, 42)])["t"]
    says = Statement(name="s", text="R above 1", place="Section 1", low=1.0)
    parts = {f"L={d}": list(rows["R"]) for d, rows in whole.groupby("depth")}
    made = over_seeds.bound(says, parts)
    assert made.verdict == "inconclusive" and made.detail.startswith("1 of 10 infinite or missing")
    assert made.variants == {"L=2": "confirmed", "L=3": "inconclusive"}
    below = Statement(name="s", text="R below 1", place="Section 1", high=1.0)
    assert over_seeds.bound(below, parts).variants["L=3"] == "inconclusive"
    # a part that lacks nothing refutes it
    assert over_seeds.bound(below, parts).verdict == "refuted"


def test_a_published_number_without_the_cell_of_a_seed_is_inconclusive():
    printed = pd.DataFrame({"metric": ["R"], "mean": ["1.0"], "std": ["0.1"], "n_seeds": ["5"]})
    for last, verdict in ((1.0, "reproduced"), (math.nan, "inconclusive")):
        values = pd.DataFrame({"metric": "R", "seed": range(42, 47), "value": [1.0] * 4 + [last]})
        row = scorecard(values, printed).iloc[0]
        assert row["verdict"] == verdict
    assert row["reason"].startswith("1 of 5 seeds infinite or missing")
