"""The report of the comparison of methods: paired tests, the claims that rest on them, and Figs. 8-15."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from experiments.hsr.regularization import claims, paired_tests, scores
from experiments.hsr.regularization.analysis import variants
from experiments.hsr.regularization.figures import compared, search, views
from runner.contract import Analysis
from runner.stats import Statistic, correct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.hsr.regularization.settings import HsrRegularization
    from runner.contract import Claim


class HsrRegularizationAnalysis(Analysis):
    """Readings of the stored data sets; a protocol under a reading of the stop rule is a variant."""

    experiment: HsrRegularization

    @cached_property
    def rows(self) -> list[Statistic]:
        """Every test of every variant."""
        return paired_tests.statistics(self.experiment, self.tables)

    @cached_property
    def tests(self) -> Mapping[tuple[str, str], Statistic]:
        """(name, group) -> the test, with Holm's correction within its figure."""
        return {(s.name, s.group): s for s in correct(self.rows)}

    def statistics(self) -> list[Statistic]:
        return self.rows

    def claims(self) -> list[Claim]:
        return claims.claims(self.experiment, self.tables, self.tests)

    def measured(self) -> pd.DataFrame:
        return scores.measured(self.experiment, self.tables)

    def notes(self) -> list[str]:
        return scores.notes(self.experiment, self.tables, self.tests)

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        """The counterparts of Figs. 8-15, and what five data sets say of the comparisons together."""
        experiment, tables = self.experiment, self.tables
        found: dict[str, Callable[[], Figure]] = {}
        if "data" in tables:
            found["fig08_data"] = partial(search.data, tables)
        points = tables.get("critical_points")
        with_points = [p for p in experiment.protocol if points is not None and p in set(points["protocol"])]
        if with_points:
            found["fig09_bound"] = partial(search.bound, experiment, tables, with_points)
        known = variants(experiment, tables)
        for protocol in dict.fromkeys(v.protocol for v in known):
            found[f"fig10_dynamics_{protocol}"] = partial(views.dynamics, tables, protocol)
            found[f"fig11_along_u1_{protocol}"] = partial(views.along_u1, tables, protocol)
            found[f"fig13_saddle_check_{protocol}"] = partial(views.saddle_check, tables, protocol, "nearest")
            found[f"fig13_where_stopped_{protocol}"] = partial(views.saddle_check, tables, protocol, "stopped")
            found[f"fig15_boundaries_{protocol}"] = partial(views.boundaries, tables, protocol)
        if "draws" in tables:
            found["fig14_draws"] = partial(compared.draws, experiment, tables)
        for variant in known:
            name = f"{variant.protocol}_{variant.reading}"
            found[f"fig12_spectrum_{name}"] = partial(compared.spectrum, tables, variant)
            found[f"fig14_f1_{name}"] = partial(compared.f1, tables, variant)
            found[f"effects_{name}"] = partial(compared.effects, experiment, self.tests, variant)
        return dict(sorted(found.items()))
