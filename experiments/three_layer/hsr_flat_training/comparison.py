"""What the contest compares: ends by entry, seed and method, paired by seed, and λ₁ at a common training loss.

An entry is a budget and a rule by which settings were chosen: ("cost", "accurate"). Quantities other than accuracies
are compared by their logarithm, so that a difference is the logarithm of a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.three_layer.hsr_flat_training.settings import ENTRIES
from runner.stats.intervals import Sample
from runner.stats.judge import LEVEL

Entry = tuple[str, str]
MAIN: Entry = ("cost", "accurate")
LOGARITHMIC = ("lambda_max", "lambda_sup", "train_loss", "cpu_seconds")
WORDS = {
    "steps": "equal steps",
    "cost": "equal cost",
    "accurate": "most accurate",
    "flat": "flattest",
}


def words(entry: Entry) -> str:
    """'most accurate at equal cost'."""
    return f"{WORDS[entry[1]]} at {WORDS[entry[0]]}"


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of a ratio over seeds with its 95 % interval, NaN below two seeds; n: seeds."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, logs: Sequence[float]) -> Ratio:
        """From logarithms; those that are not finite do not count."""
        sample = Sample.of(logs)
        low, high = sample.interval(LEVEL)
        return cls(math.exp(sample.mean), math.exp(low), math.exp(high), sample.n)


class Comparison:
    """The tables of a contest. chosen: method -> settings number of each of `ENTRIES`; data: their name in words."""

    def __init__(
        self,
        tables: Mapping[str, pd.DataFrame],
        chosen: Mapping[str, Sequence[int]],
        data: str = "",
    ) -> None:
        self.tables, self.chosen, self.data = tables, chosen, data

    def methods(self, entry: Entry) -> list[str]:
        """Methods that have this entry and at least one stored end, in order."""
        ends = self.tables["ends"]
        there = set(ends.loc[ends["budget"] == entry[0], "method"])
        return [
            m
            for m, numbers in self.chosen.items()
            if numbers[ENTRIES.index(entry)] >= 0 and m in there
        ]

    def ends(self, entry: Entry, method: str) -> pd.DataFrame:
        """One row per seed."""
        return self._of("ends", entry, method).set_index("seed").sort_index()

    def _of(self, table: str, entry: Entry, method: str) -> pd.DataFrame:
        rows, number = self.tables[table], self.chosen[method][ENTRIES.index(entry)]
        return rows[
            (rows["budget"] == entry[0]) & (rows["method"] == method) & (rows["trial"] == number)
        ]

    def values(self, entry: Entry, method: str, quantity: str) -> pd.Series:
        """The quantity by seed, as a logarithm where it is compared by ratios."""
        found = self.ends(entry, method)[quantity].astype(float)
        return np.log(found.where(found > 0)) if quantity in LOGARITHMIC else found

    def differences(self, entry: Entry, a: str, b: str, quantity: str) -> list[float]:
        """`a` less `b`, one for each seed that both have; NaN where one diverged."""
        both = self.values(entry, a, quantity) - self.values(entry, b, quantity)
        return [float(v) for v in both]

    def ratio(self, entry: Entry, a: str, b: str, quantity: str = "lambda_max") -> Ratio:
        """`a` over `b`."""
        return Ratio.of(self.differences(entry, a, b, quantity))

    def curves(self, entry: Entry, method: str) -> pd.DataFrame:
        """Rows of the curves, sorted by seed and epoch."""
        return self._of("curves", entry, method).sort_values(["seed", "epoch"])

    def matched(self, entry: Entry, a: str, b: str) -> list[float]:
        """log λ₁ of `a` less that of `b` at the lowest training loss that both reach, one for each seed."""
        found = []
        one, other = self.curves(entry, a), self.curves(entry, b)
        for seed in sorted(set(one["seed"]) & set(other["seed"])):
            pair = [rows[rows["seed"] == seed] for rows in (one, other)]
            common = max(float(rows["train_loss"].min()) for rows in pair)
            at = [
                at_loss(list(rows["train_loss"]), list(rows["lambda_max"]), common) for rows in pair
            ]
            found.append(at[0] - at[1])
        return found


def at_loss(losses: Sequence[float], largest: Sequence[float], level: float) -> float:
    """log λ₁ where a training first reaches a loss of `level`, between two looks linear in the logarithms; NaN where it
    never does, or λ₁ is not positive there.

    >>> round(math.exp(at_loss([4.0, 1.0, 0.1], [1.0, 16.0, 9.0], 2.0)), 6)
    4.0
    """
    for i, loss in enumerate(losses):
        if loss <= level:
            if not (largest[i] > 0 and (i == 0 or largest[i - 1] > 0)):
                return math.nan
            here = math.log(largest[i])
            if i == 0 or losses[i - 1] <= loss:
                return here
            part = math.log(losses[i - 1] / level) / math.log(losses[i - 1] / loss)
            return (1 - part) * math.log(largest[i - 1]) + part * here
    return math.nan
