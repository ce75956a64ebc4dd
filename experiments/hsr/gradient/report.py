"""The report of the study of the bound's gradient: fits and tests, the claims that rest on them, and Figs. 2-7."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from experiments.hsr.gradient import claims, figures, tests_and_fits
from runner.contract import Analysis
from runner.stats import Statistic, correct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.hsr.gradient.settings import HsrGradient
    from runner.contract import Claim


class HsrGradientAnalysis(Analysis):
    """Readings of the parts of the study that are stored."""

    experiment: HsrGradient

    @cached_property
    def rows(self) -> list[Statistic]:
        """Every fit and test."""
        return tests_and_fits.statistics(self.experiment, self.tables)

    @cached_property
    def tests(self) -> Mapping[tuple[str, str], Statistic]:
        """(name, group) -> the row, with Holm's correction within its figure."""
        return {(s.name, s.group): s for s in correct(self.rows)}

    def statistics(self) -> list[Statistic]:
        return self.rows

    def claims(self) -> list[Claim]:
        return claims.claims(self.experiment, self.tables, self.tests)

    def measured(self) -> pd.DataFrame:
        return tests_and_fits.measured(self.experiment, self.tables)

    def notes(self) -> list[str]:
        return tests_and_fits.notes(self.experiment, self.tables, self.tests)

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        """Figures that the stored tables allow; each is drawn when it is called."""
        tables, experiment = self.tables, self.experiment
        makers: dict[str, tuple[str, Callable[[], Figure]]] = {
            "cost": ("fig02_time", partial(figures.time, tables, self.tests)),
            "agreement": ("fig03_agreement", partial(figures.agreement, tables)),
            "influence": ("fig04_influence", partial(figures.influence, experiment, tables, self.tests)),
            "covariance": ("fig05_covariance", partial(figures.covariance, tables)),
            "terms": ("fig06_terms", partial(figures.terms, tables, self.tests)),
            "bound_descent": ("fig07_bound_descent", partial(figures.bound_descent, experiment, tables)),
        }
        return {name: make for table, (name, make) in makers.items() if table in tables and len(tables[table])}
