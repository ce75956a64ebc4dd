"""How many values of other cells pass the margin, on a scorecard that is counted by hand; and
that the page has every limit of ours."""

import re
from dataclasses import fields

import pandas as pd
import pytest

from docs.criteria import ROOT, SEEDS, main, rows_of, sharpness, swapped
from experiments.printed import statements
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names

PAGE = ROOT / "docs" / "criteria.md"
FIRST_TABLE = re.search(
    r"^\| experiment \| before .*?\n\n", PAGE.read_text(encoding="utf-8"), re.M | re.S
)
CELLS = [line.split(" | ") for line in FIRST_TABLE[0].splitlines()[2:-1]]
ROWS = {
    name.removeprefix("| "): (int(before), after.removesuffix(" |").split("; "))
    for name, before, after in CELLS
}
"""Experiment -> how many criteria are older than its first result, and which are younger."""


def scorecard(verdict="reproduced"):
    """Printed 10, 11 and 40, measured 10, 12 and 40, each ± 1 (the last ± 10)."""
    rows = [(10, 2.5, 10, 1), (11, 2.75, 12, 1), (40, 10, 40, 10)]
    scores = pd.DataFrame(rows, columns=["paper_mean", "margin", "measured_mean", "half"])
    low, high = -scores.half, scores.half
    return scores.assign(source="Table", metric="R", way="", verdict=verdict, low=low, high=high)


def test_pairs_are_those_counted_by_hand():
    """Of six pairs, 10 for 11 and 12 for 10 are within the margin; 12 for 10, 2 ± 1, is not
    wholly."""
    (row,) = swapped("x", scorecard())
    assert row.values == 3
    assert row.within == pytest.approx(100 * 2 / 6)
    assert row.reproduced == pytest.approx(100 * 1 / 6)


def test_values_that_digits_decide_are_left_out():
    assert not list(swapped("x", scorecard("exact match")))


def test_direction_of_published_shares():
    """R of Experiment 6 spans orders of magnitude, C and D do not."""
    shares = {(r.experiment, r.table, r.metric): r.within for r in sharpness()}
    table = ("exp6_resnet18", "DAG paper, Table N.7")
    assert shares[*table, "R"] < min(shares[*table, "C"], shares[*table, "D"])


@pytest.mark.parametrize("name", experiment_names())
def test_every_limit_of_ours_is_listed_or_counted(name):
    ours = [s for s in statements(name).values() if s.chosen and s.decidable]
    before, listed = ROWS.get(name, (0, []))
    after = {s.name for s in ours if s.fixed.endswith(" after")}
    assert all(s.fixed for s in ours)
    assert after <= set(listed) and before >= len(ours) - len(after)


def test_every_setting_that_changes_claims_alone_is_listed_with_its_value():
    stated = {(r["experiment"], r["setting"]): float(r["value"]) for r in rows_of("settings")}
    ours = {}
    for name in experiment_names():
        experiment = preview(name)
        if experiment.replication_seeds:
            ours[name, SEEDS] = len(experiment.replication_seeds)
        for field in fields(experiment):
            value = getattr(experiment, field.name)
            if field.metadata.get("report") and isinstance(value, float):
                ours[name, field.name] = value
    assert stated == ours


@pytest.mark.usefixtures("published")
def test_the_page_is_made_from_the_rows(capsys):
    main()
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")
