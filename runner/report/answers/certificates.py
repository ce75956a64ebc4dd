"""What a report says about the numerical checks of its cells (`runner.contract.records`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.contract.records import NUMBERS

Row = Mapping[str, Any]
COLUMNS = (*NUMBERS, "what", "ok", "where", "status", "version")
"""Columns of a certificate; the others say which one it is."""
FIRST_VERSION = (
    "These certificates were made by an earlier version of the check, which could not tell a wrong "
    "block from a ReLU that changes sign within the finite-difference step. They neither support "
    "nor contradict the numbers; cells that are measured again (force=true) carry new ones."
)


def certificate_lines(carried: Sequence[bool], rows: Sequence[Row], never: str = "") -> list[str]:
    """What a report says about the certificates of its cells, most important first.

    carried: for each cell, whether it carries a certificate. rows: of the merged table, with the
    cells' parameters. never: why cells of this experiment carry none.
    """
    import pandas as pd

    with_one = sum(carried)
    if not with_one:
        return [f"No cell carries a certificate: {never}."] if never else []
    wrong = [row for row in rows if row["ok"] == 0]
    lines = not_certified(rows)
    if any(pd.isna(row.get("version")) for row in wrong):
        lines.append(FIRST_VERSION)
    if with_one:
        errors = [float(row["error"]) for row in rows if row["ok"] == 1]
        largest = f", largest relative error {max(errors):.1e}" if errors else ""
        lines.append(
            f"{with_one} of {len(carried)} cells carry a certificate: products against finite "
            f"differences of gradients, {len(errors)} of {len(rows)} agree{largest}."
        )
        if inconclusive := len(rows) - len(errors) - len(wrong):
            lines.append(
                f"{inconclusive} of {len(rows)} certificates are inconclusive: a kink lies within "
                "every step of the differences, or rounding is too large."
            )
    if with_one < len(carried):
        lines.append(
            f"{len(carried) - with_one} of {len(carried)} cells carry no certificate: they are "
            "older than it, or of a part without one."
        )
    return lines


def not_certified(rows: Sequence[Row]) -> list[str]:
    """A line for each certificate that says that products are wrong."""
    wrong = [row for row in rows if row["ok"] == 0]
    return [f"NOT certified, {_which(row)}: {row['status']}" for row in wrong]


def _which(row: Row) -> str:
    keys = [f"{name}={value}" for name, value in row.items() if name not in COLUMNS]
    return " ".join([*keys, str(row["what"])])
