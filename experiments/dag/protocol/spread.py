"""What other trainings of the same settings say of a result: companions of an experiment
(`protocol.inter_layer`).

- Rounding: two trainings of one network, data and order differ by the rounding of another device.
  The same trainings from inputs changed in their last digit show how far, seed by seed; the root
  mean square difference over the seeds is the spread that a paired comparison has to allow for
  (`rounding_std` of the scorecard).
- Further seeds: ten seeds of named streams say how typical the published five are. A printed mean
  is compared with the means of all subsets of as many seeds, and with the 95 % prediction interval.
  They are no part of a scorecard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations, islice
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import t

from experiments.dag.protocol.inter_layer import FURTHER, ROUNDING
from runner.contract import Analysis, Figures
from runner.report import figures
from runner.report.labels import row_label
from runner.report.reference import (
    BIBLIOGRAPHIC,
    VALUE_COLUMNS,
    published,
    read_reference,
    reference_path,
    text_of,
)
from runner.stats import Statistic


class SpreadAnalysis(Analysis):
    """Readings that compare an experiment's cells with those of its companions; every one empty
    without them.

    reference: name of the file of printed values. A subclass gives `measured`.
    """

    reference: ClassVar[str] = ""

    def measured_of(self, companion: str) -> pd.DataFrame | None:
        """The measured values of a companion; None where it has no cells."""
        tables = self.beside.get(companion)
        if tables is None:
            return None
        return replace(self, tables=tables, beside={}).measured()

    def rounded(self, measured: pd.DataFrame) -> pd.DataFrame:
        """Measured values with the columns `rounding_std` and `rounding_df`, where trainings were
        repeated."""
        values = self.measured_of(ROUNDING)
        if values is None:
            return measured
        return with_rounding(measured, values)

    @cached_property
    def further(self) -> list[Statistic]:
        """Rows of kind "typical"."""
        values = self.measured_of(FURTHER)
        path = reference_path(self.reference)
        if values is None or path is None:
            return []
        return list(further_rows(values, read_reference(path), "further_seeds"))

    def further_figures(self) -> Figures:
        if self.further:
            return {"further_seeds": partial(draw_further_seeds, self.further)}
        return {}


FEWEST = 3
"""Pairs of trainings below which no spread is given."""
ABOUT = (
    "value",
    "image_variance",
    "image_df",
    "paired",
    "rounding_std",
    "rounding_df",
    "comparable",
    "calibrated",
    "constructed",
)
"""Columns of measured values that name no value."""


def with_rounding(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """Measured values with `rounding_std` (root mean square difference from `perturbed`) and
    `rounding_df`, the number of pairs; blank with fewer than `FEWEST` pairs."""
    keys = [c for c in own.columns if c not in (*ABOUT, "seed")]
    other = perturbed[[*keys, "seed", "value"]].rename(columns={"value": "other"})
    both = own[[*keys, "seed", "value"]].merge(other, on=[*keys, "seed"])
    both = both.assign(square=(both["other"] - both["value"]) ** 2).dropna(subset=["square"])
    squares = both.groupby(keys, dropna=False, sort=False)["square"]
    found = squares.agg(rounding_std="mean", rounding_df="count").reset_index()
    found = found[found["rounding_df"] >= FEWEST].assign(
        rounding_std=lambda table: table["rounding_std"] ** 0.5
    )
    if "rounding_std" not in own:
        return own.merge(found, on=keys, how="left")
    merged = own.merge(found, on=keys, how="left", suffixes=("_known", ""))
    known = merged["rounding_std_known"]
    return merged.assign(rounding_std=merged["rounding_std"].fillna(known)).drop(
        columns="rounding_std_known"
    )


FEWEST_FURTHER = 6
"""Seeds below which a subset of five says nothing."""
MOST = 5000
"""Subsets of seeds that are averaged at most."""


def percentile(values: Sequence[float], printed: float, n: int) -> float:
    """Share of the subsets of n values whose mean lies below the printed one, ties by half, in
    percent."""
    means = [math.fsum(c) / n for c in islice(combinations(values, n), MOST)]
    below = sum(m < printed for m in means) + 0.5 * sum(m == printed for m in means)
    return 100 * below / len(means)


def further_rows(
    measured: pd.DataFrame, reference: pd.DataFrame, figure: str = ""
) -> Iterator[Statistic]:
    """One statistic a printed mean (kind "typical"): mean and std of the further seeds, statistic =
    percentile, p.

    measured: values of the further seeds; reference: the file of printed values, as text. effect:
    (printed − mean) over the standard error of the difference of the means of n_b and of n_a seeds;
    p: two-sided, by Student's t.
    """
    for row, values in matched(measured, reference):
        number = published(row)
        n = len(values)
        m = number.n
        mean = math.fsum(values) / n
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        if std == 0 or n < max(FEWEST_FURTHER, m + 1):
            continue
        error = std * math.sqrt(1 / m + 1 / n)
        z = (number.mean - mean) / error
        reach = float(t.ppf(0.975, n - 1)) * error
        note = f"printed {number.mean:g}"
        if not math.isnan(number.std):
            note += f" ± {number.std:g}"
        yield Statistic(
            name=f"{row['metric']}: the printed mean among further seeds",
            kind="typical",
            group=" ".join(f"{k}={v}" for k, v in row_keys(row).items() if v),
            figure=figure,
            label_a="further seeds",
            label_b="printed",
            n_a=n,
            n_b=m,
            mean=mean,
            std=std,
            shift=number.mean,
            shift_low=mean - reach,
            shift_high=mean + reach,
            statistic=percentile(values, number.mean, m),
            effect=z,
            p=2 * float(t.sf(abs(z), n - 1)),
            method="percentile among the means of all subsets; 95 % prediction interval of the "
            "mean of n_b seeds",
            note=note,
        )


def matched(
    measured: pd.DataFrame, reference: pd.DataFrame
) -> Iterator[tuple[dict[str, str], list[float]]]:
    """(reference row, values over seeds) of every printed mean; keys are compared as the scorecard
    compares them."""
    seeds = measured["seed"].nunique()
    by_metric = {str(metric): rows for metric, rows in measured.groupby("metric")}
    for record in reference.to_dict("records"):
        row = {str(key): str(value) for key, value in record.items()}
        rows = by_metric.get(text_of(row["metric"]))
        if rows is None or math.isnan(published(row).mean):
            continue
        for key in row_keys(row):
            if key in rows.columns and row[key].strip():
                rows = rows[rows[key].map(text_of) == text_of(row[key])]
        values = [float(value) for value in rows["value"] if math.isfinite(value)]
        if len(values) >= FEWEST_FURTHER and seeds >= len(values):
            yield row, values


def row_keys(row: Mapping[str, str]) -> dict[str, Any]:
    """The entries of a reference row that name its value, except the metric."""
    return {k: v for k, v in row.items() if k not in (*VALUE_COLUMNS, *BIBLIOGRAPHIC, "metric")}


def said(found: Sequence[Statistic]) -> list[str]:
    """The finding in one sentence; none without further seeds."""
    if not found:
        return []
    inside = sum(s.shift_low <= s.shift <= s.shift_high for s in found)
    far = max(found, key=lambda s: abs(s.effect))
    return [
        f"Further seeds ({found[0].n_a}, named streams): {inside} of {len(found)} printed means "
        "lie where the mean of five further seeds falls with 95 %; the farthest is "
        f"{far.name.split(':')[0]} ({far.group}), {far.note} for {far.mean:.4g} ± {far.std:.2g}, "
        f"at percentile {far.statistic:.0f} of the means of five."
    ]


SHOWN = 28
"""Rows of a figure; all others are in stats.csv."""


def draw_further_seeds(rows: Sequence[Statistic]) -> Figure:
    """Printed means among further seeds, in units of the 95 % prediction interval's half width.

    A mark in the band is a mean that five further seeds of the named streams would
    give.
    """
    shown = sorted(rows, key=lambda s: -abs(s.effect))[:SHOWN]
    figure, ((ax,),) = figures.new_figure(width=7, height=1.5 + 0.24 * len(shown))
    ax.set_yticks(range(len(shown)), [_label(s) for s in shown], fontsize=8)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    x = [(s.shift - s.mean) / (0.5 * (s.shift_high - s.shift_low)) for s in shown]
    ax.axvspan(-1, 1, color="0.92", zorder=0, label="95 % prediction interval for five seeds")
    ax.axvline(0, linewidth=0.8, color="0.4")
    ax.plot(x, range(len(shown)), "o", color="black", markerfacecolor="none", label="printed mean")
    ax.set_xlabel("printed mean − mean of the further seeds,\nin half widths of the interval")
    figures.shared_legend(figure)
    more = ""
    if len(rows) > len(shown):
        more = f"; the {len(shown)} farthest of {len(rows)} printed means"
    figures.note(figure, f"n = {max(s.n_a for s in rows)} further seeds of named streams{more}")
    return figure


def _label(s: Statistic) -> str:
    """The human name of the value that a statistic is of, from its name and its group
    "activation=relu depth=8"."""
    keys = dict(part.partition("=")[::2] for part in s.group.split(" ") if part)
    return row_label({"metric": s.name.split(":")[0], **keys})
