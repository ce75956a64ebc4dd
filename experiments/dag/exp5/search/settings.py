"""Beyond the paper: is there a reading of Exp. 5's data that gives its untrained networks to every printed digit?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runner import contract as c

SOURCES = ("torch", "torch float64", "numpy legacy", "numpy", "numpy float32", "torch on a GPU", "torch on a T4")


@dataclass(frozen=True, kw_only=True)
class Exp5InitSearch(c.Experiment):
    """Settings, each explained in conf/experiment/exp5_init_search.yaml.

    Nothing is random: a variant uses the paper's five seeds itself, so one run (any seed) is all of it.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Search for the data of Exp. 5 by its untrained networks"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Table 7 and the losses of Section 5.5, init"
    uncertified: ClassVar[str] = "closed forms, held against the engine's blocks in the tests"
    measure = "experiments.dag.exp5.search.search:measure"
    analysis = "experiments.dag.exp5.search.report:SearchAnalysis"

    source: list[str] = c.grid(choices=SOURCES)
    seeding: list[str]
    kept: int = c.free(20, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for text in self.seeding:
            word, _, number = text.partition(" ")
            if word not in ("plus", "times", "fixed") or not number.isdigit():
                raise c.SettingError(f"experiment.seeding: expected 'plus 1', 'times 10' or 'fixed 42', found {text!r}")

    def cells(self) -> list[c.Cell]:
        share = len(self.seeding) / 28 if self.seeding else 1.0
        return [c.Cell(params, seconds=round(60 * share, 1), memory_gib=0.5) for params in self.combinations()]
