"""Two shapes of text in Markdown that every page of the errata uses."""

from __future__ import annotations

from collections.abc import Sequence


def code(text: str) -> str:
    return f"`{text}`"


def folded(summary: str, body: Sequence[str]) -> list[str]:
    """Lines that a reader unfolds; none where there is no body."""
    return [f"<details><summary>{summary}</summary>", "", *body, "", "</details>", ""] if body else []
