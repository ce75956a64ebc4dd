"""The report of Exp. 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
            kept = exp6_claims.leaving_out(self.tables, "engine", self.experiment.negligible)
            bent = exp6_claims.gaps(exp6_claims.selected(distances, "engine"))
            bent = bent[bent.groupby("activation")["gap"].transform("max") > 0]
            final = bent[bent["checkpoint"] == "final"]
            found = {
                "fig7_resonance": lambda: draw.by_distance(distances, "R", log=True),
                "table9_coupling": lambda: draw.by_distance(distances, "C", log=False),
                "stable_rank": lambda: draw.by_distance(kept, "D", log=False),
                "batchnorm_statistics": lambda: draw.calibration(distances),
                "probe_error": lambda: draw.probe_error(pairs),
            }
            for name, rows in (("table8_gap", final), ("tableN8_gap", bent)):
                if len(rows):
                    found[name] = partial(draw.by_distance, rows, "gap", log=True)
        if "history" in self.tables:
            history = self.tables["history"].drop_duplicates(["activation", "arch", "seed", "epoch"])
            found["training"] = lambda: figures.learning_curves(history, panel="activation", variant="arch")
        return found

    def captions(self) -> Mapping[str, str]:
        zero = "Networks whose gap is exactly 0 (ReLU; printed: below 1e-5) are left out."
        return {
            "table8_gap": zero,
            "tableN8_gap": zero,
            "stable_rank": f"Means leave out blocks with ‖H‖_F² < {self.experiment.negligible:.0e}, as published.",
        }

    def claims(self) -> list[Claim]:
        return exp6_claims.claims(self.tables, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return exp6_claims.measured(self.tables, self.experiment.negligible)

    def notes(self) -> list[str]:
        return exp6_claims.notes(self.tables, self.experiment.negligible)
