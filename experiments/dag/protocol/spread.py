"""The spread of a result: what rounding, initial network, data order and images contribute; analysis and figures.

The numbers are rows of `protocol.spread_statistics`, from the companions of an experiment (`protocol.inter_layer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Self

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.protocol import spread_statistics
from experiments.dag.protocol.inter_layer import FURTHER, ORDERS, PUBLISHED_SEEDS, ROUNDING
from runner.contract import Analysis, Tables
from runner.report import figures
from runner.report.collect import reference_path
from runner.report.figures import COLOURS
from runner.report.formatting import row_label
from runner.report.score import read_reference
from runner.stats import Statistic

NIL = 1e-6
"""A mean that is no more than the rounding of a zero."""


class SpreadAnalysis(Analysis):
    """Readings that compare an experiment's cells with those of its companions; every one empty without them.

    reference: name of the file of printed values. A subclass gives `measured`, and `quantities` for the components.
    """

    reference: ClassVar[str] = ""

    def over(self, name: str) -> Self | None:
        """The same analysis of a companion's tables; None where it has no cells."""
        tables = self.beside.get(name)
        return None if tables is None else replace(self, tables=tables, beside={})

    def quantities(self, tables: Tables) -> pd.DataFrame | None:
        """Long table of what the components are of: keys, metric, checkpoint, seed, images, value."""
        return None

    def rounded(self, measured: pd.DataFrame) -> pd.DataFrame:
        """Measured values with the columns `rounding_std` and `rounding_df`, where trainings were repeated."""
        other = self.over(ROUNDING)
        values = None if other is None else other.measured()
        return measured if values is None else spread_statistics.with_rounding(measured, values)

    def spread_statistics(self) -> list[Statistic]:
        """Rows of kind "rounding", "variance" (crossed) and "typical"."""
        return [*self._rounding_rows, *self._crossed_rows, *self._further_rows]

    @cached_property
    def _rounding_rows(self) -> list[Statistic]:
        other, own = self.over(ROUNDING), self.measured()
        values = None if other is None else other.measured()
        return [] if own is None or values is None else list(spread_statistics.rounding_rows(own, values, "rounding"))

    @cached_property
    def _crossed_rows(self) -> list[Statistic]:
        own = self.quantities(self.tables)
        orders = {name: tables for name, tables in self.beside.items() if name in ORDERS}
        if own is None or not orders:
            return []
        others = {name: found for name, t in orders.items() if (found := self.quantities(t)) is not None}
        values = spread_statistics.gathered(own[own["seed"].isin(PUBLISHED_SEEDS)], others)
        keys = [c for c in own.columns if c not in ("seed", "images", "value")]
        return list(spread_statistics.crossed_rows(values, keys, "components"))

    @cached_property
    def _further_rows(self) -> list[Statistic]:
        other, path = self.over(FURTHER), reference_path(self.reference)
        values = None if other is None else other.measured()
        if values is None or path is None:
            return []
        return list(spread_statistics.further_rows(values, read_reference(path), "further_seeds"))

    def spread_figures(self) -> Mapping[str, Callable[[], Figure]]:
        """Figures of those kinds that there are."""
        found: dict[str, Callable[[], Figure]] = {}
        if rows := self._rounding_rows:
            found["rounding"] = lambda: draw_rounding(rows)
        if parts := self._crossed_rows:
            found["components"] = lambda: draw_components(parts)
        if typical := self._further_rows:
            found["further_seeds"] = lambda: draw_further_seeds(typical)
        return found

    def spread_notes(self) -> list[str]:
        """One sentence for each kind."""
        return [
            t for t in (self._rounding_note(), *self._crossed_notes(), spread_statistics.said(self._further_rows)) if t
        ]

    def _rounding_note(self) -> str:
        rows = [s for s in self._rounding_rows if s.statistic > 0 and abs(s.mean) > NIL and "init" not in s.group]
        if not rows:
            return ""
        rows.sort(key=lambda s: s.statistic)
        middle, worst = rows[len(rows) // 2], rows[-1]
        where = f"{worst.name.split(':')[0]} ({worst.group})"
        return (
            f"Rounding (same network, data and order, inputs changed by 1e-7): after training it moves a value by "
            f"{middle.statistic:.2f} times the standard deviation between seeds in the median of {len(rows)} values "
            f"(two unrelated seeds: 1.41 times), most in {where}: {worst.std:.2g} at a "
            f"mean of {worst.mean:.4g}, {worst.statistic:.2f} times, from {worst.n_a} pairs."
        )

    def _crossed_notes(self) -> list[str]:
        by: dict[tuple[str, str], list[Statistic]] = {}
        for s in self._crossed_rows:
            if "checkpoint=final" in s.group:
                by.setdefault((s.name.split(":")[0], s.group), []).append(s)
        found = []
        for (metric, group), parts in by.items():
            paper = [s for s in parts if s.label_a != "set of images"]
            whole = sum(s.std**2 for s in paper)
            if whole > 0:
                said = ", ".join(
                    f"{s.label_a} {100 * s.std**2 / whole:.0f} % ({s.note.split('; ')[-1]})" for s in paper
                )
                images = next((s for s in parts if s.label_a == "set of images"), None)
                left = f"; it leaves out {images.std:.2g} between sets of images" if images and images.std > 0 else ""
                found.append(f"What the ± of {metric} ({group}) consists of: {whole**0.5:.2g}, of which {said}{left}.")
        return found


HATCHES = {
    "initial network": "",
    "data order": "///",
    "network and order together": "...",
    "set of images": "xx",
}
"""Sources of variance in the order of the bars, and their hatching for grey print."""
MOST = 28
"""Rows of a figure; all others are in stats.csv."""


def draw_rounding(rows: Sequence[Statistic]) -> Figure:
    """How far rounding moves a value after training, compared with the spread of seeds; both relative to the mean.

    Filled: root mean square difference of one seed's value between two trainings whose inputs differ by 1e-7. Hollow:
    standard deviation over the seeds.
    """
    shown = [s for s in rows if s.std > 0 and s.mean and "init" not in s.group][:MOST]
    figure, ax = _listed(shown)
    y = range(len(shown))
    spread = [s.std / s.statistic / abs(s.mean) if s.statistic > 0 else float("nan") for s in shown]
    ax.plot(spread, y, "s", color=COLOURS[1], markerfacecolor="none", markersize=6, label="standard deviation of seeds")
    ax.plot([s.std / abs(s.mean) for s in shown], y, "o", color=COLOURS[0], label="rounding alone")
    figures.log_axis(ax, "x")
    ax.set_xlabel("relative to the mean of the seeds")
    figures.shared_legend(figure)
    figures.note(figure, f"{max(s.n_a for s in rows)} seeds were trained again from inputs changed by 1e-7")
    return figure


def draw_components(rows: Sequence[Statistic]) -> Figure:
    """Shares of the variance: initial network, data order, both together (the paper's ±), and the set of images.

    Networks crossed with orders, each measured on the same random sets of images; intervals are in stats.csv.
    """
    groups: dict[tuple[str, str], dict[str, Statistic]] = {}
    for s in rows:
        groups.setdefault((s.name.split(":")[0], s.group), {})[s.label_a] = s
    shown = [parts for parts in groups.values() if any(s.std > 0 for s in parts.values())][:MOST]
    figure, ax = _listed([next(iter(parts.values())) for parts in shown])
    left = [0.0] * len(shown)
    for colour, (source, hatch) in zip(COLOURS, HATCHES.items(), strict=False):
        widths = [parts[source].effect for parts in shown]
        ax.barh(range(len(shown)), widths, left=left, label=source, color=colour, hatch=hatch, edgecolor="white")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    ax.set_xlim(0, 1)
    ax.grid(False, axis="y")
    ax.set_xlabel("share of the variance")
    figures.shared_legend(figure, columns=2)
    seeds = max(s.n_a for s in rows if s.label_a != "set of images")
    figures.note(
        figure, f"networks of up to {seeds} seeds, each trained in the data order of each; numbers in stats.csv"
    )
    return figure


def draw_further_seeds(rows: Sequence[Statistic]) -> Figure:
    """Printed means among further seeds, in units of the 95 % prediction interval's half width.

    A mark between the dashed lines is a mean that five further seeds of the named streams would give.
    """
    shown = sorted(rows, key=lambda s: -abs(s.effect))[:MOST]
    figure, ax = _listed(shown)
    x = [(s.shift - s.mean) / (0.5 * (s.shift_high - s.shift_low)) for s in shown]
    ax.axvspan(-1, 1, color="0.92", zorder=0, label="95 % prediction interval for five seeds")
    ax.axvline(0, linewidth=0.8, color="0.4")
    ax.plot(x, range(len(shown)), "o", color="black", markerfacecolor="none", label="printed mean")
    ax.set_xlabel("printed mean − mean of the further seeds, in half widths of the interval")
    figures.shared_legend(figure)
    more = f"; the {len(shown)} farthest of {len(rows)} printed means" if len(rows) > len(shown) else ""
    figures.note(figure, f"n = {max(s.n_a for s in rows)} further seeds of named streams{more}")
    return figure


def _listed(rows: Sequence[Statistic]) -> tuple[Figure, Axes]:
    """A figure of one panel with a labelled line for each statistic, from top to bottom."""
    figure, ((ax,),) = figures.new_figure(width=7, height=1.5 + 0.24 * len(rows))
    ax.set_yticks(range(len(rows)), [_label(s) for s in rows], fontsize=8)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    return figure, ax


def _label(s: Statistic) -> str:
    """The human name of the value that a statistic is of, from its name and its group "activation=relu depth=8"."""
    keys = dict(part.partition("=")[::2] for part in s.group.split(" ") if part)
    return row_label({"metric": s.name.split(":")[0], **keys})
