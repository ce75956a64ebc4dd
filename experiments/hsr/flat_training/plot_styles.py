"""Colours and markers: every method of its own."""

from __future__ import annotations

from typing import Any

from experiments.hsr.flat_training.names import BASELINES, HSR, WIDE
from runner.report.plot_style import COLOURS, DASHES, PlotStyles

STYLES = PlotStyles((*BASELINES, HSR[0]))
VARIANTS = ((COLOURS[6], "X", DASHES[6]), (COLOURS[7], "<", DASHES[4]), ("#332288", "*", DASHES[7]))
"""HSR's ways to spare products: the house's last two colours, and Tol's indigo, which is none of them."""


def look(method: str) -> dict[str, Any]:
    """color, marker and linestyle of a method; hollow marks are left to the flattest settings."""
    if method == WIDE:
        return {**STYLES.style(HSR[0]), "color": "#117733", "marker": "p"}  # Tol's green, none of the house's colours
    if method not in HSR[1:]:
        return STYLES.style(method)
    return dict(zip(("color", "marker", "linestyle"), VARIANTS[HSR.index(method) - 1], strict=True))
