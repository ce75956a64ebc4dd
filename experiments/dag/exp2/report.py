"""The report of Exp. 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp2 import claims as exp2_claims
from experiments.dag.exp2 import figures as draw
from experiments.dag.protocol import comparisons, figures
from runner.contract import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp2.settings import Exp2Bottleneck
    from runner.contract import Claim
    from runner.stats import Statistic


class BottleneckAnalysis(Analysis):
    """D, C and R across the narrow layer by its width, ranks, and the spread over sets of images."""

    experiment: Exp2Bottleneck

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        far, classes = self.tables["far"], self.experiment.dataset.classes
        found: dict[str, Callable[[], Figure]] = {
            "fig4_stable_rank": lambda: draw.stable_rank(far, classes),
            "coupling_and_resonance": lambda: draw.coupling_and_resonance(far),
            "ranks": lambda: draw.ranks(self.tables["ranks"], classes),
            "image_sets": lambda: draw.image_sets(far),
        }
        if "history" in self.tables:
            history = self.tables["history"].assign(width=lambda t: t["d_u"].astype(str))
            found["training"] = lambda: figures.learning_curves(history, panel="depth", variant="width")
        return found

    def statistics(self) -> list[Statistic]:
        far, keys = self.tables["far"], ["depth", "d_u"]
        rows: list[Statistic] = []
        for value in ("D", "C", "R"):
            rows += comparisons.variance_rows(far, value, keys=[*keys, "checkpoint"], figure="image_sets")
            rows += comparisons.through_training(far, value, keys=keys, figure="fig4_stable_rank", where="Section 5.2")
        return rows

    def claims(self) -> list[Claim]:
        return exp2_claims.claims(self.tables, self.experiment.dataset.classes, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return exp2_claims.measured(self.tables)

    def notes(self) -> list[str]:
        return exp2_claims.notes(self.tables, self.experiment.dataset.classes)
