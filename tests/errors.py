"""Mistakes of users: tables of them, and how they end."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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


def each_row(names: str, table: Mapping[str, Any]) -> pytest.MarkDecorator:
    """One test for each row of a table, with the row's values as arguments of these names."""
    return pytest.mark.parametrize(names, table.values(), ids=table)
