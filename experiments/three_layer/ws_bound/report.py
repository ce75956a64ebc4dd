"""The report of the WS-bound study: tests, claims, values to compare with the paper's, notes and
figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

from experiments.printed import unchecked
from experiments.three_layer.alternatives import WS_BOUND
from experiments.three_layer.study import Study, data_sets
from experiments.three_layer.ws_bound import analysis, figures, portrait_figures
from experiments.three_layer.ws_bound.analysis import (
    Variant,
    split_low_high,
    unique_points,
    variants,
)
from experiments.three_layer.ws_bound.claims import claims
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Claim, Figures, Tables
from runner.stats import Statistic
from runner.stats.tables import chosen

FITTED = "rate and stop ratio were chosen by these numbers"
STEP = "the step of the differences was chosen by this number"
UNPRINTED = "the learning rate of the search is not printed"


COPIED = (
    "converged",
    "unique",
    "lambda_sup_smallest",
    "lambda_sup_second_smallest",
    "hessian_error_mean",
)
"""Columns of the table `search` whose values the paper prints."""


def _counts(
    experiment: WsBound, tables: Tables, variant: Variant
) -> Iterator[tuple[str, int, int, float]]:
    """(metric, hidden, seed, value)."""
    for row in variant.rows(tables["search"]).to_dict("records"):
        for metric in COPIED:
            yield metric, row["hidden"], row["seed"], row[metric]
    narrow = experiment.portrait_hidden
    for seed, rows in data_sets(unique_points(tables, variant, narrow)):
        low, high = split_low_high(rows, experiment.low_share)
        yield "low_group", narrow, seed, len(low)
        yield "high_group", narrow, seed, len(high)
    if "hessian_entries" in tables:
        for seed, rows in data_sets(variant.rows(tables["hessian_entries"], narrow)):
            yield "hessian_size", narrow, seed, int(rows["row"].max()) + 1


def _nearest_rate(tables: Tables) -> str:
    scan = chosen(tables["search"], protocol="printed")
    if scan.empty:
        return ""
    shares = scan["converged"] / scan["starts"]
    share = shares.groupby([scan["rate"], scan["hidden"]]).mean().unstack()
    lines = []
    for rate, row in share.iterrows():
        listed = ", ".join(f"{value:.2f} at N = {hidden}" for hidden, value in row.items())
        lines.append(f"η = {rate:g}: {listed}")
    published = "0.92 at N = 3, 0.91 at N = 10"
    start = f"Printed stop rule, share of starts that converge (published: {published}): "
    return start + "; ".join(lines) + "."


def _lost(tables: Tables) -> str:
    points = tables["critical_points"]
    counts = points["status"].value_counts()
    listed = ", ".join(f"{int(n)} {status}" for status, n in counts.items() if status != "ok")
    return f"Left out of every statistic: {listed or 'no start'} (of {len(points)} starts)."


class WsBoundAnalysis(Study):
    """The stored searches; a protocol with an activation is a variant."""

    experiment: WsBound
    alternatives = WS_BOUND

    def tested(self) -> list[Statistic]:
        return analysis.statistics(self.experiment, self.tables)

    def claims(self) -> list[Claim]:
        return list(claims(self.experiment, self.tables, self.tests))

    def measured(self) -> pd.DataFrame:
        """Values for experiments/reference/ws_bound.csv: metric, protocol, hidden, seed, value."""
        rows = []
        for variant in variants(self.experiment, self.tables, paper_only=True):
            calibrated = FITTED
            comparable = ""
            if variant.protocol != "fitted":
                calibrated = ""
                comparable = f"{UNPRINTED}; shown at {variant.rate:g}"
            for metric, *value in _counts(self.experiment, self.tables, variant):
                by_step = calibrated and metric == "hessian_error_mean"
                chosen_by = STEP if by_step else calibrated
                rows.append((metric, variant.protocol, *value, chosen_by, comparable))
        columns = ["metric", "protocol", "hidden", "seed", "value", "calibrated", "comparable"]
        return pd.DataFrame(rows, columns=columns)

    def notes(self) -> list[str]:
        """Findings for the report."""
        if "search" not in self.tables:
            return []
        found = [_nearest_rate(self.tables), _lost(self.tables)]
        return [line for line in found if line] + unchecked("ws_bound")

    def figures(self) -> Figures:
        """The counterpart of every figure of the paper that the stored tables allow, and the
        scanned rate.
        """
        tables = self.tables
        narrow = self.experiment.portrait_hidden
        about = (self.experiment, tables)
        paper = [v for v in variants(*about, paper_only=True) if len(unique_points(tables, v))]
        wide = self.experiment.compared_hidden
        at_narrow = [v for v in paper if len(unique_points(tables, v, narrow))]
        at_both = [v for v in at_narrow if wide != narrow and len(unique_points(tables, v, wide))]
        found: dict[str, Any] = {}
        if paper:
            found["fig02_bound_and_eigenvalue"] = partial(
                figures.bound_and_eigenvalue, *about, paper
            )
        if at_both:
            found["fig11_width"] = partial(figures.width, *about, self.tests, at_both)
        if at_narrow:
            found["fig06_distribution"] = partial(figures.distribution, *about, at_narrow)
            found["fig07_generalisation"] = partial(
                figures.generalisation, *about, self.tests, at_narrow
            )
            found["fig10_norms"] = partial(figures.norms, *about, at_narrow)
            found["fig12_hidden_gram"] = partial(figures.hidden_gram, *about, at_narrow)
        found |= self._portraits(paper)
        led = [
            v for v in analysis.polished_variants(*about) if len(v.rows(tables["critical_points"]))
        ]
        if led:
            found["critical_points"] = partial(portrait_figures.critical_points, *about, led[0])
        if "draws" in tables:
            found["fig07_draws"] = partial(portrait_figures.draws, tables)
        if "activations" in tables:
            found["fig13_activations"] = partial(figures.activation_curves, tables)
        if any(v.protocol == "printed" for v in paper):
            found["scan_of_the_rate"] = partial(figures.scan, tables)
        return dict(sorted(found.items()))

    def _portraits(self, paper: list[Variant]) -> Figures:
        """Figs. 3-5, 8 and 9, of the variants whose sharpest and flattest points are followed in
        detail.
        """
        tables = self.tables
        found: dict[str, Any] = {}
        drawn = [v for v in paper if "portraits" in tables and len(v.rows(tables["portraits"]))]
        for variant in drawn:
            for name, side in (("fig03", "sharpest"), ("fig04", "flattest")):
                if portrait_figures.portrayed(
                    tables, variant, side
                ).size:  # a search may have found a single point
                    make = partial(portrait_figures.extremes, tables, variant, side)
                    found[f"{name}_{side}_{variant.protocol}"] = make
        if drawn:
            found["fig05_dynamics"] = partial(portrait_figures.dynamics, tables, drawn)
            found["fig08_hessian"] = partial(
                portrait_figures.hessian, self.experiment, tables, drawn[0]
            )
            found["fig09_traces"] = partial(figures.traces, tables, drawn)
        return found
