"""Beyond the HSR paper: its regulariser from random probes, on a deep ten-class network with real data.

The paper's form needs three layers and two classes and names wider use as future work (Section VII). Here λ_sup comes
from Hessian-vector products. Cells: the estimate against the closed form, and one training per method.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

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

METHODS = ("sgd", "sam", "hsr")
STEP_SECONDS = {"sgd": 0.0012, "sam": 0.0024, "hsr": 0.008}


@dataclass(frozen=True, kw_only=True)
class HsrStochastic(Experiment):
    """Settings, each explained in conf/experiment/hsr_stochastic.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Regularisation by the bound from random probes, on a deep network and real data"
    paper: ClassVar[str] = "HSR"
    reproduces: ClassVar[str] = "nothing printed: what Section VII leaves as future work"

    part: list[str] = grid()
    widths: list[int]
    train_share: float
    batch: int
    epochs: int
    rate: float
    radius: float
    bound_weight: float
    probes: int
    memory: float
    lanczos_steps: int
    probe_counts: list[int]
    repeats: int
    hidden: int
    level: float = report_only(0.05)
    accuracy_margin: float = report_only(0.01)
    share: float = report_only(0.8)
    data_sets: int = report_only(3)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.part", self.part, ("estimate", *METHODS))
        for field in fields(self):
            if field.name not in ("part", "memory", "bound_weight", "radius"):
                positive(f"experiment.{field.name}", getattr(self, field.name))
        if not 0 <= self.memory < 1:
            raise SettingError(f"experiment.memory: expected a value from 0 to below 1, found {self.memory}")
        if min(self.probes, *self.probe_counts) < 2:
            raise SettingError("experiment.probes, probe_counts: expected at least 2 (σ² needs two different probes)")
        if not 0 < self.train_share < 1:
            raise SettingError(f"experiment.train_share: expected a value between 0 and 1, found {self.train_share}")

    def cells(self) -> list[Cell]:
        steps = self.epochs * 1797 * self.train_share / self.batch
        seconds = {"estimate": 3.0, **{m: 3 + steps * s * self.probes / 2 for m, s in STEP_SECONDS.items()}}
        return [Cell({"part": part}, round(seconds[part], 1), 0.4) for part in self.part]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.hsr.stochastic.measure import estimate, train

        part = str(cell.params["part"])
        return estimate(self, ctx) if part == "estimate" else train(self, part, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.hsr.stochastic.report import HsrStochasticAnalysis

        return HsrStochasticAnalysis(self, tables)
