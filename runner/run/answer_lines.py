"""The answers of `hess-run why` in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.run.provenance import Answer, Record

SHOWN = 12
"""Items of a list."""
LONGEST_NAME = 20
"""Letters of the name of a fact that stand in a column of their own."""
COLUMNS = ("claim", "published", "measured", "verdict")
MOST_LETTERS = 60
"""Letters of a column."""


def lines(answers: Iterable[Answer]) -> list[str]:
    """The answers in lines: a title, then a line for each fact, or several."""
    shown = []
    for answer in answers:
        shown.append(answer.title)
        facts = dict(answer.record())
        del facts["title"]
        rows = facts.pop("rows", ())
        width = min(LONGEST_NAME, max(map(len, facts), default=0))
        for name, value in facts.items():
            first, *others = COMMANDS.get(name, _in_words)(value)
            shown.append(f"  {name:{width}} {first}")
            shown += [f"{'':{width + 3}}{line}" for line in others]
        shown += _row_lines(rows)
    return shown


def _cut_texts(row: Record) -> dict[str, str]:
    return {name: _cut(row[name]) for name in COLUMNS}


def _row_lines(rows: Sequence[Record]) -> list[str]:
    """Claim, published and measured value and verdict of each row in a table; the reason of one
    that does not agree, and its name, in the lines below it."""
    if not rows:
        return []
    head = {name: name for name in COLUMNS}
    lines = [head, *map(_cut_texts, rows)]
    widths = {}
    for name in COLUMNS:
        widths[name] = max(len(texts[name]) for texts in lines)
    shown = []
    for row, texts in zip(({}, *rows), lines, strict=True):
        shown.append("  " + "  ".join(texts[n].ljust(w) for n, w in widths.items()).rstrip())
        if row:
            shown.append(f"      {row['id']}")
        if row and row["reason"]:
            shown.append(f"      {row['reason']}")
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1].rstrip()}…"


def _in_words(value: Any) -> list[str]:
    """A text or number; counts as 'name (3)', another mapping as 'key=value'; of a list how many
    there are and the first of them."""
    if isinstance(value, Mapping):
        if all(isinstance(item, int) for item in value.values()):
            return [", ".join(f"{name} ({count})" for name, count in value.items())]
        return [", ".join(_assigned(value))]
    if isinstance(value, list):
        first = [_in_words(item)[0] for item in value[:SHOWN]]
        more = [f"and {len(value) - SHOWN} more"] if len(value) > SHOWN else []
        return [str(len(value)), *first, *more]
    return [f"{value:.4g}" if isinstance(value, float) else str(value)]


def _assigned(values: Record) -> Iterator[str]:
    """key=value of what is given, those of mappings inside among them."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _assigned(value)
        elif value not in (None, ""):
            yield f"{key}={value}"


def _figures(figures: Sequence[Record]) -> list[str]:
    """The file of each, what draws it from stored cells, and, where it has settings of its own,
    what measures and draws it with others."""
    shown = []
    for figure in figures:
        shown += [figure["file"], f"  {figure['draw']}"]
        if "measure" in figure:
            cost = f" ({figure['cost']})" if figure["cost"] else ""
            shown.append(f"  from the beginning, or with other settings{cost}:")
            shown += [f"    {figure[key]}" for key in ("measure", "redraw")]
    return shown


def _commands(by_experiment: Mapping[str, str]) -> list[str]:
    """What measures it, and where the settings are explained."""
    shown = []
    for name, command in by_experiment.items():
        shown += [command, f"  settings: hess-run list {name}"]
    return shown


COMMANDS: Mapping[str, Callable[[Any], list[str]]] = {"figures": _figures, "measure": _commands}
"""Facts that are command lines -> their lines."""
