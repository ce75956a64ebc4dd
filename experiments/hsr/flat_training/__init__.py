"""Flat training as an honest contest: HSR from probes against SGD, SAM, adaptive SAM and trace regularisation.

`hsr_flat_tuning` is the first half: it runs the same number of settings of every method and names, by validation data
alone, the most accurate and the flattest that is still accurate. The contest of these choices at seeds that the search
never saw is not here yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from experiments.hsr.flat_training.names import METHODS
from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Experiment,
    SettingError,
    Table,
    Tables,
    grid,
    one_of,
    positive,
    report_only,
)

STEP_SECONDS = {"sgd": 0.0008, "sam": 0.002, "asam": 0.002, "asam_all": 0.002, "trace": 0.012, "hsr": 0.014}


@dataclass(frozen=True, kw_only=True)
class FlatTraining(Experiment):
    """What both experiments set; each setting is explained in conf/experiment/hsr_flat_tuning.yaml."""

    paper: ClassVar[str] = "HSR"
    reproduces: ClassVar[str] = "nothing printed: what Section VII leaves as future work"

    method: list[str] = grid()
    data: str
    train: int
    validation: int
    test: int
    widths: list[int]
    batch: int
    epochs: int
    price: float
    memory: float
    lanczos_steps: int
    looks: int
    last_looks: int

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.method", self.method, METHODS)
        one_of("experiment.data", self.data, ("digits", "cifar10"))
        names = ("train", "validation", "test", "widths", "batch", "epochs", "price", "lanczos_steps", "looks")
        for name in (*names, "last_looks"):
            positive(f"experiment.{name}", getattr(self, name))
        if self.last_looks > self.looks:
            raise SettingError(f"experiment.last_looks: expected at most looks = {self.looks}, found {self.last_looks}")
        if not 0 <= self.memory < 1:
            raise SettingError(f"experiment.memory: expected a value from 0 to below 1, found {self.memory}")

    def _seconds(self, method: str, budget: str) -> float:
        steps = self.epochs * self.train / self.batch * (self.price if budget == "cost" else 1)
        return round(1 + steps * STEP_SECONDS.get(method, 0.006), 1)


@dataclass(frozen=True, kw_only=True)
class FlatTuning(FlatTraining):
    """The search: settings number 0 … trials − 1 of every method, equal steps for all."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Tuning of seven ways to train flat: the same number of settings for each"

    trials: int
    accuracy_margin: float = report_only(0.005)

    def cells(self) -> Iterable[Cell]:
        return [
            Cell({"method": method, "trial": number}, self._seconds(method, "steps"), 0.5)
            for method in self.method
            for number in range(self.trials)
        ]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.hsr.flat_training.measure import measure

        return measure(self, str(cell.params["method"]), int(cell.params["trial"]), "steps", ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.hsr.flat_training.report import TuningAnalysis

        return TuningAnalysis(self, tables)
