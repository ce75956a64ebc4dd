"""What a report of the audit shows: claims and pages."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from experiments.paper_audit.dag import zeros
from experiments.paper_audit.measure import Row
from experiments.paper_audit.pages import as_json, overview, paper_page
from experiments.paper_audit.papers import CLASSES, ZEROS, Paper, keys, paper, titles
from experiments.paper_audit.settings import PaperAudit
from runner.contract import Analysis, Claim

CLAIMS: dict[str, Any] = {
    "holds": "confirmed",
    "minor error": "minor error",
    "major error": "refuted",
    "open": "not comparable",
    "not counted": "true by construction",
    "not checked": "not run",
}
"""Verdict of a clause -> verdict of a claim."""


class AuditAnalysis(Analysis):
    """Claims and pages from the rows of all papers."""

    experiment: PaperAudit

    @cached_property
    def formulas(self) -> list[dict[str, Any]]:
        return _rows(self.tables, "formulas")

    def claims(self) -> list[Claim]:
        return [*claims(self.formulas), *zeros.claims(_rows(self.tables, ZEROS))]

    def documents(self) -> dict[str, str]:
        return documents(self.formulas)


def _rows(tables: Any, name: str) -> list[dict[str, Any]]:
    """Rows of a table (none where it is missing), each formula once whatever the number of seeds; text as text."""
    if name not in tables:
        return []
    table = tables[name]
    table = (
        table.drop_duplicates("id")
        if name == "formulas"
        else table[table["seed"] == table["seed"].min()]
    )
    texts = [c for c in table.columns if table[c].dtype == object]
    return table.assign(**{c: table[c].fillna("") for c in texts}).to_dict("records")


def claims(rows: list[Row]) -> list[Claim]:
    """One claim per clause; class and reason stand in the detail."""
    names = titles()
    return [_claim(row, names) for row in rows]


def _claim(row: Row, names: dict[str, str]) -> Claim:
    kind = f"class {row['class']}, {CLASSES[row['class']]}" if row["class"] else ""
    return Claim(
        name=row["id"],
        statement=row["statement"],
        where=f"{names[row['source']]}, {row['place']}",
        verdict=CLAIMS[row["verdict"]],
        statistic=row["printed_error"],
        threshold=f"{row['tolerance']:g}",
        detail="; ".join(part for part in (row["verdict"], kind, row["uncounted"]) if part),
        group=names[row["source"]],
        independent=True,
    )


def by_paper(rows: list[Row]) -> list[tuple[Paper, list[Row]]]:
    """Papers that have rows, with them."""
    return [
        (paper(key), own)
        for key in keys()
        if (own := [row for row in rows if row["source"] == key])
    ]


def documents(rows: list[Row]) -> dict[str, str]:
    """errata.md, one page a paper (errata_<paper>.md) and errata.json."""
    found = by_paper(rows)
    pages = {f"errata_{of.key}.md": paper_page(of, own) for of, own in found}
    return {"errata.md": overview(found), **pages, "errata.json": as_json(found)}
