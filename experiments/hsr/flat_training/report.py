"""What the search found: flatness against accuracy and against price, and the settings that validation data choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from experiments.hsr.flat_training.names import METHODS
from runner.contract.analysis import Analysis
from runner.report import figures as draw
from runner.report.looks import Looks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.hsr.flat_training import FlatTuning

LOOKS = Looks(METHODS)
NAMES = {
    "sgd": "SGD",
    "sam": "SAM",
    "asam": "adaptive SAM",
    "asam_all": "adaptive SAM, biases too",
    "trace": "trace",
    "hsr": "HSR, every step",
    "hsr_cheap": "HSR, products spared",
}


class TuningAnalysis(Analysis):
    """Means over the tuning seeds of every trial."""

    experiment: FlatTuning

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per method and trial that ended at every seed: means of what its ends came to."""
        ends = self.tables["ends"]
        whole = ends.groupby(["method", "trial"])["status"].transform(lambda s: (s == "ok").all())
        columns = ["train_loss", "validation_accuracy", "test_accuracy", "lambda_max", "lambda_sup", "cpu_seconds"]
        constants = ["rate", "radius", "weight", "probes", "interval", "layers", "share", "gradients"]
        return ends[whole].groupby(["method", "trial"])[columns + constants].mean().reset_index()

    @cached_property
    def chosen(self) -> dict[str, tuple[int, int]]:
        """Method -> (most accurate trial, flattest trial that is still accurate), by validation data and λ₁ alone.

        Still accurate: a validation accuracy of at least that of the best SGD less `accuracy_margin`; a method without
        such a trial keeps its most accurate one.
        """
        limit = self._best("sgd")["validation_accuracy"] - self.experiment.accuracy_margin
        found = {}
        for method in (m for m in METHODS if (self.trials["method"] == m).any()):
            own = self.trials[self.trials["method"] == method]
            enough = own[own["validation_accuracy"] >= limit]
            accurate = int(self._best(method)["trial"])
            flat = int(enough.sort_values("lambda_max").iloc[0]["trial"]) if len(enough) else accurate
            found[method] = (accurate, flat)
        return found

    def _best(self, method: str) -> Any:
        own = self.trials[self.trials["method"] == method]
        return own.sort_values(["validation_accuracy", "lambda_max"], ascending=[False, True]).iloc[0]

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        return {"flatness_accuracy_price": partial(pareto, self.trials, self.experiment.accuracy_margin)}

    def notes(self) -> list[str]:
        n = self.tables["ends"]["seed"].nunique()
        found = [
            f"Tuning alone, {n} seed{'s' if n > 1 else ''}: it says where each method can go, not which one wins. The "
            "choice is by validation data; test data and other seeds have not been looked at for it."
        ]
        for method, (accurate, flat) in self.chosen.items():
            own = self.trials[self.trials["method"] == method].set_index("trial")
            texts = [
                f"{word} is trial {number} (rate {own.loc[number, 'rate']:g}): validation "
                f"{100 * own.loc[number, 'validation_accuracy']:.1f} %, λ₁ {own.loc[number, 'lambda_max']:.2g}, "
                f"{own.loc[number, 'cpu_seconds']:.1f} s"
                for word, number in (("most accurate", accurate), ("flattest that is still accurate", flat))
            ]
            lost = self.experiment.trials - len(own)
            ended = f"; {lost} of {self.experiment.trials} settings diverged" if lost else ""
            found.append(f"{NAMES[method]}: {'; '.join(texts)}{ended}.")
        return found


def pareto(trials: pd.DataFrame, margin: float) -> Figure:
    """Largest eigenvalue at the end against validation accuracy, and against processor time for the settings that are
    as accurate as the best SGD within the margin; one mark per setting, mean over the tuning seeds, fronts as lines."""
    from matplotlib.ticker import NullFormatter

    figure, axes = draw.new_figure(1, 2, width=9.0, height=3.8)
    limit = trials.loc[trials["method"] == "sgd", "validation_accuracy"].max() - margin
    accurate = trials[trials["validation_accuracy"] >= limit]
    for method in (m for m in METHODS if (trials["method"] == m).any()):
        look = LOOKS.style(method)
        own = trials[trials["method"] == method]
        _front(axes[0, 0], 100 * (1 - own["validation_accuracy"]), own["lambda_max"], look, NAMES[method])
        own = accurate[accurate["method"] == method]
        _front(axes[0, 1], own["cpu_seconds"], own["lambda_max"], look, NAMES[method])
    axes[0, 0].axvline(100 * (1 - limit), color="0.5", linewidth=0.8, linestyle=":")
    axes[0, 0].set_xlabel("validation error (%)")
    axes[0, 1].set_xlabel("processor time of the training (s)")
    for ax in axes[0]:
        draw.log_axis(ax, "both")
        ax.xaxis.set_minor_formatter(NullFormatter())  # decades are marks enough
        ax.set_ylabel(r"largest eigenvalue $\lambda_1$ at the end")
    draw.letter(axes, ["flatness and accuracy", "flatness and price, where accurate"])
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
