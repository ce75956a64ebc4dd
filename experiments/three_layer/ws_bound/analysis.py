"""Reading the merged tables: variants, their points and cases, and the tests behind the figures.

Every data set (seed) is tested by itself. Critical points of one data set share that data set, so
pooling them over seeds would count the same draw hundreds of times. What holds over data sets is
tested on one value per data set (`… over data sets`), where n is small and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from experiments.three_layer import study
from experiments.three_layer.study import data_sets
from experiments.three_layer.ws_bound.settings import WsBound
from runner import stats
from runner.contract import Tables
from runner.stats import Statistic
from runner.stats.tables import chosen

PAPER_ACTIVATION = "sigmoid"
KEYS = ["protocol", "activation", "hidden", "rate", "seed", "start"]
"""Columns that name a start."""
BINS = 10
"""Equal-count bins of ||RᵀR||² whose smallest bounds trace the lower edge of Fig. 12."""


@dataclass(frozen=True)
class Variant:
    """One protocol with one activation; `rate` is the one that its claims and figures look at.

    polished: where its ends lead when they are not stopped, instead of the ends.
    """

    protocol: str
    activation: str
    rate: float
    polished: bool = False

    @property
    def group(self) -> str:
        """The `group` of claims and statistics."""
        name = f"protocol={self.protocol}"
        if self.activation != PAPER_ACTIVATION:
            name += f" activation={self.activation}"
        return name + " polished" * self.polished

    def figure(self, name: str) -> str:
        """The family of Holm's correction: the paper's activation under both protocols shares a
        figure.
        """
        family = name if self.activation == PAPER_ACTIVATION else f"{name} {self.activation}"
        if self.polished:
            return f"{family} polished"
        return family

    @property
    def title(self) -> str:
        """'calibrated stop rule, η = 0.01', for panels."""
        rule = "calibrated" if self.protocol == "fitted" else self.protocol
        return f"{rule} stop rule, η = {self.rate:g}"

    @property
    def mark(self) -> str:
        """'fitted', or 'fitted tanh' for an activation beyond the paper, 'fitted polished' where
        its ends lead.
        """
        beyond = self.activation != PAPER_ACTIVATION
        name = f"{self.protocol} {self.activation}" if beyond else self.protocol
        if self.polished:
            return f"{name} polished"
        return name

    def of_figure(self, number: str) -> dict[str, Any]:
        """Place and family of the tests of one of the paper's figures."""
        return {"where": f"Fig. {number}", "figure": self.figure(f"fig{number:0>2}")}

    def at(self, seed: int) -> dict[str, Any]:
        """The group of the tests of one data set."""
        return {"group": f"{self.group} seed={seed}"}

    def rows(
        self, table: pd.DataFrame, hidden: int | None = None, *, every_rate: bool = False
    ) -> pd.DataFrame:
        """The rows of this variant; of one width, if given; at every scanned rate, if asked for."""
        keep = (table["protocol"] == self.protocol) & (table["activation"] == self.activation)
        if not every_rate:
            keep &= table["rate"] == self.rate
        if hidden is not None:
            keep &= table["hidden"] == hidden
        return table[keep]


def variants(experiment: WsBound, tables: Tables, *, paper_only: bool = False) -> list[Variant]:
    """The variants with stored cells: the paper's activation under both protocols first, then the
    others.

    A scanned protocol is represented by `portrait_rate`, or by its first stored rate when that one
    is not there.
    """
    if "search" not in tables:
        return []
    rates: dict[tuple[str, str], list[float]] = {}
    stored = tables["search"][["protocol", "activation", "rate"]].drop_duplicates()
    for row in stored.itertuples(index=False):
        rates.setdefault((str(row.protocol), str(row.activation)), []).append(float(row.rate))
    of_paper = []
    others = []
    for (protocol, activation), scanned in rates.items():
        rate = scanned[0]
        if experiment.portrait_rate in scanned:
            rate = experiment.portrait_rate
        variant = Variant(protocol, activation, rate)
        if activation == PAPER_ACTIVATION:
            of_paper.append(variant)
        elif not paper_only:
            others.append(variant)
    return of_paper + others


def polished_variants(experiment: WsBound, tables: Tables) -> list[Variant]:
    """The variants whose ends were polished, the paper's activation under both protocols first."""
    if "polished" not in tables:
        return []
    found = [replace(v, polished=True) for v in variants(experiment, tables)]
    return [v for v in found if len(unique_points(tables, v))]


ZERO_LOSS = 1e-8
"""A cross-entropy below this, where its gradient has vanished, is on its way to 0, a value that it
never takes.
"""


def where_led(tables: Tables) -> pd.DataFrame:
    """The polished points; those whose loss vanishes run to infinity, whatever their Hessian, which
    vanishes too.
    """
    rows = tables["polished"]
    vanishing = (rows["kind"] == "degenerate") & (rows["loss"] < ZERO_LOSS)
    return rows.assign(kind=rows["kind"].mask(vanishing, "infinity"))


def unique_points(tables: Tables, variant: Variant, hidden: int | None = None) -> pd.DataFrame:
    """The paper's critical points: converged, and no duplicate of an earlier one.

    Of a polished variant where they lead, those left out that were still on their way.
    """
    if variant.polished:
        rows = variant.rows(tables["polished"], hidden)
        return rows[rows["kind"] != "unfinished"]
    rows = variant.rows(tables["critical_points"], hidden)
    return chosen(rows, status="ok", duplicate=0)


