"""Two measurements of one cell, field by field."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.contract.records import CERTIFICATE, NUMBERS

if TYPE_CHECKING:
    import pandas as pd

Tables = Mapping[str, "pd.DataFrame"]
NOT_COMPARED = (*NUMBERS, "version")
"""Columns of a certificate that say how well it agreed, which is rounding, and by which check."""


@dataclass(frozen=True)
class Difference:
    """The worst field of a column that differs. relative: |a − b| / max(|a|, |b|)."""

    place: str
    relative: float
    values: str


@dataclass(frozen=True)
class Comparison:
    """What differs, column by column, and which relative difference is allowed. note: what is said
    next to it."""

    differences: tuple[Difference, ...]
    tolerance: float
    note: str = ""

    @property
    def identical(self) -> bool:
        """Whether every byte agrees."""
        return not self.differences

    @property
    def beyond(self) -> list[Difference]:
        """The differences beyond the tolerance."""
        return [one for one in self.differences if one.relative > self.tolerance]

    @property
    def agrees(self) -> bool:
        return not self.beyond

    def line(self) -> str:
        """The finding in one line."""
        if self.beyond:
            first = self.beyond[0]
            return f"differs: {first.place}: {first.values}"
        note = f"; {self.note}" if self.note else ""
        if self.identical:
            return f"identical{note}"
        largest = max(self.differences, key=lambda one: one.relative)
        difference = f"{largest.relative:.2g} ({largest.place})"
        return f"agrees; largest relative difference {difference}{note}"


def compare(stored: Tables, measured: Tables, tolerance: float) -> Comparison:
    """Compare the tables of a cell that was measured again with the stored ones.

    Floats agree when |a − b| <= tolerance · max(|a|, |b|); everything else must be equal. Columns
    of seconds are times, not results, and are left out; so are the errors in a certificate, which
    are rounding, and a certificate that agrees now. A stored cell without a certificate, or with
    one that did not agree, and a certificate that is inconclusive now, are no difference, but said.
    """
    note = ""
    if CERTIFICATE in measured and CERTIFICATE not in stored:
        note = "the stored cell has no certificate, it was measured before"
        measured = _without_certificate(measured)
    elif CERTIFICATE in measured and not _disagrees(measured[CERTIFICATE]):
        ok = measured[CERTIFICATE]["ok"]
        if inconclusive := int(ok.isna().sum()):
            note = f"{inconclusive} of {len(ok)} rows of the certificate are inconclusive now"
        elif _disagrees(stored[CERTIFICATE]):
            note = "the stored certificate disagreed, measured again it agrees"
        stored = _without_certificate(stored)
        measured = _without_certificate(measured)
    if set(stored) != set(measured):
        values = f"{_names(stored)} stored, {_names(measured)} measured"
        return Comparison((Difference("tables", math.inf, values),), tolerance)
    differences: list[Difference] = []
    for name in sorted(stored):
        differences += _differences(name, stored[name], measured[name])
    return Comparison(tuple(differences), tolerance, note)


def _disagrees(certificate: pd.DataFrame) -> bool:
    return bool((certificate["ok"] == 0).any())


def _without_certificate(tables: Tables) -> Tables:
    return {name: table for name, table in tables.items() if name != CERTIFICATE}


def _differences(name: str, a: pd.DataFrame, b: pd.DataFrame) -> list[Difference]:
    """The worst field of every column that differs."""
    if name == CERTIFICATE:
        a = a.drop(columns=list(NOT_COMPARED), errors="ignore")
        b = b.drop(columns=list(NOT_COMPARED), errors="ignore")
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        stored = f"{len(a)} rows of {_names(a.columns)} stored"
        measured = f"{len(b)} rows of {_names(b.columns)} measured"
        return [Difference(name, math.inf, f"{stored}, {measured}")]
    differences = []
    for column in a.columns:
        if "seconds" in str(column):
            continue
        apart = [_difference(x, y) for x, y in zip(a[column], b[column], strict=True)]
        relative = max(apart, default=0.0)
        if relative > 0:
            row = apart.index(relative)
            pair = f"{a[column].iloc[row]!s} stored, {b[column].iloc[row]!s} measured"
            values = f"{pair} (relative difference {relative:.2g})"
            differences.append(Difference(f"{name}.{column} row {row}", relative, values))
    return differences


def _difference(x: Any, y: Any) -> float:
    """|x − y| / max(|x|, |y|) of two finite numbers; 0 for equal fields, two NaN among them; else
    infinite."""
    if x == y or (x != x and y != y):
        return 0.0
    if isinstance(x, float) and isinstance(y, float) and math.isfinite(x) and math.isfinite(y):
        return abs(x - y) / max(abs(x), abs(y))
    return math.inf


def _names(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))
