"""The report of the stochastic Gauss–Newton gap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from experiments.dag.exp3 import stochastic_claims as claims
from experiments.dag.exp3 import stochastic_figures as draw
from runner.contract import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp3.settings import Exp3Stochastic
    from runner.contract import Claim
    from runner.stats import Statistic


class StochasticGapAnalysis(Analysis):
    """Readings of `draws` and of the error that theory predicts for them."""

    experiment: Exp3Stochastic

    @cached_property
    def draws(self) -> pd.DataFrame:
        """Every estimate beside the exact gap."""
        return self.tables["draws"]

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        return {
            "tableN6_discrepancy": lambda: draw.discrepancies(self.draws),
            "error_against_probes": lambda: draw.rates(self.draws, self.tables["predicted"]),
        }

    def statistics(self) -> list[Statistic]:
        return claims.rates(self.draws)

    def claims(self) -> list[Claim]:
        return claims.claims(self.draws, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return claims.measured(self.tables)

    def notes(self) -> list[str]:
        return claims.notes(self.tables, self.experiment.says)
