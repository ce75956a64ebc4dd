"""Statements of a paper and what became of them: the records; `runner.stats.judge` reaches the verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from runner.contract.statistic import NAN

Verdict = Literal[
    "confirmed", "refuted", "minor error", "inconclusive", "not run", "true by construction", "not comparable"
]
CLAIM_VERDICTS: tuple[Verdict, ...] = (
    "confirmed",
    "refuted",
    "minor error",
    "inconclusive",
    "not run",
    "true by construction",
    "not comparable",
)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One sentence of a paper, with the place where it is printed and the numbers that it holds.

    name: unique within the experiment; text: the sentence; where: its place. low, high: the limits that the quantity
    has to keep, `strict` where they themselves do not count. number, std, n: a printed value, its population std over
    n seeds, and `rounding`, half a unit of its last printed digit (a statement has limits or a number). margin: how
    far a value may lie from `number` and still be the same, NaN for the default of `judge.margin_of`. reason: why we
    chose these limits, '' where they are printed. sharp: the limits are the paper's own; False where we chose them, so
    that only the uncertainty of a value decides.
    """

    name: str
    text: str
    where: str
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    number: float = NAN
    rounding: float = 0.0
    std: float = NAN
    n: int = 1
    margin: float = NAN
    reason: str = ""
    sharp: bool = True

    @property
    def threshold(self) -> str:
        """The limits or the number in words: '>= 0.91', '0.24 ± 0.005'; '' where there is neither."""
        if not math.isnan(self.number):
            return f"{self.number:g} ± {self.rounding:g}" if self.rounding else f"{self.number:g}"
        equal = "" if self.strict else "="
        sides = [f">{equal} {self.low:g}"] * math.isfinite(self.low)
        sides += [f"<{equal} {self.high:g}"] * math.isfinite(self.high)
        return " and ".join(sides)

    @property
    def decidable(self) -> bool:
        """Whether there is a limit or a number: without one no value could fail."""
        return math.isfinite(self.low) or math.isfinite(self.high) or not math.isnan(self.number)

    def holds(self, value: float) -> bool:
        """Whether a value keeps the limits."""
        return self.low < value < self.high if self.strict else self.low <= value <= self.high


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or an extension, decided from tables. One row for each statement.

    name: unique within the experiment; statement: what the paper says; where: place in the paper, "extension …" for
    what is not in the paper (`is_extension`); verdict: see `runner.stats.judge`; statistic: the measured quantity;
    threshold: the criterion; detail: n, interval, p and effect size, or why nothing was decided; group: what
    it speaks of, where one experiment is about several papers; variants: what became of the statement in each depth,
    checkpoint or protocol, "confirmed: L=8, L=10; inconclusive: L=12"; seeds_needed: how many seeds would decide
    it if mean and spread stayed as they are (inf where none would, NaN where it is decided or no number can be given).
    """

    name: str
    statement: str
    where: str
    verdict: Verdict
    statistic: float = NAN
    threshold: str = ""
    detail: str = ""
    group: str = ""
    variants: str = ""
    seeds_needed: float = NAN


def is_extension(where: str) -> bool:
    """Whether a statement at this place is not in the paper: a correction, or what it leaves to others.

    Reports count such statements apart, since their failing says nothing against a paper.

    >>> is_extension("extension of Section VII"), is_extension("Section VII")
    (True, False)
    """
    return where.startswith("extension")


def decide(holds: bool | None) -> Verdict:
    """confirmed for True, refuted for False, inconclusive for None."""
    return "inconclusive" if holds is None else "confirmed" if holds else "refuted"
