"""The report of the study of the bound's gradient: fits and tests, claims, values, notes, and Figs.
2-7.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from experiments.three_layer.alternatives import GRADIENT
from experiments.three_layer.hsr_gradient import figures
from experiments.three_layer.hsr_gradient.claims import UNPRINTED, claims, seconds_by_form
from experiments.three_layer.hsr_gradient.settings import SIZES, HsrGradient
from experiments.three_layer.study import Study, data_sets
from runner import stats
from runner.contract import Claim, Figures
from runner.stats import Statistic
from runner.stats.tables import chosen


def _exponents(experiment: HsrGradient, table: pd.DataFrame) -> Iterator[Statistic]:
    """Slope of log seconds against log size over the last doublings, where calls no longer cost:
    the exponent.
    """
    known = chosen(table, status="ok")
    for seed, rows in data_sets(known):
        for (varied, form), whole in rows.groupby(["varied", "form"], sort=False):
            part = whole.sort_values(varied).iloc[-(experiment.octaves + 1) :]
            yield stats.linear(
                np.log(part[varied]),
                np.log(part["seconds"]),
                name=f"exponent in {SIZES[str(varied)]}, {form}",
                figure="fig02",
                where="Fig. 2",
                group=f"seed={seed}",
            )


def _influence(table: pd.DataFrame) -> Iterator[Statistic]:
    """Rank correlation of |delta_i| and the norm of the sample's contribution, over the samples of
    each network.

    Networks of a data set share its samples, so each gives one row, and a data set one row of their
    medians.
    """
    for seed, rows in data_sets(table):
        for (name, block), part in rows.groupby(["of", "block"], sort=False):
            found = [
                stats.spearman(
                    p["error"],
                    p["norm"],
                    name=f"|delta| and {name} {block}",
                    figure="fig04",
                    where="Fig. 4",
                    group=f"seed={seed} start={start}",
                )
                for start, p in part.groupby("start")
            ]
            yield from found
            yield stats.summary(
                [s.effect for s in found],
                name=f"ρ of |delta| and {name} {block}",
                figure="fig04",
                where="Fig. 4",
                group=f"seed={seed}",
            )


def _terms(table: pd.DataFrame) -> Iterator[Statistic]:
    for seed, rows in data_sets(table):
        for half_range, part in rows.groupby("half_range", sort=False):
            yield stats.wilcoxon(
                part["std_term"],
                part["mean_term"],
                name=f"std term - mean term, range {half_range:g}",
                figure="fig06",
                where="Fig. 6",
                group=f"seed={seed}",
                label_a="std term",
                label_b="mean term",
            )


def _covariance(table: pd.DataFrame) -> Iterator[Statistic]:
    """Rank correlation of |covariance| and the median norm: inner products grow with either
    sign."""
    for seed, rows in data_sets(table):
        for (activation, half_range), part in rows.groupby(
            ["activation", "half_range"], sort=False
        ):
            name = f"|covariance| and gradient norm, {activation}, range {half_range:g}"
            yield stats.spearman(
                part["covariance"].abs(),
                part["q50"],
                name=name,
                figure="fig05",
                where="Fig. 5",
                group=f"seed={seed}",
            )


def _fastest(cost: pd.DataFrame) -> str:
    """Which analytic form is fastest at which dimension, by the mean over the seeds."""
    known = chosen(cost, status="ok", varied="dimension")
    fastest = seconds_by_form(known).idxmin(axis=1)
    sizes = fastest.index.get_level_values("dimension")
    listed = []
    for form in dict.fromkeys(fastest):
        where = sizes[fastest.to_numpy() == form]
        listed.append(f"{form} at D = {', '.join(str(int(size)) for size in where)}")
    return f"Fastest form of the gradient of the bound: {'; '.join(listed)}."


class HsrGradientAnalysis(Study):
    """The parts of the study that are stored."""

    experiment: HsrGradient
    alternatives = GRADIENT

    def tested(self) -> list[Statistic]:
        """Every row of stats.csv, without Holm's correction."""
        parts = {"influence": _influence, "terms": _terms, "covariance": _covariance}
        tables = self.tables
        exponents = list(_exponents(self.experiment, tables["cost"])) if "cost" in tables else []
        return exponents + [
            row for name, make in parts.items() if name in tables for row in make(tables[name])
        ]

    def claims(self) -> list[Claim]:
        return claims(self.experiment, self.tables, self.tests)

    def measured(self) -> pd.DataFrame:
        """Values for experiments/reference/hsr_gradient.csv: metric, of, block, seed, value."""
        rows = []
        if "difference_norms" in self.tables:
            norms = self.tables["difference_norms"].groupby(["seed", "of", "block"])[
                "difference_norm"
            ]
            for (seed, name, block), value in norms.median().items():
                rows.append(
                    {
                        "metric": "difference_norm",
                        "of": name,
                        "block": block,
                        "seed": seed,
                        "value": value,
                    }
                )
        found = pd.DataFrame(rows, columns=["metric", "of", "block", "seed", "value"])
        return found.assign(comparable=UNPRINTED)

    def notes(self) -> list[str]:
        """Findings for the report."""
        found = []
        if "cost" in self.tables:
            found.append(
                "Times are processor seconds of this machine, the least of several turns: the one "
                "table that does not repeat byte for byte."
            )
            found.append(_fastest(self.tables["cost"]))
        if "difference_norms" in self.tables:
            norms = self.tables["difference_norms"]
            relative = (norms["difference_norm"] / norms["gradient_norm"]).max()
            found.append(
                "Analytic and three-point gradients differ by at most "
                f"{norms['difference_norm'].max():.2g} in norm, {relative:.2g} relative, with h = "
                f"{self.experiment.difference_step:g}: the error of the differences."
            )
        return found

    def figures(self) -> Figures:
        """Figures that the stored tables allow; each is drawn when it is called."""
        tables = self.tables
        experiment = self.experiment
        makers = {
            "cost": ("fig02_time", partial(figures.time, tables, self.tests)),
            "agreement": ("fig03_agreement", partial(figures.agreement, tables)),
            "influence": (
                "fig04_influence",
                partial(figures.influence, experiment, tables, self.tests),
            ),
            "covariance": ("fig05_covariance", partial(figures.covariance, tables)),
            "terms": ("fig06_terms", partial(figures.terms, tables, self.tests)),
            "bound_descent": ("fig07_bound_descent", partial(figures.bound_descent, tables)),
        }
        return {
            name: make
            for table, (name, make) in makers.items()
            if table in tables and len(tables[table])
        }
