"""What it means to check one printed formula: `Formula`, `Outcome`, and how a verdict follows from numbers.

A formula holds when its largest relative error against float64 automatic differentiation (or its largest violation,
for an inequality) stays at or below `TOLERANCE` on every instance tried. The verdict is always derived from the
numbers that a check returns, never written down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "holds after correction", "fails"]
Difference = Literal["", "misprint", "scan artefact", "wrong statement", "missing assumption"]

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Outcome:
    """Numbers of one check.

    printed: largest relative error of the formula as printed (inequality: largest violation, <= 0 when it holds).
    corrected: the same for the corrected formula, None where nothing needs correcting.
    instances: how many random or constructed instances were tried.
    counterexample: the smallest instance on which the printed formula fails, in words and numbers.
    tolerance: largest error that still counts as agreement.
    """

    printed: float
    corrected: float | None = None
    instances: int = 1
    counterexample: str = ""
    tolerance: float = TOLERANCE

    @property
    def verdict(self) -> Verdict:
        if self.printed <= self.tolerance:
            return "holds"
        if self.corrected is not None and self.corrected <= self.tolerance:
            return "holds after correction"
        return "fails"


@dataclass(frozen=True)
class Formula:
    """One printed statement of a paper and how it is checked.

    id: unique, "paper.place"; place: as printed ("Eq. 25", "Theorem 4"); statement: the formula in plain text;
    check: recomputes the numbers; expected: the verdict that tests hold the check to; difference: why the printed form
    is off; correction: the right formula, or the missing assumption.
    """

    id: str
    place: str
    statement: str
    check: Callable[[], Outcome]
    expected: Verdict = "holds"
    difference: Difference = ""
    correction: str = ""
