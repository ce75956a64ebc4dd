"""The report of the study of the bound's gradient: fits and tests, claims, values, notes, and Figs.
2-7.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from experiments.three_layer.alternatives import GRADIENT
from experiments.three_layer.hsr_gradient import figures, values
from experiments.three_layer.hsr_gradient.settings import SIZES, HsrGradient
from experiments.three_layer.study import Study, data_sets
from runner import stats
from runner.contract import Figures, Tables, redraws
from runner.stats import Statistic
from runner.stats.tables import chosen, groups


def _about(number: int, name: str, seed: int) -> stats.About:
    """Name, place and family of a test of one of the paper's figures."""
    family = f"fig{number:02d}"
    return {"name": name, "figure": family, "where": f"Fig. {number}", "group": f"seed={seed}"}


def _exponents(experiment: HsrGradient, table: pd.DataFrame) -> Iterator[Statistic]:
    """Slope of log seconds against log size over the last doublings, where calls no longer cost:
    the exponent.
    """
    for seed, rows in data_sets(chosen(table, status="ok")):
        for (varied, form), part in groups(rows, ["varied", "form"]):
            last = part.sort_values(varied).iloc[-(experiment.octaves + 1) :]
            about = _about(2, f"exponent in {SIZES[varied]}, {form}", seed)
            yield stats.linear(np.log(last[varied]), np.log(last["seconds"]), **about)


def _influence(table: pd.DataFrame) -> Iterator[Statistic]:
    """Rank correlation of |delta_i| and the norm of the sample's contribution, over the samples of
    each network.

    Networks of a data set share its samples, so each gives one row, and a data set one row of their
    medians.
    """
    for seed, rows in data_sets(table):
        for (quantity, block), part in groups(rows, ["of", "block"]):
            name = f"|delta| and {quantity} {block}"
            effects = []
            for start, samples in part.groupby("start"):
                about = _about(4, name, seed)
                about["group"] += f" start={start}"
                test = stats.spearman(samples["error"], samples["norm"], **about)
                effects.append(test.effect)
                yield test
            yield stats.summary(effects, **_about(4, f"ρ of {name}", seed))


def _terms(table: pd.DataFrame) -> Iterator[Statistic]:
    for seed, rows in data_sets(table):
        for (half_range,), part in groups(rows, ["half_range"]):
            about = _about(6, f"std term - mean term, range {half_range:g}", seed)
            about |= {"label_a": "std term", "label_b": "mean term"}
            yield stats.wilcoxon(part["std_term"], part["mean_term"], **about)


def _covariance(table: pd.DataFrame) -> Iterator[Statistic]:
    """Rank correlation of |covariance| and the median norm: inner products grow with either
    sign."""
    for seed, rows in data_sets(table):
        for (activation, half_range), part in groups(rows, ["activation", "half_range"]):
            name = f"|covariance| and gradient norm, {activation}, range {half_range:g}"
            yield stats.spearman(part["covariance"].abs(), part["q50"], **_about(5, name, seed))


TESTS = {"influence": _influence, "terms": _terms, "covariance": _covariance}
"""Table -> its tests."""


OF_ALL_SEEDS = ("cost", "agreement")
"""Tables of figures that show every seed."""


class HsrGradientAnalysis(Study):
    """The parts of the study that are stored."""

    experiment: HsrGradient
    changes = GRADIENT
    functions = values.FUNCTIONS

    def tested(self) -> list[Statistic]:
        """Every row of stats.csv, without Holm's correction."""
        tests: list[Statistic] = []
        if "cost" in self.tables:
            tests += _exponents(self.experiment, self.tables["cost"])
        for name, make in TESTS.items():
            if name in self.tables:
                tests += make(self.tables[name])
        return tests

    def judged(self) -> Tables:
        return values.judged(self.tables, self.experiment.octaves)

    def notes(self) -> list[str]:
        """Findings for the report."""
        if "cost" not in self.tables:
            return []
        return [
            "Times are processor seconds of this machine, the least of several turns: the one "
            "table that does not repeat byte for byte."
        ]

    def figures(self) -> Figures:
        """Figures that the stored tables allow; each is drawn when it is called."""
        tables = self.tables
        makers = {
            "cost": ("fig02_time", redraws("Fig. 2", figures.time, self)),
            "agreement": ("fig03_agreement", redraws("Fig. 3", figures.agreement, tables)),
            "influence": (
                "fig04_influence",
                redraws("Fig. 4", figures.influence, self, self.experiment.fixed_sample),
            ),
            "covariance": ("fig05_covariance", redraws("Fig. 5", figures.covariance, tables)),
            "terms": ("fig06_terms", redraws("Fig. 6", figures.terms, self)),
            "bound_descent": (
                "fig07_bound_descent",
                redraws("Fig. 7", figures.bound_descent, tables),
            ),
        }
        found = {}
        for table, (name, make) in makers.items():
            if len(tables.get(table, ())):
                found[name] = make.of(tables[table], "part", one_seed=table not in OF_ALL_SEEDS)
        return found
