"""Print docs/criteria.md: every margin and criterion that we chose, the commit that fixed it,
whether that was before or after the first result of its experiment was committed, and what the
margin tells apart: `python -m docs.criteria > docs/criteria.md`, in a full clone.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.paper_audit.papers import clauses, keys
from experiments.printed import FOLDER as CLAIMS, statements
from runner.run.config import experiment_names, preview

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Margins and criteria

Made by `python -m docs.criteria` from the files and the history of this repository.
*fixed in* is the commit in which the limits first stood in their present form (they may be older
in another form), *first result* the first commit with a report of the experiment. A criterion that
is younger than the first result, or whose limits are older but were applied to something else
before (listed below as changed), may have been chosen with it in view.

The default margin of printed numbers, ±25 %, was fixed in 3f8faa74: before the first results of
Experiments 2 and 6, and after those of Experiments 1, 1b, 3, 3b, 4 and 5 (037520f1, fd663b37),
which an older rule had scored.

"""
CRITERION = re.compile(
    r"^    (?P<name>[^:{]+): (?P<limits>\{(?:low|high|margin)[^\"]*)reason: \"(?P<reason>.*?)\""
    r"(?:, history: \"(?P<history>.*)\")?\}"
)


def first_commit(*arguments: str) -> tuple[str, int, str]:
    """(hash, time, date) of the oldest commit that `git log` finds."""
    command = ["git", "log", "--reverse", "--format=%h %ct %cs", *arguments]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commit, time, date = (lines.split("\n", 1)[0] or "none 0 none").split()
    return commit, int(time), date


def first_result(name: str) -> tuple[str, int, str]:
    """The first commit with a scorecard or claims of an experiment."""
    places = [
        f"outputs/{at}{name}/{f}.csv" for at in ("", "published/") for f in ("claims", "scorecard")
    ]
    return first_commit("--diff-filter=A", "--", *places)


def criteria() -> Iterator[tuple[str, str, str, str, tuple[str, int, str], bool]]:
    """(experiment, what, limits, reason, commit that fixed them, whether they have a history)."""
    for path in sorted((ROOT / "conf" / "experiment").glob("*.yaml")):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = CRITERION.match(line)
            if match:
                text = f"{match['name']}: {match['limits']}"
                fixed = first_commit("-S", text, "--", "conf/experiment")
                limits = match["limits"].strip("{ ,")
                yield (
                    path.stem,
                    match["name"],
                    limits,
                    match["reason"],
                    fixed,
                    bool(match["history"]),
                )
    for path in sorted((ROOT / "experiments" / "reference").glob("*.csv")):
        with open(path, newline="", encoding="utf-8") as stream:
            margins = {
                (r["margin"], r["margin_reason"]) for r in csv.DictReader(stream) if r.get("margin")
            }
        for margin, reason in sorted(margins):
            fixed = first_commit("-S", f",{margin},{reason[:40]}", "--", "experiments/reference")
            yield path.stem, "margin of printed numbers", margin, reason, fixed, False


