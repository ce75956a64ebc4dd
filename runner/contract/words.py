"""The user's words in messages: short, in one line, without control characters."""

from __future__ import annotations

import re

CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def short(text: object, length: int = 60) -> str:
    """A value in one line of about `length` characters; control characters are shown as \\x1b."""
    line = plain(" ".join(str(text).split()))
    if len(line) <= length:
        return line
    return f"{line[: length // 2]} … {line[-length // 4 :]} ({len(line)} characters)"


def plain(text: str) -> str:
    """A text without control characters: a terminal would obey them."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
