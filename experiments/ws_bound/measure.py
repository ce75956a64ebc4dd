"""One cell of the WS bound: a search, the same search polished, or further draws of the data."""

from __future__ import annotations

from experiments.ws_bound.points import measure_search
from experiments.ws_bound.polished import measure_draws, measure_polished
from experiments.ws_bound.settings import WsBound
from runner.contract import Cell, Context, Table

PARTS = {"search": measure_search, "polish": measure_polished, "draws": measure_draws}


def measure(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell; a cell without `part` is a search."""
    return PARTS[str(cell.params.get("part", "search"))](experiment, cell, ctx)
