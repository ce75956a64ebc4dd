"""The style of every figure: colours, sizes, panels, legends, axes. `runner.report.draw` writes
figures to files.

Figures are `matplotlib.figure.Figure` objects without pyplot, so nothing is global and nothing
leaks. matplotlib is imported when a figure is made, not when this module is.

Colours are Okabe and Ito's, which colour-blind readers tell apart; a second sign (marker, dashes,
hatching) carries every distinction into grey print. Which labels belong together is a module
constant of the paper's package:

    >>> METHODS = PlotStyles(("gd", "hsr", "trace"))
    >>> METHODS.style("hsr")
    {'color': '#D55E00', 'marker': 's', 'linestyle': '--'}
"""

from __future__ import annotations

import hashlib
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from runner.report.labels import name as named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from runner.stats import Statistic


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = (
    "-",
    "--",
    "-.",
    ":",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (7, 2)),
    (0, (3, 1, 1, 1)),
    (0, (1, 2)),
)


class PlotStyles:
    """The looks of families of labels that share figures.

    A label's place in its family is its style, so members of a family never look alike. A label of
    no family gets colour, marker and dashes from a hash of its text, the same on every machine.
    Upper and lower case are equal. Raises ValueError for a family with more members than there are
    styles, and for a label in two families.
    """

    def __init__(self, *families: tuple[str, ...]) -> None:
        self.families = families
        labels = [label.lower() for family in families for label in family]
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(
                f"looks: expected each label in one family, found {', '.join(repeated)} twice"
            )
        if any(len(family) > len(COLOURS) for family in families):
            raise ValueError(f"looks: expected at most {len(COLOURS)} labels in a family")

    @cached_property
    def _slots(self) -> dict[str, int]:
        return {
            label.lower(): slot for family in self.families for slot, label in enumerate(family)
        }

    def style(self, label: str) -> dict[str, Any]:
        """color, marker and linestyle of a label, for `ax.plot(x, y, **looks.style("plain"))`."""
        slot = self._slots.get(label.lower())
        digest = hashlib.sha256(label.encode()).digest()
        pick = [byte % len(COLOURS) for byte in digest[:3]] if slot is None else [slot] * 3
        return {"color": COLOURS[pick[0]], "marker": MARKERS[pick[1]], "linestyle": DASHES[pick[2]]}

    def point_style(self, label: str) -> dict[str, Any]:
        """color and marker of a label, for `ax.scatter(x, y, **looks.point_style("plain"))`."""
        return {key: value for key, value in self.style(label).items() if key != "linestyle"}

    def colour(self, label: str) -> str:
        """The colour of a label."""
        return str(self.style(label)["color"])


DEFAULT_STYLES = PlotStyles()
"""Every label looks as its hash says."""
STYLE = Path(__file__).with_name("hess.mplstyle")
WIDEST = 8.0
"""Width of a figure of several panels in inches: its 8-point labels are shown at 7 points in a
column of 7 inches."""


