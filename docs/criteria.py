"""Print docs/criteria.md: which margins and criteria that we chose are younger than the first
result of their experiment or were changed, and what the margin tells apart:
`python -m docs.criteria > docs/criteria.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.paper_audit.papers import clauses, keys
from experiments.printed import statement_rows, statements
from runner.contract.experiment import named
from runner.report.answers.reference import files
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.stats.quantities import Functions
from runner.stats.rows import table_of

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Margins and criteria

Made by `python -m docs.criteria`. The rows of `experiments/reference/*/statements.csv` and the
[reports](experiments.md) have each present criterion (`low`, `high`, `reason`); the rows also have
the commit that first gave it this form. This page names the criteria that may have been chosen with
the result in view: those fixed after the first commit with a report of their experiment, and those
changed later.

The default margin of printed numbers, ±25 %, was fixed in 3f8faa74: before the first results of
Experiments 2 and 6, after those of Experiments 1, 1b, 3, 3b, 4 and 5 (037520f1, fd663b37), which an
older rule had scored. The defaults of rank tests (level 0.01, 0.8 of the data sets) were fixed
before the first results of the three-layer and the scalar networks (e4b1aade).

"""


@dataclass(frozen=True)
class Criterion:
    """A limit that we chose. order: before or after the first result."""

    experiment: str
    name: str
    order: str


SEEDS = "replication_seeds"
"""Setting whose value is n, the number of seeds of a second verdict."""


def rows_of(kind: str) -> Iterator[dict[str, str]]:
    """The rows of a file of all papers."""
    for path in files(kind):
        yield from table_of(path)


def _order(fixed: str) -> str:
    """'after' of '20f49b8c after'."""
    return fixed.split()[1]


def of_statements() -> Iterator[Criterion]:
    """The rows of statements whose limits or margins are ours."""
    for (experiment, name), s in statement_rows().items():
        if s.fixed:
            yield Criterion(experiment, name, _order(s.fixed))


def of_margins() -> Iterator[Criterion]:
    """The margins of printed numbers that differ from the default."""
    rows = set()
    for row in rows_of("numbers"):
        if row.get("margin"):
            rows.add((row["experiment"], row["margin"], row["fixed"]))
    for experiment, margin, fixed in sorted(rows):
        yield Criterion(experiment, f"margin {margin} of printed numbers", _order(fixed))


def of_settings() -> Iterator[Criterion]:
    """The settings that change claims and no measured number."""
    for row in rows_of("settings"):
        if row["setting"] != SEEDS:
            name = f"setting {row['setting']}"
            yield Criterion(row["experiment"], name, _order(row["fixed"]))


def criteria() -> Iterator[Criterion]:
    """The limits of statements, in settings, and the margins of printed numbers."""
    yield from of_statements()
    yield from of_settings()
    yield from of_margins()


def order_section() -> str:
    """How many criteria of each experiment are older than its first result, and which are not."""
    before: dict[str, int] = {}
    after: dict[str, list[str]] = {}
    for c in criteria():
        before.setdefault(c.experiment, 0)
        names = after.setdefault(c.experiment, [])
        if c.order == "before":
            before[c.experiment] += 1
        else:
            names.append(c.name)
    late = sum(map(len, after.values()))
    lead = f"{sum(before.values())} were fixed before the first result, {late} after it.\n\n"
    rows = []
    for name, number in before.items():
        late_names = "; ".join(after[name])
        rows.append((name, number, late_names))
    return lead + table(("experiment", "before", "after"), rows)


CHANGED = """
## Criteria changed with the result in view

"""
FAVOUR = "changed in the authors' favour"
"""Beginning of the history of many criteria, which the page says once."""
BEFORE = "before: "
"""In a history, what comes ahead of the earlier criterion; a history without it is shown whole."""
SECOND = """
## Seeds of second verdicts

n is declared before the further seeds are run: the largest number of seeds, the paper's five
included, that an inconclusive statement needs, of those that at most 25 would decide, where a seed
costs less than ten minutes.

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
    favoured: list[tuple[str, str, str]] = []
    others: list[tuple[str, str, str]] = []
    for experiment, statements_of, history in grouped(changed()):
        rows = favoured if history.startswith(FAVOUR) else others
        rows.append((experiment, statements_of, history.rpartition(BEFORE)[2]))
    columns = ("experiment", "statements", "criterion before")
    return (
        CHANGED
        + "In the authors' favour:\n\n"
        + table(columns, favoured)
        + "\nThe others:\n\n"
        + table(columns, others)
    )


SHARPNESS = """
## What the margin tells apart

Each measured value is compared with the other printed values of its table and metric. *Within*: the
difference is within the margin; *reproduced*: its whole interval is. In percent of the pairs, from
the table with the least to that with the most; values that printed digits decide are left out.

"""
LARGE = (
    "C and D of Experiments 2 and 6 pass with {low:.0f} to {high:.0f} % of the values of other "
    "cells, R of Experiment 6 with {least:.0f} to {most:.0f} %: where the share is large, "
    "*reproduced* confirms the size of a number, not its place in the table.\n\n"
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
    shares: dict[tuple[str, str], list[Swapped]] = {}
    for row in rows:
        shares.setdefault((row.experiment, row.metric), []).append(row)
    lines = []
    for (name, metric), of in shares.items():
        within = _span(row.within for row in of)
        reproduced = _span(row.reproduced for row in of)
        lines.append((name, f"`{metric}` {within} ({reproduced})"))
    columns = ("experiment", "metric, within (reproduced)")
    return SHARPNESS + text + table(columns, grouped(lines))


def _span(shares: Iterable[float]) -> str:
    """'4–18', or '4' where all round to it."""
    rounded = sorted(round(share) for share in shares)
    return "–".join(map(str, dict.fromkeys((rounded[0], rounded[-1]))))


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
    page = HEAD + order_section()
    page += sharpness_section()
    page += changed_section()
    page += BY_FUNCTION + table(("experiment", "statements", "why"), grouped(by_function()))
    page += SECOND + table(
        ("experiment", "n", "statements that led to it", "declared in"), second()
    )
    print(page, end="")


if __name__ == "__main__":
    main()
