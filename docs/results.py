"""Write a page of the documentation for each published report, docs/results/NAME.md: its report.md
and its figures. `docs.conf` calls it, so that the search of the documentation finds the reports."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from runner.files import write_bytes
from runner.report.output.manifest import read_manifest

TARGET = Path(__file__).with_name("results")


def build(folders: Iterable[Path], target: Path = TARGET) -> list[Path]:
    """A page below `target` for each report in these folders. Raises ValueError for no report."""
    target.mkdir(exist_ok=True)
    pages = []
    for folder in folders:
        manifest = read_manifest(folder)
        if manifest is None:
            raise ValueError(f"{folder}: expected a report, found none")
        text = (folder / "report.md").read_text(encoding="utf-8")
        page = target / f"{folder.name}.md"
        content = f"{text}\n{_figures(folder, manifest, target)}"
        write_bytes(page, content.encode())
        pages.append(page)
    return pages


def _figures(folder: Path, manifest: dict[str, dict[str, str]], target: Path) -> str:
    """The figures with their captions."""
    parts = ["## Figures"]
    for name, caption in manifest["captions"].items():
        image = os.path.relpath(folder / "figures" / f"{name}.png", target)
        alt = manifest["alts"].get(name, name).replace("[", "(").replace("]", ")")
        parts += [f"![{alt}]({image})", caption]
    return "\n\n".join(parts) + "\n" if len(parts) > 1 else ""
