"""Two measurements of one cell, field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.contract.certificate import CERTIFICATE, NUMBERS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """identical: every byte agrees. first: the first field outside the tolerance, '' where there is none. largest: the
    largest relative difference of all numbers, |a − b| / max(|a|, |b|), and where it is."""

    identical: bool
    first: str
    largest: float
    where: str
    note: str = ""

    @property
    def agrees(self) -> bool:
        return not self.first

    def line(self) -> str:
        """The finding in one line."""
        note = f"; {self.note}" if self.note else ""
        if self.identical:
            return f"identical{note}"
        if self.agrees:
            return f"agrees; largest relative difference {self.largest:.2g} ({self.where}){note}"
        return f"differs: {self.first}"


def compare(stored: Mapping[str, pd.DataFrame], measured: Mapping[str, pd.DataFrame], tolerance: float) -> Comparison:
    """Hold the tables of a cell measured again against the stored ones.

    Floats agree when |a − b| <= tolerance · max(|a|, |b|); everything else must be equal. Columns of seconds are times,
    not results, and are left out; so are the errors in a certificate, which are rounding, and a certificate that agrees
    now. A stored cell without a certificate, or with one that did not agree, is no difference, but said.
    """
    note = ""
    if CERTIFICATE in measured and CERTIFICATE not in stored:
        measured = {name: table for name, table in measured.items() if name != CERTIFICATE}
        note = "the stored cell has no certificate, it was measured before"
    if CERTIFICATE in measured and CERTIFICATE in stored and bool((measured[CERTIFICATE]["ok"] == 1).all()):
        if not bool((stored[CERTIFICATE]["ok"] == 1).all()):
            note = "the stored certificate disagreed, measured again it agrees"
        stored, measured = ({k: t for k, t in tables.items() if k != CERTIFICATE} for tables in (stored, measured))
    if set(stored) != set(measured):
        return Comparison(False, f"tables {_names(stored)} stored, {_names(measured)} measured", math.inf, "")
    largest, where, first, identical = 0.0, "", "", True
    for name in sorted(stored):
        for column, row, difference, text in _differences(name, stored[name], measured[name]):
            identical = False
            if difference > largest:
                largest, where = difference, f"{name}.{column} row {row}"
            if difference > tolerance and not first:
                first = text
    return Comparison(identical, first, largest, where, note)


def _differences(name: str, a: pd.DataFrame, b: pd.DataFrame) -> list[tuple[str, int, float, str]]:
    """(column, row, relative difference, text) of the worst field of every column that differs."""
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        shapes = f"{len(a)} rows of {_names(a.columns)} stored, {len(b)} rows of {_names(b.columns)} measured"
        return [("", 0, math.inf, f"{name}: {shapes}")]
    found = []
    for column in a.columns:
        if "seconds" in str(column) or (name == CERTIFICATE and column in NUMBERS):
            continue
        apart = [_difference(x, y) for x, y in zip(a[column], b[column], strict=True)]
        difference = max(apart, default=0.0)
        if difference > 0:
            row = apart.index(difference)
            x, y = a[column].iloc[row], b[column].iloc[row]
            text = f"{name}.{column} row {row}: {x!s} stored, {y!s} measured (relative difference {difference:.2g})"
            found.append((str(column), row, difference, text))
    return found


def _difference(x: Any, y: Any) -> float:
    """|x − y| / max(|x|, |y|) of two finite numbers; 0 for equal fields, two NaN among them; else infinite."""
    if x == y or (x != x and y != y):
        return 0.0
    if isinstance(x, float) and isinstance(y, float) and math.isfinite(x) and math.isfinite(y):
        return abs(x - y) / max(abs(x), abs(y))
    return math.inf


def _names(names: Any) -> str:
    return ", ".join(map(str, names))
