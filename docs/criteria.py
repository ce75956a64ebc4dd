"""Print docs/criteria.md: every margin and criterion that we chose, the commit that fixed it, and
whether that was before or after the first result of its experiment was committed: `python -m
docs.criteria > docs/criteria.md`, in a full clone.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments.printed import FOLDER as CLAIMS, statements
from runner.run.config import experiment_names, preview

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Margins and criteria

Made by `python -m docs.criteria` from the files and the history of this repository.
*fixed in* is the commit in which the limits first stood in their present form (they may be older
in another form), *first result* the first commit with a report of the experiment. A criterion that
is younger than the first result may have been chosen with it in view.

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


def criteria() -> Iterator[tuple[str, str, str, str, tuple[str, int, str]]]:
    """(experiment, what, limits, reason, commit that fixed them)."""
    for path in sorted((ROOT / "conf" / "experiment").glob("*.yaml")):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = CRITERION.match(line)
            if match:
                text = f"{match['name']}: {match['limits']}"
                fixed = first_commit("-S", text, "--", "conf/experiment")
                limits = match["limits"].strip("{ ,")
                yield path.stem, match["name"], limits, match["reason"], fixed
    for path in sorted((ROOT / "experiments" / "reference").glob("*.csv")):
        with open(path, newline="", encoding="utf-8") as stream:
            margins = {
                (r["margin"], r["margin_reason"]) for r in csv.DictReader(stream) if r.get("margin")
            }
        for margin, reason in sorted(margins):
            fixed = first_commit("-S", f",{margin},{reason[:40]}", "--", "experiments/reference")
            yield path.stem, "margin of printed numbers", margin, reason, fixed


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
    for name, what, limits, reason, (commit, time, _) in criteria():
        result, result_time, _ = first_result(name)
        when = "after" if 0 < result_time <= time else "before"
        counts[when] += 1
        rows.append((name, what, limits, reason, commit, result, when))
    lead = f"{counts['before']} were fixed before the first result, {counts['after']} after it.\n\n"
    columns = ("experiment", "statement", "limits", "reason", "fixed in", "first result", "order")
    page = HEAD + lead + table(columns, rows)
    page += CHANGED + table(("experiment", "statement", "criterion", "history"), changed())
    page += SECOND + table(
        ("experiment", "n", "statements that led to it", "declared in"), second()
    )
    print(page, end="")


if __name__ == "__main__":
    main()
