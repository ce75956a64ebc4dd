"""What a report of the audit shows: claims and pages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from experiments.paper_audit.dag import zeros
from experiments.paper_audit.entries import entries
from experiments.paper_audit.measure import Row
from experiments.paper_audit.pages import as_json, overview, paper_page
from experiments.paper_audit.papers import CLASSES, ZEROS, errata, keys, verdict
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
    def formulas(self) -> list[Row]:
        rows = _rows(self.tables, "formulas")
        return [judged(row) for row in rows]

    def claims(self) -> list[Claim]:
        of_zeros = zeros.claims(_rows(self.tables, ZEROS))
        return [*claims(self.formulas), *of_zeros]

    def documents(self) -> dict[str, str]:
        trials = _rows(self.tables, "corrections")
        return documents(self.formulas, trials)


def _rows(tables: Any, name: str) -> list[Row]:
    """Rows of a table (none where it is missing), each once whatever the number of seeds."""
    if name not in tables:
        return []
    table = tables[name]
    if name == "formulas":
        return _records(table.drop_duplicates("id"))
    if name == "corrections":
        return _records(table.drop_duplicates(["erratum", "member"]))
    seeds = table["seed"]
    return _records(table[seeds == seeds.min()])


def judged(row: Row) -> Row:
    """The row with the verdict that its numbers have by today's rules."""
    of = verdict(row["agreement"], row["class"], row["uncounted"], row["printed_error"])
    return row | {"verdict": of}


def _records(table: Any) -> list[Row]:
    """Rows as dicts; missing text is ""."""
    texts = [column for column in table.columns if table[column].dtype == object]
    filled = {column: table[column].fillna("") for column in texts}
    return table.assign(**filled).to_dict("records")


def claims(rows: list[Row]) -> list[Claim]:
    """One claim per clause; class and reason stand in the detail."""
    return [_claim(row, errata(row["source"])["title"]) for row in rows]


def _claim(row: Row, title: str) -> Claim:
    """The statistic is the error that decides: of class D that of the line without the loss of our
    text, elsewhere that of the line as printed."""
    detail = [row["verdict"]]
    error = row["printed_error"]
    if row["class"]:
        detail.append(f"class {row['class']}, {CLASSES[row['class']]}")
    restored = row["class"] == "D" and row["agreement"] == "holds after correction"
    if restored and row["verdict"] != "open":
        error = row["corrected_error"]
        detail.append(f"judged is the corrected line: {row['correction']}")
    elif restored:
        detail.append(f"our text is blank; our own form holds to {row['corrected_error']:.2g}")
    remarks = [row.get(column, "") for column in ("uncounted", "criterion", "history")]
    detail += [text for text in remarks if text]
    where = f"{title}, {row['place']}"
    explained = "; ".join(detail)
    return Claim(
        name=row["id"],
        statement=row["statement"],
        where=where,
        verdict=CLAIMS[row["verdict"]],
        statistic=error,
        threshold=f"error <= {row['tolerance']:g}",
        detail=explained,
        group=title,
        independent=True,
    )


def documents(rows: list[Row], trials: Sequence[Row]) -> dict[str, str]:
    """errata.md, one page a paper (errata_<paper>.md) and errata.json."""
    pages = {}
    papers = []
    for key in keys():
        of_paper = [row for row in rows if row["source"] == key]
        if of_paper:
            listed = entries(key, of_paper, trials)
            papers.append((key, of_paper, listed))
            pages[f"errata_{key}.md"] = paper_page(key, of_paper, listed)
    listed_all = [entry for _, _, listed in papers for entry in listed]
    overall = overview(papers)
    return {"errata.md": overall, **pages, "errata.json": as_json(listed_all)}
