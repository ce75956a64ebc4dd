"""Where a figure, a table, a row or a cell came from, as records; `runner.run.why` shows them."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.contract import SettingError
from runner.report.answers.rows import Row
from runner.report.output.commands import (
    as_typed,
    figure_commands,
    measuring,
    root_of,
    run_words,
    shown_command,
)
from runner.report.output.manifest import read_manifest
from runner.report.output.page import Page
from runner.store.archive import published_folder
from runner.store.cells import CELL_JSON, CellFiles, Damaged
from runner.store.store import Store

Record = Mapping[str, Any]
NOT_HERE = "its cells are not here; give the output folder that it was made from: outputs=PATH"
NOT_RECORDED = "not recorded"
UNKNOWN = "not known here: the cells are not next to the report"


@dataclass(frozen=True)
class Answer:
    """What is known of one thing.

    title: what it is; facts: name -> text, number, list or mapping, in the order in which they are
    shown.
    """

    title: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The answer as JSON holds it; what is not known is left out."""
        known = {name: value for name, value in self.facts.items() if value not in (None, "", {})}
        return {"title": self.title, **known}


def of_file(path: Path, line: int, outputs: Path) -> Answer:
    """Of a file of a report, of a line of a table (0: all of it), or of a figure that was copied.

    Raises SettingError for a file that no report stands behind.
    """
    folder, manifest = _manifest(path, outputs)
    row = table_row(path, line) if line else {}
    cells = [cell for cell in manifest.get("cells", []) if _matches(cell, row)]
    stored = _stored(folder, manifest, cells)
    table = path.name.removesuffix(".csv")
    if any(table in meta.get("tables", {}) for meta in stored.values()):
        without = {name for name, meta in stored.items() if table not in meta.get("tables", {})}
        cells = [cell for cell in cells if cell["id"] not in without]
    in_figure = figure_record(path) or manifest.get("says", {})
    facts = {
        "file": str(as_typed(path)),
        "row": dict(list(row.items())[:8]),
        "says": {key: value for key, value in in_figure.items() if key != "warning"},
        "warning": in_figure.get("warning"),
    }
    about = [path.name, str(manifest.get("experiment")), str(manifest.get("title", ""))]
    first, *others = dict.fromkeys(filter(None, about))
    title = f"{first}: {', '.join(others)}"
    if not manifest.get("settings_key"):
        return Answer(title, {**facts, "note": NOT_HERE})
    facts |= _of_cells(cells, stored)
    facts["missing"] = manifest["missing"] or ""
    facts["settings"] = {
        "key": manifest["settings_key"],
        "profile": manifest["profile"],
        "changed": manifest["changed"],
    }
    commit = manifest["software"].get("git_commit")
    facts["written"] = {"time": manifest["written"], "commit": commit}
    words = run_words(folder, manifest)
    facts["command"] = measuring(words, {cell["seed"] for cell in cells})
    if "figure" in in_figure:
        made = figure_commands(manifest, in_figure["figure"], words)
        facts |= {"command": made.get("measure", facts["command"]), "redraw": made["redraw"]}
    return Answer(title, facts)


def of_row(folder: Path, page: Page, row: Row) -> Answer:
    """Of a published number or a statement: printed and measured values, and the cells behind."""
    manifest = page.manifest
    cells = [cell for cell in manifest["cells"] if _matches(cell, row.keys)]
    facts: dict[str, Any] = {"claim": row.what, "place": row.place}
    facts["verdict"] = row.verdict
    facts |= {**dict(page.facts(row)), "why": row.why}
    facts |= _of_cells(cells, _stored(folder, manifest, cells))
    params = cells[0]["params"] if cells else {}
    words = [f"{key}={params[key]}" for key in row.keys if key in params]
    run = [*run_words(folder, manifest), *words]
    facts["command"] = measuring(run, {cell["seed"] for cell in cells})
    return Answer(f"{row.id}: {page.name}, {page.title}", facts)


def of_cell(files: CellFiles, name: str) -> Answer:
    """Of a cell by its place, whole or damaged."""
    try:
        return of_meta(files.cell(name).meta, name)
    except Damaged as error:
        return of_meta(_as_it_is(files, name), name, f"damaged: {error}")


