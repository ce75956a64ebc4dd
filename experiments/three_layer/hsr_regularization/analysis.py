"""Reading the merged tables: variants, and Wilcoxon signed-rank tests between methods, paired by
start.

Starts of one data set share that data set, so pooling them over seeds would count the same draw
hundreds of times. What holds over data sets is tested on one median per data set (`… over data
sets`), where n is small and says so. Every finite end enters, as the paper's 113 of each method
do: an end that missed the stop rule after all steps has a value. Their pairs are counted in the
column `unconverged`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from experiments.three_layer import study
from experiments.three_layer.hsr_regularization.settings import GROUPS, NAMES, PAIRS
from experiments.three_layer.settings import STOP_RULES
from experiments.three_layer.study import Study, data_sets
from runner import stats
from runner.stats import Statistic
from runner.stats.tables import chosen

POLISHED = "polished"
"""In the column `reading` of endpoints: descents of the first reading, continued."""
WHEN = {
    "every_step": "applied from the start",
    "second_half": "applied in the second half",
    POLISHED: "end points, continued downhill",
}
"""Reading of the stop rule, in words."""
FIGURES = {
    "lambda_max": "fig12a",
    "log_lambda_max": "fig12a",
    "mean": "fig12b",
    "std": "fig12c",
    "lambda_min": "fig12d",
    "f1": "fig14",
    "boundary_length": "fig15",
}
"""Quantity -> figure, the family of Holm's correction."""
OF_ABLATION = (
    ("lambda_max", "square", "trace"),
    ("lambda_max", "mean", "trace"),
    ("lambda_max", "spread", "trace"),
    ("overfit_f1", "hsr", "gd"),
    ("overfit_loss", "hsr", "gd"),
)
"""Quantity and the two methods of a test, which are paired by sharp start."""
OVERFITTING = {
    "overfit_f1": ("f1_train", "f1_test"),
    "overfit_loss": ("mean_loss_test", "mean_loss_train"),
}
"""By how much an end fits training data better than test data -> the first column less the
second."""
WIDE = {"asam": "asam_wide"}
"""Method of the paper -> the variant of it whose claims are secondary results."""


@dataclass(frozen=True, eq=False)
class Case(study.Case):
    """One protocol under one reading of the stop rule, or POLISHED."""

    protocol: str
    reading: str

    @property
    def group(self) -> str:
        return f"protocol={self.protocol} stop={self.reading}"

    @property
    def text(self) -> str:
        """The variant in words."""
        return f"{STOP_RULES[self.protocol]} stop rule, {WHEN[self.reading]}"

    @property
    def first(self) -> bool:
        """Whether the stop rule is read as the verdicts read it."""
        return bool(self.reading == self.experiment.reading[0])

    def rows(self, table: str, **where: str) -> pd.DataFrame:
        """The rows of the variant in a table, whose columns have these values."""
        where["protocol"] = self.protocol
        if "reading" in self.tables[table]:
            where["reading"] = self.reading
        rows = chosen(self.tables[table], **where)
        return rows.infer_objects()  # with a cell without any critical point, columns are objects

    def mark(self, method: str = "") -> str:
        """The variant as a row of the claims names it: 'fitted', 'printed second half', 'fitted
        with wide radius'.
        """
        words = [self.protocol]
        if not self.first:
            words.append(POLISHED if self.reading == POLISHED else "second half")
        if method in WIDE.values():
            words.append("with wide radius")
        return " ".join(words)

    def methods(self, method: str) -> tuple[str, ...]:
        """A method of the paper and its variant."""
        if method in WIDE:
            return method, WIDE[method]
        return (method,)

    def tested_of(self, method: str, name: str, test: str, sign: int) -> study.Made:
        """A statement on a method and on its variant; test: with {} for the method."""
        for variant in self.methods(method):
            yield self.mark(variant), self.tested(name, test.format(variant), sign=sign)

    def within_of(self, method: str, name: str, test: str, **limits: float) -> study.Made:
        """The same, decided by the interval of the shift."""
        for variant in self.methods(method):
            yield self.mark(variant), self.within(name, test.format(variant), **limits)


