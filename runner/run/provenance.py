"""Where a figure, a table or a row came from, in lines; `runner.run.why` shows them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.contract import Cell, SettingError
from runner.report.commands import as_typed, figure_commands, measuring, root_of, run_words
from runner.report.manifest import read_manifest
from runner.report.page import Page
from runner.store.archive import published_folder
from runner.store.store import Store

Record = Mapping[str, Any]
Fact = tuple[str, str | Sequence[str]]
"""Name, and a line or several; one without any is not shown."""
NOT_HERE = "its cells are not here; give the output folder that it was made from: outputs=PATH"
NOT_RECORDED = "not recorded"
UNKNOWN = "not known here: the cells are not next to the report"
POPULATION = "population standard deviations over the seeds (ddof 0), as papers print them"
SHOWN_CELLS = 12
INDENT = " " * 12


@dataclass(frozen=True)
class Answer:
    """What is known of one thing.

    title: what it is; facts: in the order in which they are shown; rows: name -> verdict; why:
    name -> why that row does not agree.
    """

    title: str
    facts: Sequence[Fact] = ()
    rows: Mapping[str, str] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The answer in lines: a title, then a line for each fact, or several."""
        shown = [self.title]
        for name, text in self.facts:
            lines = [text] if isinstance(text, str) else text
            if any(lines):
                shown.append(f"  {name:9s} {lines[0]}")
                shown += [f"{INDENT}{line}" for line in lines[1:]]
        for name, verdict in self.rows.items():
            shown.append(f"  {name}  {verdict}")
            if name in self.why:
                shown.append(f"      {self.why[name]}")
        return shown


def of_file(path: Path, outputs: Path) -> Answer:
    """Of a file of a report, or of a figure that was copied. Raises SettingError for a file that no
    report stands behind."""
    folder, manifest = _manifest(path, outputs)
    in_figure = figure_record(path) or manifest.get("says", {})
    says = [f"{key}={value}" for key, value in in_figure.items() if key != "warning"]
    facts: list[Fact] = [
        ("file", str(as_typed(path))),
        ("says", ", ".join(says)),
        ("warning", in_figure.get("warning", "")),
    ]
    about = [path.name, str(manifest.get("experiment")), str(manifest.get("title", ""))]
    first, *others = dict.fromkeys(filter(None, about))
    title = f"{first}: {', '.join(others)}"
    if not manifest.get("settings_key"):
        return Answer(title, [*facts, ("note", NOT_HERE)])
    cells = manifest["cells"]
    table = path.name.removesuffix(".csv")
    stored = _stored(folder, manifest, cells)
    with_table = {name for name, meta in stored.items() if table in meta["tables"]}
    if with_table:
        cells = [cell for cell in cells if cell["id"] in with_table or cell["id"] not in stored]
    missing = manifest["missing"]
    key = manifest["settings_key"]
    commit = manifest["software"].get("git_commit")
    words = run_words(folder, manifest)
    commands = {"measure": measuring(words, {cell["seed"] for cell in cells}), "redraw": ""}
    if "figure" in in_figure:
        commands |= figure_commands(manifest, in_figure["figure"], words)
    return Answer(
        title,
        [
            *facts,
            *_of_cells(cells, stored),
            ("missing", [f"{len(missing)} not measured", *_some(missing)] if missing else ""),
            ("settings", f"{key}, profile {manifest['profile']} {manifest['changed']}".rstrip()),
            ("written", f"{manifest['written']}, by commit {commit}"),
            ("command", commands["measure"]),
            ("redraw", commands["redraw"]),
        ],
    )


def of_row(folder: Path, page: Page, row: Record) -> Answer:
    """Of a published number or a statement: printed and measured values, and the cells behind."""
    manifest = page.manifest
    keys = row.get("keys", {})
    cells = [cell for cell in manifest["cells"] if _matches(cell, keys)]
    params = cells[0]["params"] if cells else {}
    words = [f"{key}={params[key]}" for key in keys if key in params]
    run = [*run_words(folder, manifest), *words]
    seeds = [f"{seed}: {value:.4g}" for seed, value in row.get("values", [])]
    printed = row.get("paper_mean", row.get("upper_bound"))
    facts: list[Fact] = [
        ("statement", row.get("statement", "")),
        ("printed", _mean_and_std(printed, row.get("paper_std"))),
        ("ours", _mean_and_std(row.get("measured_mean"), row.get("measured_std"))),
        ("±", POPULATION if "measured_std" in row else ""),
        ("seeds", ", ".join(seeds)),
        ("measured" if "statement" in row else "statistic", str(row.get("statistic", ""))),
        ("against", str(row.get("threshold", ""))),
        ("place", row.get("source", row.get("where", ""))),
        ("verdict", row["verdict"]),
        ("reason", row.get("reason", "")),
        ("why", row["why"]),
        ("detail", "" if row["why"] else row.get("detail", "")),
        *_of_cells(cells, _stored(folder, manifest, cells)),
        ("command", measuring(run, {cell["seed"] for cell in cells})),
    ]
    return Answer(f"{row['id']}: {page.name}, {page.title}", facts)


def figure_record(path: Path) -> dict[str, str]:
    """What a PNG figure of a report carries about itself; {} for any other file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            record = json.loads(getattr(image, "text", {}).get("Description", ""))
    except (OSError, ValueError, UnidentifiedImageError):
        return {}
    return {str(k): str(v) for k, v in record.items()} if isinstance(record, dict) else {}


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
    name = str(manifest.get("experiment"))
    store = Store(root_of(folder, manifest).parent, name)
    found = {cell["id"]: store.find(cell["id"]) for cell in cells}
    return {cell_id: cell.meta for cell_id, cell in found.items() if cell is not None}


def _of_cells(cells: Sequence[Record], stored: Mapping[str, Record]) -> list[Fact]:
    """The cells with their parameters and seeds, commits, processors and times."""
    labels = [f"{c['id']} seed={c['seed']} {Cell(c['params']).label}" for c in cells]
    times = sorted(str(cell["finished"]) for cell in cells)
    machines = []
    for cell in cells:
        if cell["id"] in stored:
            machines.append(stored[cell["id"]]["software"].get("cpu") or NOT_RECORDED)
    return [
        ("cells", [str(len(cells)), *_some(labels)]),
        ("commits", _counted(cell.get("git_commit") for cell in cells)),
        ("CPU", _counted(machines) or UNKNOWN),
        ("measured", f"{times[0]} to {times[-1]}" if times else ""),
    ]


def _some(lines: Sequence[str]) -> list[str]:
    """The first of some lines, and how many more there are."""
    more = [f"and {len(lines) - SHOWN_CELLS} more"] if len(lines) > SHOWN_CELLS else []
    return [*lines[:SHOWN_CELLS], *more]


def _counted(names: Iterable[Any]) -> str:
    counts = Counter(map(str, names)).most_common()
    return ", ".join(f"{name} ({count})" for name, count in counts)


def _mean_and_std(mean: Any, std: Any) -> str:
    """Mean and standard deviation of a row, as far as they are numbers."""
    text = f"{mean:.4g}" if isinstance(mean, int | float) else ""
    return f"{text} ± {std:.2g}" if isinstance(std, int | float) else text
