"""WS bound: the Wolkowicz–Styan bound of the largest Hessian eigenvalue at the critical points of a small network.

A cell is one search for critical points: all starts of one protocol, activation, width and learning rate descend
together, and every point they reach is measured. The heavy parts are in the sibling modules, imported when needed.
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
PARTS = ("search", "polish", "draws")
ACTIVATIONS = ("sigmoid", "tanh", "softplus", "gelu", "linear")
COST = {"sigmoid": 0.8, "tanh": 0.3, "softplus": 1.0, "gelu": 1.4, "linear": 0.1}
"""Seconds a hidden unit for the descent of 500 starts, 10,000 steps and 50 samples, as soon as most have stopped."""


@dataclass(frozen=True, kw_only=True)
class WsBound(Experiment):
    """Settings, each explained in conf/experiment/ws_bound.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Closed-form upper bound of the largest Hessian eigenvalue at critical points"
    paper: ClassVar[str] = "WS bound"
    reproduces: ClassVar[str] = "Figs. 2-13, Appendix C; scan of the rate; four more activations; where the ends lead"

    part: list[str] = grid(PARTS)
    protocol: list[str] = grid()
    activation: list[str] = grid()
    hidden: list[int] = grid()
    rate: list[float] = grid()
    scanned: list[str] = grid()
    fitted_rate: float
    fitted_ratio: float
    printed_ratio: float
    difference_step: float
    error_points: int = free()
    polish_tolerance: float = since(1e-9)
    polish_steps: int = since(200)
    further_steps: int = report_only(400)  # a parameter of the cells that polish: searches do not depend on it
    to_rounding: dict[str, int] = report_only({"softplus": 3000, "gelu": 3000})  # likewise
    far: float = since(25.0)
    draws: int = since(6, free=True)
    portrait_hidden: int
    portrait_rate: float
    line_points: int = free()
    line_half_range: float = free()
    boundary_step: float = free()
    path_points: int = free()
    entry_points: int = free()
    compared_hidden: int = report_only(10)
    low_share: float = report_only(0.9)
    level: float = report_only(0.01)
    tight: float = report_only(1.1)
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
        one_of("experiment.activation", self.activation, ACTIVATIONS)
        one_of("experiment.scanned", self.scanned, ACTIVATIONS)
        for field in fields(self):
            if field.name not in ("part", "protocol", "activation", "scanned", "to_rounding", *GROUPS):
                positive(f"experiment.{field.name}", getattr(self, field.name))
        one_of("experiment.to_rounding", list(self.to_rounding), ACTIVATIONS)
        for steps in self.to_rounding.values():
            positive("experiment.to_rounding", steps)
        for name in ("low_share", "share", "level"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(f"experiment.{name}: expected a value between 0 and 1, found {getattr(self, name)}")
        if not self.cells():
            raise SettingError(
                "experiment: expected at least one cell, found none; protocol=printed covers the activations in "
                f"experiment.scanned ({', '.join(self.scanned)}) only"
            )

    def cells(self) -> list[Cell]:
        """Searches; the same ones polished, where the claims look at them; further draws of the data."""
        searches = self._searches()
        found = list(searches) if "search" in self.part else []
        if "polish" in self.part:
            kept = [c for c in searches if self._polished(c)]
            about: dict[str, Scalar] = {"part": "polish", "further": self.further_steps}
            for c in kept:
                steps = self.to_rounding.get(str(c.params["activation"]), 0)
                own = about | ({"to_rounding": steps} if steps else {}) | dict(c.params)
                found.append(Cell(own, round((4 if steps else 2.5) * c.seconds, 2), 0.35))
        if "draws" in self.part and "fitted" in self.protocol and "sigmoid" in self.activation:
            seconds = self.draws * (1.5 + self._seconds("sigmoid", self.portrait_hidden))
            found.append(Cell({"part": "draws", "further": self.further_steps}, round(seconds, 2), 0.35))
        return found

    def _polished(self, cell: Cell) -> bool:
        """All widths of the paper's activation, at the rate that stands for the printed protocol; else the paper's."""
        params = cell.params
        if params["activation"] != "sigmoid":
            return params["hidden"] == self.portrait_hidden
        return params["protocol"] == "fitted" or params["rate"] == self.portrait_rate

    def _searches(self) -> list[Cell]:
        """Every activation and width under the fitted protocol, then the scan of the printed one."""
        found = []
        for protocol in self.protocol:
            fitted = protocol == "fitted"
            for activation in (a for a in self.activation if fitted or a in self.scanned):
                for hidden in self.hidden:
                    for rate in [self.fitted_rate] if fitted else self.rate:
                        params: dict[str, Scalar] = {
                            "protocol": protocol,
                            "activation": activation,
                            "hidden": hidden,
                            "rate": rate,
                        }
                        found.append(Cell(params, self._seconds(activation, hidden), 0.35))
        return found

    def _seconds(self, activation: str, hidden: int) -> float:
        starts = self.training.starts / 500 * self.dataset.train / 50
        return round(0.3 + starts * (1.5 + self.training.steps / 10_000 * COST[activation] * hidden), 2)

    def ratio(self, cell: Cell) -> float:
        """Stop ratio epsilon of the cell's protocol."""
        return self.fitted_ratio if cell.params["protocol"] == "fitted" else self.printed_ratio

    def has_portraits(self, cell: Cell) -> bool:
        """Whether the cell's sharpest and flattest points are followed in detail."""
        params = cell.params
        return params["hidden"] == self.portrait_hidden and (
            params["protocol"] == "fitted" or params["rate"] == self.portrait_rate
        )

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.ws_bound.measure import measure
        from experiments.ws_bound.polished import measure_draws, measure_polished

        if cell.params.get("part") == "draws":
            return measure_draws(self, ctx)
        return (measure_polished if cell.params.get("part") == "polish" else measure)(self, cell, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.ws_bound.report import WsBoundAnalysis

        return WsBoundAnalysis(self, tables)
