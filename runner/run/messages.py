"""Pieces of error messages: the nearest valid name, a value cut to one line."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(name: str, known: Sequence[str]) -> str:
    """' (did you mean X?)', or '' where no name is near."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    if not near:  # the last part may be right and the path wrong or missing
        tails = {k.rpartition(".")[2]: k for k in reversed(known)}  # an experiment's own settings come first
        near = [tails[t] for t in get_close_matches(name.rpartition(".")[2], list(tails), n=1, cutoff=0.6)]
    return f" (did you mean {near[0]}?)" if near else ""


def short(text: object, length: int = 60) -> str:
    """A value in one line of about `length` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else f"{line[: length // 2]} … {line[-length // 4 :]} ({len(line)} characters)"
