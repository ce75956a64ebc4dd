"""The share of parameter curvature between the blocks of a block-diagonal approximation, from exact Hessians.

One cell for each network: it is trained, and at each checkpoint the dense Hessian and Gauss-Newton matrix of its loss
are measured, in float64, and partitioned by layer, by output neuron and by parameter.
"""

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
    grid,
    not_empty,
    one_of,
    positive,
    report_only,
)

ARCHITECTURES = ("mlp", "convnet", "transformer")


@dataclass(frozen=True, kw_only=True)
class PhiBlockDiagonal(Experiment):
    """Settings, each explained in conf/experiment/phi_block_diagonal.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Curvature that a block-diagonal approximation discards, exactly"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "nothing printed: couplings between layers, in parameter space"

    architecture: list[str] = grid()
    residual: list[bool] = grid()
    classes: list[int] = grid()
    width: int
    examples: int
    spread: float
    steps: list[int]
    rate: float
    order_one: float = report_only(0.1)
    near: float = report_only(0.1)
    data_sets: int = report_only(3)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.architecture", self.architecture, ARCHITECTURES)
        for name in ("classes", "width", "examples", "spread", "rate", "order_one", "near", "data_sets"):
            positive(f"experiment.{name}", getattr(self, name))
        not_empty("experiment.steps", self.steps)
        if self.steps != sorted(set(self.steps)) or self.steps[0] < 0:
            raise SettingError(f"experiment.steps: expected increasing numbers from 0 on, found {self.steps}")
        if min(self.classes) < 2 or self.width < 3:
            raise SettingError("experiment.classes and width: expected at least 2 classes and a width of 3")

    def cells(self) -> list[Cell]:
        return [
            Cell({"architecture": a, "residual": r, "classes": k}, round(self._seconds(k), 1), 0.5)
            for a in self.architecture
            for r in self.residual
            for k in self.classes
        ]

    def _seconds(self, classes: int) -> float:
        """Training, then at each checkpoint the products of dense.py, of which those with all classes grow."""
        return 2 + len(self.steps) * (2 + 0.01 * classes) * self.examples / 200 * (self.width / 12) ** 2

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.phi_block_diagonal.measure import measure

        return measure(self, cell, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.phi_block_diagonal.report import PhiBlockDiagonalAnalysis

        return PhiBlockDiagonalAnalysis(self, tables)
