"""One cell of the audit: the clauses of a paper, or the structural zeros of the untrained networks of Exp. 4 and 5."""

from __future__ import annotations

from typing import Any

from experiments.paper_audit import papers, rows
from experiments.paper_audit.dag import untrained
from experiments.paper_audit.settings import ZEROS, PaperAudit
from runner.contract import Cell, Context


def measure(experiment: PaperAudit, cell: Cell, ctx: Context) -> dict[str, Any]:
    """The table of one source."""
    source = str(cell.params["source"])
    if source == ZEROS:
        return {"zeros": untrained.rows()}
    return {"formulas": rows.check_all(papers.paper(source), ctx.progress)}
