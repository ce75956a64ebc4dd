"""Mistakes of users: tables of them, and how they end."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusal(match: str, kind: type[Exception] = ValueError) -> Iterator[None]:
    """An error of this kind with this text, in one line."""
    with pytest.raises(kind, match=match) as error:
        yield
    assert "\n" not in str(error.value)


def mistakes(table: str) -> list[tuple[list[str], str]]:
    """(words, what the line on standard error says) of each line "words | what it says"."""
    rows = (line.split(" | ") for line in table.strip().splitlines())
    return [(words.split(), expected) for words, expected in rows]
