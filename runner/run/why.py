"""`hess-run why FILE`: which cells, commits, processors and command a figure, a table, a row or a cell came from.

`hess-run why ANCHOR` says the same of a published number or a statement, by its anchor in the pages.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.contract import Cell, SettingError, short
from runner.contract.schema import DIGITS
from runner.report.manifest import read_manifest
from runner.report.page import Page, tone
from runner.report.papers import anchor_pattern, anchors
from runner.run.command_line import Call
from runner.run.console import did_you_mean
from runner.store.archive import published_folder, report_folders, where_published
from runner.store.store import Store
from runner.store.tables import read_json

SHOWN_CELLS = 12
PLACE = re.compile(
    r"(table|fig\.?|figure|theorem|lemma|proposition|corollary)\s+([A-Za-z]?\.?\d[\d.]*)",
    re.IGNORECASE,
)
"""A table, figure or theorem of a paper, as a reader names it."""
Record = Mapping[str, Any]


def why_command(call: Call) -> int:
    """hess-run why FILE[:LINE] | ANCHOR [outputs=PATH] [--json]

    Where a figure, a table, a line of a table (the head is line 1), a page or a stored cell came from: cells with their
    parameters and seeds, commits, processors, times, and the commands that measure and draw it again. A figure that was
    copied elsewhere is looked up below PATH (default outputs) by what it says of itself.

      hess-run why outputs/ws_bound/figures/fig02_bound_and_eigenvalue.png
      hess-run why outputs/ws_bound/scorecard.csv:4
      hess-run why dag.T5.gelu.final.gap_global           (the # of a row in the pages)
      hess-run why dag.T5                                 (its rows)
      hess-run why "Table 5"                              (does it hold? and its rows)
    """
    lines = why(call.words[0], Path(call.keys.get("outputs", "outputs")))
    print(json.dumps(as_record(lines), indent=1) if call.json else "\n".join(lines))
    return 0


def as_record(lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines by the word that each begins with; the first one is the title."""
    record, key = {"title": [lines[0]]}, "title"
    for line in lines[1:]:
        key = line[:12].strip() or key
        record.setdefault(key, []).append(line[12:].strip())
    return record


def why(word: str, outputs: Path = Path("outputs")) -> list[str]:
    """Lines about FILE, FILE:LINE or an anchor. Raises SettingError for a file that no report or cell stands behind."""
    named = PLACE.fullmatch(word.strip())
    if named and not Path(word).exists():
        return _place_lines(named, outputs)
    anchor = word.rpartition("#")[2]
    if anchor_pattern().fullmatch(anchor) and not os.path.exists(word):
        return _anchor_lines(anchor, outputs)
    path, line = _place(word)
    cell = next(
        (folder for folder in (path, *path.parents) if (folder / "cell.json").is_file()), None
    )
    if cell is not None:
        return _cell_lines(cell)
    folder, record = _manifest(path, outputs)
    row = _row(path, line) if line else {}
    return _report_lines(path, folder, record, row)


def _place_lines(named: re.Match[str], outputs: Path) -> list[str]:
    """Of every paper that has this table, figure or theorem: whether it holds, then its rows."""
    kind = "Fig." if named[1].lower().startswith("fig") else named[1].capitalize()
    place = f"{kind} {named[2]}"
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for folder in report_folders(outputs):
        page = Page.read(folder)
        if page is None:
            continue
        for row in (*page.scores, *page.claims):
            if place.lower() in (at.lower() for at in row["places"]):
                rows.setdefault(page.paper, []).append(row)
    if not rows:
        raise SettingError(
            f"why: found no row on {place}; expected a table, figure or theorem of a paper whose "
            f"report is stored; {where_published()}"
        )
    lines = []
    for paper, of_paper in rows.items():
        verdicts = Counter(str(row["verdict"]) for row in of_paper)
        lines.append(f"{paper} paper: {answer(place, verdicts)}")
        lines += [f"  {row['id']}  {row['verdict']}" for row in of_paper]
    return lines


def answer(place: str, verdicts: Mapping[str, int]) -> str:
    """Whether a table, figure or theorem holds, in one sentence.

    >>> answer("Table 5", {"exact match": 15, "reproduced": 2, "calibrated": 1})
    'Table 5 holds: all 17 judged rows agree. Not counted: 1 more.'
    >>> answer("Fig. 2", {"confirmed": 2, "refuted": 1})
    'Fig. 2 does not hold in every row: 2 of 3 judged rows agree, 1 do not.'
    """
    counts: Counter[str] = Counter()
    for verdict, count in verdicts.items():
        counts[tone(verdict)] += count
    judged = counts["good"] + counts["bad"] + counts["open"]
    others = f" Not counted: {counts['neutral']} more." if counts["neutral"] else ""
    if not judged:
        return f"{place}: no row is judged.{others}"
    if counts["good"] == judged:
        return f"{place} holds: all {judged} judged rows agree.{others}"
    parts = [f"{counts['good']} of {judged} judged rows agree"]
    if counts["bad"]:
        parts.append(f"{counts['bad']} do not")
    if counts["open"]:
        parts.append(f"{counts['open']} cannot be decided")
    outcome = "does not hold in every row" if counts["bad"] else "is not contradicted"
    return f"{place} {outcome}: {', '.join(parts)}.{others}"


def _place(word: str) -> tuple[Path, int]:
    """(file, line), line 0 where none is given."""
    path, line = Path(word), 0
    head, colon, tail = word.rpartition(":")
    if not os.path.exists(path) and colon and DIGITS.fullmatch(tail):
        path, line = Path(head), int(tail)
    if not os.path.exists(path):
        found = f"found no {short(path, 200)}"
        raise SettingError(
            f"why: expected a figure, table, page or cell of an output folder, {found}"
        )
    return path.resolve(), line


def _manifest(path: Path, outputs: Path) -> tuple[Path, dict[str, Any]]:
    """The report that a file belongs to: by its place, or a figure that was copied away, by what it says of itself."""
    for folder in (path, *path.parents)[:3]:
        record = read_manifest(folder)
        if record and record["settings_key"]:
            return folder, record
    said = figure_record(path)
    if not said:
        raise SettingError(
            f"why: {path.name} is not in a report and says nothing of its origin; expected a PNG or CSV"
        )
    name = said.get("experiment", "")
    places = [outputs / name, *filter(None, [published_folder(name)])]
    for manifest in (path for place in places for path in sorted(place.rglob("manifest.json"))):
        record = read_manifest(manifest.parent)
        if record and record["settings_key"] == said.get("run"):
            return manifest.parent, record
    return path.parent, {"experiment": said.get("experiment"), "cells": [], "said": said}


def figure_record(path: Path) -> dict[str, str]:
    """What a PNG figure of a report carries about itself; {} for any other file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            record = json.loads(getattr(image, "text", {}).get("Description", ""))
    except (OSError, ValueError, UnidentifiedImageError):
        return {}
    return {str(k): str(v) for k, v in record.items()} if isinstance(record, dict) else {}


def _json(path: Path) -> dict[str, Any] | None:
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _row(path: Path, line: int) -> dict[str, str]:
    """Row of a table by its line in the file, the head being line 1."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else open(path, newline="", encoding="utf-8") as stream
    ):
        for row in csv.DictReader(stream):
            line -= 1
            if line == 1:
                return {str(k): str(v) for k, v in row.items()}
    raise SettingError(
        f"why: expected a line of {path.name} from 2 on, found one that it does not have"
    )