class NothingToDraw(ValueError):
    """A figure without panels: what it shows is not measured. The report leaves it out."""


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

    Sizes in inches; 3.4 by 2.7 a panel by default. The layout makes room for labels and outside
    legends by itself. Raises NothingToDraw for no rows or columns.
    """
    if not (rows and cols):
        raise NothingToDraw(f"expected at least one panel, found {rows} rows of {cols}")
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    # Artists read these when they are made, so that a context around this call would be too short.
    matplotlib.rcParams.update(matplotlib.rc_params_from_file(STYLE, use_default_template=False))
    matplotlib.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)
    size = (width or 0.4 + 3.4 * cols, height or 0.3 + 2.7 * rows)
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
        Columns of the legend, which names every label once; 0 for no legend.
    caption
        Words for the caption (see `note`).
    sharey, **size
        As in `new_figure`; the width is at most `WIDEST`.
    """
    in_row = columns or len(titles)
    size.setdefault("width", min(WIDEST, 0.4 + 3.4 * in_row))
    figure, axes = new_figure(-(-len(titles) // max(1, in_row)), in_row, sharey=sharey, **size)
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
        shared_legend(figure, columns=legend_columns)
    if caption:
        note(figure, caption)
    return figure


def _label(ax: Axes, x: str, y: str) -> None:
    if x:
        ax.set_xlabel(x)
    if y:
        ax.set_ylabel(y)


def letter(axes: ArrayLike | Sequence[Axes], titles: Sequence[str] = ()) -> None:
    """Head the panels "(a) …", "(b) …" in reading order, with their titles if given."""
    import numpy as np

    for i, ax in enumerate(np.asarray(axes, dtype=object).ravel()):
        title = f" {titles[i]}" if i < len(titles) else ""
        ax.set_title(_wrap(ax, f"({_alphabet(i)}){title}"), loc="left")


def _wrap(ax: Axes, text: str) -> str:
    """`text` broken into lines about as wide as the panel, so that neighbours do not run into each
    other."""
    figure: Any = ax.figure
    letters = max(
        12, int(15 * ax.get_position().width * figure.get_figwidth() / 0.85)
    )  # 15 an inch at 9 points
    return "\n".join(textwrap.fill(line, letters) for line in text.split("\n"))


def _alphabet(i: int) -> str:
    return chr(ord("a") + i) if i < 26 else _alphabet(i // 26 - 1) + _alphabet(i % 26)


def legend(ax: Axes, *, title: str | None = None) -> None:
    """A legend of `ax` below the panel, where it hides no data."""
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    names = [named(label) for label in labels]
    columns = 1 if max(map(len, names)) > 24 else 2
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
    ax.legend(handles, names, title=title, ncols=columns, borderaxespad=0, **place)


def head(figure: Figure, text: str) -> None:
    """Write which paper and figure this is above the panels, before a title that the figure already
    has."""
    own = figure.get_suptitle()
    figure.suptitle(f"{text}: {own}" if own else text, x=0.01, ha="left", fontsize=8, color="0.35")


def note(figure: Figure, text: str) -> None:
    """Words for the caption: what bars, bands and hollow marks are, and how many values."""
    said = str(figure.get_label() or "")
    if text not in said:
        figure.set_label(f"{said}; {text}" if said else text)


def shared_legend(figure: Figure, *, columns: int | None = None) -> None:
    """One legend below all panels, every label once, in rows of about equal length."""
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        rows = -(-len(entries) // 5)
        even = columns or -(-len(entries) // rows)
        figure.legend(
            list(entries.values()),
            [named(label) for label in entries],
            loc="outside lower center",
            ncols=even,
        )


def log_axis(ax: Axes, which: Literal["x", "y", "both"] = "y") -> None:
    """Logarithmic axis with readable ticks, also when it spans less than a decade.

    Values at or below zero cannot be shown: they are left out by matplotlib, so say in the caption
    if there are any. An axis on which no value is positive stays linear, since matplotlib refuses
    to draw it, and the figure says so.
    """
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

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
        if low > 0 and high / low < 15:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(
                LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(3, 3))
            )
            axis.set_minor_formatter(NullFormatter())


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
        part += f"\n{raw.size - x.size} infinite or missing" if x.size < raw.size else ""
        ticks.append(f"{(names or {}).get(label, label)}\nn = {x.size}{part}")
    ax.set_xticks(range(position + 1), ticks)
    ax.set_xlim(-0.6, position + 0.6)


def annotate_test(ax: Axes, statistic: Statistic) -> None:
    """Write a test below the panel, under the x label: p, Holm's p, effect, shift with interval, or
    the reason."""
    ax.set_xlabel(
        "\n".join(part for part in (ax.get_xlabel(), _wrap(ax, describe(statistic))) if part)
    )


TESTS = {"mann_whitney": "Mann–Whitney", "wilcoxon": "Wilcoxon", "spearman": "Spearman"}


def describe(statistic: Statistic) -> str:
    """Short lines for a test or fit; a test that cannot reach 0.05 says so instead of looking like
    "no difference"."""
    s = statistic
    name = TESTS.get(s.kind, s.kind)
    if s.kind in ("linear", "log_linear"):
        return f"slope {s.slope:.3g}, R² = {s.r2:.3f}, n = {s.n_a}"
    if s.kind == "summary":
        return f"mean {s.mean:.3g} ± {s.std:.2g}, median {s.median:.3g}, n = {s.n_a}"
    if math.isnan(s.p):
        return f"{name}: {s.note or 'no test'}"
    equals = "" if s.p < LEAST_P else "= "
    parts = [f"{name} p {equals}{_p(s.p)}"]
    if not math.isnan(s.p_holm):
        parts.append(f"Holm {_p(s.p_holm)}")
    effect = f"{'ρ' if s.kind == 'spearman' else 'r'} = {s.effect:.2f}"
    if not math.isnan(s.shift):
        interval = "(no interval)"
        if math.isfinite(s.shift_low):
            interval = f"[{s.shift_low:.3g}, {s.shift_high:.3g}]"
        effect += f", shift {s.shift:.3g} {interval}"
    lines = [", ".join(parts), effect]
    if not s.has_power:
        lines.append(f"n too small: p cannot fall below {s.p_min:.3g}")
    return "\n".join(lines)


LEAST_P = 1e-4
"""Below it a figure says no more than that."""


def _p(p: float) -> str:
    if p < LEAST_P:
        return f"< {LEAST_P:.0e}".replace("e-0", "e-")
    return f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


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
    limits: tuple[float, float] | None = None,
    bar: bool = True,
) -> None:
    """A matrix as an image with a colour bar called `label`; missing values are hatched, not zero.

    log: logarithmic colours, values at or below zero count as missing. centred: diverging colours
    around 0. limits: ends of the colours, where panels are to be compared; bar: whether the colour
    bar is drawn.
    """
    import numpy as np
    from matplotlib.colors import CenteredNorm, LogNorm, Normalize

    values = np.ma.masked_invalid(np.asarray(matrix, dtype=float))
    if log:
        values = np.ma.masked_less_equal(values, 0)
    ax.grid(False)
    ax.patch.set(hatch="///", facecolor="white", edgecolor="0.7")
    norm: Normalize | None = Normalize(*limits) if limits else None
    if log and values.count():
        norm = LogNorm()
    elif centred:
        norm = CenteredNorm()
    image = ax.imshow(
        values, norm=norm, cmap="PuOr_r" if centred else "cividis", interpolation="nearest"
    )
    if bar:
        ax.figure.colorbar(image, ax=ax, shrink=0.9).set_label(label)
