"""HSR regularisation against Hessian-trace regularisation, adaptive SAM and plain gradient descent (HSR, Section VI).

A cell is one data set under one protocol: the search for critical points, the choice of the starts that lead to the
sharpest and the flattest of them, and the four methods from these starts. The heavy parts are in sibling modules.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from runner.contract.experiment import (
    GROUPS,
    Analysis,
    Cell,
    Context,
    Experiment,
    Scalar,
    SettingError,
    Table,
    Tables,
    free,
    grid,
    one_of,
    positive,
    report_only,
    since,
)
from runner.data.gaussian import GaussianData
from runner.metrics.closed_form import WsBoundMetric
from runner.models.kinds.closed_form import ThreeLayerModel
from runner.training.kinds.descent import DescentTraining

PROTOCOLS = ("fitted", "printed")
READINGS = ("every_step", "second_half")
ACTIVATIONS = ("sigmoid", "tanh", "softplus", "gelu", "linear")
PARTS = ("methods", "draws")
SECONDS = 60.0
"""Of 3,000 starts and 10,000 steps on one thread."""


@dataclass(frozen=True, kw_only=True)
class HsrRegularization(Experiment):
    """Settings, each explained in conf/experiment/hsr_regularization.yaml."""

    version: ClassVar[int] = 2
    title: ClassVar[str] = "Regularisation by the bound of the largest Hessian eigenvalue against three other methods"
    paper: ClassVar[str] = "HSR"
    reproduces: ClassVar[str] = "Figs. 8-15, Section VI; a wider A-SAM, where the ends lead, thirty draws of the data"

    part: list[str] = grid()
    protocol: list[str] = grid()
    search_rate: list[float] = grid()
    reading: list[str]
    activation: str
    hidden: int
    rate: float
    fitted_ratio: float
    printed_ratio: float
    polish_tolerance: float
    polish_steps: int
    far: float
    draws: int = free()
    draw_starts: int = free()
    group_share: float
    switch: int
    trace_weight: float
    bound_weight: float
    radius: float
    wide_radius: float = free()
    record_every: int = free()
    line_points: int = free()
    line_half_range: float = free()
    plane_half_range: float
    plane_points: int = free()
    boundary_starts: int = free()
    further_steps: int = report_only(400)  # a parameter of the cells that train with methods, and so is the next
    rounding_steps: int = report_only(3000)
    saddle_ratio: float = report_only(0.01)
    level: float = report_only(0.01)
    tight: float = report_only(1.1)
    eigenvalue_margin: float = report_only(1.25)
    f1_margin: float = report_only(0.01)
    share: float = report_only(0.8)
    data_sets: int = report_only(3)
    dataset: GaussianData
    model: ThreeLayerModel = since(ThreeLayerModel())
    metric: WsBoundMetric = since(WsBoundMetric())
    training: DescentTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.part", self.part, PARTS)
        one_of("experiment.protocol", self.protocol, PROTOCOLS)
        one_of("experiment.reading", self.reading, READINGS)
        one_of("experiment.activation", self.activation, ACTIVATIONS)
        for field in fields(self):
            if field.name not in ("part", "protocol", "reading", "activation", *GROUPS):
                positive(f"experiment.{field.name}", getattr(self, field.name))
        for name in ("group_share", "share", "level"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(f"experiment.{name}: expected a value between 0 and 1, found {getattr(self, name)}")
        if self.dataset.inputs != 2:
            raise SettingError(f"dataset.inputs: expected 2 (decision boundaries), found {self.dataset.inputs}")
        if not self.reading:
            raise SettingError("experiment.reading: expected at least one reading of the stop rule, found none")

    def cells(self) -> list[Cell]:
        """The experiment under the fitted protocol, its printed search at several rates, further draws of the data."""
        work = self.training.steps / 10_000 * SECONDS / 3000
        found = []
        if "methods" in self.part and "fitted" in self.protocol:
            about: dict[str, Scalar] = {"protocol": "fitted", "further": self.further_steps}
            about["to_rounding"] = self.rounding_steps
            found.append(Cell(about, round(3 + 1.3 * work * self.training.starts, 1), 0.6))
        if "methods" in self.part and "printed" in self.protocol:
            seconds = round(1 + work * self.draw_starts, 1)
            found += [Cell({"protocol": "printed", "search_rate": r}, seconds, 0.4) for r in self.search_rate]
        if "draws" in self.part and "fitted" in self.protocol:
            found.append(Cell({"part": "draws"}, round(1 + work * self.draws * self.draw_starts, 1), 0.4))
        return found

    def strength(self, method: str) -> float:
        """γ₂/γ₁ of a method."""
        return (self.trace_weight if method == "trace" else self.bound_weight) / self.rate

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.hsr.regularization.measure import measure
        from experiments.hsr.regularization.more_draws import measure_draws, measure_scan

        if cell.params.get("part") == "draws":
            return measure_draws(self, ctx)
        return (measure_scan if "search_rate" in cell.params else measure)(self, cell, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.hsr.regularization.report import HsrRegularizationAnalysis

        return HsrRegularizationAnalysis(self, tables)
