"""Colours and markers: every method of its own, the ways to spare HSR's products in HSR's colour."""

from __future__ import annotations

from typing import Any

from experiments.hsr.flat_training.names import BASELINES, HSR
from runner.report.looks import DASHES, Looks

LOOKS = Looks((*BASELINES, HSR[0]))
VARIANTS = (("X", DASHES[6]), ("<", DASHES[4]), ("*", DASHES[7]))


def look(method: str) -> dict[str, Any]:
    """color, marker and linestyle of a method."""
    if method not in HSR[1:]:
        return LOOKS.style(method)
    marker, dashes = VARIANTS[HSR.index(method) - 1]
    return {**LOOKS.style(HSR[0]), "marker": marker, "linestyle": dashes}
