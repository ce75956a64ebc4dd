"""The report of the bounds on softmax attention and its Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.attention.hessian import claims
from experiments.attention.hessian import figures as draw
from experiments.printed import unchecked
from runner.contract import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.attention.hessian.settings import AttentionHessian
    from runner.contract import Claim
    from runner.stats import Statistic


class AttentionHessianAnalysis(Analysis):
    """Readings of `bounds`, `cases` and `convexity`, as far as they are stored."""

    experiment: AttentionHessian

    def figures(self) -> dict[str, Callable[[], Figure]]:
        tables, drawn = self.tables, dict[str, "Callable[[], Figure]"]()
        if "bounds" in tables:
            drawn["tightness"] = lambda: draw.tightness(tables["bounds"])
            drawn["growth"] = lambda: draw.growth(tables["bounds"])
        if "cases" in tables:
            drawn["index_cases"] = lambda: draw.index_cases(tables["cases"])
        if "convexity" in tables:
            drawn["convexity"] = lambda: draw.convexity(tables["convexity"])
        return drawn

    def statistics(self) -> list[Statistic]:
        return claims.statistics(self.tables)

    def claims(self) -> list[Claim]:
        return claims.claims(self.tables)

    def measured(self) -> pd.DataFrame | None:
        return claims.measured(self.tables)

    def notes(self) -> list[str]:
        return [*claims.notes(self.tables), *(unchecked("attention") if self.tables else ())]
