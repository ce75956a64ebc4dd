"""`hess-run why`: which cells, commits, processors and command a figure, a table, a row or a cell
came from; of a published number or a statement by its anchor in the pages.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.contract import Cell, SettingError, short
from runner.contract.schema import DIGITS
from runner.report.page import Page, tone
from runner.report.papers import anchor_pattern, anchors
from runner.run.command_line import Call
from runner.run.console import did_you_mean
from runner.run.provenance import Answer, Record, of_cell, of_file, of_row
from runner.store.archive import report_folders, where_published
from runner.store.cells import CELL_JSON

SHOWN_CELLS = 12
INDENT = " " * 12
PLACE = re.compile(
    r"(table|fig\.?|figure|theorem|lemma|proposition|corollary)\s+([A-Za-z]?\.?\d[\d.]*)",
    re.IGNORECASE,
)
"""A table, figure or theorem of a paper, as a reader names it."""


def why_command(call: Call) -> int:
    """hess-run why FILE[:LINE] | ANCHOR [outputs=PATH] [--json]

    Where a figure, a table, a line of a table (the head is line 1), a page or a stored cell came
    from: cells with their parameters and seeds, commits, processors, times, and the commands that
    measure and draw it again. A figure that was copied elsewhere is looked up below PATH (default
    outputs) by what it says of itself.

      hess-run why outputs/ws_bound/figures/fig02_bound_and_eigenvalue.png
      hess-run why outputs/ws_bound/scorecard.csv:4
      hess-run why dag.T5.gelu.final.gap_global           (the # of a row in the pages)
      hess-run why dag.T5                                 (its rows)
      hess-run why "Table 5"                              (does it hold? and its rows)
    """
    answers = why(call.words[0], Path(call.keys.get("outputs", "outputs")))
    if call.json:
        print(json.dumps([answer.record() for answer in answers], indent=1))
    else:
        print("\n".join(lines(answers)))
    return 0


def why(word: str, outputs: Path = Path("outputs")) -> list[Answer]:
    """Answers about FILE, FILE:LINE, an anchor, or a place of a paper.

    Raises SettingError for a file that no report or cell stands behind.
    """
    named = PLACE.fullmatch(word.strip())
    if named and not Path(word).exists():
        return _of_place(named, outputs)
    anchor = word.rpartition("#")[2]
    if anchor_pattern().fullmatch(anchor) and not os.path.exists(word):
        return [_of_anchor(anchor, outputs)]
    path, line = _file_and_line(word)
    for folder in (path, *path.parents):
        if (folder / CELL_JSON).is_file():
            return [of_cell(folder)]
    return [of_file(path, line, outputs)]


def _of_place(named: re.Match[str], outputs: Path) -> list[Answer]:
    """Of every paper that has this table, figure or theorem: whether it holds, and its rows."""
    kind = "Fig." if named[1].lower().startswith("fig") else named[1].capitalize()
    place = f"{kind} {named[2]}"
    rows: dict[str, dict[str, str]] = {}
    for folder in report_folders(outputs):
        page = Page.read(folder)
        if page is None:
            continue
        for row in (*page.scores, *page.claims):
            if place.lower() in map(str.lower, row["places"]):
                rows.setdefault(page.paper_of(row), {})[row["id"]] = row["verdict"]
    if not rows:
        raise SettingError(
            f"why: found no row on {place}; expected a table, figure or theorem of a paper whose "
            f"report is stored; {where_published()}"
        )
    return [
        Answer(f"{paper} paper: {judgement(place, Counter(verdicts.values()))}", {"rows": verdicts})
        for paper, verdicts in rows.items()
    ]


def judgement(place: str, verdicts: Mapping[str, int]) -> str:
    """Whether a table, figure or theorem holds, in one sentence.

    >>> judgement("Table 5", {"exact match": 15, "reproduced": 2, "calibrated": 1})
    'Table 5 holds: 17 of 17 judged rows agree. Not counted: 1 more.'
    >>> judgement("Fig. 2", {"confirmed": 2, "refuted": 1})
    'Fig. 2 does not hold in every row: 2 of 3 judged rows agree; disagree: 1.'
    """
    counts: Counter[str] = Counter()
    for verdict, count in verdicts.items():
        counts[tone(verdict)] += count
    judged = counts["good"] + counts["bad"] + counts["open"]
    others = f" Not counted: {counts['neutral']} more." if counts["neutral"] else ""
    if not judged:
        return f"{place}: no row is judged.{others}"
    parts = [f"{counts['good']} of {judged} judged rows agree"]
    if counts["bad"]:
        parts.append(f"disagree: {counts['bad']}")
    if counts["open"]:
        parts.append(f"cannot be decided: {counts['open']}")
    outcome = "is not contradicted"
    if counts["bad"]:
        outcome = "does not hold in every row"
    elif not counts["open"]:
        outcome = "holds"
    return f"{place} {outcome}: {'; '.join(parts)}.{others}"


def _file_and_line(word: str) -> tuple[Path, int]:
    """(file, line), line 0 where none is given."""
    path, line = Path(word), 0
    head, colon, tail = word.rpartition(":")
    if not os.path.exists(path) and colon and DIGITS.fullmatch(tail):
        path, line = Path(head), int(tail)
    if not os.path.exists(path):
        raise SettingError(
            f"why: expected a figure, table, page or cell of an output folder, "
            f"found no {short(path, 200)}"
        )
    return path.resolve(), line


def _of_anchor(anchor: str, outputs: Path) -> Answer:
    """The evidence of one row; of the beginning of several anchors, these rows."""
    known: list[str] = []
    below: dict[str, str] = {}
    paper = anchor.partition(".")[0]
    for folder in report_folders(outputs):
        page = Page.read(folder)
        if page is None or anchors().get(page.paper, "") not in ("", paper):
            continue
        for row in (*page.scores, *page.claims):
            if row["id"] == anchor:
                return of_row(folder, page, row)
            known.append(row["id"])
            if row["id"].startswith(f"{anchor}."):
                below[row["id"]] = row["verdict"]
    if below:
        title = f"{anchor}: {len(below)} rows; hess-run why ROW says more of each"
        return Answer(title, {"rows": below})
    if not known:
        raise SettingError(
            f"why: no report below {short(outputs)} has rows of this paper; "
            f"make them with hess-run report; {where_published()}"
        )
    raise SettingError(
        f"why: no row has the anchor {short(anchor)}{did_you_mean(anchor, known)}; "
        "the pages link to each"
    )


# ------------------------------------------------------------------ in words


def lines(answers: Iterable[Answer]) -> list[str]:
    """The answers in lines: a title, then a line for each fact, or several."""
    shown = []
    for answer in answers:
        shown.append(answer.title)
        for name, value in answer.record().items():
            if name == "rows":
                shown += [f"  {anchor}  {verdict}" for anchor, verdict in value.items()]
            elif name != "title":
                in_words = _in_a_line if isinstance(value, str) else IN_WORDS.get(name, _in_a_line)
                first, *others = in_words(value)
                shown.append(f"  {name.partition(' ')[0]:9s} {first}")
                shown += [f"{INDENT}{line}" for line in others]
    return shown


def _in_a_line(value: Any) -> list[str]:
    """A text or number; a mapping as key=value."""
    if isinstance(value, Mapping):
        return [", ".join(f"{key}={item}" for key, item in value.items())]
    return [_shown(value)]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [", ".join(f"{name} ({count})" for name, count in counts.items())]


def _cell(cell: Record) -> list[str]:
    return [f"seed={cell['seed']} {Cell(cell['params']).label}"]


def _cells(cells: Sequence[Record]) -> list[str]:
    """How many cells, and the first of them."""
    found = [f"{cell['id']} {_cell(cell)[0]}" for cell in cells[:SHOWN_CELLS]]
    if len(cells) > SHOWN_CELLS:
        found.append(f"and {len(cells) - SHOWN_CELLS} more")
    return [str(len(cells)), *found]


def _spread(value: Mapping[str, float]) -> list[str]:
    std = f" ± {value['std']:.2g}" if "std" in value else ""
    return [f"{value['mean']:.4g}{std}" if "mean" in value else std]


def _seeds(values: Mapping[int, float]) -> list[str]:
    return [", ".join(f"{seed}: {_shown(value)}" for seed, value in values.items())]


def _settings(value: Record) -> list[str]:
    return [f"{value['key']}, profile {value['profile']} {value.get('changed', '')}".rstrip()]


def _tables(rows: Mapping[str, int]) -> list[str]:
    return [", ".join(f"{name} ({count} rows)" for name, count in rows.items())]


IN_WORDS: Mapping[str, Callable[[Any], list[str]]] = {
    "cell": _cell,
    "cells": _cells,
    "commits": _counted,
    "CPU": _counted,
    "measured between": lambda times: [f"{times[0]} to {times[1]}"],
    "ours": _spread,
    "printed": _spread,
    "seeds": _seeds,
    "settings": _settings,
    "tables": _tables,
    "written": lambda value: [f"{value['time']}, by commit {value['commit']}"],
}
"""Facts that are no text, number or plain mapping -> their lines."""
