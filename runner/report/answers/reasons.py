"""Why a row does not agree with its paper, in words made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runner.stats.intervals import joined

Row = Mapping[str, Any]


def why_not(row: Row) -> str:
    """Why a published number or a statement is inconclusive, and a number not reproduced; "" for
    any other verdict.

    >>> row = {"verdict": "inconclusive", "low": -0.1, "high": 0.4, "margin": 0.2, "n": 5}
    >>> why_not({**row, "detectable": 0.45, "seeds_needed": 17})
    '90 % interval of the difference -0.1 to 0.4, margin ± 0.2; with n = 5 a difference \
above 0.45 would be not reproduced; about 17 seeds would decide it'
    """
    if row["verdict"] == "not reproduced":
        return _interval(row)
    if row["verdict"] != "inconclusive":
        return ""
    return joined(str(row.get("detail") or ""), _interval(row), _needed(row))


def _interval(row: Row) -> str:
    """How the interval of the difference and the margin lie, and what n values can show."""
    low, high, margin = (_number(row, key) for key in ("low", "high", "margin"))
    if math.isnan(low) or math.isnan(margin):
        return ""
    return (
        f"90 % interval of the difference {low:.3g} to {high:.3g}, margin ± {margin:.3g}; "
        f"with n = {_number(row, 'n'):.0f} a difference above {_number(row, 'detectable'):.3g} "
        "would be not reproduced"
    )


def _needed(row: Row) -> str:
    """How many seeds would decide the row, or why no number would."""
    never = str(row.get("undecidable") or "")
    needed = _number(row, "seeds_needed")
    if never:
        return f"no number of seeds decides it: {never}"
    if math.isnan(needed):
        return ""
    if math.isinf(needed):
        return "no number of seeds decides it"
    return f"about {needed:.0f} seeds would decide it"


def _number(row: Row, key: str) -> float:
    value = row.get(key)
    if value in (None, ""):
        return math.nan
    return float(value)