def _report_lines(path: Path, folder: Path, record: Record, row: Record) -> list[str]:
    said = figure_record(path) or record.get("said", {})
    table = path.name.removesuffix(".csv") if path.suffix == ".csv" else ""
    cells = [cell for cell in record.get("cells", []) if _matches(cell, row)]
    files = {
        cell["id"]: found for cell in cells if (found := _cell_json(folder, record, cell["id"]))
    }
    if table and any(table in meta.get("tables", {}) for meta in files.values()):
        cells = [
            cell for cell in cells if table in files.get(cell["id"], {}).get("tables", {table: 0})
        ]
    lines = [f"{path.name}: {record.get('experiment')}, {record.get('title', '')}".rstrip(", ")]
    if row:
        lines.append("  row       " + ", ".join(f"{k}={v}" for k, v in list(row.items())[:8]))
    if said:
        lines.append(
            "  says      " + ", ".join(f"{k}={v}" for k, v in said.items() if k != "warning")
        )
        lines += [f"  warning   {said['warning']}"] if said.get("warning") else []
    if not record.get("settings_key"):
        return [
            *lines,
            "  its cells are not here; give the output folder that it was made from: outputs=PATH",
        ]
    lines += _cells_lines(cells, files)
    changed = str(record.get("changed", ""))
    lines.append(
        f"  settings  {record['settings_key']}, profile {record.get('profile')} {changed}".rstrip()
    )
    lines.append(
        f"  written   {record.get('written')}, by commit {record.get('software', {}).get('git_commit')}"
    )
    return [*lines, *_commands(folder, record, cells, said.get("figure", ""))]


