"""Cells that some of the paper's seeds lack: which they are, and which verdicts read them."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from runner.report.departures import scope_of
from runner.report.scope import Scope
from runner.report.unmeasured import Unmeasured, padded, undecided, unmeasured
from runner.run.config import build_job


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
    assert unmeasured(paper, stored(paper), seeds) == []
    found = unmeasured(paper, stored(paper, (1, 42), (1, 45), (2, 44)), seeds)
    assert [(cell.params, cell.seed, cell.like) for cell in found] == [
        (grid[1].params, 42, 43),
        (grid[1].params, 45, 43),
        (grid[2].params, 44, 42),
    ]
    nobody = [(0, seed) for seed in seeds]
    assert unmeasured(paper, stored(paper, *nobody), seeds) == []


def test_the_scope_says_what_is_unmeasured(paper):
    scope = scope_of(paper, paper, "paper", stored(paper, (1, 42), (2, 44)))
    text = f"2 of {5 * len(list(paper.cells()))} cells are not measured (seeds 42, 44)"
    assert scope.unmeasured == text and Scope.of({"scope": scope.record()}) == scope
    assert f"nothing that reads them is decided: {text}" in scope.lines


def test_an_unmeasured_cell_has_the_rows_of_another_seed_with_other_values():
    rows = {"depth": [2, 3, 2], "seed": [42, 42, 43], "step": [0, 0, 0], "R": [1.0, 2.0, 3.0]}
    cells = [Unmeasured({"depth": 3}, 43, 42)]
    made = padded({"t": pd.DataFrame(rows)}, cells, -2.0)["t"]
    assert made.iloc[:3].to_dict("list") == rows
    assert made.iloc[3].to_dict() == {"depth": 3, "seed": 43, "step": 0, "R": -4.0}
    assert padded({"t": pd.DataFrame(rows)}, cells, math.nan)["t"].iloc[3].isna()["R"]


def test_what_a_value_could_move_is_inconclusive():
    verdicts = ["confirmed", "refuted", "confirmed", "not run"]
    made = pd.DataFrame(
        {"verdict": verdicts, "detail": "n = 4", "seeds_needed": 3.0, "undecidable": ""}
    )
    first = made.assign(verdict=["inconclusive", "refuted", "confirmed", "inconclusive"])
    second = made.assign(verdict=["confirmed", "refuted", "refuted", "not run"])
    found = undecided(undecided(made, first, "1 of 9 cells", 5), second, "1 of 9 cells", 5)
    assert list(found["verdict"]) == ["inconclusive", "refuted", "inconclusive", "not run"]
    assert list(found["seeds_needed"]) == [5, 3, 5, 3]
    assert list(found["detail"]) == ["1 of 9 cells; n = 4", "n = 4"] * 2
    failed = undecided(made, made.iloc[:0], "1 of 9 cells", 5)
    assert list(failed["verdict"]) == ["inconclusive"] * 3 + ["not run"]
    reading = made.assign(verdict="inconclusive")
    found = undecided(reading, reading.assign(detail=["", *["n = 4"] * 3]), "1 of 9 cells", 5)
    assert list(found["detail"]) == ["1 of 9 cells; n = 4", *["n = 4"] * 3]
    assert list(found["seeds_needed"]) == [3] * 4
    theorem = undecided(made.assign(independent=True), first, "1 of 9 cells", 5)
    assert list(theorem["verdict"]) == verdicts and undecided(made, made, "", 5).equals(made)


def test_a_minor_error_that_a_value_could_take_back_is_inconclusive():
    about = {"detail": "n = 4", "seeds_needed": math.nan, "undecidable": ""}
    made = pd.DataFrame([{"verdict": "minor error", **about}] * 2)
    other = made.assign(verdict=["inconclusive", "minor error"])
    found = undecided(made, other, "1 of 9 cells", 5)
    assert list(found["verdict"]) == ["inconclusive", "minor error"]
