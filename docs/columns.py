"""Write docs/columns.md, the dictionary of columns: `python -m docs.columns`.

The columns of scorecard.csv, claims.csv and stats.csv are fields of the dataclasses that are
written there, with their meanings. Those of measured tables are in `columns.toml` next to the code
that measures them; a section of it holds what a column means in one table (`scorecard`: keys of
printed values that no measured table has). A test compares both with the published tables.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from runner.contract import Claim
from runner.contract.records import Statistic
from runner.stats.score import Score

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "columns.md"
REPORTS = {"scorecard": Score, "claims": Claim, "stats": Statistic}
"""Table of a report -> what its rows are."""
Meanings = Mapping[str, str]
TITLES = {
    "": "All experiments",
    "dag": "DAG paper (`exp1_…` to `exp6_…`)",
    "three_layer": "WS bound and HSR (`ws_bound`, `hsr_…`)",
    "scalar_spectrum": "Scalar spectrum",
    "attention": "Attention",
    "phi_block_diagonal": "`phi_block_diagonal`",
    "paper_audit": "Formula audit",
}
HEAD = """# Columns

Made by `python -m docs.columns` from the code that writes the tables. [Run](run.md#results) says
which file has what; [concepts](concepts.md) explains verdicts and symbols.

**Mann–Whitney and Wilcoxon tests** are rows of `stats.csv`, with the `kind` `mann_whitney`
(independent samples) or `wilcoxon` (pairs): effect size `effect`, Hodges–Lehmann shift `shift` with
its interval, p-value `p`, the smallest p that such samples can give `p_min`, and `p_holm` after
Holm's correction in the family of its figure. A test that cannot reach 0.05 is left out of the
family.
"""
NUMBERED = re.compile(r"_\d+$")
"""The end of the name of a numbered column, such as lambda_3: described once, as lambda_1."""


@cache
def described(folder: str) -> tuple[Meanings, Mapping[str, Meanings]]:
    """(column -> meaning, table -> column -> meaning) of the measured tables of a package; '' for
    those of all."""
    path = ROOT / "experiments" / folder / "columns.toml"
    everywhere: dict[str, str] = {}
    tables: dict[str, Meanings] = {}
    for name, value in tomllib.loads(path.read_text(encoding="utf-8")).items():
        if isinstance(value, str):
            everywhere[name] = value
        else:
            tables[name] = value
    return everywhere, tables


def place_of(folder: str, table: str, column: str) -> tuple[str, str, str] | None:
    """(folder, table or '', column) of the entry that describes a measured column; None where there
    is none."""
    for name in (column, NUMBERED.sub("_1", column)):
        for where in (folder, ""):
            everywhere, tables = described(where)
            if name in tables.get(table, {}):
                return where, table, name
            if name in everywhere:
                return where, "", name
    return None


def page() -> str:
    """The page."""
    sections = [HEAD]
    for name, row in REPORTS.items():
        meanings = {field.name: field.metadata["help"] for field in fields(row)}
        sections.append(f"## {name}.csv\n")
        if name == "scorecard":
            sections.append(
                "The first columns are the keys of the value: its `metric` and columns of the "
                "measured tables below.\n"
            )
        sections.append(_list([(f"`{column}`", text) for column, text in meanings.items()]))
    sections.append("## Measured tables\n")
    for folder, title in TITLES.items():
        sections.append(f"### {title}\n")
        sections.append(_list(list(_rows(folder))))
    return "\n".join(sections)


def _rows(folder: str) -> Iterator[tuple[str, str]]:
    everywhere, tables = described(folder)
    yield from ((f"`{column}`", text) for column, text in everywhere.items())
    for table, meanings in tables.items():
        yield from ((f"`{column}` of `{table}`", text) for column, text in meanings.items())


def _list(rows: list[tuple[str, str]]) -> str:
    """A line for each column; columns after one another with the same meaning share one."""
    lines = []
    for text, same in groupby(rows, key=itemgetter(1)):
        names = ", ".join(column for column, _ in same)
        lines.append(f"- {names}: {text}\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