def _anchor_lines(anchor: str, outputs: Path) -> list[str]:
    """The evidence of one row: what is printed, what was measured, the verdict, and the cells behind it."""
    known: list[str] = []
    parts: list[str] = []
    for folder in report_folders(outputs):
        page = Page.read(folder)
        if page is None or anchors().get(page.paper, "") not in ("", anchor.partition(".")[0]):
            continue
        for row in (*page.scores, *page.claims):
            if row["id"] == anchor:
                return [
                    f"{anchor}: {page.name}, {page.title}",
                    *_row_lines(row),
                    *_behind(folder, page, row),
                ]
            known.append(row["id"])
            if row["id"].startswith(f"{anchor}."):
                parts.append(f"  {row['id']}  {row.get('verdict')}")
    if parts:
        return [f"{anchor}: {len(parts)} rows; hess-run why ROW says more of each", *parts]
    if not known:
        raise SettingError(
            f"why: no report below {short(outputs)} has rows of this paper; make them with hess-run report; "
            + where_published()
        )
    raise SettingError(
        f"why: no row has the anchor {short(anchor)}{did_you_mean(anchor, known)}; the pages link to each"
    )


def _row_lines(row: Record) -> list[str]:
    """A published number or a statement, one line for each thing that is known of it."""
    said = {
        "statement": row.get("statement"),
        "printed": f"{_shown(row.get('paper_mean', row.get('upper_bound')))}{_spread(row.get('paper_std'))}",
        "ours": f"{_shown(row.get('measured_mean'))}{_spread(row.get('measured_std'))}",
        "seeds": ", ".join(f"{seed}: {_shown(value)}" for seed, value in row.get("values", [])),
        "measured": row.get("statistic"),
        "against": row.get("threshold"),
        "place": row.get("source", row.get("where")),
        "verdict": ": ".join(str(text) for text in (row.get("verdict"), row.get("reason")) if text),
        "detail": row.get("detail"),
    }
    return [f"  {name:9s} {text}" for name, text in said.items() if text]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""


def _spread(value: Any) -> str:
    return f" ± {value:.2g}" if isinstance(value, int | float) else ""


def _behind(folder: Path, page: Page, row: Record) -> list[str]:
    """The cells whose parameters a row names, and the command that measures them again."""
    record = page.manifest
    cells = [cell for cell in record.get("cells", []) if _matches(cell, row.get("keys", {}))]
    files = {
        cell["id"]: found for cell in cells if (found := _cell_json(folder, record, cell["id"]))
    }
    named = {
        key: cells[0]["params"][key]
        for key in row.get("keys", {})
        if cells and key in cells[0]["params"]
    }
    words = [f"{key}={value}" for key, value in named.items()]
    return [*_cells_lines(cells, files), *_commands(folder, record, cells, "", words)]


def _matches(cell: Record, row: Record) -> bool:
    """Whether a row can have come from a cell: every column that is a parameter of the cell, or its seed, agrees."""
    own = {**cell["params"], "seed": cell["seed"]}
    return all(row.get(name) in (None, "", "nan", str(value)) for name, value in own.items())


