"""One cell of the recovery of the attention input: the study that it names."""

from __future__ import annotations

from typing import Any

from experiments.attention.newton import certify, contest, identify, prices, regularised, targets
from experiments.attention.newton.settings import AttentionNewton
from runner.contract import Cell, Context, Table


def measure(experiment: AttentionNewton, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    study = str(cell.params["study"])
    if study == "identify":
        return _tables(identify.identify_rows(experiment, ctx))
    if study == "layer":
        return _tables({"targets": targets.layer_rows(experiment, ctx)})
    if study == "transformer":
        return _tables(targets.transformer_rows(experiment, ctx))
    n, d = experiment.sizes(str(cell.params["size"]))
    if study == "contest":
        return _tables(contest.contest_rows(experiment, n, d, ctx))
    if study == "price":
        return _tables({"prices": prices.price_rows(experiment, n, d, ctx)})
    if study == "certify":
        return _tables({"balls": certify.certificate_rows(experiment, n, d, ctx)})
    return _tables(regularised.theorem_tables(experiment, n, d, ctx))


def _tables(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Table]:
    return {name: {key: [row[key] for row in found] for key in found[0]} for name, found in rows.items() if found}
