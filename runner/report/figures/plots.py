"""Plots that several experiments need, each drawn on axes that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from runner.report.figures.annotations import legend, note
from runner.report.figures.plot_styles import DEFAULT_STYLES, PlotStyles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike


def histogram(
    ax: Axes,
    values: ArrayLike,
    *,
    label: str = "measured",
    looks: PlotStyles = DEFAULT_STYLES,
    percentile: float | None = 90,
    bins: int | str | Sequence[float] = "auto",
    name: str | None = None,
) -> None:
    """Histogram of the finite values with a line at a percentile."""
    import numpy as np

    everything = np.asarray(values, dtype=float).ravel()
    x = everything[np.isfinite(everything)]
    if x.size == 0:
        ax.text(0.5, 0.5, "no finite values", transform=ax.transAxes, ha="center", va="center")
        return
    edges = np.histogram_bin_edges(x, bins=bins)  # type: ignore[arg-type]
    lost = everything.size - x.size
    left_out = f", {lost} not shown" if lost else ""
    text = f"{label if name is None else name} (n = {x.size}{left_out})"
    ax.hist(
        x,
        bins=list(edges),
        color=looks.colour(label),
        alpha=0.75,
        edgecolor="white",
        linewidth=0.4,
        label=text,
    )
    if percentile is not None:
        at = float(np.percentile(x, percentile))
        ax.axvline(
            at,
            color="black",
            linestyle="--",
            linewidth=1.3,
            label=f"{percentile:g} % below {at:.3g}",
        )
    legend(ax)


POINTS = 300
BOXES = "boxes: quartiles and median, whiskers to 1.5 interquartile ranges"


def groups(
    ax: Axes,
    samples: Mapping[str, ArrayLike],
    *,
    looks: PlotStyles = DEFAULT_STYLES,
    names: Mapping[str, str] | None = None,
) -> None:
    """Boxes of several samples side by side, every value as a point, n below the label.

    Above `POINTS` values a sample shows evenly spaced order statistics only, and its label says so.
    The points' sideways spread is fixed, not random.
    """
    import numpy as np

    position = -1
    data = {label: np.asarray(values, dtype=float).ravel() for label, values in samples.items()}
    ticks = []
    for position, (label, raw) in enumerate(data.items()):
        x = np.sort(raw[np.isfinite(raw)])
        shown = x if x.size <= POINTS else x[np.linspace(0, x.size - 1, POINTS).round().astype(int)]
        look = looks.point_style(label)
        if x.size:
            ax.boxplot(
                [x],
                positions=[position],
                widths=0.5,
                showfliers=False,
                medianprops={"color": "black", "linewidth": 1.8},
                manage_ticks=False,
            )
        spread = 0.22 * (np.mod(np.arange(shown.size) * 0.618034, 1) - 0.5)
        ax.scatter(position + spread, shown, s=9, alpha=0.45, linewidths=0, zorder=3, **look)
        part = f"\n{shown.size} shown" if shown.size < x.size else ""
        if x.size < raw.size:
            part += f"\n{raw.size - x.size} infinite or missing"
        ticks.append(f"{(names or {}).get(label, label)}\nn = {x.size}{part}")
    ax.set_xticks(range(position + 1), ticks)
    ax.set_xlim(-0.6, position + 0.6)
    note(cast("Figure", ax.figure), BOXES)


def identity_line(ax: Axes) -> None:
    """The line y = x over the part of the plane in view."""
    low = max(ax.get_xlim()[0], ax.get_ylim()[0])
    high = min(ax.get_xlim()[1], ax.get_ylim()[1])
    if low < high:
        ax.plot(
            [low, high],
            [low, high],
            color="black",
            linewidth=1,
            linestyle=":",
            label="equality",
            zorder=1,
        )


def heatmap(
    ax: Axes,
    matrix: ArrayLike,
    label: str,
    *,
    log: bool = False,
    centred: bool = False,
) -> None:
    """A matrix as an image with a colour bar called `label`; missing values are hatched, not zero.

    log: logarithmic colours, values at or below zero count as missing. centred: diverging colours
    around 0.
    """
    import numpy as np
    from matplotlib.colors import CenteredNorm, LogNorm, Normalize

    values = np.ma.masked_invalid(np.asarray(matrix, dtype=float))
    if log:
        values = np.ma.masked_less_equal(values, 0)
    ax.grid(False)
    ax.patch.set(hatch="///", facecolor="white", edgecolor="0.7")
    norm: Normalize | None = None
    if log and values.count():
        norm = LogNorm()
    elif centred:
        norm = CenteredNorm()
    image = ax.imshow(
        values, norm=norm, cmap="PuOr_r" if centred else "cividis", interpolation="nearest"
    )
    ax.figure.colorbar(image, ax=ax, shrink=0.9).set_label(label)