def of_meta(meta: Record, name: str, state: str = "whole") -> Answer:
    """Of a stored cell, from its cell.json."""
    software = meta.get("software", {})
    profile = meta.get("profile", "paper")
    words = [f"experiment={meta.get('experiment')}", f"seed={meta.get('seed')}"]
    if profile != "paper":
        words.insert(1, f"profile={profile}")
    facts = {
        "cell": {"seed": meta.get("seed"), "params": meta.get("params", {})},
        "settings": {"key": meta.get("settings_key"), "profile": profile},
        "ran with": {"threads": meta.get("threads"), "device": meta.get("device")},
        "commit": software.get("git_commit"),
        "CPU": {_processor(meta): 1},
        "torch": software.get("torch"),
        "measured": {"time": meta.get("finished"), "cpu_seconds": meta.get("cpu_seconds")},
        "tables": meta.get("tables", {}),
        "command": shown_command(words),
    }
    return Answer(f"cell {name} of {meta.get('experiment')}, {state}", facts)


def figure_record(path: Path) -> dict[str, str]:
    """What a PNG figure of a report carries about itself; {} for any other file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            record = json.loads(getattr(image, "text", {}).get("Description", ""))
    except (OSError, ValueError, UnidentifiedImageError):
        return {}
    if isinstance(record, dict):
        return {str(k): str(v) for k, v in record.items()}
    return {}


def table_row(path: Path, line: int) -> dict[str, str]:
    """Row of a table by its line in the file, the head being line 1."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as stream:
        for number, row in enumerate(csv.DictReader(stream), start=2):
            if number == line:
                return {str(k): str(v) for k, v in row.items()}
    raise SettingError(
        f"why: expected a line of {path.name} from 2 on, found one that it does not have"
    )


def _manifest(path: Path, outputs: Path) -> tuple[Path, dict[str, Any]]:
    """Folder and manifest of the report that a file belongs to: by its place, or, of a figure that
    was copied away, by what it says of itself."""
    for folder in (path, *path.parents)[:3]:
        manifest = read_manifest(folder)
        if manifest and manifest["settings_key"]:
            return folder, manifest
    says = figure_record(path)
    if not says:
        raise SettingError(
            f"why: {path.name} is not in a report and says nothing of its origin; "
            f"expected a PNG or CSV"
        )
    name = says.get("experiment", "")
    for place in (outputs / name, published_folder(name)):
        for file in sorted(place.rglob("manifest.json")) if place else ():
            manifest = read_manifest(file.parent)
            if manifest and manifest["settings_key"] == says.get("run"):
                return file.parent, manifest
    return path.parent, {"experiment": says.get("experiment"), "says": says}


def _matches(cell: Record, row: Record) -> bool:
    """Whether a row can have come from a cell: every column that is a parameter of the cell, or its
    seed, agrees."""
    constants = {**cell["params"], "seed": cell["seed"]}
    return all(row.get(name) in (None, "", "nan", str(value)) for name, value in constants.items())


def _stored(folder: Path, manifest: Record, cells: Iterable[Record]) -> dict[str, Record]:
    """Id -> cell.json of those cells of a report that are stored next to it or published."""
    store = Store(root_of(folder, manifest).parent, str(manifest.get("experiment")))
    found = {cell["id"]: store.find(cell["id"]) for cell in cells}
    return {cell_id: cell.meta for cell_id, cell in found.items() if cell is not None}


def _of_cells(cells: Sequence[Record], stored: Mapping[str, Record]) -> dict[str, Any]:
    times = sorted(str(cell["finished"]) for cell in cells)
    machines = [_processor(stored[cell["id"]]) for cell in cells if cell["id"] in stored]
    shown = []
    for cell in cells:
        shown.append({key: cell[key] for key in ("id", "seed", "params")})
    return {
        "cells": shown,
        "commits": dict(Counter(str(cell["git_commit"]) for cell in cells).most_common()),
        "CPU": dict(Counter(machines).most_common()) or UNKNOWN,
        "between": {"first": times[0], "last": times[-1]} if times else None,
    }


def _processor(meta: Record) -> str:
    return str(meta.get("software", {}).get("cpu") or NOT_RECORDED)


def _as_it_is(files: CellFiles, name: str) -> dict[str, Any]:
    """What the cell.json of a damaged cell says."""
    try:
        record = json.loads(files.read(name, CELL_JSON))
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
