"""HSR: what the closed-form gradient of the bound costs, whether it is right, and what drives it (Figs. 2-7).

A cell is one part of the study; the parts share nothing but the seed. The heavy code is in sibling modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from runner.contract.experiment import (
    GROUPS,
    Cell,
    Claim,
    Context,
    Experiment,
    SettingError,
    Table,
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

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.stats import Statistic

SECONDS = {"timing": 12.0, "agreement": 1.0, "influence": 3.0, "covariance": 2.0, "terms": 0.5, "descent": 4.0}


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
    timed_units: list[int]
    timed_sizes: list[int]
    timed_hidden: int
    repeats: int
    difference_step: float
    compared_hidden: int
    compared_range: float
    draws: int
    networks: int
    influence_starts: int
    rate: float
    stop_ratio: float
    fixed_sample: int
    covariance: list[float]
    covariance_samples: int
    covariance_activation: list[str]
    covariance_draws: int
    half_range: list[float]
    term_draws: int
    bound_rate: float
    bound_starts: int
    record_every: int
    level: float = report_only(0.01)
    exponent_margin: float = report_only(0.5)
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
        if part == "timing":
            return self.repeats * max(self.timed_units) ** 3 / (5 * 50**3)
        if part in ("influence", "descent"):
            return self.training.steps / 10_000
        return 1.0

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.hsr.gradient.measure import PARTS

        return PARTS[str(cell.params["part"])](self, ctx)

    def figures(self, tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure | Callable[[], Figure]]:
        from experiments.hsr.gradient.figures import figures

        return figures(self, tables)

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.hsr.gradient.claims import claims

        return claims(self, tables)

    def statistics(self, tables: Mapping[str, pd.DataFrame]) -> list[Statistic]:
        from experiments.hsr.gradient.tests_and_fits import statistics

        return statistics(self, tables)

    def measured(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
        from experiments.hsr.gradient.tests_and_fits import measured

        return measured(self, tables)

    def notes(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        from experiments.hsr.gradient.tests_and_fits import notes

        return notes(self, tables)

    def comparable(self) -> str:
        paper = {
            "experiment.hidden": (self.hidden, 3),
            "experiment.timed_samples": (self.timed_samples, 200),
            "experiment.timed_hidden": (self.timed_hidden, 5),
            "experiment.covariance_samples": (self.covariance_samples, 100),
            "experiment.term_draws": (self.term_draws, 100),
            "experiment.bound_rate": (self.bound_rate, 0.01),
            "dataset.train": (self.dataset.train, 50),
            "training.steps": (self.training.steps, 10_000),
        }
        changed = [f"{key}={value} instead of {wanted}" for key, (value, wanted) in paper.items() if value != wanted]
        return f"not the paper's protocol: {', '.join(changed)}" if changed else ""
