"""The report of the stochastic gap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp3 import stochastic_claims, stochastic_figures
from runner.contract.analysis import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp3.stochastic import Exp3Stochastic
    from runner.contract.experiment import Claim
    from runner.stats import Statistic


class StochasticAnalysis(Analysis):
    """Repetitions of Table N.6, and the error of one estimate against the number of probes."""

    experiment: Exp3Stochastic

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        draws, predicted = self.tables["draws"], self.tables["predicted"]
        return {
            "tableN6_discrepancy": lambda: stochastic_figures.discrepancies(draws),
            "error_against_probes": lambda: stochastic_figures.rates(draws, predicted),
        }

    def statistics(self) -> list[Statistic]:
        return stochastic_claims.rates(self.tables["draws"])

    def claims(self) -> list[Claim]:
        return stochastic_claims.claims(self.tables["draws"])

    def measured(self) -> pd.DataFrame:
        return stochastic_claims.measured(self.tables["draws"])

    def notes(self) -> list[str]:
        return stochastic_claims.notes(self.tables)
