"""Verdicts of two sets of reports, and what changed: `python docs/verdict_changes.py BEFORE AFTER`.

BEFORE and AFTER are folders with one folder for each experiment, which holds claims.csv and
scorecard.csv.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

Row = dict[str, str]
Verdicts = dict[tuple[str, ...], Row]


def read(folder: Path, table: str) -> Verdicts:
    """(experiment, keys of the row) -> row."""
    found = {}
    for path in sorted(folder.glob(f"*/{table}.csv")):
        with open(path, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                found[path.parent.name, *keys_of(row)] = row
    return found


def keys_of(row: Row) -> Iterator[str]:
    """What names a row: the statement, or the columns before the paper's value."""
    if "statement" in row:
        yield row["name"]
        return
    for column, text in row.items():
        if column == "paper_mean":
            return
        yield f"{column}={text}"


def changes(before: Verdicts, after: Verdicts) -> Iterator[str]:
    """One line for each verdict that changed, and for each new row."""
    for name, row in after.items():
        was = before[name]["verdict"] if name in before else "new row"
        if was != row["verdict"]:
            reason = row.get("detail") or row.get("reason") or ""
            yield f"| {' '.join(name).replace('|', '/')} | {was} | {row['verdict']} | {reason} |"


def counts(title: str, before: Verdicts, after: Verdicts) -> Iterator[str]:
    """A table of how many rows have each verdict."""
    old = Counter(row["verdict"] for row in before.values())
    new = Counter(row["verdict"] for row in after.values())
    yield f"| {title} | before | after |\n|---|---|---|"
    for verdict in sorted(set(old) | set(new)):
        yield f"| {verdict} | {old[verdict]} | {new[verdict]} |"


def main(before: Path, after: Path) -> None:
    """Print counts and changes."""
    for table, title in (("scorecard", "printed numbers"), ("claims", "statements")):
        old, new = read(before, table), read(after, table)
        print("\n".join(counts(title, old, new)))
        print("\n| row | before | after | reason |\n|---|---|---|---|")
        print("\n".join(changes(old, new)) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
