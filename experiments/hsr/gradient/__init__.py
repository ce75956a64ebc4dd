"""HSR: what the closed-form gradient of the bound costs, whether it is right, and what drives it (Figs. 2-7).

A cell is one part of the study; the parts share nothing but the seed. The heavy code is in sibling modules.
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

SECONDS = {"cost": 30.0, "agreement": 1.0, "influence": 3.0, "covariance": 2.0, "terms": 0.5, "descent": 4.0}


@dataclass(frozen=True, kw_only=True)
class HsrGradient(Experiment):
    """Settings, each explained in conf/experiment/hsr_gradient.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Closed-form gradient of the bound: cost, correctness, and what drives it"
    paper: ClassVar[str] = "HSR"
    reproduces: ClassVar[str] = "Figs. 2-7, Propositions 1 and 2"

    part: list[str] = grid()
    hidden: int
    timed_samples: int
    timed_units: list[int] = free()
    timed_sizes: list[int] = free()
    cost_units: list[int] = since([5, 10, 20, 40, 80, 160, 320], free=True)
    cost_sizes: list[int] = since([100 * 2**k for k in range(11)], free=True)
    pairwise_samples: int = since(6400, free=True)
    numerical_samples: int = since(800, free=True)
    cost_repeats: int = since(5, free=True)
    cost_budget: float = since(0.3, free=True)
    octaves: int = report_only(3)
    timed_hidden: int
    repeats: int = free()
    difference_step: float
    compared_hidden: int
    compared_range: float
    draws: int = free()
    networks: int = free()
    influence_starts: int = free()
    rate: float
    stop_ratio: float
    fixed_sample: int
    covariance: list[float] = free()
    covariance_samples: int
    covariance_activation: list[str]
    covariance_draws: int = free()
    half_range: list[float]
    term_draws: int
    bound_rate: float
    bound_starts: int = free()
    record_every: int = free()
    level: float = report_only(0.01)
    exponent_margin: float = report_only(0.2)
    share: float = report_only(0.8)
    data_sets: int = report_only(3)
    dataset: GaussianData
    model: ThreeLayerModel = since(ThreeLayerModel())
    metric: WsBoundMetric = since(WsBoundMetric())
    training: DescentTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.part", self.part, SECONDS)
        one_of("experiment.covariance_activation", self.covariance_activation, ("linear", "sigmoid"))
        skipped = ("part", "covariance", "covariance_activation", "fixed_sample", *GROUPS)
        for field in fields(self):
            if field.name not in skipped:
                positive(f"experiment.{field.name}", getattr(self, field.name))
        if not 0 <= self.fixed_sample < self.dataset.train:
            raise SettingError(
                f"experiment.fixed_sample: expected 0 to {self.dataset.train - 1}, found {self.fixed_sample}"
            )
        if any(not -1 < c < 1 for c in self.covariance):
            raise SettingError(f"experiment.covariance: expected values between -1 and 1, found {self.covariance}")

    def cells(self) -> list[Cell]:
        return [Cell({"part": part}, SECONDS[part] * self._work(part), 0.35) for part in self.part]

    def _work(self, part: str) -> float:
        """Against the paper profile."""
        if part == "cost":
            return self.cost_repeats / 5 * (self.pairwise_samples / 6400) ** 2
        if part in ("influence", "descent"):
            return self.training.steps / 10_000
        return 1.0

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.hsr.gradient.measure import PARTS, certificate

        return {**PARTS[str(cell.params["part"])](self, ctx), "certificate": [certificate(self, ctx)]}

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.hsr.gradient.report import HsrGradientAnalysis

        return HsrGradientAnalysis(self, tables)
