"""The table `certificate` of a cell: what was held against finite differences of gradients, and whether it agreed.

A measuring experiment puts it beside its other tables:

    tables["certificate"] = [certificate_row("blocks", verify(dag, x, y, blocks=found), checkpoint="final")]

It is no part of a cell's identity: a cell that was stored before the experiment made one keeps its id and its bytes,
and a report says of it that it has none. An experiment whose cells never carry one says why in `uncertified`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

CERTIFICATE = "certificate"
"""Name of the table."""

NUMBERS = ("error", "tolerance", "difference_step")
"""Columns that say how well it agreed: rounding, which no two kinds of processor share."""

OLDER = ("has a kink here (a ReLU at 0), or is not smooth", "times the mean over the examples. Is the loss a sum")
"""What certificates said before they could tell a kink within the step from a wrong block."""


class Verified(Protocol):
    """What `runner.curvature.verify` returns, as far as it is stored."""

    @property
    def ok(self) -> bool: ...
    @property
    def nodes(self) -> Mapping[str, float]: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def step(self) -> float: ...
    @property
    def reasons(self) -> Sequence[str]: ...


def certificate_row(what: str, found: Verified, **columns: Any) -> dict[str, Any]:
    """One row: the columns given (a checkpoint, a part), what was verified, ok (1 or 0), the largest relative error,
    the node it is at, the tolerance, the step of the differences, and "ok" or the reasons in `status`."""
    worst = max(found.nodes, key=lambda v: math.inf if math.isnan(found.nodes[v]) else found.nodes[v])
    reasons = " ".join("; ".join(found.reasons).split())
    numbers = {
        "error": found.nodes[worst],
        "where": worst,
        "tolerance": found.tolerance,
        "difference_step": found.step,
    }
    return {**columns, "what": what, "ok": int(found.ok), **numbers, "status": reasons or "ok"}


def certificate_lines(cells: Iterable[bool], rows: Iterable[Mapping[str, Any]], never: str = "") -> list[str]:
    """What a report says about the certificates of its cells, most important first.

    cells: for each, whether it carries a certificate. rows: of the merged table, with the cells' parameters. never: why
    cells of this experiment carry none.
    """
    carried = list(cells)
    if never and not any(carried):
        return [f"No cell carries a certificate: {never}."]
    found = list(rows)
    wrong = [row for row in found if not row["ok"]]
    lines = [f"NOT certified, {_place(row)}: {row['status']}" for row in wrong]
    if any(phrase in str(row["status"]) for row in wrong for phrase in OLDER):
        lines.append(
            "A certificate that says of a ReLU network that differences do not settle, or that blocks are a factor "
            "near one times the mean, is older than the one that tells a kink within the step from a wrong block: one "
            "ReLU of one example that changes sides gives both. It is no evidence against the numbers, and none for "
            "them; a cell measured again carries the new one."
        )
    if any(carried):
        errors = [float(row["error"]) for row in found if row["ok"]]
        largest = f", largest relative error {max(errors):.1e}" if errors else ""
        lines.append(
            f"{sum(carried)} of {len(carried)} cells carry a certificate: products against finite differences of "
            f"gradients, {len(found) - len(wrong)} of {len(found)} agree{largest}."
        )
    if not all(carried):
        without = carried.count(False)
        lines.append(
            f"{without} of {len(carried)} cells carry no certificate: they are older than it, or of a part without one."
        )
    return lines


def _place(row: Mapping[str, Any]) -> str:
    known = (*NUMBERS, "what", "ok", "where", "status")
    return " ".join([*(f"{k}={v}" for k, v in row.items() if k not in known), str(row["what"])])
