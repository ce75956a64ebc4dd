"""The report of Exp. 1 at depths 16 and 32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from experiments.dag.exp1 import deep_claims, deep_figures
from experiments.dag.exp1.report import ResonanceAnalysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.contract.experiment import Claim


class DeepAnalysis(ResonanceAnalysis):
    """The readings of Exp. 1, with claims of its own and the paper's estimates beside the exact values."""

    resonance_figure: ClassVar[str] = "tableN3_resonance"
    coupling_figure: ClassVar[str] = "tableN3_coupling"
    dynamics_figure: ClassVar[str] = "tableN3_dynamics"

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        distances, estimates = self.tables["distances"], self.tables["estimates"]
        return {
            **super().figures(),
            "u_shape": lambda: deep_figures.u_shape(distances),
            "estimates": lambda: deep_figures.estimates(distances, estimates),
        }

    def claims(self) -> list[Claim]:
        return deep_claims.claims(self.tables)

    def measured(self) -> pd.DataFrame:
        return deep_claims.measured(self.tables)

    def notes(self) -> list[str]:
        return deep_claims.notes(self.tables)
