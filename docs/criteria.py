"""Print docs/criteria.md: every margin and criterion that we chose, the commit that fixed it,
whether that was before or after the first result of its experiment was committed, and what the
margin tells apart: `python -m docs.criteria > docs/criteria.md`, in a full clone.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from experiments.paper_audit.papers import clauses, keys
from experiments.printed import FOLDER as CLAIMS, LIMITS, statements
from runner.contract import Statement
from runner.run.config import experiment_names, preview

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Margins and criteria

Made by `python -m docs.criteria` from the files and the history of this repository. Reasons are in
`experiments/reference/`, and in the column `detail` of the experiment's `claims.csv`. *Fixed in* is
the commit in which the limits first stood in their present form (they may be older in another
form). *Order*: before or after the first commit with a report of the experiment. A criterion that
is younger than the first result, or whose limits are older but were applied to something else
before (listed below as changed), may have been chosen with it in view. Of a setting it is the first
commit in which a setting of this name had this value in any experiment.

The default margin of printed numbers, ±25 %, was fixed in 3f8faa74: before the first results of
Experiments 2 and 6, and after those of Experiments 1, 1b, 3, 3b, 4 and 5 (037520f1, fd663b37),
which an older rule had scored.

"""


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


Limits = dict[str, float]
OLD_KEY = "readings"
"""Name of `criteria` in older configurations."""


@dataclass(frozen=True)
class Criterion:
    """A limit that we chose: commit and time of the first version of its file that has it so."""

    experiment: str
    name: str
    limits: str
    reason: str
    commit: str
    time: int
    changed: bool = False


def versions(path: Path) -> Iterator[tuple[str, int, str]]:
    """(commit, time, text) of every version of a file, the oldest first, under its older names."""
    command = ["git", "log", "--follow", "--format=%x00%h %ct", "--name-only", "--"]
    log = subprocess.run([*command, path], cwd=ROOT, capture_output=True, text=True, check=True)
    for entry in reversed(log.stdout.split("\0")[1:]):
        commit, time, name = entry.split()
        show = ["git", "show", f"{commit}:{name}"]
        shown = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=False)
        yield commit, int(time), shown.stdout


def of_configuration(text: str) -> dict[str, Limits]:
    """Statement -> limits, of the criteria in an experiment's YAML."""
    experiment = OmegaConf.select(OmegaConf.create(text), "experiment", default={})
    criteria = experiment.get("criteria") or experiment.get(OLD_KEY) or {}
    found = {}
    for name, criterion in criteria.items():
        found[str(name)] = {key: float(criterion[key]) for key in LIMITS if key in criterion}
    return found


def of_statements(text: str) -> dict[str, Limits]:
    """Statement -> limits, of a file of experiments/reference/claims."""
    found = {}
    for row in csv.DictReader(text.splitlines()):
        found[row["name"]] = {key: float(row[key]) for key in LIMITS if row.get(key)}
    return found


def first_stated(
    path: Path, read: Callable[[str], Mapping[str, Limits]]
) -> dict[str, tuple[str, int]]:
    """Statement -> (commit, time) in which its present limits first stood in the file."""
    now = read(path.read_text(encoding="utf-8"))
    found: dict[str, tuple[str, int]] = {}
    for commit, time, text in versions(path):
        for name, limits in read(text).items():
            if limits == now.get(name):
                found.setdefault(name, (commit, time))
    return found


def in_words(limits: Mapping[str, float]) -> str:
    """'low: 0.5, high: 2'."""
    return ", ".join(f"{key}: {value:g}" for key, value in limits.items())


def of_file(
    path: Path, read: Callable[[str], Mapping[str, Limits]], names: Iterable[str]
) -> Iterator[Criterion]:
    """The criteria of these statements in a file."""
    now = read(path.read_text(encoding="utf-8"))
    commits = first_stated(path, read)
    says = said(path.stem)
    for name in names:
        if now[name]:
            statement = says[name]
            limits = in_words(now[name])
            commit, time = commits[name]
            yield Criterion(
                path.stem, name, limits, statement.reason, commit, time, bool(statement.history)
            )


def said(experiment: str) -> Mapping[str, Statement]:
    """The statements of an experiment with the limits that decide."""
    printed = statements(experiment) if (CLAIMS / f"{experiment}.csv").is_file() else {}
    return getattr(preview(experiment), "says", printed)


def of_margins(path: Path) -> Iterator[Criterion]:
    """The margins of printed numbers that differ from the default."""
    with open(path, newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row.get("margin")]
    for margin, reason in sorted({(row["margin"], row["margin_reason"]) for row in rows}):
        text = f",{margin},{reason[:40]}"
        commit, time, _ = first_commit("-S", text, "--", "experiments/reference")
        yield Criterion(path.stem, "margin of printed numbers", margin, reason, commit, time)


def of_settings(experiment: str) -> Iterator[Criterion]:
    """The settings that change claims and no measured number."""
    setup = preview(experiment)
    for field in fields(setup):
        value = getattr(setup, field.name)
        if field.metadata.get("report") and isinstance(value, float):
            written = rf"\b{field.name}: float = .*\b{re.escape(f'{value:g}')}\b"
            commit, time, _ = first_commit("-G", written, "--", "experiments", "runner")
            limits = f"experiment.{field.name}: {value:g}"
            yield Criterion(experiment, "setting", limits, "", commit, time)


def criteria() -> Iterator[Criterion]:
    """The limits in YAML files, in files of statements, in settings; margins of printed numbers."""
    for path in sorted((ROOT / "conf" / "experiment").glob("*.yaml")):
        of_yaml = of_configuration(path.read_text(encoding="utf-8"))
        yield from of_file(path, of_configuration, of_yaml)
    for path in sorted(CLAIMS.glob("*.csv")):
        ours = [name for name, statement in statements(path.stem).items() if statement.chosen]
        yield from of_file(path, of_statements, ours)
    for name in experiment_names():
        yield from of_settings(name)
    for path in sorted((ROOT / "experiments" / "reference").glob("*.csv")):
        yield from of_margins(path)


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


def changed() -> Iterator[tuple[str, str, str]]:
    """(experiment, statement, what its criterion was) of every statement with a history."""
    for name in experiment_names():
        for statement in said(name).values():
            if statement.history:
                yield name, statement.name, statement.history
    for clause in chain.from_iterable(map(clauses, keys())):
        if clause.history:
            yield "paper_audit", clause.id, clause.history


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
    for c in criteria():
        _, result_time, _ = first_result(c.experiment)
        when = "after" if c.changed or 0 < result_time <= c.time else "before"
        counts[when] += 1
        rows.append((c.experiment, c.name, c.limits, c.commit, when))
    lead = f"{counts['before']} were fixed before the first result, {counts['after']} after it.\n\n"
    columns = ("experiment", "statement", "limits", "fixed in", "order")
    page = HEAD + lead + table(columns, rows)
    page += sharpness_section()
    page += CHANGED + table(("experiment", "statement", "history"), changed())
    page += SECOND + table(
        ("experiment", "n", "statements that led to it", "declared in"), second()
    )
    print(page, end="")


if __name__ == "__main__":
    main()
