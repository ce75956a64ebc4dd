"""The report of the recovery by Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.attention.newton import claims
from experiments.attention.newton import figures as draw
from runner.contract.analysis import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.attention.newton import AttentionNewton
    from runner.contract.experiment import Claim
    from runner.stats import Statistic


class AttentionNewtonAnalysis(Analysis):
    """Readings of `theorem`, `basin`, `scan`, `iterates` and `cost`, as far as they are stored."""

    experiment: AttentionNewton

    def figures(self) -> dict[str, Callable[[], Figure]]:
        setup, tables = self.experiment, self.tables
        drawn: dict[str, Callable[[], Figure]] = {}
        if "iterates" in tables and len(claims.at_base(setup, tables["iterates"])):
            drawn["iterates"] = lambda: draw.iterates(setup, tables["iterates"])
        if "basin" in tables:
            drawn["basin"] = lambda: draw.basin(setup, tables["basin"])
            drawn["outcomes"] = lambda: draw.outcomes(setup, tables["basin"])
            drawn["order"] = lambda: draw.order(setup, tables["basin"])
        if "scan" in tables:
            drawn["recovery"] = lambda: draw.recovery(setup, tables["scan"])
        if "basin" in tables and "cost" in tables:
            drawn["cost"] = lambda: draw.cost(setup, tables["basin"], tables["cost"])
        return drawn

    def statistics(self) -> list[Statistic]:
        return claims.statistics(self.experiment, self.tables)

    def claims(self) -> list[Claim]:
        return claims.claims(self.experiment, self.tables)

    def measured(self) -> pd.DataFrame | None:
        return claims.measured(self.tables)

    def notes(self) -> list[str]:
        return claims.notes(self.experiment, self.tables)
