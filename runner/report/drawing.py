"""What can be read off a drawn figure: its axes, its panels and lines, where the first lines begin and end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES, MOST_READ = 8, 4
SYMBOLS = {"|": "‖", "lambda": "λ", "rho": "ρ", "Sigma": "Σ", "sigma": "σ", "gamma": "γ", "delta": "δ", "eta": "η"}
SYMBOLS |= {"theta": "θ", "alpha": "α", "beta": "β", "phi": "φ", "Phi": "Φ", "cdot": "·", "leq": "≤", "pm": "±"}
SYMBOLS |= {"partial": "∂", "nabla": "∇", "mu": "μ", "kappa": "κ", "tau": "τ", "omega": "ω", "xi": "ξ", "chi": "χ"}
SYMBOLS |= {"times": "×", "infty": "∞", "top": "ᵀ", "langle": "⟨", "rangle": "⟩", ",": " ", "epsilon": "ε", "nu": "ν"}


@dataclass(frozen=True)
class Drawing:
    """axes: what stands against what, and the lines. reading: where the first lines begin and end, or the number of
    points. has_bars: whether there are error bars or bands. note: what `figures.note` said."""

    axes: str = ""
    reading: str = ""
    has_bars: bool = False
    note: str = ""


def read(figure: Figure) -> Drawing:
    """The drawing of a figure that has been made and not yet cleared."""
    panels = [ax for ax in figure.axes if ax.has_data() and ax.get_label() != "<colorbar>"]
    reading = _reading(panels)
    labels = [label for label in _labels(panels) if f"{label}: " not in reading]
    more = f" and {len(labels) - MOST_LINES} more" if len(labels) > MOST_LINES else ""
    legend = f"Legend: {'; '.join(labels[:MOST_LINES])}{more}" if len(labels) > 1 else ""
    axes = ". ".join(part for part in (_axes(panels), legend) if part)
    return Drawing(axes, reading, any(_bars(ax) for ax in panels), str(figure.get_label() or ""))


def plain(text: str) -> str:
    """A label without its mathematical markup.

    >>> plain(r"resonance $R(d) = \\|H\\|_F$")
    'resonance R(d) = ‖H‖_F'
    """
    text = re.sub(r"\\(?:mathrm|mathcal|mathbf|text|operatorname|hat|bar)\b", "", text)
    text = re.sub(r"\\([A-Za-z]+|[|,])(\s?)", lambda found: SYMBOLS.get(found[1], found[1] + found[2]), text)
    return " ".join(re.sub(r"[${}]", "", text).split())


def _first_line(text: str) -> str:
    """Labels bear tests and fits below their first line, or alone."""
    line = plain(text.partition("\n")[0])
    return "" if re.search(r"\bp = ", line) else line


def _axes(panels: Sequence[Axes]) -> str:
    pairs: dict[str, None] = {}
    x = y = ""
    for ax in panels:
        x, y = _first_line(ax.get_xlabel()) or x, _first_line(ax.get_ylabel()) or y
        if x and y:
            pairs[f"{y}{' (logarithmic)' if ax.get_yscale() == 'log' else ''} against {x}"] = None
    parts = [f"{len(panels)} panels" if len(panels) > 1 else "", "; ".join(list(pairs)[:4])]
    return ": ".join(part for part in parts if part)


def _labels(panels: Sequence[Axes]) -> list[str]:
    """What the longest legend names; entries may differ from panel to panel by fits."""
    legends = [list(dict.fromkeys(map(plain, ax.get_legend_handles_labels()[1]))) for ax in panels]
    return max(legends, key=len, default=[])


def _reading(panels: Sequence[Axes]) -> str:
    """Ends of the first lines of the first panel that has any; else how many points there are."""
    for ax in panels:
        found = [text for label, line in _lines(ax) if (text := _ends(label, line))]
        if found:
            title = _first_line(ax.get_title(loc="left") or ax.get_title())
            return (f"In panel {title}: " if title and len(panels) > 1 else "") + "; ".join(found[:MOST_READ])
    drawn: list[Any] = [item for ax in panels for item in ax.collections if hasattr(item, "get_offsets")]
    points = sum(len(item.get_offsets()) for item in drawn)
    return f"{points:,} points" if points > 1 else ""


def _lines(ax: Axes) -> Iterable[tuple[str, Any]]:
    """(label, line) of what the legend names; an error bar's line is its first part."""
    handles: tuple[list[Any], list[Any]] = ax.get_legend_handles_labels()
    for handle, label in zip(*handles, strict=True):
        line = handle.lines[0] if hasattr(handle, "has_yerr") else handle
        if hasattr(line, "get_xdata"):
            yield plain(label), line


def _ends(label: str, line: Any) -> str:
    """'init: 3.2 at 0, 0.1 at 8', '' where there are no two finite points from left to right."""
    import numpy as np

    try:
        x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
    except (TypeError, ValueError):  # dates, categories
        return ""
    kept = np.isfinite(x) & np.isfinite(y) if x.shape == y.shape else np.zeros(0, dtype=bool)
    if kept.sum() < 2 or line.get_linestyle() == "None":
        return ""
    x, y = x[kept], y[kept]
    first, last = int(np.argmin(x)), int(np.argmax(x))
    if math.isclose(x[first], x[last]):
        return ""
    return f"{label}: {y[first]:.3g} at {x[first]:.4g}, {y[last]:.3g} at {x[last]:.4g}"


def _bars(ax: Axes) -> bool:
    from matplotlib.collections import PolyCollection

    bars = any(getattr(item, "has_yerr", False) for item in ax.containers)
    return bars or any(isinstance(item, PolyCollection) for item in ax.collections)
