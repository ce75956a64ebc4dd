"""What a reader of an artifact has to know about its origin, read from the manifest of its report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from runner.report.departures import said_of


def warnings_of(manifest: Mapping[str, Any], missing: Sequence[str]) -> list[str]:
    """What a reader of any artifact has to know, one phrase each."""
    warnings = said_of(manifest)
    if manifest.get("changed"):
        warnings.append(f"settings changed on the command line: {manifest['changed']}")
    if manifest.get("not_comparable"):
        warnings.append(f"not comparable with the paper: {manifest['not_comparable']}")
    changed = sum("+changes" in str(cell.get("git_commit")) for cell in manifest.get("cells", []))
    if changed:
        warnings.append(f"{changed} cells were measured from a changed working tree")
    if missing:
        warnings.append(f"incomplete: {len(missing)} {'cell is' if len(missing) == 1 else 'cells are'} not measured")
    return warnings


def commits_of(manifest: Mapping[str, Any]) -> list[str]:
    """The commits that measured the cells of a report, each once."""
    return sorted({str(cell.get("git_commit") or "unknown") for cell in manifest.get("cells", [])})


def stamp(name: str, manifest: Mapping[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    """Where a figure comes from; without the time, so that the same cells give the same file."""
    settings = manifest.get("settings") or {}
    dataset = settings.get("dataset") if isinstance(settings, Mapping) else None
    return {
        "experiment": name,
        "figure": "",
        "paper": manifest.get("paper", ""),
        "profile": manifest.get("profile", ""),
        "run": manifest.get("settings_key", ""),
        "commit": " ".join(commits_of(manifest)),
        "version": manifest.get("version", ""),
        "data": dataset.get("kind", "") if isinstance(dataset, Mapping) else "",
        "seeds": ",".join(map(str, manifest.get("seeds", []))),
        "warning": "; ".join(warnings),
    }


def plain(value: Any) -> Any:
    """A value that JSON can hold: NaN and infinities as null, unknown objects as text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
