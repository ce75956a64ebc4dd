"""The start page of an output folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.contract import natural
from runner.report.citation import bibtex
from runner.report.manifest import write
from runner.report.navigation import header
from runner.report.page import ALL, Page
from runner.report.papers import known_papers
from runner.report.rendering import SIGNS, island, render
from runner.report.tones import MEANINGS, in_order, tone
from runner.store.archive import PUBLISHED


def build_start(
    root: Path,
    not_run: Mapping[str, str],
    errata: Sequence[Mapping[str, Any]] = (),
    documentation: str | None = None,
) -> Path:
    """index.html of an output folder: every experiment with a report, by paper.

    not_run: experiment -> reason; errata: entries of the audit (paper, class, …), for the table
    of classes; documentation: as of `navigation.sections`.
    """
    folders = sorted(path.parent for path in root.glob("*/manifest.json"))
    pages = [page for page in map(Page.read, folders) if page is not None]
    readable = {page.folder for page in pages}
    papers = _by_paper(pages)
    write(root / "pages.js", _pages_script(papers).encode())
    html = render(
        "start.html",
        papers=papers,
        cards=_cards(papers, root, documentation),
        places=place_index(pages),
        points=points(pages),
        totals=_totals(papers),
        not_run=not_run,
        classes=_classes(errata),
        others=_other_settings(root),
        broken=[folder.name for folder in folders if folder not in readable],
        legend=_legend(),
        cite=bibtex(*papers),
        documentation=documentation,
        **header("", "Results", documentation),
    )
    path = root / "index.html"
    write(path, html.encode())
    return path


def _by_paper(pages: Sequence[Page]) -> dict[str, list[Page]]:
    papers: dict[str, list[Page]] = {}
    for page in pages:
        papers.setdefault(page.paper or "other", []).append(page)
    return {paper: papers[paper] for paper in _sorted(papers)}


def _totals(papers: Mapping[str, Sequence[Page]]) -> dict[str, dict[str, int]]:
    """Paper -> verdict -> how many rows."""
    totals = {}
    for paper, members in papers.items():
        totals[paper] = in_order(*[page.verdicts for page in members])
    return totals


def _legend() -> dict[str, str]:
    """Tone -> its verdicts."""
    verdicts: dict[str, list[str]] = {name: [] for name in SIGNS}
    for verdict in MEANINGS:
        verdicts[tone(verdict)].append(verdict)
    return {name: ", ".join(of_tone) for name, of_tone in verdicts.items()}


def _classes(errata: Sequence[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Paper -> class of an error -> how many entries."""
    classes: dict[str, Counter[str]] = {}
    for entry in errata:
        classes.setdefault(str(entry["paper"]), Counter())[str(entry["class"])] += 1
    return classes


def _other_settings(root: Path) -> list[str]:
    """Folders of reports on other settings, below those of the experiments."""
    folders = [path.parent.relative_to(root) for path in root.glob("*/*/manifest.json")]
    return sorted(folder.as_posix() for folder in folders if folder.parts[0] != PUBLISHED)


def _pages_script(papers: Mapping[str, Sequence[Page]]) -> str:
    """pages.js: what the navigation lists, [paper, names of its experiments]."""
    names = []
    for paper, members in papers.items():
        names.append([paper, [page.name for page in members]])
    return f"window.hessPages={island(names)};\n"


def _cards(
    papers: Mapping[str, Sequence[Page]], root: Path, documentation: str | None
) -> list[dict[str, str]]:
    """A card for each paper that has a report; in the documentation with links to its reproduction
    report and errata."""
    cards = []
    for paper, about in known_papers().items():
        if paper not in papers:
            continue
        name, _, figure = str(about["figure"]).partition("/")
        image = f"{name}/figures/{figure}.png"
        links = {"report": "", "errata": ""}
        if documentation is not None:
            links["report"] = f"{documentation}reproduction/{about['report']}.html"
            links["errata"] = f"{documentation}errata/{about['errata']}.html"
        card = {
            "paper": paper,
            "title": str(about["title"]),
            "finding": str(about["finding"]),
            "figure": image if (root / image).is_file() else "",
            "page": f"{name}/index.html#figure.{figure}",
        }
        cards.append(card | links)
    return cards


def points(pages: Sequence[Page]) -> list[dict[str, Any]]:
    """The marks of the plot of published against measured values."""
    found = []
    for page in pages:
        for row in page.scores:
            published = row.get("paper_mean")
            measured = row.get("measured_mean")
            if published and measured:  # the axes are logarithmic
                mark = {"page": page.name, "paper": page.paper, "id": row["id"]}
                mark |= {"what": row["label"], "place": row.get("source", "")}
                mark |= {"published": _rounded(published), "measured": _rounded(measured)}
                found.append(mark | {"verdict": row["verdict"]})
    return found


def _rounded(value: float) -> float:
    """Five digits are enough for a mark."""
    return float(f"{value:.5g}")


@dataclass(frozen=True)
class Place:
    """What an experiment has on a figure, table or theorem of a paper: how many verdicts of each
    tone, the filter that shows their rows, and the name of its figure."""

    page: str
    counts: Mapping[str, int]
    search: str
    figure: str = ""


def place_index(pages: Sequence[Page]) -> dict[str, dict[str, list[Place]]]:
    """Paper -> figure, table or theorem of it -> experiments with rows on it."""
    found: dict[str, dict[str, list[Place]]] = {}
    for page in pages:
        figures = {figure.place: figure.name for figure in reversed(page.figures)}
        for (paper, place), counts in _tones(page).items():
            search = f"{paper} {place}" if page.paper == ALL else place
            about = Place(page.name, counts, search, figures.get(place, ""))
            found.setdefault(paper, {}).setdefault(place, []).append(about)
    index = {}
    for paper in _sorted(found):
        index[paper] = dict(sorted(found[paper].items(), key=lambda item: _order(item[0])))
    return index


def _tones(page: Page) -> dict[tuple[str, str], dict[str, int]]:
    """(paper, place) -> tone -> how many rows."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in (*page.scores, *page.claims):
        for place in row["places"]:
            tones = counts.setdefault((page.paper_of(row), place), Counter())
            tones[tone(row["verdict"])] += 1
    ordered = {}
    for key, tones in counts.items():
        ordered[key] = {name: tones[name] for name in SIGNS if tones[name]}
    return ordered


def _sorted(papers: Iterable[str]) -> list[str]:
    """Papers in the order of papers.toml; others after them, then what is of all papers."""
    order = {paper: at for at, paper in enumerate(known_papers())}
    return sorted(papers, key=lambda paper: (order.get(paper, len(order)), paper == ALL, paper))


def _order(place: str) -> tuple[bool, list[tuple[int, str]]]:
    """Figures and tables, then theorems; 2 before 10."""
    return not place.startswith(("Fig", "Table")), natural(place)