def split_low_high(rows: pd.DataFrame, low_share: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The points with the smallest λ_sup and the rest (WS bound, Fig. 7: 317 and 36 of 353)."""
    ordered = rows.sort_values("lambda_sup", kind="stable")
    count = int(low_share * len(ordered))
    return ordered.iloc[:count], ordered.iloc[count:]


class Case(study.Case):
    """What the claims of one variant read."""

    experiment: WsBound
    variant: Variant

    @cached_property
    def points(self) -> pd.DataFrame:
        """Unique critical points of both widths."""
        return unique_points(self.tables, self.variant)

    @cached_property
    def narrow(self) -> pd.DataFrame:
        return chosen(self.points, hidden=self.experiment.portrait_hidden)

    @property
    def mark(self) -> str:
        """The variant as a row names it."""
        return self.variant.mark

    def rows_of(self, table: str) -> pd.DataFrame:
        """The rows of the variant in a table; none where it is not stored."""
        if table in self.tables:
            return self.variant.rows(self.tables[table])
        return pd.DataFrame()


def statistics(experiment: WsBound, tables: Tables) -> list[Statistic]:
    """Every test of every variant, without Holm's correction."""
    found = []
    for variant in polished_variants(experiment, tables):
        points = unique_points(tables, variant)
        found += [*_of_points(experiment, points, variant), *_widths(experiment, points, variant)]
    found += _draws(tables)
    for variant in variants(experiment, tables):
        points = unique_points(tables, variant)
        narrow = chosen(points, hidden=experiment.portrait_hidden)
        if not narrow.empty:
            found += [*_of_points(experiment, points, variant), *_norms(narrow, variant)]
            found += [*_widths(experiment, points, variant), *_lower_edge(narrow, variant)]
    return found


def _of_points(experiment: WsBound, points: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    """Figs. 2, 6 and 7, of the points where a search stops or of those where they lead.

    Fig. 7: macro F1 of the points with low against those with high λ_sup.
    """
    for hidden, rows in points.groupby("hidden", sort=True):
        for seed, part in data_sets(rows):
            ratio = part["lambda_sup"] / part["lambda_max"]
            at = variant.at(seed)
            yield stats.summary(
                ratio, name=f"bound / λ₁, N={hidden}", **variant.of_figure("2"), **at
            )
            yield stats.summary(
                part["lambda_sup"], name=f"bound, N={hidden}", **variant.of_figure("6"), **at
            )
    narrow = chosen(points, hidden=experiment.portrait_hidden)
    about = variant.of_figure("7") | {"label_a": "low", "label_b": "high"}
    for size in experiment.dataset.test:
        column = f"f1_test{size}"
        means = []
        for seed, rows in data_sets(narrow):
            low, high = (part[column] for part in split_low_high(rows, experiment.low_share))
            means.append((low.mean(), high.mean()))
            yield stats.mann_whitney(
                low, high, name=f"F1 on {size}, low - high", **variant.at(seed), **about
            )
        if means:
            name = f"mean F1 on {size}, low - high, over data sets"
            yield stats.wilcoxon(*zip(*means, strict=True), name=name, group=variant.group, **about)


def _draws(tables: Tables) -> Iterator[Statistic]:
    """Mean macro F1 of the low group less that of the high one, one value for each draw of the
    data.
    """
    if "draws" not in tables:
        return
    for (stage, size), rows in tables["draws"].groupby(["stage", "test_samples"], sort=True):
        name = f"mean F1 on {size}, low - high, over draws"
        yield stats.wilcoxon(
            rows["f1_low"],
            rows["f1_high"],
            name=name,
            label_a="low",
            label_b="high",
            where="Fig. 7",
            figure="fig07 draws",
            group=f"protocol=fitted {stage}",
        )


def _widths(experiment: WsBound, points: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    """λ_sup of the wider network against the narrower one; a positive shift means that the wider is
    sharper.
    """
    wide = experiment.compared_hidden
    narrow = experiment.portrait_hidden
    if wide not in set(points["hidden"]):
        return
    about = variant.of_figure("11") | {"label_a": f"N={wide}", "label_b": f"N={narrow}"}
    medians = []
    for seed, rows in data_sets(points):
        a, b = (rows.loc[rows["hidden"] == width, "lambda_sup"] for width in (wide, narrow))
        medians.append((a.median(), b.median()))
        yield stats.mann_whitney(
            a, b, name=f"bound, N={wide} - N={narrow}", **variant.at(seed), **about
        )
    name = f"median bound, N={wide} - N={narrow}, over data sets"
    yield stats.wilcoxon(*zip(*medians, strict=True), name=name, group=variant.group, **about)


def _norms(narrow: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    for column, figure in (("V_norm_sq", "10"), ("W_norm_sq", "10"), ("RtR_norm_sq", "12")):
        for seed, rows in data_sets(narrow):
            about = variant.of_figure(figure) | variant.at(seed)
            yield stats.spearman(
                rows[column], rows["lambda_sup"], name=f"{column} and bound", **about
            )


def _lower_edge(narrow: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    """Whether the smallest λ_sup at a given ||RᵀR||² rises with it: rank correlation over bins of
    equal counts.
    """
    for seed, rows in data_sets(narrow):
        about = variant.of_figure("12") | variant.at(seed)
        yield stats.spearman(
            *lower_edge(rows), name="lower edge of bound over RtR_norm_sq", **about
        )


def lower_edge(rows: pd.DataFrame) -> tuple[list[float], list[float]]:
    """(median ||RᵀR||², smallest bound) of bins of equal counts, by rising ||RᵀR||²: what is tested
    and drawn.
    """
    ordered = rows.sort_values("RtR_norm_sq", kind="stable")
    parts = [p for p in np.array_split(np.arange(len(ordered)), BINS) if len(p)]
    centre = [float(ordered["RtR_norm_sq"].iloc[p].median()) for p in parts]
    return centre, [float(ordered["lambda_sup"].iloc[p].min()) for p in parts]