def _cell_json(folder: Path, record: Record, cell_id: str) -> dict[str, Any] | None:
    """cell.json of a cell of a report, whose folder is that of its experiment or one below; or published."""
    name = str(record.get("experiment"))
    root = folder if folder.name == name else folder.parent
    found = Store(root.parent, name).find(cell_id)
    return dict(found.meta) if found is not None else None


def _cells_lines(cells: Sequence[Record], files: Mapping[str, Record]) -> list[str]:
    ids = [f"{cell['id']} seed={cell['seed']} {Cell(cell['params']).label}" for cell in cells]
    more = [f"            and {len(ids) - SHOWN_CELLS} more"] if len(ids) > SHOWN_CELLS else []
    machines = [_processor(files[cell["id"]]) for cell in cells if cell["id"] in files]
    return [
        f"  cells     {len(ids)}",
        *(f"            {line}" for line in ids[:SHOWN_CELLS]),
        *more,
        f"  commits   {_counted(cell.get('git_commit') for cell in cells)}",
        f"  CPU       {_counted(machines) or 'not known here: the cells are not next to the report'}",
        f"  measured  {_span(str(cell['finished']) for cell in cells)}",
    ]


def _processor(meta: Record) -> str:
    return str(meta.get("software", {}).get("cpu") or "not recorded")


def _counted(values: Iterable[Any]) -> str:
    return ", ".join(
        f"{value} ({count})" for value, count in Counter(map(str, values)).most_common()
    )


def _span(times: Iterable[str]) -> str:
    found = sorted(times)
    return f"{found[0]} to {found[-1]}" if found else "never"


def _near(path: Path) -> Path:
    """A path as one would type it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _commands(
    folder: Path, record: Record, cells: Sequence[Record], figure: str, part: Sequence[str] = ()
) -> list[str]:
    """What measures these cells, and what draws the figure again. part: words that choose a part of the grid."""
    name = str(record.get("experiment"))
    root = folder if folder.name == name else folder.parent
    words = [f"experiment={name}"]
    words += [f"profile={record['profile']}"] if record.get("profile", "paper") != "paper" else []
    words += shlex.split(str(record.get("changed", "")))
    elsewhere = root != published_folder(name) and not any(
        word.startswith("outputs=") for word in words
    )
    words += [f"outputs={_near(root.parent)}"] if elsewhere else []
    seeds = sorted({int(cell["seed"]) for cell in cells})
    seed = [f"seed={','.join(map(str, seeds))}"] if seeds else []
    many = ["-m"] if len(seeds) > 1 else []
    words = [word for word in words if word != "outputs=outputs"]
    lines = [f"  command   {shlex.join(['hess-run', *many, *words, *part, *seed])}"]
    if figure:
        lines.append(
            f"  redraw    {shlex.join(['hess-run', 'report', *words, f'figure={figure}'])}"
        )
    return lines


def _cell_lines(folder: Path) -> list[str]:
    """A stored cell, from its cell.json."""
    from runner.store.cells import Damaged, Folder

    try:
        meta: Record = Folder(folder.parent).cell(folder.name).meta
        state = "whole"
    except Damaged as error:
        meta, state = _json(folder / "cell.json") or {}, f"damaged: {error}"
    software = meta.get("software", {})
    profile = meta.get("profile", "paper")
    words = [
        f"experiment={meta.get('experiment')}",
        *([f"profile={profile}"] if profile != "paper" else []),
    ]
    words.append(f"seed={meta.get('seed')}")
    return [
        f"cell {folder.name} of {meta.get('experiment')}, {state}",
        f"  cell      seed={meta.get('seed')} {Cell(meta.get('params', {})).label}",
        f"  settings  {meta.get('settings_key')}, profile {profile}",
        f"  ran with  threads={meta.get('threads')} device={meta.get('device')}",
        f"  commit    {software.get('git_commit')}",
        f"  CPU       {_processor(meta)}, torch {software.get('torch')}",
        f"  measured  {meta.get('finished')}, {meta.get('cpu_seconds')} s of processor time",
        f"  tables    {', '.join(f'{k} ({v} rows)' for k, v in meta.get('tables', {}).items())}",
        f"  command   {shlex.join(['hess-run', *words])}",
    ]
