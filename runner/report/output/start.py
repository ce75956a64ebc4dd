"""The start page of an output folder, from the manifests of the reports below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.contract import natural
from runner.report.answers.papers import bibtex, known_papers
from runner.report.answers.rows import ALL
from runner.report.output.manifest import read_manifest, write
from runner.report.output.page import Page
from runner.report.output.rendering import render
from runner.store.archive import PUBLISHED, published_root


def write_overview(root: Path) -> Path:
    """index.html of an output folder: every experiment with a report, by paper, and whether the
    places of the papers hold."""
    folders = sorted(path.parent for path in root.glob("*/manifest.json"))
    records = {folder: read_manifest(folder) for folder in folders}
    pages = [Page(folder, record) for folder, record in records.items() if record is not None]
    papers = _by_paper(pages)
    html = render(
        "start.html",
        papers=papers,
        known=known_papers(),
        places=_places(pages),
        not_run=not_run(root),
        others=_other_settings(root),
        broken=[folder.name for folder, record in records.items() if record is None],
        cite=bibtex(*papers),
    )
    path = root / "index.html"
    write(path, html.encode())
    return path


def not_run(root: Path) -> dict[str, str]:
    """What was not run, with the reason, as lines '- name: reason' of not_run.md say: of the
    published one, then of the output folder."""
    files = [folder / "not_run.md" for folder in (published_root(), root) if folder]
    texts = [file.read_text("utf-8", "replace") for file in files if file.is_file()]
    return dict(re.findall(r"^- `?([^:`\n]+)`?: (.+)$", "\n".join(texts), re.MULTILINE))


def _by_paper(pages: Sequence[Page]) -> dict[str, list[Page]]:
    papers: dict[str, list[Page]] = {}
    for page in pages:
        papers.setdefault(page.paper, []).append(page)
    return {paper: papers[paper] for paper in _sorted(papers)}


def _sorted(papers: Iterable[str]) -> list[str]:
    """Papers in the order of papers.toml; others after them, then what is of all papers."""
    order = {paper: at for at, paper in enumerate(known_papers())}
    return sorted(papers, key=lambda paper: (order.get(paper, len(order)), paper == ALL, paper))


def _places(pages: Sequence[Page]) -> list[dict[str, str]]:
    """What each experiment finds of the figures, tables and theorems of the papers."""
    found = []
    for page in pages:
        figures = {figure.place: figure.name for figure in reversed(page.figures)}
        for about in page.manifest["outcomes"]:
            found.append({**about, "page": page.name, "figure": figures.get(about["place"], "")})
    papers = _sorted({about["paper"] for about in found})
    return sorted(found, key=lambda about: (papers.index(about["paper"]), _order(about["place"])))


def _order(place: str) -> tuple[bool, list[tuple[int, str]]]:
    """Figures and tables, then theorems; 2 before 10."""
    return not place.startswith(("Fig", "Table")), natural(place)


def _other_settings(root: Path) -> list[str]:
    """Folders of reports on other settings, below those of the experiments."""
    folders = [path.parent.relative_to(root) for path in root.glob("*/*/manifest.json")]
    return sorted(folder.as_posix() for folder in folders if folder.parts[0] != PUBLISHED)
