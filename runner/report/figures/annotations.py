"""What is written on a figure: letters and titles of panels, legends, notes, results of tests."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runner.report.answers.labels import name as named
from runner.stats.intervals import joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from runner.stats import Statistic


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
    parts = text.split("$")  # every other one is a formula
    parts[::2] = [part.replace(" = ", "\u00a0=\u00a0") for part in parts[::2]]  # on one line
    text = "$".join(parts)
    return "\n".join(textwrap.fill(line, letters) for line in text.split("\n"))


def _alphabet(i: int) -> str:
    if i < 26:
        return chr(ord("a") + i)
    return _alphabet(i // 26 - 1) + _alphabet(i % 26)


BELOW = 0.5
"""Room in inches between a panel and its legend for the ticks and the label of the x axis."""


def legend(ax: Axes, *, title: str | None = None) -> None:
    """A legend of `ax` below the panel, where it hides no data."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    names = [named(label) for label in labels]
    columns = 2
    if max(map(len, names)) > 24:
        columns = 1
    figure: Any = ax.figure
    below = ax.transAxes + ScaledTranslation(0, -BELOW, figure.dpi_scale_trans)
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0)}
    place["bbox_transform"] = below
    ax.legend(handles, names, title=title, ncols=columns, borderaxespad=0, **place)


APART = 1.6
"""Room of a mark in a legend, in letters, where one label has several."""
COLUMNS = 5
"""Most columns of a legend below all panels."""


def shared_legend(figure: Figure, *, columns: int | None = None, most: int = COLUMNS) -> None:
    """One legend below all panels, every label once; without `columns` in rows of about equal
    length, of at most so many entries."""
    from matplotlib import rcParams
    from matplotlib.legend_handler import HandlerTuple

    entries: dict[str, dict[Any, Any]] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, {}).setdefault(_shape(handle), handle)
    if entries:
        names = [named(label) for label in entries]
        rows = -(-len(names) // most)
        even = columns or -(-len(names) // rows)
        handles: list[Any] = []
        shapes_of_one = max(map(len, entries.values()))
        for shapes in entries.values():
            first, *others = shapes.values()
            handles.append((first, *others) if others else first)
        together: dict[Any, Any] = {tuple: HandlerTuple(ndivide=None, pad=0.2)}
        figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=even,
            handlelength=max(rcParams["legend.handlelength"], APART * shapes_of_one),
            handler_map=together,
        )


def _shape(handle: Any) -> Any:
    """The mark of a legend entry: marks of several shapes under one label are shown together."""
    if hasattr(handle, "get_marker"):
        return handle.get_marker()
    if hasattr(handle, "get_paths") and handle.get_paths():
        return handle.get_paths()[0].vertices.tobytes()
    return None


def ticks_up_to(ax: Axes, most: float) -> None:
    """No tick of the y axis beyond what the quantity can be, where notes need the room."""
    low, high = ax.get_ylim()
    ax.set_yticks([tick for tick in ax.get_yticks() if low <= tick <= min(most, high)])
    ax.set_ylim(low, high)


LETTER = 0.061
"""Width in inches of a letter of 8 points."""


def head(figure: Figure, text: str) -> None:
    """Write which paper and figure this is above the panels, before a title that the figure already
    has, in lines that are not wider than the figure."""
    title = figure.get_suptitle()
    if title:
        text = f"{text}: {title}"
    lines = textwrap.fill(text, int(figure.get_figwidth() / LETTER))
    figure.suptitle(lines, x=0.01, ha="left", fontsize=8, color="0.35")


def note(figure: Figure, text: str) -> None:
    """Words for the caption: what bars, bands and hollow marks are, and how many values."""
    said = noted(figure)
    if text not in said:
        figure.set_label(joined(said, text))


def noted(figure: Figure) -> str:
    """What was noted of a figure."""
    return str(figure.get_label() or "")


def annotate_test(ax: Axes, statistic: Statistic) -> None:
    """Write a test below the panel, under the x label: p, Holm's p, effect, shift with interval, or
    the reason."""
    lines = (ax.get_xlabel(), _wrap(ax, describe(statistic)))
    ax.set_xlabel("\n".join(filter(None, lines)))


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
