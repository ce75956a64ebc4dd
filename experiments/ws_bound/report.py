"""The report of the WS-bound study: tests, the claims and values that rest on them, and the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from experiments.ws_bound import claims, rank_tests, scores
from experiments.ws_bound.analysis import Variant, polished_variants, unique_points, variants
from experiments.ws_bound.figures import beyond, groups, polished, portraits, scatter
from runner.contract import Analysis
from runner.stats import Statistic, correct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.ws_bound.settings import WsBound
    from runner.contract import Claim


class WsBoundAnalysis(Analysis):
    """Readings of the stored searches; a protocol with an activation is a variant."""

    experiment: WsBound

    @cached_property
    def rows(self) -> list[Statistic]:
        """Every test of every variant."""
        return rank_tests.statistics(self.experiment, self.tables)

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
        return scores.notes(self.experiment, self.tables)

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        """The counterpart of every figure of the paper that the stored tables allow, the scan of the rate, and what
        lies beyond the paper."""
        about = (self.experiment, self.tables)
        found: dict[str, Callable[[], Figure]] = {}
        paper = [v for v in variants(*about, paper_only=True) if len(unique_points(self.tables, v))]
        if paper:
            found["fig02_bound_and_eigenvalue"] = partial(scatter.bound_and_eigenvalue, *about, paper)
            found["fig11_width"] = partial(groups.width, *about, self.tests, paper)
        narrow = [v for v in paper if len(unique_points(self.tables, v, self.experiment.portrait_hidden))]
        if narrow:
            found["fig06_distribution"] = partial(groups.distribution, *about, narrow)
            found["fig07_generalisation"] = partial(groups.generalisation, *about, self.tests, narrow)
            found["fig10_norms"] = partial(scatter.norms, *about, narrow)
            found["fig12_hidden_gram"] = partial(scatter.hidden_gram, *about, narrow)
        found |= self._portraits(paper)
        led = [v for v in polished_variants(*about) if len(v.rows(self.tables["critical_points"]))]
        if led:
            found["critical_points"] = partial(polished.critical_points, *about, led[0])
        if "draws" in self.tables:
            found["fig07_draws"] = partial(polished.draws, self.tables)
        if "activations" in self.tables:
            found["fig13_activations"] = partial(beyond.activation_curves, self.tables)
        if any(v.protocol == "printed" for v in paper):
            found["scan_of_the_rate"] = partial(beyond.scan, *about)
        if "theorems" in self.tables:
            found["slack_and_limit"] = partial(beyond.slack_and_limit, self.tables)
        if len(variants(*about)) > len(paper):
            found["beyond_activations"] = partial(beyond.activations, *about)
        return dict(sorted(found.items()))

    def _portraits(self, paper: list[Variant]) -> dict[str, Callable[[], Figure]]:
        """Figs. 3-5, 8 and 9, of the variants whose sharpest and flattest points are followed in detail."""
        tables = self.tables
        found: dict[str, Callable[[], Figure]] = {}
        drawn = [v for v in paper if "portraits" in tables and len(v.rows(tables["portraits"]))]
        for variant in drawn:
            name = variant.protocol
            found[f"fig03_sharpest_{name}"] = partial(portraits.extremes, tables, variant, "sharpest")
            if portraits.portrayed(tables, variant, "flattest").size:  # not where a search found a single point
                found[f"fig04_flattest_{name}"] = partial(portraits.extremes, tables, variant, "flattest")
        if drawn:
            found["fig05_dynamics"] = partial(portraits.dynamics, tables, drawn)
            found["fig08_hessian"] = partial(portraits.hessian, self.experiment, tables, drawn[0])
            found["fig09_traces"] = partial(scatter.traces, self.experiment, tables, drawn)
        return found
