"""One cell of the audit: the formulas of a paper, or one kind of injected error."""

from __future__ import annotations

from typing import Any

from experiments.paper_audit import papers, rows
from experiments.paper_audit.dag import untrained
from experiments.paper_audit.settings import HELD_OUT, SHARPNESS, SLIPS, ZEROS, PaperAudit
from experiments.paper_audit.sharpness import trials
from runner.contract import Cell, Context


def measure(experiment: PaperAudit, cell: Cell, ctx: Context) -> dict[str, Any]:
    """The table of one source."""
    source = str(cell.params["source"])
    if source == SHARPNESS:
        return {"sharpness": trials.rows(experiment.mutants)}
    if source == HELD_OUT:
        return {"held_out": trials.held_out_rows(experiment.held_out, experiment.held_out_seed)}
    if source == SLIPS:
        return {"slips": trials.slip_rows(experiment.slips, experiment.slips_seed)}
    if source == ZEROS:
        return {"zeros": untrained.rows()}
    return {"formulas": rows.check_all(papers.paper(source), ctx.progress)}
