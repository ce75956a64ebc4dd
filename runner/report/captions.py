"""Captions of figures, made from data: what is shown, on which axes, what can be read off the
drawing, the verdicts, and from which cells, seeds and commits. The text for readers who do not see
the figure begins with the verdicts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from runner.contract import assignments, is_extension
from runner.report.formatting import counts_of, number_line, statement_line
from runner.report.manifest import commits_of
from runner.report.scope import Scope

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_LINES, MOST_READ = 8, 4
SYMBOLS = {
    "|": "‖",
    "lambda": "λ",
    "rho": "ρ",
    "Sigma": "Σ",
    "sigma": "σ",
    "gamma": "γ",
    "delta": "δ",
    "eta": "η",
    "theta": "θ",
    "alpha": "α",
    "beta": "β",
    "phi": "φ",
    "Phi": "Φ",
    "cdot": "·",
    "leq": "≤",
    "pm": "±",
    "partial": "∂",
    "nabla": "∇",
    "mu": "μ",
    "kappa": "κ",
    "tau": "τ",
    "omega": "ω",
    "xi": "ξ",
    "chi": "χ",
    "times": "×",
    "infty": "∞",
    "top": "ᵀ",
    "langle": "⟨",
    "rangle": "⟩",
    ",": " ",
    "epsilon": "ε",
    "nu": "ν",
    "zeta": "ζ",
    "psi": "ψ",
    "Psi": "Ψ",
    "Omega": "Ω",
}


@dataclass(frozen=True)
class Drawing:
    """axes: what stands against what, and the lines. reading: where the first lines begin and end,
    or the number of points. has_bars: whether there are error bars or bands. note: what
    `figures.note` said."""

    axes: str = ""
    reading: str = ""
    has_bars: bool = False
    note: str = ""


def read_drawing(figure: Figure) -> Drawing:
    """The drawing of a figure that has been made and not yet cleared."""
    panels = [ax for ax in figure.axes if ax.has_data() and ax.get_label() != "<colorbar>"]
    reading, described = _reading(panels)
    labels = [label for label in _labels(panels) if label not in described]
    axes = _axes(panels)
    if len(labels) > 1:
        more = f" and {len(labels) - MOST_LINES} more" if len(labels) > MOST_LINES else ""
        legend = f"Legend: {'; '.join(labels[:MOST_LINES])}{more}"
        axes = f"{axes}. {legend}" if axes else legend
    return Drawing(axes, reading, any(map(_bars, panels)), str(figure.get_label() or ""))


def plain_label(text: str) -> str:
    """A label without its mathematical markup.

    >>> plain_label(r"resonance $R(d) = \\|H\\|_F$")
    'resonance R(d) = ‖H‖_F'
    """
    text = re.sub(r"\\(?:mathrm|mathcal|mathbf|text|operatorname|hat|bar)\b", "", text)
    text = re.sub(
        r"\\([A-Za-z]+|[|,])(\s?)", lambda found: SYMBOLS.get(found[1], found[1] + found[2]), text
    )
    return " ".join(re.sub(r"[${}]", "", text).split())


def _first_line(text: str) -> str:
    """Labels bear tests and fits below their first line, or alone."""
    line = plain_label(text.partition("\n")[0])
    return "" if re.search(r"\bp = ", line) else line


def _axes(panels: Sequence[Axes]) -> str:
    pairs: dict[str, None] = {}
    x = y = ""
    for ax in panels:
        x, y = _first_line(ax.get_xlabel()) or x, _first_line(ax.get_ylabel()) or y
        if x and y:
            scale = " (logarithmic)" if ax.get_yscale() == "log" else ""
            pairs[f"{y}{scale} against {x}"] = None
    parts = [f"{len(panels)} panels" if len(panels) > 1 else "", "; ".join(list(pairs)[:4])]
    return ": ".join(part for part in parts if part)


def _labels(panels: Sequence[Axes]) -> list[str]:
    """What the longest legend names; entries may differ from panel to panel by fits."""
    legends = [
        list(dict.fromkeys(map(plain_label, ax.get_legend_handles_labels()[1]))) for ax in panels
    ]
    return max(legends, key=len, default=[])


def _reading(panels: Sequence[Axes]) -> tuple[str, set[str]]:
    """Ends of the first lines of the first panel that has any, and the labels of these lines; else
    how many points there are."""
    for ax in panels:
        described = []
        for label, line in _lines(ax):
            ends = _ends(line)
            if ends:
                described.append((label, ends))
        if described:
            first = described[:MOST_READ]
            text = "; ".join(f"{label}: {ends}" for label, ends in first)
            title = _first_line(ax.get_title(loc="left") or ax.get_title())
            if title and len(panels) > 1:
                text = f"In panel {title}: {text}"
            return text, {label for label, _ in first}
    points = 0
    for ax in panels:
        for item in ax.collections:
            if hasattr(item, "get_offsets"):
                offsets: Any = item.get_offsets()
                points += len(offsets)
    return f"{points:,} points" if points > 1 else "", set()


def _lines(ax: Axes) -> Iterable[tuple[str, Any]]:
    """(label, line) of what the legend names; an error bar's line is its first part."""
    handles: tuple[list[Any], list[Any]] = ax.get_legend_handles_labels()
    for handle, label in zip(*handles, strict=True):
        line = handle.lines[0] if hasattr(handle, "has_yerr") else handle
        if hasattr(line, "get_xdata"):
            yield plain_label(label), line


