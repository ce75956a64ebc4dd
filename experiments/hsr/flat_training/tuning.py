"""What the search found: flatness against accuracy and against price, and the settings that validation data choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from experiments.hsr.flat_training.names import BUDGETS, METHODS, NAMES, WIDE
from experiments.hsr.flat_training.plot_styles import look
from runner.contract import Analysis
from runner.report import figures as draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.hsr.flat_training.settings import FlatTuning

LEARNED = 0.8
BUDGET_WORDS = {"steps": "equal steps", "cost": "equal cost"}


class TuningAnalysis(Analysis):
    """Means over the tuning seeds of every trial and budget."""

    experiment: FlatTuning

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per method, budget and trial that ended at every seed: means of what its ends came to."""
        ends, keys = self.tables["ends"], ["method", "budget", "trial"]
        whole = ends.groupby(keys)["status"].transform(lambda s: (s != "diverged").all())
        columns = ["rate", "radius", "weight", "probes", "interval", "gradients", "cpu_seconds"]
        measured = ["train_loss", "validation_accuracy", "lambda_max", "lambda_sup"]
        return ends[whole].groupby(keys)[columns + measured].mean().reset_index()

    @property
    def chosen(self) -> dict[str, list[int]]:
        """`choices` of the methods that the contest has."""
        return {method: numbers for method, numbers in self.choices.items() if method != WIDE}

    @cached_property
    def choices(self) -> dict[str, list[int]]:
        """Method -> settings numbers: most accurate and flattest at equal steps, the same at equal cost; -1: no budget.

        Most accurate: highest validation accuracy, mean over the tuning seeds; of equal ones the flattest. Flattest:
        the smallest λ₁ among those within one binomial standard error of it. Test data are not read.
        """
        return {m: [k for b in BUDGETS for k in self._choice(m, b)] for m in METHODS if m in set(self.trials["method"])}

    def _choice(self, method: str, budget: str) -> tuple[int, int]:
        own = self.trials[(self.trials["method"] == method) & (self.trials["budget"] == budget)]
        if own.empty:
            return -1, -1
        best = own.sort_values(["validation_accuracy", "lambda_max"], ascending=[False, True]).iloc[0]
        near = own[own["validation_accuracy"] >= best["validation_accuracy"] - self.error(best["validation_accuracy"])]
        return int(best["trial"]), int(near.sort_values("lambda_max").iloc[0]["trial"])

    def error(self, accuracy: float) -> float:
        """Binomial standard error of a mean validation accuracy."""
        examples = self.experiment.validation * self.tables["ends"]["seed"].nunique()
        return math.sqrt(accuracy * (1 - accuracy) / examples)

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        return {f"pareto_{budget}": partial(pareto, self.trials, budget) for budget in self.trials["budget"].unique()}

    def notes(self) -> list[str]:
        n = self.tables["ends"]["seed"].nunique()
        found = [
            f"Tuning alone, {n} seed{'s' if n > 1 else ''}, {self.experiment.trials} settings of each method: it says "
            "where each method can go, not which one wins. The choice is by validation data; no test accuracy is read."
        ]
        for method, numbers in self.choices.items():
            texts = []
            for budget, pair in zip(BUDGETS, (numbers[:2], numbers[2:]), strict=True):
                for word, number in zip(("most accurate", "flattest within a standard error"), pair, strict=True):
                    if number >= 0:
                        texts.append(f"at {BUDGET_WORDS[budget]} {word} is {self._words(method, budget, number)}")
            last = f"In `chosen`: {numbers[:2]} and [-1, -1]" if method == WIDE else f"In `chosen`: {numbers}"
            found.append(f"{NAMES[method]}: {'; '.join(texts)}. {last}.")
        return found

    def _words(self, method: str, budget: str, number: int) -> str:
        rows = self.trials[(self.trials["method"] == method) & (self.trials["budget"] == budget)]
        row = rows[rows["trial"] == number].iloc[0]
        knobs = [f"rate {row['rate']:g}"]
        knobs += [f"{name} {row[name]:g}" for name in ("radius", "weight", "probes") if row[name]]
        knobs += [f"every {row['interval']:g} steps"] * bool(row["interval"] > 1)
        ends = f"validation {100 * row['validation_accuracy']:.1f} %, λ₁ {row['lambda_max']:.2g}"
        return f"trial {number} ({', '.join(knobs)}): {ends}"


def pareto(trials: pd.DataFrame, budget: str) -> Figure:
    """λ₁ and λ_sup at the end against validation error, and against processor time; one mark per setting, mean over the
    tuning seeds, fronts as lines. Settings below `LEARNED` of the best accuracy are left out."""
    figure, axes = draw.new_figure(2, 2, width=9.4, height=7.2)
    trials = trials[trials["budget"] == budget]
    kept = trials[trials["validation_accuracy"] >= LEARNED * trials["validation_accuracy"].max()]
    for method in (m for m in METHODS if (kept["method"] == m).any()):
        own = kept[kept["method"] == method]
        for row, quantity in enumerate(("lambda_max", "lambda_sup")):
            _front(axes[row, 0], 100 * (1 - own["validation_accuracy"]), own[quantity], look(method), NAMES[method])
            _front(axes[row, 1], own["cpu_seconds"], own[quantity], look(method), NAMES[method])
    for row, label in enumerate((r"largest eigenvalue $\lambda_1$", r"bound $\lambda_{sup}$")):
        axes[row, 0].set_xlabel("validation error (%)")
        axes[row, 1].set_xlabel("processor time of one of the trainings (s)")
        for ax in axes[row]:
            left, right = ax.get_xlim()
            draw.log_axis(ax, "both" if right > 4 * max(left, 0.0) else "y")  # few decades: no room for marks of a log
            ax.set_ylabel(f"{label} at the end")
    draw.letter(axes, ["λ₁ and accuracy", "λ₁ and price", "λ_sup and accuracy", "λ_sup and price"])
    draw.shared_legend(figure)
    return figure


def _front(ax: Axes, x: pd.Series, y: pd.Series, look: Mapping[str, Any], name: str) -> None:
    """Marks of all settings, and a line through those that no other one beats in both."""
    import numpy as np

    kept = (x > 0) & (y > 0)
    x, y = x[kept], y[kept]
    if x.empty:
        return
    ax.plot(x, y, **{**look, "linestyle": "none", "alpha": 0.45})
    order = np.lexsort((y, x))
    xs, ys = x.to_numpy()[order], y.to_numpy()[order]
    best = ys <= np.minimum.accumulate(ys)
    ax.plot(xs[best], ys[best], label=name, **look)