CHANGED = """
## Criteria changed with the result in view

"""
SECOND = """
## Seeds of second verdicts

n is written down before the further seeds are run: as many, the paper's five included, as that
inconclusive statement needs which takes most, of those that at most 25 would decide, where a seed
costs less than ten minutes. The commit is that of the declaration.

"""


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *(map(_cell, row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|")


def changed() -> Iterator[tuple[str, str, str, str]]:
    """(experiment, statement, criterion, what it was) of every statement with a history."""
    for name in experiment_names():
        printed = statements(name) if (CLAIMS / f"{name}.csv").is_file() else {}
        says = getattr(preview(name), "says", printed)
        yield from ((name, s.name, s.reason, s.history) for s in says.values() if s.history)
    for clause in chain.from_iterable(map(clauses, keys())):
        if clause.history:
            yield "paper_audit", clause.id, clause.criterion, clause.history


SHARPNESS = """
## What the margin tells apart

Each measured value is held here against the other printed values of its table and metric, with the
margin of that value and the interval of its own comparison. *Within the margin* counts differences
that are small enough, *reproduced* those whose whole interval is. Values that printed digits decide
are left out.

"""
LARGE = (
    "Of the values of other cells, {low:.0f} to {high:.0f} % pass by the margin for C and D of "
    "Experiments 2 and 6, and {least:.0f} to {most:.0f} % for R of Experiment 6: where the share "
    "is large, *reproduced* confirms the size of a number, not its place in the table.\n\n"
)
BY_MARGIN = ("reproduced", "not reproduced", "inconclusive")
"""Verdicts that follow from the margin."""


@dataclass(frozen=True)
class Swapped:
    """Measured values of a table and metric, compared with the printed values of other cells.

    within: percent of the pairs within the margin; reproduced: percent that would be *reproduced*.
    """

    experiment: str
    table: str
    metric: str
    way: str
    values: int
    within: float
    reproduced: float


def swapped(experiment: str, scores: pd.DataFrame) -> Iterator[Swapped]:
    """The rows of a scorecard by table, metric and way, three values or more each."""
    judged = scores[scores.verdict.isin(BY_MARGIN)].dropna(subset=["margin", "paper_mean", "low"])
    for (source, metric, way), rows in judged.groupby(["source", "metric", "way"], sort=False):
        if len(rows) < 3:
            continue
        measured = rows.measured_mean.to_numpy()[:, None]
        apart = np.abs(measured - rows.paper_mean.to_numpy())
        half_width = ((rows.high - rows.low) / 2).to_numpy()[:, None]
        margin, other = rows.margin.to_numpy(), ~np.eye(len(rows), dtype=bool)
        within = 100 * float((apart <= margin)[other].mean())
        whole = 100 * float((apart + half_width <= margin)[other].mean())
        yield Swapped(experiment, source, metric, way, len(rows), within, whole)


def sharpness() -> Iterator[Swapped]:
    """`swapped` of every published scorecard with printed numbers."""
    for path in sorted((ROOT / "outputs" / "published").glob("*/scorecard.csv")):
        scores = pd.read_csv(path)
        if "metric" in scores:
            yield from swapped(path.parent.name, scores)


def sharpness_section() -> str:
    """The section, with the sentence on C, D and R."""
    rows = list(sharpness())
    wide, narrow = [], []
    for row in rows:
        if row.experiment in ("exp2_bottleneck", "exp6_resnet18") and row.metric[0] in "CD":
            wide.append(row.within)
        elif row.experiment == "exp6_resnet18" and row.metric == "R":
            narrow.append(row.within)
    text = LARGE.format(low=min(wide), high=max(wide), least=min(narrow), most=max(narrow))
    columns = ("experiment", "table", "metric", "way", "values", "within the margin", "reproduced")
    lines = []
    for row in rows:
        shares = (f"{row.within:.0f} %", f"{row.reproduced:.0f} %")
        lines.append((row.experiment, row.table, row.metric, row.way, row.values, *shares))
    return SHARPNESS + text + table(columns, lines)


def second() -> Iterator[tuple[str, int, str, str]]:
    """(experiment, n, reason, commit) of every declared second verdict."""
    for name in experiment_names():
        experiment = preview(name)
        reason = experiment.replication_reason
        if experiment.replication_seeds:
            commit, _, _ = first_commit("-S", reason, "--", "experiments")
            yield name, len(experiment.replication_seeds), reason, commit


def main() -> None:
    """Print the page."""
    rows, counts = [], Counter[str]()
    for name, what, limits, reason, (commit, time, _), is_changed in criteria():
        result, result_time, _ = first_result(name)
        when = "after" if is_changed or 0 < result_time <= time else "before"
        counts[when] += 1
        rows.append((name, what, limits, reason, commit, result, when))
    lead = f"{counts['before']} were fixed before the first result, {counts['after']} after it.\n\n"
    columns = ("experiment", "statement", "limits", "reason", "fixed in", "first result", "order")
    page = HEAD + lead + table(columns, rows)
    page += sharpness_section()
    page += CHANGED + table(("experiment", "statement", "criterion", "history"), changed())
    page += SECOND + table(
        ("experiment", "n", "statements that led to it", "declared in"), second()
    )
    print(page, end="")


if __name__ == "__main__":
    main()
