"""The lines below a saved figure: seeds, what bars and marks are, and what keeps it from being the paper's."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def footers(figure: Figure, stamp: Mapping[str, Any]) -> list[Any]:
    """The lines below the canvas, which the tight bounding box takes in."""
    seeds = seed_words(str(stamp.get("seeds") or ""))
    said = "; ".join(part for part in (seeds, str(figure.get_label() or "")) if part)
    found, place = [], -0.01
    for words, colour in ((said, "0.35"), (str(stamp.get("warning") or ""), "#B00000")):
        if words:
            text = textwrap.fill(words, int(16 * figure.get_figwidth()))  # about 16 letters an inch
            found.append(figure.text(0.5, place, text, ha="center", va="top", fontsize=7, color=colour))
            place -= 0.13 * (text.count("\n") + 1) / figure.get_figheight()
    return found


def seed_words(seeds: str) -> str:
    """Comma-separated seeds as words.

    >>> seed_words("42,43,44,45,46"), seed_words("42"), seed_words("1,5"), seed_words("")
    ('cells of 5 seeds, 42–46', 'cells of seed 42', 'cells of 2 seeds, 1, 5', '')
    """
    found = sorted({int(s) for s in seeds.split(",") if s.strip().isdigit()})
    if not found:
        return ""
    if len(found) == 1:
        return f"cells of seed {found[0]}"
    run = found == list(range(found[0], found[-1] + 1)) and len(found) > 2
    return f"cells of {len(found)} seeds, " + (f"{found[0]}–{found[-1]}" if run else ", ".join(map(str, found)))
