"""Reading the merged tables: variants, cases, and Wilcoxon signed-rank tests between methods,
paired by start.

Starts of one data set share that data set, so pooling them over seeds would count the same draw
hundreds of times. What holds over data sets is tested on one median per data set (`… over data
sets`), where n is small and says so. Pairs in which a method reached no critical point are left
out, and counted in the note.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.three_layer import study
from experiments.three_layer.hsr_regularization.settings import (
    GROUPS,
    NAMES,
    PAIRS,
    HsrRegularization,
)
from experiments.three_layer.study import data_sets
from runner import stats
from runner.contract import Tables
from runner.stats import Statistic
from runner.stats.tables import chosen

POLISHED = "polished"
"""In the column `reading` of endpoints: the ends of the first reading, led on downhill."""
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


@dataclass(frozen=True)
class Variant:
    """One protocol under one reading of the stop rule, or POLISHED."""

    protocol: str
    reading: str

    @property
    def group(self) -> str:
        """The `group` of claims and statistics."""
        return f"protocol={self.protocol} stop={self.reading}"

    @property
    def text(self) -> str:
        when = {
            "every_step": "stop rule from the start",
            "second_half": "stop rule in the second half",
            POLISHED: "where the ends lead",
        }
        return f"{self.protocol}, {when[self.reading]}"

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        keep = table["protocol"] == self.protocol
        if "reading" in table:
            found = table[keep & (table["reading"] == self.reading)]
        else:
            found = table[keep]
        return found.infer_objects()  # with a cell without any critical point, columns are objects


def variants(experiment: HsrRegularization, tables: Tables) -> list[Variant]:
    """Those with endpoints, in the order of the settings."""
    if "endpoints" not in tables:
        return []
    rows = tables["endpoints"]
    stored = set(zip(rows["protocol"], rows["reading"], strict=True))
    order = [Variant(p, r) for p in experiment.protocol for r in (*experiment.reading, POLISHED)]
    return [v for v in order if (v.protocol, v.reading) in stored]


def wide(rows: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """One row per start, one column per method; NaN where a method did not reach a critical point
    from it.
    """
    column = "lambda_max" if quantity == "log_lambda_max" else quantity
    values = rows[column].where(rows["status"] == "ok")
    if quantity == "log_lambda_max":
        values = np.log(values.where(values > 0))
    table = rows.assign(value=values).pivot_table(
        index="start", columns="method", values="value", dropna=False
    )
    return table.reindex(columns=list(NAMES))


WIDE = {"asam": "asam_wide"}
"""Method of the paper -> the variant of it whose claims are secondary results."""


class Case(study.Case):
    """What the claims of one variant read."""

    experiment: HsrRegularization
    variant: Variant

    def rows(self, table: str, **where: str) -> pd.DataFrame:
        found = self.variant.rows(self.tables[table])
        for column, value in where.items():
            found = found[found[column] == value]
        return found

    def mark(self, method: str = "") -> str:
        """The variant in the marks of a row: 'fitted', 'printed second half', 'fitted with wide
        radius'.
        """
        readings = {self.experiment.reading[0]: "", POLISHED: POLISHED}
        reading = readings.get(self.variant.reading, "second half")
        wide = ""
        if method in WIDE.values():
            wide = "with wide radius"
        return " ".join(t for t in (self.variant.protocol, reading, wide) if t)

    def methods(self, method: str) -> tuple[str, ...]:
        """A method of the paper and its variant."""
        if method in WIDE:
            return method, WIDE[method]
        return (method,)

    def tested_of(self, method: str, name: str, test: str, sign: int) -> study.Made:
        """A statement on a method and on its variant; test: with {} for the method."""
        for own in self.methods(method):
            yield self.mark(own), self.tested(name, test.format(own), sign=sign)

    def within_of(self, method: str, name: str, test: str, **limits: float) -> study.Made:
        """The same, decided by the interval of the shift."""
        for own in self.methods(method):
            yield self.mark(own), self.within(name, test.format(own), **limits)


def statistics(experiment: HsrRegularization, tables: Tables) -> list[Statistic]:
    """Every test of every variant, without Holm's correction."""
    return [
        s for v in variants(experiment, tables) for s in _of_variant(v, v.rows(tables["endpoints"]))
    ]


def _of_variant(variant: Variant, rows: pd.DataFrame) -> Iterator[Statistic]:
    for group in GROUPS:
        for quantity, figure in FIGURES.items():
            tables = {
                seed: wide(part, quantity) for seed, part in data_sets(chosen(rows, group=group))
            }
            for a, b in PAIRS:
                name = f"{quantity}, {a} - {b}, {group} seeds"
                about = {
                    "where": f"Fig. {figure[3:].upper()}",
                    "label_a": a,
                    "label_b": b,
                }
                about["figure"] = f"{figure} {variant.group}"
                medians = []
                for seed, table in tables.items():
                    yield stats.wilcoxon(
                        table[a], table[b], name=name, group=f"{variant.group} seed={seed}", **about
                    )
                    medians.append(float((table[a] - table[b]).median()))
                if tables:
                    known = [m for m in medians if not math.isnan(m)]
                    about |= {
                        "label_a": f"median of {a} - {b}",
                        "label_b": "0",
                        "figure": about["figure"] + " all",
                    }
                    yield stats.wilcoxon(
                        known, name=f"{name}, over data sets", group=variant.group, **about
                    )
