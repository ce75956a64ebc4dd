"""What a report reads out of an experiment's tables: figures, claims, statistics, values, documents
and notes.

`analyse(experiment, tables)` makes one `Analysis` for each report, of the class that the experiment
names. What several methods share is a `functools.cached_property` of the subclass, computed once
for each report:

    class RatioAnalysis(Analysis):
        experiment: Ratio

        @cached_property
        def medians(self):
            return self.tables["points"].groupby("hidden")["ratio"].median()

        def claims(self):
            worst = self.medians.max() return [Claim("tight", "the bound is within 50 %", "Fig. 2",
            decide(worst < 1.5), worst, "< 1.5")]

        def notes(self):
            return [f"median ratio {value:.3g} at N = {hidden}" for hidden, value in
            self.medians.items()]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from runner.contract.experiment import Experiment, named
from runner.contract.records import Claim, Statistic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Tables = Mapping[str, "pd.DataFrame"]
"""Merged tables of all stored cells of one experiment and its settings, by name."""
Figures = Mapping[str, "Figure | Callable[[], Figure]"]
"""Figures by name; a function without arguments is called when its turn comes. One that redraws a
figure or table of the paper, or needs few of the cells, is a `Redrawn`."""


@dataclass(frozen=True)
class Redrawn:
    """A figure that redraws one of the paper's. place: "Fig. 3", "Table N.2", "" for one of our
    own; draw: makes it. cells: the grid values of the cells that it is drawn from, of some
    parameters; one_seed: whether it shows the first seed alone; keys: likewise of other keys of
    the printed numbers that it shows."""

    place: str
    draw: Callable[[], Figure]
    cells: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    one_seed: bool = False
    keys: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __call__(self) -> Figure:
        return self.draw()

    def of(
        self, rows: pd.DataFrame, *parameters: str, one_seed: bool = False, **others: Any
    ) -> Redrawn:
        """The figure, drawn from these rows: `hess-run why` names the command that measures no
        other values of these parameters. others: values of parameters that are no columns."""
        cells = {name: sorted(set(rows[name])) for name in parameters}
        return replace(self, cells={**others, **cells}, one_seed=one_seed)


def redraws(place: str, draw: Callable[..., Figure], *arguments: Any, **settings: Any) -> Redrawn:
    """The paper's figure or table at `place`, redrawn by draw(*arguments, **settings); "" for a
    figure of our own."""
    return Redrawn(place, partial(draw, *arguments, **settings))


@dataclass(frozen=True)
class Alternative:
    """How things would be if statements of a paper were false.

    A statement that is confirmed has to fail in one: judged in the changed tables it is not
    confirmed. A confirmation without any is *true by construction*.

    Parameters
    ----------
    text
        What would be so, in words.
    change
        Measured tables -> the tables as they would then be (`runner.stats.alternatives`).
    statements
        Names of the statements that would be false.
    """

    text: str
    change: Callable[[Tables], Tables]
    statements: tuple[str, ...]


Alternatives = tuple[Alternative, ...]


@dataclass(frozen=True, eq=False)
class Analysis:
    """Readings of one experiment's merged tables; every answer is empty unless a subclass gives
    one.

    experiment: its settings; a subclass narrows the type by an annotation of its own, `experiment:
    Ratio`. tables: merged over the stored cells and seeds, with cell parameters and `seed` as
    columns. They may be partial: any cell of the grid, any seed and any table may be missing. What
    a method raises is recorded in the report and loses nothing else.
    beside: likewise of the stored cells of each of `Experiment.companions`, by its name; none that
    has no cell.
    """

    experiment: Experiment
    tables: Tables
    beside: Mapping[str, Tables] = field(default_factory=dict)

    alternatives: ClassVar[Alternatives] = ()
    """What makes its statements fail."""

    def captions(self) -> Mapping[str, str]:
        """What figures show, by name, in a sentence or two; numbers in it come from the tables. A
        figure that is not named has the first paragraph of the docstring of the function that draws
        it. The report adds axes, what can be read off, what the judge says of the paper's figure,
        seeds, cells and tables."""
        return {}

    def figures(self) -> Figures:
        """Figures by name. One that is given as a function fails, if it fails, without losing any
        other; one that redraws a figure of the paper says which (`redraws`)."""
        return {}

    def claims(self) -> list[Claim]:
        """The paper's statements, decided from the tables."""
        return []

    def statistics(self) -> list[Statistic]:
        """Tests and fits for stats.csv, without Holm's correction: the report makes it
        (`runner.stats.correct`)."""
        return []

    def measured(self) -> pd.DataFrame | None:
        """Values to compare with the rows of numbers.csv, in long format: the key columns of that
        file that identify a value (metric among them), `seed` and `value`; one row per seed. None:
        no value to compare."""
        return None

    def documents(self) -> Mapping[str, str]:
        """Text files of the report by file name (Markdown)."""
        return {}

    def notes(self) -> list[str]:
        """Findings to print in the report in plain words, each derived from the tables."""
        return []


def analyse(experiment: Experiment, tables: Tables) -> Analysis:
    """The analysis of merged tables, of the class that the experiment names; made once for each
    report."""
    found: Analysis = named(experiment, "analysis")(experiment, tables)
    return found
