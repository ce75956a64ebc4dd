"""What the contest compares: the end of each training by entry, seed and method, paired by seed.

An entry is a budget, the rule by which settings were chosen, and a schedule. Quantities other than
accuracies are compared by their logarithm: a difference is the logarithm of a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.three_layer.hsr_flat_training.settings import BUDGETS, ENTRIES, HALF, RULES
from runner.contract import Tables
from runner.stats.intervals import Sample
from runner.stats.judge import LEVEL
from runner.stats.tables import chosen, differences

SCHEDULES = ("throughout", "first half")


class Entry(NamedTuple):
    """One cell of the table of the contest."""

    budget: str
    rule: str
    schedule: str


CONTEST = tuple(Entry(*parts) for parts in product(BUDGETS, RULES, SCHEDULES))
LOGARITHMIC = ("lambda_max", "lambda_sup", "train_loss", "cpu_seconds")
WORDS = {
    "steps": "equal steps",
    "cost": "equal cost",
    "accurate": "tuned for accuracy",
    "flat": "tuned for flatness",
}


def words(entry: Entry) -> str:
    """'equal cost tuned for accuracy throughout'."""
    return f"{WORDS[entry.budget]} {WORDS[entry.rule]} {entry.schedule}"


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of a ratio over seeds with its 95 % interval, NaN below two; n: seeds."""

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
    """The tables of a contest.

    chosen: method -> settings number of each of `ENTRIES`; data: their name in words.
    """

    def __init__(
        self,
        tables: Tables,
        chosen: Mapping[str, Sequence[int]],
        data: str = "",
    ) -> None:
        self.table = tables["ends"]
        self.chosen = chosen
        self.data = data

    def ends(self, entry: Entry, method: str) -> pd.DataFrame:
        """One row per seed; empty where nothing is stored."""
        stored = method
        if entry.schedule == SCHEDULES[1] and method != "sgd":
            stored = f"{method}{HALF}"
        number = -1
        if stored in self.chosen:
            number = self.chosen[stored][ENTRIES.index((entry.budget, entry.rule))]
        rows = chosen(self.table, budget=entry.budget)
        rows = chosen(rows, method=stored, trial=number)
        return rows.set_index("seed").sort_index()

    def values(self, entry: Entry, method: str, quantity: str) -> pd.Series:
        """The quantity by seed, as a logarithm where it is compared by ratios."""
        values = self.ends(entry, method)[quantity].astype(float)
        if quantity in LOGARITHMIC:
            return np.log(values.where(values > 0))
        return values

    def differences(self, entry: Entry, a: str, b: str, quantity: str) -> list[float]:
        """`a` less `b` by seed (`tables.differences`); NaN where one diverged."""
        first = self.values(entry, a, quantity).to_dict()
        second = self.values(entry, b, quantity).to_dict()
        return list(differences(first, second).values())
