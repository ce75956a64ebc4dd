"""docs/benchmarks.md is what the measured rows make, and the table says what was measured."""

from dataclasses import replace

import pytest
import torch

from runner.curvature import exact_blocks
from tests import DOCS
from tests.bench.__main__ import GOALS, keep, page
from tests.bench.by_hand import batched, functional
from tests.bench.machine import operations
from tests.bench.table import Row, markdown, read
from tests.curvature.cases import make
from tests.curvature.oracles import assembled


def test_the_page_is_made_from_its_rows():
    rows = read(DOCS / "benchmarks.json")
    assert {row.part for row in rows} == set(GOALS)
    assert (DOCS / "benchmarks.md").read_text() == page(rows)


@pytest.mark.parametrize(
    "at_least, goal, met", [(True, 4, True), (True, 4.1, False), (False, 0.25, True)]
)
def test_a_ratio_is_of_the_medians_the_way_round_its_goal_is_stated(at_least, goal, met):
    row = Row("epoch", "a step", (3.0, 1.0, 2.0), (8.0,), goal, at_least=at_least)
    assert row.ratio == (4 if at_least else 0.25)
    assert row.met is met
    assert "| 2 s |" in markdown([row])


def test_rows_that_ran_replace_those_that_were_there(tmp_path):
    path = tmp_path / "rows.json"
    one = Row("memory", "one", (1.0,), (2.0,), 1)
    keep(path, [one, replace(one, what="two")], whole=True)
    again = replace(one, what="two", ours=(2.0,))
    keep(path, [again], whole=False)
    assert read(path) == [one, again]
    keep(path, [again], whole=True)
    assert read(path) == [again]
    assert path.with_suffix(".md").read_text() == page([again])


def test_padding_is_no_work():
    layer = torch.nn.Conv2d(2, 3, 3, padding=1)
    maps = torch.ones(4, 2, 5, 5)
    # of each row of 5 places the ends have two taps, not three
    inside = 4 * 3 * 2 * (5 * 3 - 2) ** 2
    assert operations(lambda: layer(maps)) == pytest.approx(2 * inside)
    assert operations(lambda: layer(maps).sum().backward()) == pytest.approx(4 * inside)


@pytest.mark.slow
def test_both_ways_by_hand_give_the_blocks():
    case = make("chain")
    nodes, dag = list(case.nodes), case.dag.to(torch.float32)
    exact = exact_blocks(dag, case.x.float(), case.y)
    sizes = [len(exact[v, v]) for v in nodes]
    for way in (batched, functional):
        found = way(dag, case.x.float(), case.y, nodes, sizes).detach()
        assert torch.allclose(found, assembled(exact, nodes), atol=1e-5)
