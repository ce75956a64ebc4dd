"""How well cells that were measured again agree with the published ones, value by value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.contract.records import CERTIFICATE
from runner.store.job import Job

if TYPE_CHECKING:
    import pandas as pd

FULL_PRECISION = 16
"""Digits of a value that is the same to the last bit."""
SAME_VALUE = 6
"""Digits from which two values are counted as the same."""
NAMED = 3
"""Columns with other values that are named."""


@dataclass
class Agreement:
    """digits: for every compared number, the leading digits in which both agree, by "table.column".
    others: of the entries that are not numbers, how many there are; differing: how many differ."""

    cells: int = 0
    digits: dict[str, list[int]] = field(default_factory=dict)
    others: int = 0
    differing: int = 0

    @property
    def line(self) -> str:
        """The comparison in one line, for the console."""
        every = sorted(digits for of_column in self.digits.values() for digits in of_column)
        same = sum(digits >= SAME_VALUE for digits in every)
        bits = sum(digits == FULL_PRECISION for digits in every)
        return (
            f"compared with the published cells: {same:,} of {len(every):,} numbers in "
            f"{self.cells} cells agree to {SAME_VALUE} digits or more (median "
            f"{every[len(every) // 2]}, {bits:,} in every bit){self._fewer}; "
            f"{self.differing:,} of {self.others:,} other entries differ"
        )

    @property
    def _fewer(self) -> str:
        """The columns with most numbers that agree to fewer digits, and how many these are."""
        counts: Counter[str] = Counter()
        for name, digits in self.digits.items():
            counts[name] = sum(number < SAME_VALUE for number in digits)
        named = [f"{name} ({count})" for name, count in counts.most_common(NAMED) if count]
        return f", fewer digits mostly in {', '.join(named)}" if named else ""

    def add(self, table: str, measured: pd.DataFrame, published: pd.DataFrame) -> None:
        """Compare two tables, times apart."""
        if len(measured) != len(published):
            entries = max(measured.size, published.size)
            self.others += entries
            self.differing += entries
            return
        for column in published.columns:
            if "seconds" in str(column) or column not in measured.columns:
                continue
            digits = self.digits.setdefault(f"{table}.{column}", [])
            for ours, theirs in zip(measured[column], published[column], strict=True):
                if _finite(ours) and _finite(theirs):
                    digits.append(common_digits(ours, theirs))
                else:
                    both_missing = ours != ours and theirs != theirs
                    self.others += 1
                    self.differing += not (ours == theirs or both_missing)


def agreement(jobs: Iterable[Job]) -> Agreement | None:
    """Compare every cell that is both in the working folder and published; None where there is no
    such cell.

    Times are no results and numerical checks measure rounding: neither is compared.
    """
    found = Agreement()
    for job in jobs:
        store = job.store
        for cell_id, _ in job.cells():
            measured = store.working.usable(cell_id)
            published = None
            if store.archive:
                published = store.archive.usable(cell_id)
            if measured is None or published is None:
                continue
            found.cells += 1
            for name in sorted(set(measured.meta["tables"]) & set(published.meta["tables"])):
                if name != CERTIFICATE:
                    found.add(name, measured.table(name), published.table(name))
    return found if any(found.digits.values()) else None


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
