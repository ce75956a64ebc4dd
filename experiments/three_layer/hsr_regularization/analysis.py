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

from experiments.three_layer.hsr_regularization.settings import (
    GROUPS,
    NAMES,
    PAIRS,
    HsrRegularization,
)
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
"""Method of the paper -> the variant of it whose verdicts are secondary results."""


WIDE_RADIUS = " with wide radius"
Keyed = Iterator[tuple[dict[str, Any], Statistic]]
"""(columns that tell a test apart, the test); the columns have a seed where it is of one data
set."""


def mark_of(protocol: str, reading: str, first: str) -> str:
    """A variant as verdicts name it: 'fitted', 'fitted second half'; first: the reading that
    decides."""
    if reading == first:
        return protocol
    return f"{protocol} {POLISHED if reading == POLISHED else 'second half'}"


class RegularizationStudy(Study):
    """A study whose settings are those of the regularisation."""

    experiment: HsrRegularization


@dataclass(frozen=True, eq=False)
class Variant:
    """One protocol under one reading of the stop rule, or POLISHED."""

    study: RegularizationStudy
    protocol: str
    reading: str

    @property
    def group(self) -> str:
        """Begins the group of its tests."""
        return f"protocol={self.protocol} stop={self.reading}"

    @property
    def text(self) -> str:
        """The variant in words."""
        return f"{STOP_RULES[self.protocol]} stop rule, {WHEN[self.reading]}"

    @property
    def first(self) -> bool:
        """Whether the stop rule is read as the verdicts read it."""
        return bool(self.reading == self.study.experiment.reading[0])

    def keys(self, quantity: str, a: str, b: str, starts: str, seed: int) -> dict[str, Any]:
        """The columns that tell a test of one data set apart."""
        mark = mark_of(self.protocol, self.reading, self.study.experiment.reading[0])
        if {a, b} & {*WIDE.values()}:
            mark += WIDE_RADIUS
        return {
            "mark": mark,
            "quantity": quantity,
            "a": a,
            "b": b,
            "starts": starts,
            "seed": seed,
        }

    def rows(self, table: str, **where: str) -> pd.DataFrame:
        """The rows of the variant in a table, whose columns have these values."""
        where["protocol"] = self.protocol
        if "reading" in self.study.tables[table]:
            where["reading"] = self.reading
        rows = chosen(self.study.tables[table], **where)
        return rows.infer_objects()  # with a cell without any critical point, columns are objects

    def test(self, name: str, seed: int) -> Statistic | None:
        """A test of one data set after Holm's correction."""
        return self.study.tests.get((name, f"{self.group} seed={seed}"))

    def tests(self, name: str) -> list[Statistic]:
        """The tests of this name, one for each data set."""
        begins = f"{self.group} seed="
        found = self.study.tests.items()
        return [test for (n, group), test in found if n == name and group.startswith(begins)]


def variants(study: RegularizationStudy) -> list[Variant]:
    """The variants with endpoints, in the order of the settings."""
    if "endpoints" not in study.tables:
        return []
    rows = study.tables["endpoints"]
    stored = set(zip(rows["protocol"], rows["reading"], strict=True))
    order = product(study.experiment.protocol, (*study.experiment.reading, POLISHED))
    return [Variant(study, *variant) for variant in order if variant in stored]


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


def tests(study: RegularizationStudy) -> Keyed:
    """Every test of every variant, without Holm's correction."""
    for variant in variants(study):
        for starts, quantity in product(GROUPS, FIGURES):
            yield from _of_quantity(variant, quantity, starts)
        if variant.first and "ablation" in study.tables:
            yield from _of_ablation(variant)


def _of_quantity(v: Variant, quantity: str, starts: str) -> Keyed:
    """The tests of one quantity, for every pair of methods, by data set and over data sets."""
    tables = {}
    open_ends = {}
    for seed, part in data_sets(v.rows("endpoints", group=starts)):
        tables[seed] = wide(part, quantity)
        open_ends[seed] = missed(part)
    if not tables:
        return
    figure = FIGURES[quantity]
    where = f"Fig. {figure[3:].upper()}"
    family = f"{figure} {v.group}"
    for a, b in PAIRS:
        name = f"{quantity}, {a} - {b}, {starts} seeds"
        about = {"name": name, "where": where, "figure": family, "label_a": a, "label_b": b}
        medians = []
        for seed, table in tables.items():
            test = stats.wilcoxon(table[a], table[b], group=f"{v.group} seed={seed}", **about)
            unconverged = open_ends[seed][a] | open_ends[seed][b]
            keys = v.keys(quantity, a, b, starts, seed)
            yield keys, replace(test, unconverged=int(unconverged.sum()))
            median = float((table[a] - table[b]).median())
            if not math.isnan(median):
                medians.append(median)
        about |= {"name": f"{name}, over data sets", "figure": f"{family} all"}
        about |= {"label_a": f"median of {a} - {b}", "label_b": "0"}
        yield {}, stats.wilcoxon(medians, group=v.group, **about)


def _of_ablation(v: Variant) -> Keyed:
    """The tests of the parts of the bound, and of how much better training data are fitted than
    test data, by data set."""
    rows = v.study.tables["ablation"]
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
                group=f"{v.group} seed={seed}",
                where=where,
                figure=f"{quantity} of the parts {v.group}",
                label_a=pair[0],
                label_b=pair[1],
            )
            missed_one = _columns_of(part, "missed", pair).max(axis=1)
            keys = v.keys(quantity, pair[0], pair[1], "sharp", seed)
            yield keys, replace(test, unconverged=int(missed_one.sum()))
