"""The report of Exp. 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp6 import claims as exp6_claims
from experiments.dag.exp6 import figures as draw
from experiments.dag.protocol import figures
from runner.contract import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp6.settings import Exp6ResNet18
    from runner.contract import Claim


class ResNetAnalysis(Analysis):
    """R, C, D and gap by distance, what BatchNorm's statistics make of them, and the error of 30 probes."""

    experiment: Exp6ResNet18

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        found: dict[str, Callable[[], Figure]] = {}
        if "distances" in self.tables:
            distances, pairs = self.tables["distances"], self.tables["pairs"]
            found = {
                "fig7_resonance": lambda: draw.by_distance(distances, "R", log=True),
                "table9_coupling": lambda: draw.by_distance(distances, "C", log=False),
                "stable_rank": lambda: draw.by_distance(distances, "D", log=False),
                "table8_gap": lambda: draw.by_distance(distances, "gap", log=True),
                "batchnorm_statistics": lambda: draw.calibration(distances),
                "probe_error": lambda: draw.probe_error(pairs),
            }
        if "history" in self.tables:
            history = self.tables["history"].drop_duplicates(["activation", "arch", "seed", "epoch"])
            found["training"] = lambda: figures.learning_curves(history, panel="activation", variant="arch")
        return found

    def claims(self) -> list[Claim]:
        return exp6_claims.claims(self.tables, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return exp6_claims.measured(self.tables)

    def notes(self) -> list[str]:
        return exp6_claims.notes(self.tables)
