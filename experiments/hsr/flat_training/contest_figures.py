"""Figures of the contest: ratios with intervals, ends of all methods, and trainings by loss and by processor time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from experiments.hsr.flat_training.comparison import MAIN, WORDS, Comparison, Entry, Ratio, words
from experiments.hsr.flat_training.names import BASELINES, HSR, NAMES
from experiments.hsr.flat_training.plot_styles import look
from runner.report import figures as draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = r"largest eigenvalue $\lambda_1$"


def ratios(compared: Comparison, entries: Sequence[Entry]) -> Figure:
    """λ₁ of each way of HSR over each baseline's, geometric mean and 95 % interval over seeds; left of 1: flatter."""
    titles = [words(entry) for entry in entries] + ["most accurate at equal cost, matched loss"]
    columns = 3
    figure, axes = draw.new_figure(math.ceil(len(titles) / columns), columns, width=12.6, sharey=True)
    flat = list(axes.ravel())
    for ax, entry in zip(flat, [*entries, None], strict=False):
        for i, b in enumerate(BASELINES):
            for j, own in enumerate(HSR):
                _ratio(ax, compared, entry, own, b, i + 0.18 * (j - 1.5))
        ax.axvline(1, color="black", linewidth=0.9)
        _log(ax, "x")
        ax.set_xlabel(r"ratio of $\lambda_1$, HSR over baseline")
        ax.set_yticks(range(len(BASELINES)), [NAMES[b] for b in BASELINES])
        ax.grid(False, axis="y")
    draw.note(figure, compared.data)
    draw.note(figure, "geometric means over the seeds with their 95 % intervals; left of 1: HSR is flatter")
    flat[0].set_ylim(len(BASELINES) - 0.5, -0.5)
    for ax in flat[len(titles) :]:
        ax.remove()
    draw.letter(flat[: len(titles)], titles)
    draw.shared_legend(figure)
    return figure


