"""Reading the merged tables: variants with their points, and the tests behind the figures.

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

from experiments.three_layer.settings import STOP_RULES
from experiments.three_layer.study import Study, data_sets
from runner import stats
from runner.contract import Tables
from runner.stats import Statistic
from runner.stats.tables import chosen

PAPER_ACTIVATION = "sigmoid"
SCANNED = "printed"
"""Protocol whose rate is scanned."""
KEYS = ["protocol", "activation", "hidden", "rate", "seed", "start"]
"""Columns that name a start."""
BINS = 10
"""Equal-count bins of ||RᵀR||² whose smallest bounds trace the lower edge of Fig. 12."""
ZERO_LOSS = 1e-8
"""A cross-entropy below this, where its gradient has vanished, is on its way to 0, a value that it
never takes.
"""
AXIS_MARGIN = 0.05
"""Share of the data's range by which a plot's axis may go beyond them."""
F1 = "F1"
WIDTHS = "widths"
LOWER_EDGE = "lower edge"
PENALTY = "penalty"
"""What a test compares, where it is not a column."""
LOW_HIGH = {"label_a": "low", "label_b": "high"}
Keyed = Iterator[tuple[dict[str, Any], Statistic]]
"""(columns that tell a test apart, the test); the columns have a seed where it is of one data
set."""


@dataclass(frozen=True, eq=False)
class Case:
    """What tests, verdicts and figures read of one protocol with one activation.

    rate: the one that claims and figures look at, or, where `shown` is false, another one that was
    scanned. polished: where its ends lead when they are not stopped, instead of the ends.
    """

    study: Study
    protocol: str
    activation: str
    rate: float
    polished: bool = False
    shown: bool = True

    @property
    def experiment(self) -> Any:
        """The settings of the study."""
        return self.study.experiment

    @property
    def tables(self) -> Tables:
        """The tables of the study."""
        return self.study.tables

    def of_seed(self, seed: int) -> str:
        """The group of its tests of one data set."""
        return f"{self.group} seed={seed}"

    def test(self, name: str, seed: int) -> Statistic | None:
        """A test of one data set after Holm's correction."""
        return self.study.tests.get((name, self.of_seed(seed)))

    def _named(self, name: str, prefix: str = "") -> str:
        """'name tanh polished': a name with what is not the paper's."""
        words = [name]
        if self.activation != PAPER_ACTIVATION:
            words.append(prefix + self.activation)
        if self.polished:
            words.append("polished")
        if not self.shown:
            words.append(f"rate={self.rate:g}")
        return " ".join(words)

    @property
    def group(self) -> str:
        return self._named(f"protocol={self.protocol}", "activation=")

    @property
    def mark(self) -> str:
        """The variant as verdicts name it."""
        return self._named(self.protocol)

    def keys(self, compared: str, seed: int) -> dict[str, Any]:
        """The columns that tell a test of one data set apart."""
        return {"mark": self.mark, "compared": compared, "rival": self.rival, "seed": seed}

    def marked(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows with the variant that they are of."""
        return rows.assign(mark=self.mark, rival=self.rival)

    @cached_property
    def rival(self) -> bool:
        """Whether its points count as much as those of the calibrated stop rule: a fit is no
        evidence, and the printed rule gives points like the paper's where they reach Fig. 9."""
        return self.mark == SCANNED and self.reaches_fig9

    @property
    def title(self) -> str:
        """'calibrated stop rule, η = 0.01', for panels."""
        return f"{STOP_RULES[self.protocol]} stop rule, η = {self.rate:g}"

    def about(self, number: str, seed: int | None = None) -> dict[str, Any]:
        """Place, family of Holm's correction and group of the tests of one of the paper's figures.

        The paper's activation under both protocols shares a figure. seed: of the data set, None for
        a test over data sets.
        """
        group = self.group if seed is None else self.of_seed(seed)
        family = self._named(f"fig{number:0>2}")
        return {"where": f"Fig. {number}", "figure": family, "group": group}

    def rows(
        self, table: str, hidden: int | None = None, *, every_rate: bool = False
    ) -> pd.DataFrame:
        """The rows of this variant in a table, none where it is not stored; of one width, if given;
        at every scanned rate, if asked for."""
        if table not in self.tables:
            return pd.DataFrame()
        where: dict[str, Any] = {"protocol": self.protocol, "activation": self.activation}
        if not every_rate:
            where["rate"] = self.rate
        if hidden is not None:
            where["hidden"] = hidden
        return chosen(self.tables[table], **where)

    @cached_property
    def points(self) -> pd.DataFrame:
        """The paper's critical points: converged, and no duplicate of an earlier one.

        Of a polished variant where they lead, those left out that were still on their way.
        """
        if self.polished:
            rows = self.rows("polished")
            return rows[rows["kind"] != "unfinished"]
        return chosen(self.rows("critical_points"), status="ok", duplicate=0)

    @cached_property
    def narrow(self) -> pd.DataFrame:
        """The points of the width that most figures show."""
        return chosen(self.points, hidden=self.experiment.portrait_hidden)

    @cached_property
    def largest_traces(self) -> tuple[float, float]:
        """tr H and tr H², each the largest over points, widths and data sets."""
        points = self.points
        return float(points["trace"].max()), float(points["trace_of_square"].max())

    @property
    def reaches_fig9(self) -> bool:
        """Whether the points of a data set have traces as large as Fig. 9 shows, which no fit has
        seen."""
        axes = {
            "trace": self.experiment.trace_axis,
            "trace_of_square": self.experiment.square_axis,
        }
        largest = self.points.groupby("seed")[list(axes)].max()
        needed = pd.Series(axes) / (1 + AXIS_MARGIN)
        return bool((largest >= needed).all(axis=1).any())

    def low_and_high(self, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The points with a low bound and those with a high one."""
        return split_low_high(rows, self.experiment.low_share)


def cases(analysis: Study, *, paper_only: bool = False) -> list[Case]:
    """The variants with stored cells: the paper's activation under both protocols first, then the
    others.

    A scanned protocol is represented by `portrait_rate`, or by its first stored rate when that one
    is not there.
    """
    if "search" not in analysis.tables:
        return []
    experiment: Any = analysis.experiment
    stored = analysis.tables["search"][["protocol", "activation", "rate"]]
    of_paper = []
    others = []
    searches = stored.groupby(["protocol", "activation"], sort=False)
    for (protocol, activation), rows in searches:
        rates = list(rows["rate"])
        rate = rates[0]
        if experiment.portrait_rate in rates:
            rate = experiment.portrait_rate
        case = Case(analysis, str(protocol), str(activation), float(rate))
        if activation == PAPER_ACTIVATION:
            of_paper.append(case)
        elif not paper_only:
            others.append(case)
    return of_paper + others


def scanned_cases(analysis: Study) -> list[Case]:
    """The paper's activation under the printed stop rule, at the rates that no figure shows."""
    found = []
    for case in cases(analysis, paper_only=True):
        if case.protocol == SCANNED:
            rates = sorted(set(case.rows("search", every_rate=True)["rate"]))
            others = [replace(case, rate=rate, shown=False) for rate in rates if rate != case.rate]
            found += [other for other in others if len(other.narrow)]
    return found


def polished_cases(analysis: Study) -> list[Case]:
    """The variants whose ends were polished, the paper's activation under both protocols first."""
    if "polished" not in analysis.tables:
        return []
    polished = [replace(case, polished=True) for case in cases(analysis)]
    return [case for case in polished if len(case.points)]


def where_led(rows: pd.DataFrame) -> pd.DataFrame:
    """Polished points; those whose loss vanishes run to infinity, whatever their Hessian, which
    vanishes too.
    """
    vanishing = (rows["kind"] == "degenerate") & (rows["loss"] < ZERO_LOSS)
    return rows.assign(kind=rows["kind"].mask(vanishing, "infinity"))


def split_low_high(rows: pd.DataFrame, low_share: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The points with the smallest λ_sup and the rest (WS bound, Fig. 7: 317 and 36 of 353)."""
    ordered = rows.sort_values("lambda_sup", kind="stable")
    count = int(low_share * len(ordered))
    return ordered.iloc[:count], ordered.iloc[count:]


def statistics(analysis: Study) -> Keyed:
    """Every test of every variant, without Holm's correction."""
    for case in polished_cases(analysis):
        yield from _of_points(case)
        yield from _widths(case)
    yield from _draws(analysis.tables)
    yield from _penalties(analysis.tables)
    for case in cases(analysis):
        if len(case.narrow):
            yield from _of_points(case)
            yield from _norms(case)
            yield from _widths(case)
            yield from _lower_edge(case)
    for case in scanned_cases(analysis):
        yield from _norms(case)
        yield from _widths(case)


def _of_points(c: Case) -> Keyed:
    """Figs. 2, 6 and 7, of the points where a search stops or of those where they lead.

    Fig. 7: macro F1 of the points with low against those with high λ_sup.
    """
    by_width = c.points.groupby("hidden", sort=True)
    for hidden, rows in by_width:
        for seed, part in data_sets(rows):
            bound = part["lambda_sup"]
            ratio = bound / part["lambda_max"]
            name = f"bound / λ₁, N={hidden}"
            yield {}, stats.summary(ratio, name=name, **c.about("2", seed))
            yield {}, stats.summary(bound, name=f"bound, N={hidden}", **c.about("6", seed))
    for size in c.experiment.dataset.test:
        means = []
        for seed, rows in data_sets(c.narrow):
            low, high = (group[f"f1_test{size}"] for group in c.low_and_high(rows))
            means.append((low.mean(), high.mean()))
            about = {"name": f"F1 on {size}, low - high", **c.about("7", seed), **LOW_HIGH}
            keys = c.keys(F1, seed) | {"mark": marked_by_size(c, size)}
            yield keys, stats.mann_whitney(low, high, **about)
        if means:
            name = f"mean F1 on {size}, low - high, over data sets"
            low, high = zip(*means, strict=True)
            yield {}, stats.wilcoxon(low, high, name=name, **c.about("7"), **LOW_HIGH)


def marked_by_size(c: Case, size: int) -> str:
    """The variant with one size of the test set; the paper's, the smallest, goes without saying."""
    return c.mark if size == min(c.experiment.dataset.test) else f"{c.mark}, {size} test samples"


def _draws(tables: Tables) -> Keyed:
    """Mean macro F1 of the low group less that of the high one, one value for each draw of the
    data.
    """
    if "draws" not in tables:
        return
    about = {"where": "Fig. 7", "figure": "fig07 draws"} | LOW_HIGH
    by_stage = tables["draws"].groupby(["stage", "test_samples"], sort=True)
    for (stage, size), rows in by_stage:
        about["name"] = f"mean F1 on {size}, low - high, over draws"
        about["group"] = f"protocol=fitted {stage}"
        yield {}, stats.wilcoxon(rows["f1_low"], rows["f1_high"], **about)


def penalty_weights(tables: Tables) -> list[float]:
    """The weights of the penalty on V that are stored next to plain descent."""
    if "penalised" not in tables:
        return []
    weights = sorted(set(tables["penalised"]["penalty"]))
    return weights[1:] if weights[0] == 0 else []


def _penalties(tables: Tables) -> Keyed:
    """λ_sup with a penalty on V against plain descent, paired by start, wherever they stop."""
    for weight in penalty_weights(tables):
        for seed, part in data_sets(tables["penalised"]):
            missed = (part["status"] != "ok").astype(float)
            bounds = _by_weight(part, "lambda_sup", weight)
            missed_one = _by_weight(part.assign(missed=missed), "missed", weight)
            test = stats.wilcoxon(
                bounds[weight],
                bounds[0.0],
                name=f"bound, penalty {weight:g} on V - none",
                where="Section VI",
                figure="penalty on V",
                group=f"protocol=fitted seed={seed}",
                label_a=f"penalty {weight:g}",
                label_b="none",
            )
            keys = {"mark": "fitted", "compared": PENALTY, "weight": weight, "seed": seed}
            yield keys, replace(test, unconverged=int(missed_one.max(axis=1).sum()))


def _by_weight(rows: pd.DataFrame, quantity: str, weight: float) -> pd.DataFrame:
    """One row per start, a column without and one with a penalty; NaN where it is not stored."""
    table = rows.pivot_table(index="start", columns="penalty", values=quantity, dropna=False)
    return table.reindex(columns=[0.0, weight])


def _widths(c: Case) -> Keyed:
    """λ_sup of the wider network against the narrower one; a positive shift means that the wider is
    sharper.
    """
    wide = c.experiment.compared_hidden
    narrow = c.experiment.portrait_hidden
    if wide not in set(c.points["hidden"]):
        return
    labels = {"label_a": f"N={wide}", "label_b": f"N={narrow}"}
    name = f"bound, N={wide} - N={narrow}"
    medians = []
    for seed, rows in data_sets(c.points):
        a, b = (rows.loc[rows["hidden"] == width, "lambda_sup"] for width in (wide, narrow))
        medians.append((a.median(), b.median()))
        test = stats.mann_whitney(a, b, name=name, **c.about("11", seed), **labels)
        yield c.keys(WIDTHS, seed), test
    wider, narrower = zip(*medians, strict=True)
    name = f"median {name}, over data sets"
    yield {}, stats.wilcoxon(wider, narrower, name=name, **c.about("11"), **labels)


def _norms(c: Case) -> Keyed:
    compared = (("V_norm_sq", "10"), ("W_norm_sq", "10"), ("RtR_norm_sq", "12"))
    for column, figure in compared:
        name = f"{column} and bound"
        for seed, rows in data_sets(c.narrow):
            test = stats.spearman(
                rows[column], rows["lambda_sup"], name=name, **c.about(figure, seed)
            )
            yield c.keys(column, seed), test


def _lower_edge(c: Case) -> Keyed:
    """Whether the smallest λ_sup at a given ||RᵀR||² rises with it: rank correlation over bins of
    equal counts.
    """
    name = "lower edge of bound over RtR_norm_sq"
    for seed, rows in data_sets(c.narrow):
        edge = lower_edge(rows)
        yield c.keys(LOWER_EDGE, seed), stats.spearman(*edge, name=name, **c.about("12", seed))


def lower_edge(rows: pd.DataFrame) -> tuple[list[float], list[float]]:
    """(median ||RᵀR||², smallest bound) of bins of equal counts, by rising ||RᵀR||²: what is tested
    and drawn.
    """
    ordered = rows.sort_values("RtR_norm_sq", kind="stable")
    centres = []
    smallest = []
    bins = np.array_split(np.arange(len(ordered)), BINS)
    for places in bins:
        if len(places):
            part = ordered.iloc[places]
            centres.append(float(part["RtR_norm_sq"].median()))
            smallest.append(float(part["lambda_sup"].min()))
    return centres, smallest
