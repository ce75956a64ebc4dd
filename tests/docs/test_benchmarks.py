"""docs/benchmarks.md is what the measured rows make, and the table says what was measured."""

from pathlib import Path

import pytest

from tests.bench.__main__ import GOALS, keep, page
from tests.bench.table import Row, aligned, read

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_made_from_its_rows():
    rows = read(DOCS / "benchmarks.json")
    assert {row.part for row in rows} == set(GOALS)
    assert (DOCS / "benchmarks.md").read_text() == page(rows)


@pytest.mark.parametrize(("at_least", "goal", "met"), [(True, 4, True), (True, 4.1, False), (False, 0.25, True)])
def test_a_ratio_is_of_the_medians_the_way_round_its_goal_is_stated(at_least, goal, met):
    row = Row("epoch", "a step", (3.0, 1.0, 2.0), (8.0,), goal, at_least=at_least)
    assert row.ratio == (4 if at_least else 0.25)
    assert row.met is met
    assert "2 [1, 3] s" in aligned([row])


def test_rows_that_ran_replace_those_that_were_there(tmp_path):
    path = tmp_path / "rows.json"
    one, two = Row("memory", "one", (1.0,), (2.0,), 1), Row("memory", "two", (1.0,), (2.0,), 1)
    keep(path, [one, two], whole=True)
    again = Row("memory", "two", (2.0,), (2.0,), 1)
    keep(path, [again], whole=False)
    assert read(path) == [one, again]
    keep(path, [again], whole=True)
    assert read(path) == [again]
    assert path.with_suffix(".md").read_text() == page([again])
