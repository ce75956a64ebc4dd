"""Flat training as an honest contest: HSR from probes against SGD, SAM, adaptive SAM and trace regularisation.

`hsr_flat_tuning` runs the same number of settings of every method and names, by validation data alone, the most
accurate and the flattest that is still accurate, at equal steps and at equal cost. `hsr_flat_training` is the contest
of these choices at seeds that the search never saw. Both take the digits or, averaged to 8 × 8 pixels, images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from experiments.hsr.flat_training.names import BUDGETS, ENTRIES, METHODS, RADII
from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Experiment,
    SettingError,
    Table,
    Tables,
    grid,
    non_negative,
    one_of,
    positive,
    report_only,
)
from runner.data.digits import DigitsData
from runner.data.images import ImageSettings

GRADIENT_SECONDS = 0.0009


@dataclass(frozen=True, kw_only=True)
class FlatTraining(Experiment):
    """What both experiments set; each setting is explained in conf/experiment/hsr_flat_tuning.yaml."""

    paper: ClassVar[str] = "HSR"
    reproduces: ClassVar[str] = "nothing printed: what Section VII leaves as future work"
    uncertified: ClassVar[str] = "λ₁ comes from Hessian products that the tests hold against dense Hessians"

    dataset: DigitsData | ImageSettings
    method: list[str] = grid()
    train: int
    validation: int
    test: int
    pool: int
    widths: list[int]
    batch: int
    epochs: int
    price: float
    memory: float
    tolerance: float
    bound_probes: int
    looks: int
    look_steps: int
    last_epochs: int

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.method", self.method, METHODS)
        names = ("train", "validation", "test", "pool", "widths", "batch", "epochs", "price", "tolerance")
        for name in (*names, "look_steps", "last_epochs"):
            positive(f"experiment.{name}", getattr(self, name))
        non_negative("experiment.looks", self.looks)
        if self.bound_probes < 4:
            raise SettingError(f"experiment.bound_probes: expected at least 4, found {self.bound_probes}")
        if not 0 <= self.memory < 1:
            raise SettingError(f"experiment.memory: expected a value from 0 to below 1, found {self.memory}")
        there = self.dataset.size if isinstance(self.dataset, DigitsData) else self.dataset.train
        asked = self.train + self.validation + self.test
        if asked > there:
            raise SettingError(
                f"experiment.train + validation + test: expected at most the {there} examples of "
                f"dataset={self.dataset.kind}, found {asked}"
            )

    def _seconds(self, method: str, budget: str) -> float:
        """Of one training."""
        steps = self.epochs * self.train / self.batch
        price = {"sgd": 1.0, **dict.fromkeys(RADII, 2.0)}.get(method, 10.0) if budget == "steps" else self.price
        return round(1 + GRADIENT_SECONDS * steps * price, 1)


@dataclass(frozen=True, kw_only=True)
class FlatTuning(FlatTraining):
    """The search: settings number 0 … trials − 1 of every method."""

    version: ClassVar[int] = 2
    title: ClassVar[str] = "Tuning of nine ways to train flat: the same number of settings for each"

    trials: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("experiment.trials", self.trials)

    def cells(self) -> Iterable[Cell]:
        return [
            Cell({"method": method}, self.trials * self._seconds(method, "cost") / 2, 0.6) for method in self.method
        ]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.hsr.flat_training.measure import run_all

        return {"ends": run_all(self, str(cell.params["method"]), ctx, self.trials)}

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.hsr.flat_training.tuning import TuningAnalysis

        return TuningAnalysis(self, tables)


@dataclass(frozen=True, kw_only=True)
class FlatContest(FlatTraining):
    """The chosen settings of every method at fresh seeds. chosen: method -> settings number of each of `ENTRIES`."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Flat training, a contest: HSR against tuned baselines at equal steps and equal cost"

    chosen: dict[str, list[int]] = report_only()  # which cells there are, not what one means
    accuracy_margin: float = report_only(0.005)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("experiment.accuracy_margin", self.accuracy_margin)
        for method in self.method:
            found = self.chosen.get(method, [])
            if len(found) != len(ENTRIES):
                raise SettingError(
                    f"experiment.chosen.{method}: expected {len(ENTRIES)} settings numbers "
                    f"({', '.join(' '.join(entry) for entry in ENTRIES)}), found {found}"
                )

    def cells(self) -> Iterable[Cell]:
        return [
            Cell({"method": method, "budget": budget, "trial": number}, self._seconds(method, budget), 0.6)
            for method in self.method
            for budget in BUDGETS
            for number in sorted({k for k, (own, _) in zip(self.chosen[method], ENTRIES, strict=True) if own == budget})
            if number >= 0
        ]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.hsr.flat_training.measure import run
        from experiments.hsr.flat_training.methods import trial

        settings = trial(str(cell.params["method"]), int(cell.params["trial"]))
        ends, curves = run(self, [settings], [str(cell.params["budget"])], ctx)
        return {"ends": ends, "curves": curves}

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.hsr.flat_training.contest import ContestAnalysis

        return ContestAnalysis(self, tables)
