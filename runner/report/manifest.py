"""manifest.json of a report: one schema for every reader, and the checksums of the report's files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runner.report.fingerprint import sha256
from runner.store.tables import read_json

NAME = "manifest.json"
ANSWERS = ("stats", "claims", "scorecard", "scorecard_sharpness", "measured", "appendix")
"""Tables that the analysis gives; every other table of a report is merged from the cells."""
TYPES: Mapping[str, tuple[type, type | None]] = {
    "experiment": (str, None),
    "title": (str, None),
    "paper": (str, None),
    "profile": (str, None),
    "changed": (str, None),
    "fingerprint": (str, None),
    "settings": (dict, None),
    "settings_key": (str, None),
    "seeds": (list, int),
    "cells": (list, dict),
    "missing": (list, str),
    "failures": (list, dict),
    "fill_commands": (list, str),
    "software": (dict, None),
    "written": (str, None),
    "claims": (dict, int),
    "extensions": (dict, int),
    "scorecard": (dict, int),
    "report_failures": (list, dict),
    "certificates": (list, str),
    "captions": (dict, str),
    "alts": (dict, str),
    "left_out": (list, str),
    "files": (dict, str),
}
"""Key -> type of its value and of the items in it."""
EARLIER: Mapping[str, str] = {
    "identical": "exact match",
    "undecided": "inconclusive",
    "no power": "inconclusive",
    "fitted": "calibrated",
    "by construction": "true by construction",
    "slip": "minor error",
    "empty": "not run",
    "not measured": "not run",
}
"""Name of a verdict in reports written before version 0.2 -> its name now."""
CELL: Mapping[str, type] = {"id": str, "params": dict, "seed": int}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the report in `folder`, every key of `TYPES` in it; None where there is none of this schema."""
    try:
        record = read_json(folder / NAME)
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or not re.fullmatch(r"\w[\w.-]*", str(record.get("experiment"))):
        return None
    whole = record | {key: kind() for key, (kind, _) in TYPES.items() if key not in record}
    if "beyond" in record:
        whole["extensions"] = record["beyond"]
    fits = all(_fits(whole[key], *types) for key, types in TYPES.items())
    for key in ("claims", "scorecard", "extensions") if fits else ():
        counts: dict[str, int] = {}
        for verdict, count in whole[key].items():
            counts[EARLIER.get(verdict, verdict)] = counts.get(EARLIER.get(verdict, verdict), 0) + count
        whole[key] = counts
    cells = fits and all(isinstance(cell.get(key), kind) for cell in whole["cells"] for key, kind in CELL.items())
    return whole if cells and all(map(_inside, whole["files"])) else None


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file of a report; none where there is no such file. Raises ValueError for a file without rows of
    its head's length."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream, restkey="", restval=None))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read as a CSV file ({error})") from None
    if any("" in row or None in row.values() for row in rows):
        raise ValueError(f"{path}: expected rows of as many fields as the head has")
    return [_renamed(row) for row in rows]


def _renamed(row: dict[str, str]) -> dict[str, str]:
    """A row with the verdicts' names of now, and the place of an extension."""
    if "verdict" in row:
        row["verdict"] = EARLIER.get(row["verdict"], row["verdict"])
    if row.get("variants"):
        row["variants"] = re.sub(
            "|".join(f"(?<![^ ]){name}(?=: )" for name in EARLIER), lambda old: EARLIER[old[0]], row["variants"]
        )
    if row.get("where", "").startswith("beyond "):
        row["where"] = row["where"].replace("beyond ", "extension of ", 1)
    return row


def is_merged(file: str) -> bool:
    """Whether a file of a report is a table merged from its cells."""
    return file.endswith(".csv") and file.removesuffix(".csv") not in ANSWERS


def checksums(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """File below `folder` -> SHA-256."""
    return {file: sha256(folder / file) for file in files}


def changed_files(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Files of a report that are not there, or not what the manifest says."""
    found = []
    for file, expected in manifest["files"].items():
        try:
            same = sha256(folder / file) == expected
        except OSError:
            same = False
        found += [] if same else [file]
    return found


def _fits(value: Any, kind: type, items: type | None) -> bool:
    inside = value.values() if isinstance(value, dict) else value
    return isinstance(value, kind) and (items is None or all(isinstance(item, items) for item in inside))


def _inside(file: str) -> bool:
    """Whether a file lies in the report's folder or in figures/."""
    return re.fullmatch(r"(figures/)?[\w=-][\w.=-]*", file) is not None
