"""How a mistake of a user ends."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusal(match: str, kind: type[Exception] = ValueError) -> Iterator[None]:
    """An error of this kind with this text, in one line."""
    with pytest.raises(kind, match=match) as error:
        yield
    assert "\n" not in str(error.value)
