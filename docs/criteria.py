"""Print docs/criteria.md: every margin and criterion that we chose, the commit that fixed it,
whether that was before or after the first result of its experiment was committed, and what the
margin tells apart: `python -m docs.criteria > docs/criteria.md`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.paper_audit.papers import clauses, keys
from experiments.printed import statement_rows, statements
from runner.contract import Statement
from runner.contract.experiment import named
from runner.report.answers.reference import files
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.stats.quantities import Functions
from runner.stats.rows import table_of

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Margins and criteria

Made by `python -m docs.criteria` from the rows of `experiments/reference/`, which have the reasons.
*Fixed in* is the commit in which the limits first had their present form; of a setting, the first
in which a setting of this name had this value. *Order*: before or after the first commit with a
report of the experiment. A criterion that is younger than the first result, or that was changed
(below), may have been chosen with it in view.

The default margin of printed numbers, ±25 %, was fixed in 3f8faa74: before the first results of
Experiments 2 and 6, and after those of Experiments 1, 1b, 3, 3b, 4 and 5 (037520f1, fd663b37),
which an older rule had scored. The level of rank tests, 0.01, and the share of the data sets that
have to agree, 0.8, are defaults as well: for the three-layer and the scalar networks they were
fixed in e4b1aade, before their first results.

"""


@dataclass(frozen=True)
class Criterion:
    """A limit that we chose. fixed: the commit that fixed it; order: before or after the first
    result."""

    experiment: str
    name: str
    limits: str
    fixed: str
    order: str


SEEDS = "replication_seeds"
"""Setting whose value is n, the number of seeds of a second verdict."""


def rows_of(kind: str) -> Iterator[dict[str, str]]:
    """The rows of a file of all papers."""
    for path in files(kind):
        yield from table_of(path)


LIMITS = ("low", "high", "margin")


def in_words(statement: Statement) -> str:
    """'low 0.5, high 2'."""
    limits = {key: getattr(statement, key) for key in LIMITS}
    return ", ".join(f"{key} {v:g}" for key, v in limits.items() if math.isfinite(v))


def of_statements() -> Iterator[Criterion]:
    """The rows of statements whose limits or margins are ours."""
    for (experiment, name), s in statement_rows().items():
        if s.fixed:
            yield Criterion(experiment, name, in_words(s), *s.fixed.split())


def of_margins() -> Iterator[Criterion]:
    """The margins of printed numbers that differ from the default."""
    found = set()
    for row in rows_of("numbers"):
        if row.get("margin"):
            columns = ("experiment", "margin", "margin_reason", "fixed")
            found.add(tuple(row[column] for column in columns))
    for experiment, margin, _, fixed in sorted(found):
        yield Criterion(experiment, "margin of printed numbers", margin, *fixed.split())


def of_settings() -> Iterator[Criterion]:
    """The settings that change claims and no measured number."""
    for row in rows_of("settings"):
        if row["setting"] != SEEDS:
            limits = f"{row['setting']} {row['value']}"
            yield Criterion(row["experiment"], "setting", limits, *row["fixed"].split())


def criteria() -> Iterator[Criterion]:
    """The limits of statements, in settings, and the margins of printed numbers."""
    yield from of_statements()
    yield from of_settings()
    yield from of_margins()


CHANGED = """
## Criteria changed with the result in view

"""
FAVOUR = "changed in the authors' favour when the result had been seen"
"""Beginning of the history of many criteria, which the page says once."""
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


def grouped(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Rows that agree in all but their second entry as one row, with these entries listed."""
    listed: dict[tuple[str, ...], list[str]] = {}
    for first, name, *rest in rows:
        listed.setdefault((first, *rest), []).append(name)
    for (first, *rest), names in listed.items():
        yield first, "; ".join(names), *rest


def changed() -> Iterator[tuple[str, str, str]]:
    """(experiment, statement, what its criterion was) of every statement with a history."""
    for name in experiment_names():
        for statement in statements(name).values():
            if statement.history:
                yield name, statement.name, statement.history
    for clause in chain.from_iterable(map(clauses, keys())):
        if clause.history:
            yield "paper_audit", clause.id, clause.history


def changed_section() -> str:
    """The section: changes in the authors' favour, then the others."""
    favoured, others = [], []
    for experiment, statements_of, history in grouped(changed()):
        if history.startswith(FAVOUR):
            favoured.append((experiment, statements_of, history.removeprefix(FAVOUR).lstrip(";: ")))
        else:
            others.append((experiment, statements_of, history))
    columns = ("experiment", "statements", "history")
    return (
        CHANGED
        + "In the authors' favour:\n\n"
        + table(columns, favoured)
        + "\nThe others:\n\n"
        + table(columns, others)
    )


SHARPNESS = """
## What the margin tells apart

Each measured value is compared here with the other printed values of its table and metric, by the
margin of that value and the interval of its own comparison. *Within*: the difference is within the
margin; *reproduced*: its whole interval is. Values that printed digits decide are left out.

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
    lines = []
    for row in rows:
        shares = f"`{row.metric}` ({row.values}) {row.within:.0f} %, {row.reproduced:.0f} %"
        lines.append((row.experiment, shares, row.table, row.way))
    columns = ("experiment", "metric (values) within, reproduced", "table", "way")
    return SHARPNESS + text + table(columns, grouped(lines))


def second() -> Iterator[tuple[str, str, str, str]]:
    """(experiment, n, reason, commit) of every declared second verdict."""
    for row in rows_of("settings"):
        if row["setting"] == SEEDS:
            yield row["experiment"], row["value"], row["reason"], row["fixed"].split()[0]


BY_FUNCTION = """
## Statements that a function decides

No [row](statements.md) can say what decides them: a function of the tables does.

"""


def by_function() -> Iterator[tuple[str, str, str]]:
    """(experiment, statement, why) of every statement whose test is a function of its own."""
    for name in experiment_names():
        functions = getattr(named(preview(name), "analysis"), "functions", Functions())
        for statement in statements(name).values():
            if statement.test in functions.decisions:
                yield name, statement.name, functions.reasons[statement.test]


def main() -> None:
    """Print the page."""
    rows, counts = [], Counter[str]()
    for c in criteria():
        counts[c.order] += 1
        rows.append((c.experiment, f"{c.name} ({c.limits})", c.fixed, c.order))
    lead = f"{counts['before']} were fixed before the first result, {counts['after']} after it.\n\n"
    columns = ("experiment", "statements (limits)", "fixed in", "order")
    page = HEAD + lead + table(columns, grouped(rows))
    page += sharpness_section()
    page += changed_section()
    page += BY_FUNCTION + table(("experiment", "statements", "why"), grouped(by_function()))
    page += SECOND + table(
        ("experiment", "n", "statements that led to it", "declared in"), second()
    )
    print(page, end="")


if __name__ == "__main__":
    main()