def _ends(line: Any) -> str:
    """'3.2 at 0, 0.1 at 8', '' where there are no two finite points from left to right."""
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
    return f"{y[first]:.3g} at {x[first]:.4g}, {y[last]:.3g} at {x[last]:.4g}"


def _bars(ax: Axes) -> bool:
    from matplotlib.collections import PolyCollection

    bars = any(getattr(item, "has_yerr", False) for item in ax.containers)
    return bars or any(isinstance(item, PolyCollection) for item in ax.collections)


WORST = (
    "refuted",
    "not reproduced",
    "minor error",
    "inconclusive",
    "confirmed",
    "reproduced",
    "exact match",
)
"""Which row a caption spells out: the first of these that there is."""
LONGEST_ALT = 420


@dataclass(frozen=True)
class Caption:
    """text: below the figure. alt: without the figure: finding, axes, ends of the lines."""

    text: str
    alt: str


def caption(
    name: str,
    what: str,
    drawing: Drawing,
    rows: Mapping[str, pd.DataFrame],
    manifest: Mapping[str, Any],
    *,
    bars: str = "",
    drawn_with: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Caption:
    """The caption of a figure.

    what: what it shows, in words. rows: `claims` and `scorecard` of the report. bars: what bars and
    bands show, said where `what` does not. drawn_with: place in the paper -> settings of its
    figure.
    """
    scope, place = Scope.of(manifest), place_of(name, what)
    found = finding(place, rows) if scope.is_papers else scope.unjudged(place)
    said = re.search(r"±|\b(std|band|bars?|quartiles?|interval|range)\b", what) is not None
    parts = [
        what or name.replace("_", " "),
        f"Bars and bands: {bars}" if bars and drawing.has_bars and not said else "",
        drawing.note,
        _settings_line(drawn_with.get(place, {})),
        found,
        _provenance(manifest),
        scope.shown_only,
    ]
    alt = _joined([found, drawing.axes, drawing.reading, what or name.replace("_", " ")])
    return Caption(
        _joined(parts), alt if len(alt) <= LONGEST_ALT else f"{alt[: LONGEST_ALT - 1].rstrip()}…"
    )


def _settings_line(settings: Mapping[str, Any]) -> str:
    """What a reader changes to draw the figure otherwise."""
    return f"Settings of this figure: {assignments(settings)}" if settings else ""


def _joined(parts: Sequence[str]) -> str:
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('. ')}." for part in parts if part)