def _log(ax: Axes, which: Literal["x", "both"]) -> None:
    """Logarithmic axes with plain numbers: at powers of ten over three decades, else at more places between them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    draw.log_axis(ax, which)
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if axis.get_scale() != "log" or (axis is ax.yaxis and which == "x"):
            continue
        span = max(low, high) / min(low, high)
        places = (1.0,) if span > 1e3 else (1.0, 2.0, 5.0) if span > 8 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
        axis.set_major_locator(LogLocator(subs=places))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _ratio(ax: Axes, compared: Comparison, entry: Entry | None, own: str, b: str, y: float) -> None:
    at = entry or MAIN
    if not {own, b} <= set(compared.methods(at)):
        return
    found = compared.ratio(at, own, b) if entry else Ratio.of(compared.matched(MAIN, own, b))
    if found.n and math.isfinite(found.value):
        around = [[found.value - found.low], [found.high - found.value]] if math.isfinite(found.low) else None
        style = {**look(own), "linestyle": "none", "markersize": 5.5}
        ax.errorbar([found.value], [y], xerr=around, capsize=2, elinewidth=0.9, label=NAMES[own], **style)


def ends(compared: Comparison, entries: Sequence[Entry]) -> Figure:
    """λ₁ and its bound λ_sup against test error and against processor time at the end, geometric means and 95 %
    intervals over seeds, by budget; full: the most accurate settings, hollow: the flattest within a standard error of
    them. Where both rules chose the same settings the full mark alone is drawn."""
    budgets = list(dict.fromkeys(budget for budget, _ in entries))
    quantities = (("lambda_max", LARGEST), ("lambda_sup", r"bound $\lambda_{sup}$"))
    panels = [(budget, cost) for budget in budgets for cost in ("test_accuracy", "cpu_seconds")]
    figure, axes = draw.new_figure(2, len(panels), width=0.4 + 3.6 * len(panels), height=7.2, sharey="row")
    for row, (quantity, label) in zip(axes, quantities, strict=True):
        for ax, (budget, cost) in zip(row, panels, strict=True):
            for entry in (e for e in entries if e[0] == budget):
                for method in compared.methods(entry):
                    _end(ax, compared, entry, method, quantity, cost)
            _log(ax, "both")
            ax.set_xlabel("test error (%)" if cost == "test_accuracy" else "processor time (s)")
        row[0].set_ylabel(f"{label} at the end")
    draw.letter(axes, [WORDS[budget] for budget, _ in panels] * 2)
    draw.note(figure, compared.data)
    draw.note(figure, "geometric means over the seeds with their 95 % intervals; full: the most accurate settings")
    draw.note(figure, "hollow: the flattest within a standard error of them, where they are others")
    draw.shared_legend(figure, columns=5)
    return figure


def _end(ax: Axes, compared: Comparison, entry: Entry, method: str, quantity: str, cost: str) -> None:
    if entry[1] == "flat" and compared.same_settings(entry[0], method):
        return
    if cost == "test_accuracy":
        wrong = 1 - compared.values(entry, method, cost)
        error = Ratio.of([math.log(100 * v) for v in wrong if v > 0])
    else:
        error = Ratio.of(list(compared.values(entry, method, cost)))
    largest = Ratio.of(list(compared.values(entry, method, quantity)))
    if not (largest.n and error.n):
        return
    across, along = (
        [[r.value - r.low], [r.high - r.value]] if math.isfinite(r.low) else None for r in (error, largest)
    )
    style = {**look(method), "linestyle": "none"}
    if entry[1] == "flat":
        style["markerfacecolor"] = "white"
    label = NAMES[method] if entry[1] == "accurate" else None
    ax.errorbar([error.value], [largest.value], xerr=across, yerr=along, elinewidth=0.7, label=label, **style)


def trainings(compared: Comparison) -> Figure:
    """Trainings at equal cost with the most accurate settings, geometric means over seeds: λ₁ against training loss and
    against processor time, test accuracy against processor time."""
    figure, axes = draw.new_figure(1, 3, width=12.6, height=4.2)
    for method in compared.methods(MAIN):
        rows = _means(compared.curves(MAIN, method))
        style = {**look(method), "markersize": 3.5}
        axes[0, 0].plot(rows["train_loss"], rows["lambda_max"], label=NAMES[method], **style)
        later = rows[rows["cpu_seconds"] > 0]
        axes[0, 1].plot(later["cpu_seconds"], later["lambda_max"], **style)
        axes[0, 2].plot(later["cpu_seconds"], 100 * (1 - later["test_accuracy"]), **style)
    for ax in axes[0]:
        _log(ax, "both")
    axes[0, 0].invert_xaxis()
    axes[0, 0].set_xlabel("training loss")
    axes[0, 0].set_ylabel(LARGEST)
    axes[0, 1].set_xlabel("processor time (s)")
    axes[0, 1].set_ylabel(LARGEST)
    axes[0, 2].set_xlabel("processor time (s)")
    axes[0, 2].set_ylabel("test error (%)")
    draw.note(figure, compared.data)
    draw.note(figure, "geometric means over the seeds, most accurate settings at equal cost")
    draw.letter(axes, ["flatness at the same loss", "flatness for its price", "accuracy for its price"])
    draw.shared_legend(figure)
    return figure


def _means(curves: pd.DataFrame) -> pd.DataFrame:
    """Geometric means over seeds by epoch, of accuracies arithmetic ones; epochs that a seed lacks are left out."""
    import numpy as np

    seeds = curves["seed"].nunique()
    whole = curves.groupby("epoch")["seed"].transform("count") == seeds
    by_epoch = curves[whole].groupby("epoch")
    logs = by_epoch[["train_loss", "lambda_max"]].agg(lambda v: float(np.exp(np.log(v.where(v > 0)).mean())))
    return logs.assign(cpu_seconds=by_epoch["cpu_seconds"].mean(), test_accuracy=by_epoch["test_accuracy"].mean())
