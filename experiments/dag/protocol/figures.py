"""Figures of the inter-layer experiments: decay with distance, maps of pairs, spread of the values, training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import chosen, hollow
from experiments.dag.protocol.summary import first, groups, over_seeds, variance_components
from runner.report import figures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {"init": "-", "mid": ":", "final": "--"}
"""Line style of a checkpoint; the variant gives colour and marker."""
LABELS = {
    "R": r"resonance $R(d) = \|H\|_F$",
    "R_examples": r"mean over images of $\|H\|_F$",
    "C": r"coupling $C(d)$",
    "D": r"stable rank $D(d)$",
    "gap": r"$\Sigma\|H^T\|_F\,/\,\Sigma\|H^{GN}\|_F$",
    "tensor": r"$\Sigma\|H^T\|_F$",
    "gn": r"$\Sigma\|H^{GN}\|_F$",
}
NAMES = {"plain_sn": "plain, spectral norm", "leaky_relu": "leaky ReLU", "relu": "ReLU", "silu": "SiLU", "gelu": "GELU"}


def name(variant: Any) -> str:
    """A variant as the legend shows it."""
    return NAMES.get(str(variant), str(variant))


def look(variant: Any, checkpoint: str) -> dict[str, Any]:
    """Style of a line: colour and marker of the variant, dashes and filling of the checkpoint."""
    style = STYLES.style(str(variant)) | {"linestyle": LINES.get(checkpoint, "-.")}
    filling = {"mid": {"fillstyle": "left", "markerfacecoloralt": "white"}, "final": {"markerfacecolor": "white"}}
    return style | filling.get(checkpoint, {})


def error_line(
    ax: Axes, means: pd.DataFrame, x: str, variant: Any, checkpoint: str, *, text: str = "", dashes: str = ""
) -> None:
    """Mean with ± sample std over seeds as error bars. means: columns x, mean, std (see over_seeds).

    A bar that would reach below zero from a positive mean is left out, for logarithmic axes. dashes: another line
    style than the checkpoint's.
    """
    std = means["std"].fillna(0)
    down = std.where((std < means["mean"]) | (means["mean"] <= 0), 0)
    ax.errorbar(
        means[x],
        means["mean"],
        yerr=[down, std],
        label=text or f"{name(variant)}, {checkpoint}",
        capsize=2,
        elinewidth=0.8,
        **(look(variant, checkpoint) | ({"linestyle": dashes} if dashes else {})),
    )


BARS = "marks and bars: mean ± sample std over the seeds, on the paper's images"
"""What `error_line` draws, in words for the line below a figure."""


def runs(ax: Axes, part: pd.DataFrame, x: str, value: str, variant: Any, checkpoint: str) -> None:
    """Every seed as a thin line, where the spread over seeds is more than half the mean somewhere: a bar hides it."""
    means = over_seeds(part, [x], value)
    if (means["std"].fillna(0) > 0.5 * means["mean"].abs()).any():
        style = look(variant, checkpoint)
        for _, rows in part.groupby("seed"):
            ax.plot(rows[x], rows[value], color=style["color"], linewidth=0.7, alpha=0.45, zorder=1)


def decay(
    distances: pd.DataFrame,
    value: str,
    *,
    panel: str,
    variant: str,
    checkpoints: Sequence[str] = ("init", "final"),
    log: bool = False,
    fits: Mapping[tuple[Any, ...], str] | None = None,
) -> Figure:
    """`value` against distance: a panel per value of the column `panel`, a line per variant and checkpoint.

    fits: text added to the legend entry of (panel, variant, checkpoint). Thin lines: single seeds, where they are far
    apart.
    """
    table = first(distances)
    panels = list(dict.fromkeys(table[panel]))
    figure, axes = figures.new_figure(1, len(panels), sharey=True)
    for ax, at in zip(axes[0], panels, strict=True):
        for (kind, checkpoint), part in groups(table[table[panel] == at], [variant, "checkpoint"]):
            if checkpoint in checkpoints:
                note = (fits or {}).get((at, kind, checkpoint), "")
                text = f"{name(kind)}, {checkpoint}" + (f" ({note})" if note else "")
                error_line(ax, over_seeds(part, ["distance"], value), "distance", kind, checkpoint, text=text)
                runs(ax, part.sort_values("distance"), "distance", value, kind, checkpoint)
        ax.set_xlabel("distance $d$ between layers")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if log:
            figures.log_axis(ax)
        if fits is not None:
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7)
    axes[0, 0].set_ylabel(LABELS.get(value, value))
    figures.letter(axes, [f"{panel} $={p}$" if panel != "depth" else f"$L={p}$" for p in panels])
    if fits is None:
        figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def spread(distances: pd.DataFrame, value: str, *, panel: str, variant: str, checkpoint: str) -> Figure:
    """Standard deviation of `value` relative to its mean: between trainings, and between sets of images of one network.

    The second holds what all networks share of a set and what is one network's own; a component estimated below 0 is
    drawn at 0.
    """
    table = distances[distances["checkpoint"] == checkpoint]
    panels = list(dict.fromkeys(table[panel]))
    figure, axes = figures.new_figure(1, len(panels), sharey=True)
    for ax, at in zip(axes[0], panels, strict=True):
        for (kind,), part in groups(table[table[panel] == at], [variant]):
            found = [(d, variance_components(p, value)) for (d,), p in groups(part, ["distance"])]
            for source, dashes in (("seeds", "-"), ("within", "--")):
                x = [d for d, _ in found]
                y = [getattr(c, source) ** 0.5 / abs(c.mean) if c.mean else 0 for _, c in found]
                style = STYLES.style(str(kind)) | {"linestyle": dashes}
                style |= {"markerfacecolor": "white"} if source == "within" else {}
                text = "between seeds" if source == "seeds" else "between sets of images of one network"
                ax.plot(x, y, label=f"{name(kind)}, {text}", **style)
        ax.set_xlabel("distance $d$ between layers")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylim(bottom=0)  # shared, so only once all panels are drawn
    axes[0, 0].set_ylabel(f"relative std of ${value}(d)$ at {checkpoint}")
    figures.letter(axes, [f"$L={p}$" if panel == "depth" else f"{panel} = {name(p)}" for p in panels])
    figures.shared_legend(figure)
    return figure


def pair_maps(
    pairs: pd.DataFrame, value: str, *, variant: str, checkpoints: Sequence[str] = ("init", "final"), text: str = ""
) -> Figure:
    """`value` of every pair of measured nodes, mean over seeds: a row per variant, a column per checkpoint.

    The panels share their colours.
    """
    shown = pairs[pairs["checkpoint"].isin(checkpoints)].groupby([variant, "checkpoint", "v", "w"])[value].mean()
    limits = (float(shown.min()), float(shown.max())) if shown.notna().any() else None
    variants = list(dict.fromkeys(pairs[variant]))
    figure, axes = figures.new_figure(len(variants), len(checkpoints), width=0.4 + 3.1 * len(checkpoints))
    titles = []
    for i, kind in enumerate(variants):
        for j, checkpoint in enumerate(checkpoints):
            rows = pairs[(pairs[variant] == kind) & (pairs["checkpoint"] == checkpoint)]
            nodes = list(dict.fromkeys([*rows["v"], *rows["w"]]))
            grid = rows.pivot_table(index="v", columns="w", values=value, dropna=False)
            matrix = grid.reindex(index=nodes, columns=nodes).to_numpy(copy=True)
            upper = matrix.T
            matrix[matrix != matrix] = upper[matrix != matrix]  # NaN below the diagonal: the blocks are symmetric
            figures.heatmap(axes[i, j], matrix, text or f"${value}(v, w)$", limits=limits)
            axes[i, j].set_xlabel("layer $w$")
            axes[i, j].set_ylabel("layer $v$")
            titles.append(f"{name(kind)}, {checkpoint}")
    figures.letter(axes, titles)
    return figure


@dataclass(frozen=True)
class Paper:
    """Printed values: the table (`printed`), and column of ours -> metric of the table."""

    table: pd.DataFrame
    metrics: Mapping[str, str]


def against(
    networks: pd.DataFrame,
    values: Mapping[str, str],
    *,
    x: str,
    variant: str,
    text: str,
    titles: Sequence[str] = (),
    paper: Paper | None = None,
) -> Figure:
    """Columns of `networks` (column -> axis label) against x: a panel each, a mark per variant and checkpoint.

    The marks of one x stand beside each other; black hollow ones are the paper's values.
    """
    table = first(networks)
    places = {at: i for i, at in enumerate(sorted(set(table[x])))}
    kinds = [keys for keys, _ in groups(table, [variant, "checkpoint"])]
    figure, axes = figures.new_figure(1, len(values))
    for ax, (value, described) in zip(axes[0], values.items(), strict=True):
        for (kind, checkpoint), part in groups(table, [variant, "checkpoint"]):
            shift = 0.6 * (kinds.index((kind, checkpoint)) / max(1, len(kinds) - 1) - 0.5)
            means = over_seeds(part, [x], value)
            means = means.assign(place=[places[at] + shift for at in means[x]])
            error_line(ax, means, "place", kind, checkpoint, dashes="none")
            if paper is not None and value in paper.metrics:
                rows = chosen(paper.table, metric=paper.metrics[value], **{variant: kind}, checkpoint=checkpoint)
                rows = rows[rows[x].isin(places)]
                hollow(ax, [places[at] + shift for at in rows[x]], rows, str(kind))
        ax.set_xticks(list(places.values()), [str(at) for at in places])
        ax.grid(False, axis="x")
        ax.set_xlabel(text)
        ax.set_ylabel(described)
    figures.letter(axes, titles)
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def learning_curves(history: pd.DataFrame, *, panel: str | None, variant: str) -> Figure:
    """Test accuracy against the epoch, mean ± std over seeds: a panel per value of `panel`, a line per variant."""
    panels = list(dict.fromkeys(history[panel])) if panel else [None]
    figure, axes = figures.new_figure(1, len(panels), sharey=True)
    for ax, at in zip(axes[0], panels, strict=True):
        table = history if at is None else history[history[panel] == at]
        for (kind,), part in groups(table, [variant]):
            means = over_seeds(part, ["epoch"], "test_accuracy")
            std = 100 * means["std"].fillna(0)
            figures.mean_band(ax, means["epoch"], 100 * means["mean"], std, str(kind), looks=STYLES, name=name(kind))
        ax.set_xlabel("epoch")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("test accuracy (%)")
    if panel:
        heads = {"depth": "$L={}$", "branch_depth": "$k={}$"}
        figures.letter(axes, [heads.get(panel, panel.replace("_", " ") + " {}").format(name(p)) for p in panels])
    figures.shared_legend(figure)
    figures.note(figure, "bands: mean ± sample std over the seeds")
    return figure