def cases(analysis: Study) -> list[Case]:
    """The variants with endpoints, in the order of the settings."""
    if "endpoints" not in analysis.tables:
        return []
    experiment: Any = analysis.experiment
    rows = analysis.tables["endpoints"]
    stored = set(zip(rows["protocol"], rows["reading"], strict=True))
    order = product(experiment.protocol, (*experiment.reading, POLISHED))
    return [Case(analysis, *variant) for variant in order if variant in stored]


def wide(rows: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """One row per start, one column per method; NaN where a descent diverged."""
    values = rows[quantity.removeprefix("log_")]
    if quantity.startswith("log_"):
        values = np.log(values.where(values > 0))
    return _by_method(rows.assign(value=values))


def missed(rows: pd.DataFrame) -> pd.DataFrame:
    """Whether the end of a method missed the stop rule: one row per start, one column per
    method."""
    not_converged = (rows["status"] != "ok").astype(float)
    return _by_method(rows.assign(value=not_converged)) > 0


def _by_method(rows: pd.DataFrame) -> pd.DataFrame:
    return _columns_of(rows, "value", NAMES)


def _columns_of(rows: pd.DataFrame, quantity: str, methods: Iterable[str]) -> pd.DataFrame:
    """One row per start, one column per method."""
    table = rows.pivot_table(index="start", columns="method", values=quantity, dropna=False)
    return table.reindex(columns=list(methods))


def ratio_of_medians(rows: pd.DataFrame, name: str, a: str, b: str) -> float:
    """Median of a column at the ends of method a over that of method b; NaN where one has none."""
    medians = rows.groupby("method")[name].median()
    return float(medians.get(a, math.nan) / medians.get(b, math.nan))


def statistics(analysis: Study) -> list[Statistic]:
    """Every test of every variant, without Holm's correction."""
    tests: list[Statistic] = []
    for case in cases(analysis):
        for group, quantity in product(GROUPS, FIGURES):
            rows = case.rows("endpoints", group=group)
            tests += _of_quantity(case, rows, quantity, f"{group} seeds")
        if case.first and "ablation" in analysis.tables:
            tests += _of_ablation(case)
    return tests


def _of_quantity(c: Case, rows: pd.DataFrame, quantity: str, starts: str) -> Iterator[Statistic]:
    """The tests of one quantity, for every pair of methods, by data set and over data sets."""
    tables = {}
    open_ends = {}
    for seed, part in data_sets(rows):
        tables[seed] = wide(part, quantity)
        open_ends[seed] = missed(part)
    if not tables:
        return
    figure = FIGURES[quantity]
    where = f"Fig. {figure[3:].upper()}"
    family = f"{figure} {c.group}"
    for a, b in PAIRS:
        name = f"{quantity}, {a} - {b}, {starts}"
        about = {"name": name, "where": where, "figure": family, "label_a": a, "label_b": b}
        medians = []
        for seed, table in tables.items():
            test = stats.wilcoxon(table[a], table[b], group=c.of_seed(seed), **about)
            unconverged = open_ends[seed][a] | open_ends[seed][b]
            yield replace(test, unconverged=int(unconverged.sum()))
            median = float((table[a] - table[b]).median())
            if not math.isnan(median):
                medians.append(median)
        about |= {"name": f"{name}, over data sets", "figure": f"{family} all"}
        about |= {"label_a": f"median of {a} - {b}", "label_b": "0"}
        yield stats.wilcoxon(medians, group=c.group, **about)


def _of_ablation(c: Case) -> Iterator[Statistic]:
    """The tests of the parts of the bound, and of how much better training data are fitted than
    test data, by data set."""
    rows = c.tables["ablation"]
    for name, (better, worse) in OVERFITTING.items():
        rows = rows.assign(**{name: rows[better] - rows[worse]})
    rows = rows.assign(missed=(rows["status"] != "ok").astype(float))
    for seed, part in data_sets(rows):
        for quantity, *pair in OF_ABLATION:
            where = "Fig. 15" if quantity in OVERFITTING else "Section VI-B"
            a, b = (values for _, values in _columns_of(part, quantity, pair).items())
            test = stats.wilcoxon(
                a,
                b,
                name=f"{quantity}, {pair[0]} - {pair[1]}, sharp seeds",
                group=c.of_seed(seed),
                where=where,
                figure=f"{quantity} of the parts {c.group}",
                label_a=pair[0],
                label_b=pair[1],
            )
            missed_one = _columns_of(part, "missed", pair).max(axis=1)
            yield replace(test, unconverged=int(missed_one.sum()))
