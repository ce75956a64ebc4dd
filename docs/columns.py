"""Write docs/columns.md, the dictionary of columns: `python -m docs.columns`.

The columns of scorecard.csv, claims.csv and stats.csv are fields of the dataclasses that are
written there, with their meanings. Those of measured tables are in `columns.toml` next to the code
that measures them; a section of it holds what a column means in one table (`scorecard`: keys of
printed values that no measured table has), and a pattern such as `led_*` describes the columns
that no entry names. A test compares both with the published tables.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
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
which file has what; [concepts](concepts.md) explains verdicts and symbols. **Mann–Whitney and
Wilcoxon tests** are rows of [`stats.csv`](#statscsv).
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
    for name in described(folder)[0]:
        if "*" in name and fnmatchcase(column, name):
            return folder, "", name
    return None


def page() -> str:
    """The page."""
    sections = [HEAD]
    for name, row in REPORTS.items():
        meanings = {field.name: field.metadata["help"] for field in fields(row)}
        sections.append(f"## {name}.csv\n")
        if name == "scorecard":
            sections.append(
                "After the keys of the value: `metric`, and columns of measured tables.\n"
            )
        sections.append(_list(meanings))
    sections.append("## Measured tables\n")
    for folder, title in TITLES.items():
        everywhere, tables = described(folder)
        sections.append(f"### {title}\n\n{_list(everywhere)}")
        for table, columns in tables.items():
            sections.append(f"In `{table}`:\n\n{_list(columns)}")
    return "\n".join(sections)


def _list(meanings: Meanings) -> str:
    """A line for each meaning, at the place of its first column."""
    columns: dict[str, list[str]] = {}
    for column, text in meanings.items():
        columns.setdefault(text, []).append(f"`{column}`")
    return "".join(f"- {', '.join(names)}: {text}\n" for text, names in columns.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
