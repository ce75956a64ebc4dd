"""The parts that a statement is decided by, and the judge that knows whose networks they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.dag.protocol.scores import PartName, facts
from runner.contract import Claim, Statement
from runner.stats import judge
from runner.stats.tables import chosen, groups, seed_values

Parts = dict[str, list[float]]
"""Name of a part (a depth, a checkpoint, …) -> its values over seeds."""
Values = Mapping[str, Sequence[float]]
"""Parts that are only read."""
TABLES = "dag.tables, class B"
"""Root cause in the errata of sentences that the paper's own tables contradict."""


@dataclass(frozen=True)
class Groups:
    """The rows of a table by the values of some columns.

    text: name of a group, a template with the columns: "L={depth} {checkpoint}".
    """

    table: pd.DataFrame
    keys: Sequence[str]
    text: str

    def only(self, **values: Any) -> Groups:
        """The groups whose columns have these values."""
        rows = chosen(self.table, **values)
        return Groups(rows, self.keys, self.text)

    def items(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """(name, rows) of every group, in the order of the table."""
        for values, rows in groups(self.table, self.keys):
            columns = dict(zip(self.keys, values, strict=True))
            name = self.text.format(**columns)
            if "checkpoint" in columns:
                name = PartName(name, columns["checkpoint"])
            yield name, rows

    def each(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Name -> function(rows, *arguments) of every group."""
        return {name: function(rows, *arguments) for name, rows in self.items()}

    def values(self, column: str, statistic: str = "") -> Parts:
        """Name -> a column by seed; of several rows of a seed the named statistic."""
        found = {}
        for name, rows in self.items():
            if statistic:
                of_seeds = rows.groupby("seed")[column]
                found[name] = [
                    float(getattr(values, statistic)(skipna=False)) for _, values in of_seeds
                ]
            else:
                of_rows = seed_values(rows, column)
                found[name] = list(of_rows.values())
        return found

    def pairs(self, other: Groups) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
        """(name, rows, rows of the other) of the groups that both have."""
        there = dict(other.items())
        for name, rows in self.items():
            if name in there:
                yield name, rows, there[name]


@dataclass(frozen=True)
class Judge:
    """The paper's statements by name; same: whether the networks at init are its own, on its
    images, so that what is measured of them is the number that it saw."""

    says: Mapping[str, Statement]
    same: bool = False

    def bound(self, name: str, parts: Values) -> Claim:
        """Limits on a mean over seeds."""
        return judge.bound(self.says[name], parts)

    def number(self, name: str, parts: Values, *, without_probes: Values | None = None) -> Claim:
        """A printed number. without_probes: see `judge.number`."""
        return judge.number(self.says[name], parts, without_probes=without_probes)

    def on_own(self, name: str, parts: Values) -> Claim:
        """A printed number, or limits on a mean; of parts at init see `same`."""
        statement = self.says[name]
        unknown = math.isnan(statement.number)
        decide = judge.bound if unknown else judge.number
        same = facts(parts, self.same)
        return decide(statement, parts, same=same)

    def together(self, name: str, readings: Mapping[str, Claim], main: str) -> Claim:
        """Several readings of a statement, of which `main` decides; not run where there is none."""
        if not readings:
            return judge.claim(self.says[name], "not run")
        return judge.together(readings, main=main)
