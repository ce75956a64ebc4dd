"""How the inter-layer experiments draw: styles, names and titles, lines with error bars, published
values.

Filled marks and solid lines: before training. Half-filled and dotted: halfway. Hollow and dashed:
after training. Black hollow marks: the values that the paper publishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments.dag.protocol.summary import ENDS
from runner.report.answers.labels import label
from runner.report.figures import PlotStyles
from runner.training import CHECKPOINTS

STYLES = PlotStyles(
    ("plain", "residual", "plain_sn", "diamond", "attention", "relu_mlp", "bottleneck", "baseline"),
    ("resnet18", "plain_resnet18", "flat_mlp"),
    ("recovered", "standardised", "described", "small_noise"),
    ("sigmoid", "tanh", "softplus", "gelu", "linear", "silu", "relu", "leaky_relu"),
    ("init", "final", "mid"),
    ("measured", "paper", "bound"),
    ("gn", "tensor", "full"),
)
LINES = {"init": "-", "mid": ":", "final": "--"}
"""Line style of a checkpoint; the variant gives colour and marker."""
FILLING = {
    "mid": {"fillstyle": "left", "markerfacecoloralt": "white"},
    "final": {"markerfacecolor": "white"},
}
"""Style of the marks of a checkpoint, where they are not filled."""
LABELS = {
    "R": r"resonance $R(d) = \|H\|_F$",
    "C": r"coupling $C(d)$",
    "gap": "GN gap\n" + r"$\Sigma\|H^T\|_F\,/\,\Sigma\|H^{GN}\|_F$",
    "tensor": r"$\Sigma\|H^T\|_F$",
    "gn": r"$\Sigma\|H^{GN}\|_F$",
}
DISTANCE = "distance $d$ between layers"
BARS = "marks and bars: mean ± sample std over the seeds, on the paper's images"
"""What `error_line` draws, for the caption."""
PAPER = "published"
BEHIND = 1.9
"""zorder of published values: behind our lines and marks, in front of the grid."""
HEADS = {"depth": "$L={}$", "branch_depth": "$k={}$"}
"""Title of a panel, by the column whose value it shows."""


def titles(table: pd.DataFrame, column: str) -> dict[Any, str]:
    """Value of a column -> title of its panel, in order."""
    head = HEADS.get(column, "{}")
    return {at: head.format(label(at)) for at in sorted(set(table[column]))}


def crossed(
    heads: Mapping[Any, str], checkpoints: Sequence[str] = ENDS
) -> dict[tuple[Any, str], str]:
    """(key, checkpoint) -> title of its panel, of panels for every pair of both."""
    return {(key, at): f"{head}, {label(at)}" for key, head in heads.items() for at in checkpoints}


def look(variant: Any, checkpoint: str) -> dict[str, Any]:
    """Style of a line: colour and marker of the variant, dashes and filling of the checkpoint."""
    style = STYLES.style(str(variant))
    style["linestyle"] = LINES.get(checkpoint, "-.")
    return style | FILLING.get(checkpoint, {})


def error_line(
    ax: Axes,
    means: pd.DataFrame,
    x: str,
    variant: Any,
    checkpoint: str,
    *,
    text: str = "",
    **style: Any,
) -> None:
    """Mean with ± sample std over seeds as error bars. means: columns x, mean, std (see
    over_seeds).

    A bar that would reach below zero from a positive mean is left out, for logarithmic axes. style:
    changes of `look`.
    """
    mean = means["mean"]
    std = means["std"].fillna(0)
    drawable = (std < mean) | (mean <= 0)
    down = std.where(drawable, 0)
    style = {"capsize": 2, "elinewidth": 0.8} | look(variant, checkpoint) | style
    style.setdefault("label", text or f"{label(variant)}, {label(checkpoint)}")
    ax.errorbar(means[x], mean, yerr=[down, std], **style)


def mark(ax: Axes, x: float, y: float, variant: str) -> None:
    """One published value as a black hollow mark in the shape of the variant."""
    ax.plot([x], [y], marker=STYLES.style(variant)["marker"], **PRINTED_MARKS)


PRINTED_MARKS: dict[str, Any] = {
    "color": "black",
    "linestyle": "none",
    "markersize": 10,
    "markerfacecolor": "none",
    "markeredgewidth": 0.9,
    "label": PAPER,
    "zorder": BEHIND,
}
"""Look of a published mean next to lines."""
PRINTED_BARS: dict[str, Any] = {
    "color": "0.75",
    "linestyle": "none",
    "elinewidth": 5,
    "capsize": 0,
    "label": f"{PAPER} ± std",
    "zorder": BEHIND - 0.1,
}
"""Look of a published ±: wider than our bars, without caps, which look like minus signs."""


def hollow(ax: Axes, x: Sequence[Any], rows: pd.DataFrame, variant: str) -> None:
    """Published means at x as black hollow marks in the shape of the variant, with the printed ±
    as a grey bar where there is one.

    They are larger than our marks and behind them, so that neither hides the other.
    """
    if rows.empty or rows["mean"].isna().all():
        return
    ax.plot(x, rows["mean"], marker=STYLES.style(variant)["marker"], **PRINTED_MARKS)
    printed = rows["std"].notna().to_numpy()
    if printed.any():
        places = np.asarray(x, dtype=float)[printed]
        shown = rows[printed]
        ax.errorbar(places, shown["mean"], yerr=shown["std"], **PRINTED_BARS)


def checkpoint_ticks(ax: Axes) -> None:
    """The checkpoints as ticks of the x axis."""
    ax.set_xticks(range(len(CHECKPOINTS)), ["before", "halfway", "after"])
