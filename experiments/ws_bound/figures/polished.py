"""Where the ends of the search lead, and Fig. 7 over further draws of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.ws_bound.analysis import PAPER_ACTIVATION, Tables, Variant, where_led
from experiments.ws_bound.figures.scatter import BOUND
from experiments.ws_bound.plot_styles import STYLES
from runner.report import figures as draw
from runner.stats.intervals import Sample

KINDS = ("minimum", "saddle", "infinity", "degenerate", "unfinished")
"""In the order of the bars; named by `runner.training.polish`."""

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.ws_bound.settings import WsBound


def critical_points(experiment: WsBound, tables: Tables, chosen: Variant) -> Figure:
    """What becomes of the ends of every search; and the gradient and the bound of the paper's network before and
    after."""
    figure, axes = draw.new_figure(1, 3, width=12.0, height=3.8)
    _kinds(axes[0, 0], tables)
    narrow = experiment.portrait_hidden
    keys = ["seed", "start"]
    before = chosen.rows(tables["critical_points"], narrow)[[*keys, "lambda_sup"]]
    after = chosen.rows(tables["polished"], narrow)
    left = chosen.rows(tables["gradients"], narrow).merge(after[keys], on=keys)
    axes[0, 1].hist(left["gradient"], bins=40, color=STYLES.colour(chosen.protocol))
    axes[0, 1].set_xlabel(r"$\|\nabla L\|$ where the search stops")
    axes[0, 1].set_ylabel("points, all data sets")
    both = before.merge(after, on=keys, suffixes=("_before", ""))
    both = both[both["kind"] != "unfinished"]
    ax = axes[0, 2]
    ax.scatter(both["lambda_sup_before"], both["lambda_sup"], s=8, alpha=0.5, linewidths=0, color=STYLES.colour("low"))
    ends = [both["lambda_sup_before"].min(), both["lambda_sup_before"].max()]
    ax.plot(ends, ends, color="black", linewidth=1)
    draw.log_axis(ax, "both")
    ax.set_xlabel(f"{BOUND} where the search stops")
    ax.set_ylabel(f"{BOUND} where it leads")
    rank = both["lambda_sup_before"].corr(both["lambda_sup"], method="spearman")
    draw.note(figure, f"all data sets; (b), (c): {chosen.protocol}, N = {narrow}; line in (c): equality")
    titles = ["what becomes of the ends", "gradient left by the stop rule", f"rank correlation {rank:.2f}"]
    draw.letter(axes, titles)
    return figure


def _kinds(ax: Axes, tables: Tables) -> None:
    """Shares of the kinds, one bar a search."""
    import matplotlib

    shares = {}
    for (protocol, activation, hidden), rows in where_led(tables).groupby(
        ["protocol", "activation", "hidden"], sort=False
    ):
        own = activation if activation != PAPER_ACTIVATION else protocol
        shares[f"{own}, N = {hidden}"] = rows["kind"].value_counts(normalize=True)
    colours = matplotlib.colormaps["viridis"]
    left = [0.0] * len(shares)
    for number, kind in enumerate(KINDS):
        width = [float(s.get(kind, 0.0)) for s in shares.values()]
        ax.barh(list(shares), width, left=left, label=kind, color=colours(number / (len(KINDS) - 1)))
        left = [a + b for a, b in zip(left, width, strict=True)]
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the unique ends, all data sets")
    ax.legend(loc="upper center", bbox_to_anchor=(0.4, -0.22), ncols=3, fontsize=8)


def draws(tables: Tables) -> Figure:
    """Mean macro F1 of the low group less that of the high one: every draw of the data, their mean and its 95 %
    interval."""
    rows = tables["draws"]
    sizes, stages = sorted(rows["test_samples"].unique()), ("stopped", "polished")
    figure, axes = draw.new_figure(1, len(sizes), width=8.0, height=3.4)
    for ax, size in zip(axes[0], sizes, strict=True):
        for place, stage in enumerate(stages):
            part = rows[(rows["stage"] == stage) & (rows["test_samples"] == size)]
            gain = (part["f1_low"] - part["f1_high"]).dropna().sort_values().tolist()
            spread = [place + 0.3 * (i / max(1, len(gain) - 1) - 0.5) for i in range(len(gain))]
            ax.scatter(spread, gain, s=14, alpha=0.7, linewidths=0, color=STYLES.colour("low"))
            sample = Sample.of(gain)
            low, high = sample.interval(0.95)
            arms = [[sample.mean - low], [high - sample.mean]]
            ax.errorbar([place + 0.3], [sample.mean], yerr=arms, fmt="o", color="black")
        ax.axhline(0, color="black", linewidth=1)
        ax.set_xticks(range(len(stages)), ["where the search stops", "where it leads"])
        ax.set_xlim(-0.5, len(stages) - 0.2)
        ax.set_ylabel("mean macro F1, low - high bound")
    draw.note(figure, "a dot is a draw of data and starts; black: their mean with its 95 % interval")
    draw.letter(axes, [f"{size} test samples" for size in sizes])
    return figure
