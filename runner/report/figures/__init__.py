"""Figures in one style: sizes, panels, axes, with the names of `plots`, `annotations` and
`plot_styles`, for the modules of experiments. `runner.report.output.draw` writes figures to files.

Figures are `matplotlib.figure.Figure` objects without pyplot, so nothing is global and nothing
leaks. matplotlib is imported when a figure is made, not when this module is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from runner.report.figures.annotations import (
    COLUMNS,
    annotate_test,
    describe,
    head,
    legend,
    letter,
    note,
    shared_legend,
    ticks_up_to,
)
from runner.report.figures.plot_styles import COLOURS, DASHES, DEFAULT_STYLES, MARKERS, PlotStyles
from runner.report.figures.plots import groups, heatmap, histogram, identity_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = [
    "COLOURS",
    "DASHES",
    "DEFAULT_STYLES",
    "MARKERS",
    "WIDEST",
    "NothingToDraw",
    "PlotStyles",
    "annotate_test",
    "describe",
    "drawn_in",
    "groups",
    "head",
    "heatmap",
    "histogram",
    "identity_line",
    "legend",
    "letter",
    "log_axis",
    "new_figure",
    "note",
    "panels",
    "shared_legend",
    "ticks_up_to",
]

STYLE = Path(__file__).with_name("hess.mplstyle")
WIDEST = 8.0
"""Width of a figure of several panels in inches: its 8-point labels are shown at 7 points in a
column of 7 inches."""
ASKED: ContextVar[tuple[float, float]] = ContextVar("ASKED", default=(0.0, 0.0))
"""Width and height in inches that a user asked for; 0: the figure's own."""


class NothingToDraw(ValueError):
    """A figure without panels: what it shows is not measured. The report leaves it out."""


@contextmanager
def drawn_in(width: float, height: float) -> Iterator[None]:
    """Figures that are made inside have this width and height in inches; 0: their own."""
    token = ASKED.set((width, height))
    try:
        yield
    finally:
        ASKED.reset(token)


def new_figure(
    rows: int = 1,
    cols: int = 1,
    *,
    width: float | None = None,
    height: float | None = None,
    sharex: bool | Literal["all", "row", "col"] = False,
    sharey: bool | Literal["all", "row", "col"] = False,
) -> tuple[Figure, NDArray[Any]]:
    """A figure in the shared style and its axes as an array of shape (rows, cols), also for one
    panel.

    Sizes in inches; 3.4 by 2.7 a panel by default, and at most `WIDEST` wide, unless the user asked
    for another width. The layout makes room for labels and outside legends by itself. Raises
    NothingToDraw for no rows or columns.
    """
    if not (rows and cols):
        raise NothingToDraw(f"expected at least one panel, found {rows} rows of {cols}")
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    # Artists read these when they are made, so that a context around this call would be too short.
    matplotlib.rcParams.update(matplotlib.rc_params_from_file(STYLE, use_default_template=False))
    matplotlib.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)
    asked_width, asked_height = ASKED.get()
    size = (
        asked_width or min(WIDEST, width or 0.4 + 3.4 * cols),
        asked_height or height or 0.3 + 2.7 * rows,
    )
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, sharex=sharex, sharey=sharey)


def panels(  # noqa: PLR0913 (it makes a figure: a constructor in all but name)
    titles: Mapping[Any, str],
    draw: Callable[[Axes, Any], str | None],
    *,
    x: str = "",
    y: str = "",
    columns: int | None = None,
    log: Literal["", "x", "y", "both"] = "",
    integer: bool = False,
    legend_columns: int | None = None,
    caption: str = "",
    sharey: bool | Literal["row", "col"] = True,
    **size: Any,
) -> Figure:
    """A figure with one panel for each key of `titles`, drawn by `draw(ax, key)`, letters, and one
    legend below.

    Use it wherever a figure repeats a plot for several depths, networks or checkpoints: `draw` adds
    the lines of one panel, and `panels` does what every such figure needs (grid, labels, letters
    and titles, logarithmic axes, legend, note for the caption). What `draw` returns, if anything,
    replaces the title of its panel.

    Parameters
    ----------
    titles
        Key of a panel (depth, activation, tuple, …) to its title, in reading order.
    x, y
        Axis labels: below every panel of the last row, and next to the first panel of every row.
    columns
        Panels in a row; by default all.
    log, integer
        Logarithmic axes; whole numbers as ticks of the x axis.
    legend_columns
        Columns of the legend, which names every label once; 0 for no legend. By default at most two
        for each panel of a row.
    caption
        Words for the caption (see `note`).
    sharey, **size
        As in `new_figure`.
    """
    in_row = columns or len(titles)
    size.setdefault("width", 0.4 + 3.4 * in_row)
    rows = -(-len(titles) // max(1, in_row))
    figure, axes = new_figure(rows, in_row, sharey=sharey, **size)
    shown = list(axes.flat[: len(titles)])
    heads = [draw(ax, key) or titles[key] for ax, key in zip(shown, titles, strict=True)]
    for i, ax in enumerate(shown):
        _label(ax, x if i >= len(shown) - in_row else "", y if i % in_row == 0 else "")
        if log:
            log_axis(ax, log)
        if integer:
            ax.xaxis.get_major_locator().set_params(integer=True)
    for ax in axes.flat[len(titles) :]:
        ax.remove()
    if len(shown) > 1:
        letter(shown, heads)
    else:
        shown[0].set_title(heads[0], loc="left")
    if legend_columns != 0:
        shared_legend(figure, columns=legend_columns, most=min(COLUMNS, 2 * in_row))
    if caption:
        note(figure, caption)
    return figure


def _label(ax: Axes, x: str, y: str) -> None:
    if x:
        ax.set_xlabel(x)
    if y:
        ax.set_ylabel(y)


def log_axis(ax: Axes, which: Literal["x", "y", "both"] = "y") -> None:
    """Logarithmic axis with readable ticks: plain numbers where it spans less than `PLAIN`, at 1, 2
    and 5, or at more places on a short one; else powers of ten.

    Values at or below zero cannot be shown: they are left out by matplotlib, so say in the caption
    if there are any. An axis on which no value is positive stays linear, since matplotlib refuses
    to draw it, and the figure says so.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for name in ("x", "y") if which == "both" else (which,):
        if ax.has_data() and not math.isfinite(getattr(ax.dataLim, f"minpos{name}")):
            note(
                cast("Figure", ax.figure),
                "no value of a logarithmic axis is positive: linear there",
            )
            continue
        getattr(ax, f"set_{name}scale")("log")
        low, high = sorted(getattr(ax, f"get_{name}lim")())
        axis = getattr(ax, f"{name}axis")
        if low >= 1e-4 and high < 1e6 and high / low < PLAIN[name]:
            places = FINE if high / low < 8 else COARSE
            axis.set_major_locator(LogLocator(subs=places))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())


PLAIN = {"x": 600, "y": 1000}
"""An axis whose ends differ by less than this factor has plain numbers as ticks."""
COARSE = (1.0, 2.0, 5.0)
FINE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Ticks of an axis with plain numbers, times a power of ten; finer below a factor of eight."""
