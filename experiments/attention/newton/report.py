"""The report of the recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from experiments.attention.newton import claims, notes
from experiments.attention.newton import figures as draw
from runner.contract import Analysis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.attention.newton.settings import AttentionNewton
    from runner.contract import Claim
    from runner.stats import Statistic


class AttentionNewtonAnalysis(Analysis):
    """Readings of the studies' tables, as far as they are stored."""

    experiment: AttentionNewton
    bars: ClassVar[str] = "bands: quartiles over problems and seeds (recovery), the range over inputs (targets)"

    def figures(self) -> dict[str, Callable[[], Figure]]:
        setup, tables = self.experiment, self.tables
        drawn: dict[str, Callable[[], Figure]] = {}
        if "contest" in tables:
            drawn["contest"] = lambda: draw.contest(setup, tables["contest"])
            drawn["cost"] = lambda: draw.cost(setup, tables["contest"])
            if "prices" in tables:
                drawn["time"] = lambda: draw.time(setup, tables["contest"], tables["prices"])
            drawn["outcomes"] = lambda: draw.outcomes(setup, tables["contest"])
        if "balls" in tables:
            theorem = tables.get("theorem", pd.DataFrame())
            drawn["certificate"] = lambda: draw.certificate(setup, tables["balls"], theorem)
        if "identify" in tables:
            drawn["identifiability"] = lambda: draw.identifiability(setup, tables["identify"])
        if "noise" in tables:
            drawn["noise"] = lambda: draw.noise(setup, tables["noise"])
        if "scan" in tables:
            drawn["recovery"] = lambda: draw.recovery(setup, tables["scan"])
        if "targets" in tables:
            drawn["targets"] = lambda: draw.targets(setup, tables["targets"], tables.get("reading", pd.DataFrame()))
        return drawn

    def statistics(self) -> list[Statistic]:
        return notes.statistics(self.tables)

    def claims(self) -> list[Claim]:
        return claims.claims(self.experiment, self.tables)

    def measured(self) -> pd.DataFrame | None:
        return notes.measured(self.tables)

    def notes(self) -> list[str]:
        return notes.notes(self.experiment, self.tables)
