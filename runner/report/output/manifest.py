"""manifest.json of a report: its schema, the checksums of the files, the provenance of every
artifact."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.files import append_line, set_aside, sha256, write_bytes
from runner.report.answers.scope import Scope
from runner.report.collect import commits_of
from runner.store.tables import ANSWERS, json_of

LOGGER = logging.getLogger("hess_run")
NAME = "manifest.json"
PAGE = "index.html"
SUMS = ".written.hess-run"
"""SHA-256 of everything that this program has written in a folder, also of a report that was
killed."""
TEXTS_IN = (
    "experiment",
    "title",
    "paper",
    "profile",
    "changed",
    "fingerprint",
    "settings_key",
    "written",
    "summary",
)
LISTS_IN = (
    "seeds",
    "cells",
    "missing",
    "failures",
    "fill_commands",
    "report_failures",
    "certificates",
    "not_certified",
    "notes",
    "left_out",
    "outcomes",
)
MAPPINGS_IN = (
    "scope",
    "settings",
    "drawn_with",
    "software",
    "files",
    "claims",
    "extensions",
    "scorecard",
    "captions",
    "alts",
    "places",
    "needs",
    "sources",
)
TYPES: Mapping[str, type] = {
    **dict.fromkeys(TEXTS_IN, str),
    **dict.fromkeys(LISTS_IN, list),
    **dict.fromkeys(MAPPINGS_IN, dict),
}
"""Key -> type of its value."""


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the report in `folder`, every key of `TYPES` in it; None where there is none
    of this schema."""
    whole = json_of(folder / NAME)
    if not whole or not re.fullmatch(r"\w[\w.-]*", str(whole.get("experiment"))):
        return None
    whole = complete(whole)
    fits = all(isinstance(whole[key], kind) for key, kind in TYPES.items())
    if fits and all(map(_inside, whole["files"])):
        return whole
    return None


def complete(record: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with every key of `TYPES`, empty where it has none."""
    return {**record, **{key: record.get(key, kind()) for key, kind in TYPES.items()}}


def is_merged(file: str) -> bool:
    """Whether a file of a report is a table merged from its cells."""
    return file.endswith(".csv") and file.removesuffix(".csv") not in ANSWERS


def is_published(file: str) -> bool:
    """Whether a published report has this file: not its page, nor what its cells give at once."""
    return file != PAGE and not is_merged(file)


def write(path: Path, content: bytes) -> str:
    """Write a file of a report by one rename, and return its SHA-256; one there that others have
    written or changed is kept under another name."""
    written = hashlib.sha256(content).hexdigest()
    is_known = written in _sums(path)
    if is_known and _content(path) == content:
        return written  # also where nothing can be written
    if os.path.lexists(path) and not path.is_dir() and not _is_ours(path, content):
        kept = set_aside(path, path.with_name(f"{path.stem}.kept{path.suffix}"))
        LOGGER.warning("%s is not as this program wrote it; kept as %s", path, kept.name)
    if not is_known:
        append_line(path.with_name(SUMS), written)
    write_bytes(path, content)
    return written


def _content(path: Path) -> bytes | None:
    """What is in a file; None where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:  # also a link that leads nowhere
        return None


def _is_ours(path: Path, content: bytes) -> bool:
    """Whether nobody misses a file when it is replaced: it holds what this program wrote, what
    the new one does, or nothing."""
    there = _content(path)
    if there is None:
        return False
    if there in (content, b""):
        return True
    found = hashlib.sha256(there).hexdigest()
    return found in _sums(path) or found == _listed_sum(path)


def _sums(path: Path) -> list[str]:
    """SHA-256 of everything that this program has written in the folder of a file."""
    try:
        return path.with_name(SUMS).read_text("utf-8", "replace").split()
    except OSError:
        return []


def _listed_sum(path: Path) -> str | None:
    """SHA-256 of a file in the manifest of its report, which is left where hidden files are
    not."""
    in_folder = path.parent.name == "figures"
    manifest = read_manifest(path.parents[1] if in_folder else path.parent)
    name = f"{path.parent.name}/{path.name}" if in_folder else path.name
    return manifest["files"].get(name) if manifest else None


def changed_files(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Files of a report that are not there, or not what the manifest says."""
    sums = manifest["files"]
    return [file for file, expected in sums.items() if _sum(folder / file) != expected]


def _sum(path: Path) -> str:
    try:
        return sha256(path)
    except OSError:
        return ""


def _inside(file: str) -> bool:
    """Whether a file is in the report's folder or in figures/."""
    return re.fullmatch(r"(figures/)?[\w=-][\w.=-]*", file) is not None


def warnings_of(manifest: Mapping[str, Any]) -> list[str]:
    """What a reader of any artifact has to know, one phrase each."""
    warnings = Scope.of(manifest).lines
    missing = manifest["missing"]
    if manifest.get("changed"):
        warnings.append(f"settings changed on the command line: {manifest['changed']}")
    changed = sum("+changes" in str(cell.get("git_commit")) for cell in manifest.get("cells", []))
    if changed:
        warnings.append(f"{changed} cells were measured from a changed working tree")
    if missing:
        words = [set(label.split()) for label in missing]
        shared = [word for word in missing[0].split() if word in set.intersection(*words)]
        count = "1 cell is" if len(missing) == 1 else f"{len(missing)} cells are"
        of = f" ({' '.join(shared)})" if shared else ""
        warnings.append(f"incomplete: {count} not measured{of}")
    return warnings


def stamp(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Where a figure comes from; without the time, so that the same cells give the same file."""
    dataset = manifest["settings"].get("dataset") or {}
    return {
        "experiment": manifest["experiment"],
        "figure": "",
        "paper": manifest["paper"],
        "profile": manifest["profile"],
        "run": manifest["settings_key"],
        "commit": " ".join(commits_of(manifest)),
        "version": manifest["version"],
        "data": dataset.get("kind", ""),
        "footer": Scope.of(manifest).footer,
        "seeds": ",".join(map(str, manifest["seeds"])),
        "warning": "; ".join(warnings_of(manifest)),
    }


def to_bytes(record: Mapping[str, Any]) -> bytes:
    """The content of manifest.json."""
    return (json.dumps(plain(record), indent=1) + "\n").encode()


def plain(value: Any) -> Any:
    """A value that JSON can hold: NaN and infinities as null, unknown objects as text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
