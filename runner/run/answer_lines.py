"""The answers of `hess-run why` in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runner.contract import Cell
from runner.run.provenance import Answer, Record

SHOWN_CELLS = 12
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
            in_words = _in_a_line if isinstance(value, str) else IN_WORDS.get(name, _in_a_line)
            first, *others = in_words(value)
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


def _in_a_line(value: Any) -> list[str]:
    """A text or number; a mapping as key=value."""
    if isinstance(value, Mapping):
        return [", ".join(f"{key}={item}" for key, item in value.items())]
    return [_shown(value)]


def _shown(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:.4g}"
    return str(value)


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [", ".join(f"{name} ({count})" for name, count in counts.items())]


def _cell(cell: Record) -> list[str]:
    return [f"seed={cell['seed']} {Cell(cell['params']).label}"]


def _cells(cells: Sequence[Record]) -> list[str]:
    """How many cells, and the first of them."""
    return [str(len(cells)), *_first([f"{cell['id']} {_cell(cell)[0]}" for cell in cells])]


def _missing(cells: Sequence[str]) -> list[str]:
    """How many cells are not measured, and the first of them."""
    return [f"{len(cells)} not measured", *_first(cells)]


def _first(cells: Sequence[str]) -> list[str]:
    """As many as an answer shows, and how many more there are."""
    shown = list(cells[:SHOWN_CELLS])
    if len(cells) > SHOWN_CELLS:
        shown.append(f"and {len(cells) - SHOWN_CELLS} more")
    return shown


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


def _settings(value: Record) -> list[str]:
    return [f"{value['key']}, profile {value['profile']} {value.get('changed', '')}".rstrip()]


def _tables(rows: Mapping[str, int]) -> list[str]:
    return [", ".join(f"{name} ({count} rows)" for name, count in rows.items())]


IN_WORDS: Mapping[str, Callable[[Any], list[str]]] = {
    "cell": _cell,
    "cells": _cells,
    "figures": _figures,
    "measure": _commands,
    "missing": _missing,
    "commits": _counted,
    "CPU": _counted,
    "between": lambda times: [f"{times[0]} to {times[1]}"],
    "settings": _settings,
    "tables": _tables,
    "written": lambda value: [f"{value['time']}, by commit {value['commit']}"],
}
"""Facts that are no text, number or plain mapping -> their lines."""
