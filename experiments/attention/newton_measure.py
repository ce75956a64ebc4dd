"""The studies of the recovery experiment: `measure` of either of them."""

from __future__ import annotations

from experiments.attention.recovery import recovery_tables
from experiments.attention.settings import AttentionNewton
from experiments.attention.theorem import theorem_tables
from runner.contract import Cell, Context, Table

STUDIES = {"theorem": theorem_tables, "recovery": recovery_tables}


def measure(experiment: AttentionNewton, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    n, d = experiment.sizes(str(cell.params["size"]))
    return {**STUDIES[str(cell.params["study"])](experiment, n, d, ctx)}
