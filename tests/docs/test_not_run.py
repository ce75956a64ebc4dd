"""What not_run.md lists is what the published numbers wait for."""

import re

import pandas as pd

from docs.render import DAG


def listed(text):
    """The experiments of the lines on numbers as described."""
    names = set()
    for line in text.splitlines():
        if line.startswith("- ") and "*as described*" in line:
            names |= set(re.findall(r"exp\w+", line.partition(":")[0]))
    return names


def waits(scores):
    """Whether a number as described has no value yet, or none of one of its seeds."""
    rows = scores[scores["way"] == "as described"]
    missing = rows["values"].astype(str).str.contains("null")
    return bool((missing | (rows["verdict"] == "not run")).any())


def test_lines_on_other_things_are_not_read():
    text = "- exp1_deep, trained: two rows *as described* wait\n- exp6_resnet18: five epochs\nexp2"
    assert listed(text) == {"exp1_deep"}


def test_what_waits_for_a_cell_is_listed_and_nothing_else(published):
    text = (published / "not_run.md").read_text(encoding="utf-8")
    scores = {name: pd.read_csv(published / name / "scorecard.csv") for name in DAG}
    assert listed(text) == {name for name, found in scores.items() if waits(found)}