KINDS = {"fig": "Fig.", "table": "Table", "Fig": "Fig."}
"""What a figure or table of a paper is called, in names and texts -> its word."""


def place_of(name: str, what: str = "") -> str:
    """The paper's figure or table that a figure redraws, '' where there is none.

    >>> place_of("figN1_resonance"), place_of("table2_dynamics"), place_of("spread")
    ('Fig. N.1', 'Table 2', '')
    >>> place_of("spread", "Fig. 7: all")
    'Fig. 7'
    """
    found = re.match(r"(fig|table)([A-Z]?)0*(\d+)(?=_|$)", name)
    if found:
        kind, appendix, number = found.groups()
        return f"{KINDS[kind]} {appendix}{'.' * len(appendix)}{number}"
    return next(iter(sorted(places(what.partition(":")[0]))), "") if ":" in what else ""


def places(text: str, kinds: str = "Fig|Table") -> set[str]:
    """The figures and tables that a text names. kinds: other things with numbers.

    >>> sorted(places("DAG paper, Tables 6 and N.4; Fig. 12A"))
    ['Fig. 12', 'Table 6', 'Table N.4']
    >>> sorted(places("Theorem 34(a); Lemma B.10, Part 1", "Theorem|Lemma"))
    ['Lemma B.10', 'Theorem 34']
    """
    number = r"(?:[A-Z]\.)?\d+"
    found: set[str] = set()
    for kind, listed in re.findall(
        rf"\b({kinds})\w*\.?\s+({number}[A-D]?(?:(?:,| and)\s+{number}[A-D]?)*)", text
    ):
        found |= {f"{KINDS.get(kind, kind)} {one}" for one in re.findall(number, listed)}
    return found


def finding(place: str, rows: Mapping[str, pd.DataFrame]) -> str:
    """What the judge says of a figure or table of the paper: counts, and the row that matters most
    with its numbers."""
    if not place:
        return ""
    scored = _on(place, rows["scorecard"], "source")
    stated = _on(place, rows["claims"], "where")
    stated = [row for row in stated if not is_extension(str(row.get("where", "")))]
    parts = []
    if scored:
        parts.append(f"{_many(len(scored), 'printed number')} of {place}: {counts_of(scored)}")
    if stated:
        parts.append(f"{_many(len(stated), 'statement')} on {place}: {counts_of(stated)}")
    number, statement = _worst(scored), _worst(stated)
    if number is not None and WORST.index(number["verdict"]) < WORST.index("inconclusive"):
        parts.append(f"{number['verdict']}: {number_line(number)}")
    if statement is not None:
        parts.append(f"{statement['verdict']}: {statement_line(statement)}")
    return "; ".join(parts)


def _on(place: str, table: pd.DataFrame, column: str) -> list[dict[Any, Any]]:
    """The rows of a table whose place is this figure or table of the paper."""
    rows = table.to_dict("records")
    return [row for row in rows if place in places(str(row.get(column, "")))]


def _worst(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row that matters most: the first of those with the first verdict of `WORST`."""
    ranked = [row for row in rows if row["verdict"] in WORST]
    return min(ranked, key=lambda row: WORST.index(row["verdict"]), default=None)


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _provenance(manifest: Mapping[str, Any]) -> str:
    seeds, cells = manifest.get("seeds", []), manifest.get("cells", [])
    commits = commits_of(manifest) if cells else []
    line = f"Seed {seeds_line(seeds)}"
    if len(seeds) > 1:
        line = f"Seeds {seeds_line(seeds)} (n = {len(seeds)})"
    named = ", ".join(commits[:3])
    if len(commits) > 3:
        named += f" and {len(commits) - 3} more"
    word = "commit" if len(commits) == 1 else "commits"
    return f"{line}; {len(cells)} cells of {word} {named}"


def seeds_line(seeds: Sequence[int]) -> str:
    """42–46 for consecutive seeds, else a list."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}–{seeds[-1]}"
    return ", ".join(map(str, seeds))
