"""Claims, tests, figures and notes of the stochastic regulariser, one value per seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from experiments.hsr.plot_styles import STYLES
from experiments.printed import statements
from runner import stats
from runner.contract import Analysis, Claim
from runner.report import figures as draw
from runner.report.plot_style import COLOURS, DASHES, MARKERS
from runner.stats import Statistic, judge

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.hsr.stochastic.settings import HsrStochastic

Tables = Mapping[str, "pd.DataFrame"]
NAMES = {"sgd": "SGD", "sam": "SAM", "hsr": "HSR from probes"}
LABELS = {"sgd": "gd", "sam": "asam", "hsr": "hsr"}  # the looks of the methods they stand for
QUANTITIES = {"lambda_max": r"largest eigenvalue $\lambda_1$", "test_accuracy": "test accuracy"}
WHERE = "extension of Section VII"


def final(tables: Tables, quantity: str) -> pd.DataFrame:
    """One row per seed, one column per method: the value after the last epoch."""
    history = tables["history"]
    last = history[history["epoch"] == history["epoch"].max()]
    return last.pivot_table(index="seed", columns="part", values=quantity).reindex(columns=list(NAMES))


def _rate(rows: pd.DataFrame, seed: int) -> Statistic:
    import numpy as np

    return stats.linear(
        np.log(rows["probes"]),
        np.log(rows["rms_error"]),
        name="exponent of the error in probes",
        group=f"seed={seed}",
        where=WHERE,
    )


def claims(experiment: HsrStochastic, tables: Tables) -> list[Claim]:
    """What the extension should show: means over seeds, with their interval."""
    says, found = statements("hsr_stochastic"), []
    if "estimate" in tables:
        slopes = [_rate(rows, 0).slope for _, rows in tables["estimate"].groupby("seed")]
        found.append(judge.bound(says["Monte-Carlo rate"], slopes))
    if "history" in tables:
        largest, accuracy = final(tables, "lambda_max"), final(tables, "test_accuracy")
        for other in ("sgd", "sam"):
            name, ratio = NAMES[other], list(largest["hsr"] / largest[other])
            found.append(_untuned(judge.bound(says[f"flatter than {name}"], ratio)))
            above = replace(says[f"no loss of accuracy against {name}"], low=-experiment.accuracy_margin)
            found.append(_untuned(judge.bound(above, list(accuracy["hsr"] - accuracy[other]))))
    return found


def _untuned(claim: Claim) -> Claim:
    """The claim as not comparable: what one untuned rate shows says nothing of the methods."""
    if claim.verdict == "not run":
        return claim
    return replace(
        claim,
        verdict="not comparable",
        seeds_needed=float("nan"),
        detail=f"{claim.detail}; at this rate it would be {claim.verdict}, but one rate and one radius for all methods "
        "are tuned for none, and a step of HSR costs several of the others': hsr_flat_training is the contest",
    )


def estimate(tables: Tables) -> Figure:
    """Error and bias of the estimated bound against the number of probes, relative to the closed form."""
    figure, axes = draw.new_figure(1, 2, width=8.0, height=3.4)
    rows = tables["estimate"]
    for k, (seed, part) in enumerate(rows.groupby("seed")):
        look = {"color": COLOURS[k % 8], "marker": MARKERS[k % 8], "linestyle": DASHES[k % 8]}
        axes[0, 0].plot(part["probes"], part["rms_error"] / part["exact"], label=f"seed {seed}", **look)
        bias, error = (part["mean"] - part["exact"]) / part["exact"], 2 * part["standard_error"] / part["exact"]
        axes[0, 1].errorbar(part["probes"], bias, yerr=error, capsize=2, elinewidth=0.8, **look)
    counts = sorted(rows["probes"].unique())
    first = rows[rows["probes"] == counts[0]]
    start = float((first["rms_error"] / first["exact"]).median())
    axes[0, 0].plot(
        counts,
        [start * (k / counts[0]) ** -0.5 for k in counts],
        color="black",
        linestyle=":",
        label=r"$\propto K^{-1/2}$",
    )
    axes[0, 1].axhline(0, color="black", linewidth=0.9)
    draw.log_axis(axes[0, 0], "both")
    draw.log_axis(axes[0, 1], "x")
    for ax in axes[0]:
        ax.set_xticks(counts, [str(k) for k in counts], minor=False)
        ax.set_xticks([], minor=True)
        ax.set_xlabel("probes $K$")
    axes[0, 0].set_ylabel("root mean square error\nof $\\lambda_{sup}$, relative")
    axes[0, 1].set_ylabel("mean error of $\\lambda_{sup}$, relative\n(± 2 standard errors)")
    draw.note(figure, "(b): bars are two standard errors")
    draw.letter(axes, ["error of one estimate", "bias"])
    draw.shared_legend(figure)
    return figure


def training(tables: Tables) -> Figure:
    """Test accuracy over epochs, λ₁ and time per step by method."""
    figure, axes = draw.new_figure(1, 3, width=11.0, height=3.6)
    history = tables["history"]
    for method, name in NAMES.items():
        part = history[history["part"] == method]
        if part.empty:
            continue
        by_epoch = part.groupby("epoch")["test_accuracy"]
        std = by_epoch.std().fillna(0) if part["seed"].nunique() > 1 else None
        draw.mean_band(
            axes[0, 0],
            by_epoch.mean().index,
            100 * by_epoch.mean(),
            None if std is None else 100 * std,
            LABELS[method],
            looks=STYLES,
            name=name,
        )
    axes[0, 0].set_xlabel("epoch")
    axes[0, 0].set_ylabel("test accuracy (%)")
    late = history[history["epoch"] >= 0.1 * history["epoch"].max()]
    axes[0, 0].set_ylim(100 * late["test_accuracy"].min() - 3, 100)
    largest = final(tables, "lambda_max").rename(columns=LABELS)
    draw.groups(
        axes[0, 1],
        {label: largest[label] for label in largest},
        looks=STYLES,
        paired=True,
        names={LABELS[m]: name.replace(" from", "\nfrom") for m, name in NAMES.items()},
    )
    axes[0, 1].set_ylabel(r"largest eigenvalue $\lambda_1$ at the end")
    axes[0, 1].set_ylim(bottom=0)
    times = (1e3 * tables["timing"].groupby("part")["seconds_per_step"].median()).reindex(list(NAMES))
    axes[0, 2].bar(
        range(len(times)), times, color=[STYLES.colour(LABELS[m]) for m in times.index], alpha=0.75, width=0.6
    )
    axes[0, 2].set_xticks(range(len(times)), [NAMES[m].replace(" from", "\nfrom") for m in times.index])
    axes[0, 2].set_ylabel("processor time per step (ms)")
    draw.note(figure, "(b): lines join a seed, boxes: quartiles and median; (c): median over the seeds")
    draw.letter(axes, ["accuracy, mean ± std over seeds", "sharpness, seed by seed", "cost"])
    draw.legend(axes[0, 0])
    return figure


class HsrStochasticAnalysis(Analysis):
    """Readings of `estimate`, `history` and `timing`, as far as they are stored."""

    experiment: HsrStochastic

    def statistics(self) -> list[Statistic]:
        """Fits of the error, and Wilcoxon tests of the methods, paired by seed."""
        tables = self.tables
        found = []
        if "estimate" in tables:
            found += [_rate(rows, int(str(seed))) for seed, rows in tables["estimate"].groupby("seed")]
        if "history" in tables:
            for quantity in QUANTITIES:
                values = final(tables, quantity)
                for other in ("sgd", "sam"):
                    found.append(
                        stats.wilcoxon(
                            values["hsr"],
                            values[other],
                            name=f"{quantity}, hsr - {other}",
                            figure=quantity,
                            where=WHERE,
                            label_a="hsr",
                            label_b=other,
                        )
                    )
                for method in NAMES:
                    found.append(stats.summary(values[method], name=f"{quantity}, {method}", figure=quantity))
        if "timing" in tables:
            for method, rows in tables["timing"].groupby("part", sort=False):
                found.append(stats.summary(1e3 * rows["seconds_per_step"], name=f"milliseconds per step, {method}"))
        return found

    def claims(self) -> list[Claim]:
        return claims(self.experiment, self.tables)

    def notes(self) -> list[str]:
        """Findings for the report."""
        tables = self.tables
        found = []
        if "history" in tables:
            for quantity in QUANTITIES:
                values = final(tables, quantity)
                parts = (f"{NAMES[m]} {values[m].mean():.3g} ± {values[m].std():.2g}" for m in NAMES)
                found.append(
                    f"{quantity} after {self.experiment.epochs} epochs, mean ± std over seeds: {', '.join(parts)}."
                )
        if "timing" in tables:
            times = 1e3 * tables["timing"].groupby("part")["seconds_per_step"].median()
            listed = ", ".join(f"{NAMES[m]} {times[m]:.2f} ms" for m in NAMES if m in times)
            found.append(
                f"Processor time per step, median over seeds: {listed}. Timings belong to the machine and do not "
                "repeat byte for byte."
            )
        return found

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        """Figures that the stored tables allow, by name."""
        tables = self.tables
        found: dict[str, Callable[[], Figure]] = {}
        if "estimate" in tables:
            found["estimate"] = partial(estimate, tables)
        if "history" in tables:
            found["training"] = partial(training, tables)
        return found
