"""Colours, markers and dashes of plots.

Colours are Okabe and Ito's, which colour-blind readers tell apart; a second sign (marker, dashes,
hatching) carries every distinction into grey print. Which labels belong together is a module
constant of the paper's package:

    >>> METHODS = PlotStyles(("gd", "hsr", "trace"))
    >>> METHODS.style("hsr")
    {'color': '#D55E00', 'marker': 's', 'linestyle': '--'}
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

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
