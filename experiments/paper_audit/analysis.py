"""What the report says of the rows of all papers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from experiments.paper_audit import report
from experiments.paper_audit.dag import untrained
from experiments.paper_audit.settings import ZEROS, PaperAudit
from runner.contract import Analysis, Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class AuditAnalysis(Analysis):
    """Claims, figure and pages from the rows of all papers."""

    experiment: PaperAudit

    @cached_property
    def formulas(self) -> list[dict[str, Any]]:
        return _rows(self.tables, "formulas")

    def claims(self) -> list[Claim]:
        return [*report.claims(self.formulas), *untrained.claims(_rows(self.tables, ZEROS))]

    def figures(self) -> dict[str, Callable[[], Figure]]:
        return {"consequences": lambda: report.consequences(self.formulas)}

    def documents(self) -> dict[str, str]:
        return report.documents(self.formulas)


def _rows(tables: Any, name: str) -> list[dict[str, Any]]:
    """Rows of a table (none where it is missing), each formula once whatever the number of seeds; text as text."""
    if name not in tables:
        return []
    table = tables[name]
    table = table.drop_duplicates("id") if name == "formulas" else table[table["seed"] == table["seed"].min()]
    texts = [c for c in table.columns if table[c].dtype == object]
    return table.assign(**{c: table[c].fillna("") for c in texts}).to_dict("records")
