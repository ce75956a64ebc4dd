"""How well cells that were measured again agree with the published ones, value by value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.contract.records import CERTIFICATE
from runner.store.job import Job

if TYPE_CHECKING:
    import pandas as pd

FULL_PRECISION = 16
"""Digits of a value that is the same to the last bit."""
SAME_VALUE = 6
"""Digits from which two values are counted as the same."""


@dataclass(frozen=True)
class Agreement:
    """digits: for every compared number, the leading digits in which both agree. others: of the
    fields that are not numbers, how many there are; differing: how many of them differ."""

    cells: int
    digits: Sequence[int]
    others: int
    differing: int

    @property
    def line(self) -> str:
        """The comparison in one line, for the console."""
        same = sum(digits >= SAME_VALUE for digits in self.digits)
        median = sorted(self.digits)[len(self.digits) // 2]
        bits = sum(digits == FULL_PRECISION for digits in self.digits)
        text = f"{self.differing:,} of {self.others:,} other entries differ"
        return (
            f"compared with the published cells: {same:,} of {len(self.digits):,} numbers in "
            f"{self.cells} cells agree to {SAME_VALUE} digits or more (median {median}, "
            f"{bits:,} in every bit); {text}"
        )


def agreement(jobs: Iterable[Job]) -> Agreement | None:
    """Compare every cell that is both in the working folder and published; None where there is no
    such cell.

    Times are no results and numerical checks measure rounding: neither is compared.
    """
    digits: list[int] = []
    cells = others = differing = 0
    for job in jobs:
        store = job.store
        for cell_id, _ in job.cells():
            measured = store.working.usable(cell_id)
            published = store.archive.usable(cell_id) if store.archive else None
            if measured is None or published is None:
                continue
            cells += 1
            for name in sorted(set(measured.meta["tables"]) & set(published.meta["tables"])):
                if name == CERTIFICATE:
                    continue
                of_table = compare_tables(measured.table(name), published.table(name))
                digits += of_table[0]
                others += of_table[1]
                differing += of_table[2]
    return Agreement(cells, digits, others, differing) if digits else None


def compare_tables(measured: pd.DataFrame, published: pd.DataFrame) -> tuple[list[int], int, int]:
    """Digits of the numbers, and counts of the other entries and of those that differ."""
    if len(measured) != len(published):
        entries = max(measured.size, published.size)
        return [], entries, entries
    digits: list[int] = []
    others = differing = 0
    for column in published.columns:
        if "seconds" in str(column) or column not in measured.columns:
            continue
        for ours, theirs in zip(measured[column], published[column], strict=True):
            if _finite(ours) and _finite(theirs):
                digits.append(common_digits(ours, theirs))
            else:
                both_missing = ours != ours and theirs != theirs
                others += 1
                differing += not (ours == theirs or both_missing)
    return digits, others, differing


def _finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def common_digits(ours: float, theirs: float) -> int:
    """Leading decimal digits in which two numbers agree: −log₁₀ of their relative difference,
    rounded down.

    >>> common_digits(1.0, 1.0), common_digits(1.234567, 1.234561), common_digits(1.0, -1.0)
    (16, 5, 0)
    """
    if ours == theirs:
        return FULL_PRECISION
    relative = abs(ours - theirs) / max(abs(ours), abs(theirs))
    return min(FULL_PRECISION - 1, max(0, math.floor(-math.log10(relative))))
