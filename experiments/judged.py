"""An analysis whose statements are rows of experiments/reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from experiments.printed import statements
from runner.contract import Alternative, Alternatives, Analysis, Claim, Statement, Tables
from runner.report.answers.reference import numbers_of
from runner.stats import judge
from runner.stats.alternatives import Change
from runner.stats.measured import values_of, with_table
from runner.stats.quantities import Functions

if TYPE_CHECKING:
    import pandas as pd


class JudgedAnalysis(Analysis):
    """A subclass gives the tables that the judge reads, and what its rows name."""

    functions: ClassVar[Functions] = Functions()
    changes: ClassVar[Mapping[str, Change]] = {}
    """What would be so if statements were false, in the words of their rows -> the tables then."""

    @property
    def says(self) -> Mapping[str, Statement]:
        """name -> statement."""
        return statements(self.claimed)

    @property
    def claimed(self) -> str:
        """The experiment whose rows they are."""
        return self.experiment.claimed  # type: ignore[attr-defined, no-any-return]

    def judged(self) -> Tables:
        """The tables that rows name, with the columns that they read."""
        return self.tables

    def compared(self) -> Tables:
        """The tables that printed numbers read, with what the scorecard must know of their
        columns (`runner.stats.score.FACTS`)."""
        return self.judged()

    def measured(self) -> pd.DataFrame | None:
        numbers = numbers_of(self.claimed)
        if numbers is None:
            return None
        return values_of(with_table(numbers.read()), self.compared(), self.functions)

    def claims(self) -> list[Claim]:
        return judge(self.says.values(), self.judged(), self.functions)

    @property
    def alternatives(self) -> Alternatives:  # type: ignore[override]
        found = []
        for text, change in self.changes.items():
            named = tuple(name for name, s in self.says.items() if s.alternative == text)
            found.append(Alternative(text, change, named))
        return tuple(found)
