"""Beyond the paper: is there a reading of Exp. 5's data that gives its untrained networks to every printed digit?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Experiment,
    SettingError,
    Table,
    Tables,
    free,
    grid,
    one_of,
    positive,
)

SOURCES = ("torch", "torch float64", "numpy legacy", "numpy", "numpy float32", "torch on a GPU", "torch on a T4")


@dataclass(frozen=True, kw_only=True)
class Exp5InitSearch(Experiment):
    """Settings, each explained in conf/experiment/exp5_init_search.yaml.

    Nothing is random: a variant uses the paper's five seeds itself, so one run (any seed) is all of it.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Search for the data of Exp. 5 by its untrained networks"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Table 7 and the losses of Section 5.5, init"
    uncertified: ClassVar[str] = "closed forms, held against the engine's blocks in the tests"

    source: list[str] = grid()
    seeding: list[str]
    kept: int = free(20)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.source", self.source, SOURCES)
        for text in self.seeding:
            word, _, number = text.partition(" ")
            if word not in ("plus", "times", "fixed") or not number.isdigit():
                raise SettingError(f"experiment.seeding: expected 'plus 1', 'times 10' or 'fixed 42', found {text!r}")
        positive("experiment.kept", self.kept)

    def cells(self) -> list[Cell]:
        share = len(self.seeding) / 28 if self.seeding else 1.0
        return [Cell(params, seconds=round(60 * share, 1), memory_gib=0.5) for params in self.combinations()]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.exp5.search.search import tables

        return tables(str(cell.params["source"]), self.seeding, self.kept, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp5.search.report import SearchAnalysis

        return SearchAnalysis(self, tables)
