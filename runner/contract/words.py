"""The user's words in messages: short, in one line, without control characters."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def assignments(settings: Mapping[str, Any]) -> list[str]:
    """Settings as one types them.

    >>> assignments({"hidden": [3, 10], "activation": ["tanh"], "rate": 0.1})
    ['hidden=[3,10]', 'activation=[tanh]', 'rate=0.1']
    """
    values = {name: re.sub(r"[' ]", "", str(value)) for name, value in settings.items()}
    return [f"{name}={value}" for name, value in values.items()]


def quoted(key: str, value: object) -> str:
    """key=value for Hydra's grammar: in quotes what it does not take for text itself.

    >>> quoted("outputs", "runs"), quoted("outputs", "a, b")
    ('outputs=runs', "outputs='a, b'")
    """
    text = str(value)
    if isinstance(value, Path) and text.startswith("~"):
        text = f"./{text}"  # of a path, ~ has been replaced
    if re.fullmatch(r"[\w./+@%:-]+", text, re.ASCII):
        return f"{key}={text}"
    # a backslash counts before a quote alone
    escaped = re.sub(r"(\\*)'", r"\1\1\'", text)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return f"{key}='{escaped}'"


def described(error: BaseException) -> str:
    """The kind and the text of an error of others, which may fail to make it."""
    kind = type(error).__name__
    try:
        return f"{kind}: {str(error) or 'no message'}"
    except Exception:
        return f"{kind}, whose text cannot be made"


def where_raised(error: BaseException) -> str:
    """File and line where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "no place"


def seeds_line(seeds: Sequence[int]) -> str:
    """42–46 for consecutive seeds, else a list."""
    if len(seeds) > 2:
        first = seeds[0]
        if list(seeds) == list(range(first, first + len(seeds))):
            return f"{first}–{seeds[-1]}"
    return ", ".join(map(str, seeds))


def natural(text: str) -> list[tuple[int, str]]:
    """Key that sorts a text with numbers as people do.

    >>> sorted(["Fig. 10", "Fig. 2"], key=natural)
    ['Fig. 2', 'Fig. 10']
    """
    parts = re.findall(r"\d+|\D+", text)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
