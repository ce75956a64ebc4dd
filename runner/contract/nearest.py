"""The known name that a user may have meant."""

from __future__ import annotations

from collections.abc import Sequence


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """' (did you mean X?)', or '' where no name is near."""
    near = nearest(name, known)
    return f" (did you mean {near}?)" if near else ""


def nearest(name: str, known: Sequence[str]) -> str:
    """The known name that is nearest, or '' where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return near[0]
    # The last part may be right and the path wrong or missing; an experiment's own settings come
    # first.
    tails = {path.rpartition(".")[2]: path for path in reversed(known)}
    near = get_close_matches(name.rpartition(".")[2], list(tails), n=1, cutoff=0.6)
    return tails[near[0]] if near else ""
