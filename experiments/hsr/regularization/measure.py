"""One cell of the regularisation study: the methods, the printed search at one rate, or further draws."""

from __future__ import annotations

from experiments.hsr.regularization.contest import measure_contest
from experiments.hsr.regularization.more_draws import measure_draws, measure_scan
from experiments.hsr.regularization.settings import HsrRegularization
from runner.contract import Cell, Context, Table


def measure(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    if cell.params.get("part") == "draws":
        return measure_draws(experiment, ctx)
    return (measure_scan if "search_rate" in cell.params else measure_contest)(experiment, cell, ctx)
