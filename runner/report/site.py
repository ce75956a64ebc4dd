"""Render the pages: templates and data in, one self-contained HTML file out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner import __version__
from runner.contract import natural
from runner.files import write_bytes
from runner.report.captions import seeds_line
from runner.report.formulas import formulas, marked, table
from runner.report.navigation import ALONE, Surroundings
from runner.report.page import ALL, MEANINGS, Page, in_order, tone
from runner.report.papers import known_papers
from runner.report.scope import Scope
from runner.store.archive import PUBLISHED

GALLERY = "gallery.html"
TEMPLATES = Path(__file__).parent / "templates"
SIGNS = {"good": "✓", "bad": "✗", "neutral": "–", "open": "○"}

MOST_CELLS = 2000
"""Cells that a page names behind its rows; of a larger store `hess-run why` names them."""


def bibtex(*papers: str) -> str:
    """BibTeX of this software and of some papers; papers without an entry are left out."""
    software = {
        "author": "{The developers of hess-run}",
        "title": SOFTWARE,
        "version": __version__,
        "year": "2026",
    }
    entries = [_entry("software", "hess-run", software)]
    for about in (known_papers()[paper] for paper in papers if paper in known_papers()):
        fields = {"author": about["author"], "title": about["cited"], "year": about.get("year", "")}
        fields |= {"eprint": about["arxiv"], "archivePrefix": "arXiv"} if "arxiv" in about else {}
        entries.append(_entry("misc", about["key"], fields))
    return "\n".join(entries)


SOFTWARE = "hess-run: reproducing five papers on the Hessian of neural networks"


def _entry(kind: str, key: str, fields: Mapping[str, Any]) -> str:
    lines = [f"  {name}={{{value}}}" for name, value in fields.items() if value]
    return f"@{kind}{{{key},\n" + ",\n".join(lines) + "\n}"


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(tone=tone, signs=SIGNS, meanings=MEANINGS, seeds_line=seeds_line)
    environment.globals.update(style=_asset("site.css"), script=_asset("site.js"))
    environment.filters.update(island=island, formulas=formulas)
    return environment


def render(template: str, **about: Any) -> str:
    """A page."""
    return str(_environment().get_template(template).render(**about))


def _asset(name: str) -> Any:
    from markupsafe import Markup

    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def island(value: Any) -> Any:
    """JSON that may stand inside a script element."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Markup(
        text.replace("</", "<\\/")
        .replace("<!", "\\u003c!")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def markdown(text: str, *, html: bool = False, below: int = 1) -> Any:
    """Markdown as HTML, its formulas as MathML. Raw HTML is shown as text unless html=True. Headings begin `below`
    levels further down."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    parser = MarkdownIt("commonmark", {"html": html}).enable("table")
    parser.validateLink = _safe  # type: ignore[assignment, method-assign]
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + below)}"
        for child in token.children or ():
            if child.type == "text":
                child.type, child.content = "html_inline", formulas(child.content)
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _safe(address: str) -> bool:
    """Whether an address is http, https or relative."""
    return urlsplit(address.strip()).scheme in ("", "http", "https")


def build_experiment(
    page: Page, warnings: Sequence[str], *, root: str = "../", around: Surroundings = ALONE
) -> Path:
    """index.html next to the report's files, and stats.js, which the page loads when it is asked for.

    root: path to the folder of the start page. Returns the page.
    """
    statistics = page.table("stats")
    if not page.command:
        write_bytes(page.folder / "stats.js", _statistics(statistics).encode())
    files = [name for name in page.manifest["files"] if name.endswith((".csv", ".md"))]
    html = render(
        "experiment.html",
        page=page,
        data=_page_data(page),
        warnings=list(warnings),
        lead=markdown(page.lead),
        findings=markdown(page.tables) if page.tables else "",
        statistics=len(statistics),
        files=[name for name in files if (page.folder / name).is_file()],
        cite=bibtex(*known_papers()) if page.paper == ALL else bibtex(page.paper),
        **around.header(None if page.command else root, "Results"),
    )
    path = page.folder / "index.html"
    write_bytes(path, html.encode())
    return path


def _statistics(rows: Sequence[Mapping[str, str]]) -> str:
    """stats.js: the columns of the statistics that are not empty."""
    names = list(rows[0]) if rows else []
    columns = [name for name in names if any(row[name] not in ("", "nan") for row in rows)]
    content = {"columns": columns, "rows": [[row[name] for name in columns] for row in rows]}
    return f"window.hessStats={island(content)};\n"


def _page_data(page: Page) -> dict[str, Any]:
    """What the script of a page shows: rows, the cells behind them, formulas and figures."""
    cells = page.cells if len(page.cells) <= MOST_CELLS else []
    texts = [*(row["label"] for row in page.scores), *(row["statement"] for row in page.claims)]
    return {
        "name": page.name,
        "scores": [row | {"label": marked(row["label"])} for row in page.scores],
        "claims": [row | {"statement": marked(row["statement"])} for row in page.claims],
        "cells": cells,
        "replicated": Scope.of(page.manifest).replicated,
        "maths": table(texts),
        "figures": {figure.place: figure.name for figure in reversed(page.figures) if figure.place},
    }


def gallery(pages: Sequence[Page], around: Surroundings) -> str:
    """A page with every figure of the reports, small."""
    drawn = [page for page in pages if page.figures]
    count = sum(len(page.figures) for page in drawn)
    return render("gallery.html", pages=drawn, count=count, **around.header("", "Figures"))


def _cards(
    papers: Mapping[str, Sequence[Page]], root: Path, documents: str | None
) -> list[dict[str, str]]:
    """A card for each paper that has a report and a finding. documents: path to its report and errata, None without."""
    cards = []
    for paper, about in known_papers().items():
        if paper not in papers:
            continue
        name, _, figure = str(about["figure"]).partition("/")
        image = f"{name}/figures/{figure}.png"
        links = {"report": "", "errata": ""}
        if documents is not None:
            links["report"] = f"{documents}reproduction/{about['report']}.html"
            links["errata"] = f"{documents}errata/{about['errata']}.html"
        card = {
            "paper": paper,
            "title": str(about["title"]),
            "finding": str(about["finding"]),
            "figure": image if (root / image).is_file() else "",
            "page": f"{name}/index.html#figure.{figure}",
        }
        cards.append(card | links)
    return cards


def start_rows(page: Page) -> list[list[Any]]:
    """Its numbers and statements: [anchor, text, place, verdict, published, measured, places]."""
    rows: list[list[Any]] = []
    for row in page.scores:
        values = [_rounded(row.get(key)) for key in ("paper_mean", "measured_mean")]
        about = [row["id"], row["label"], row.get("source", ""), row["verdict"]]
        rows.append([*about, *values, row["places"]])
    for row in page.claims:
        about = [row["id"], row["statement"], row.get("where", ""), row["verdict"]]
        rows.append([*about, None, None, row["places"]])
    return rows


def _rounded(value: float | None) -> float | None:
    """Five digits are enough for a mark."""
    return float(f"{value:.5g}") if value else value


@dataclass(frozen=True)
class Place:
    """What an experiment has on a figure, table or theorem of a paper: how many verdicts of each tone, the filter that
    shows their rows, and the name of its figure."""

    page: str
    counts: Mapping[str, int]
    search: str
    figure: str = ""


def place_index(pages: Sequence[Page]) -> dict[str, dict[str, list[Place]]]:
    """Paper -> figure, table or theorem of it -> experiments with rows on it."""
    found: dict[str, dict[str, list[Place]]] = {}
    for page in pages:
        counts: dict[tuple[str, str], Counter[str]] = {}
        for row in (*page.scores, *page.claims):
            paper = page.paper_of(row)
            for place in row["places"]:
                counts.setdefault((paper, place), Counter())[tone(row["verdict"])] += 1
        figures = {figure.place: figure.name for figure in reversed(page.figures)}
        for (paper, place), tones in counts.items():
            search = f"{paper} {place}" if page.paper == ALL else place
            about = Place(
                page.name, {t: tones[t] for t in SIGNS if tones[t]}, search, figures.get(place, "")
            )
            found.setdefault(paper, {}).setdefault(place, []).append(about)
    return {
        paper: {place: found[paper][place] for place in sorted(found[paper], key=_order)}
        for paper in _sorted(found)
    }


def _sorted(papers: Iterable[str]) -> list[str]:
    """Papers in the order of papers.toml; others after them."""
    known = list(known_papers())
    return sorted(
        papers,
        key=lambda paper: (
            known.index(paper) if paper in known else len(known),
            paper == ALL,
            paper,
        ),
    )


def _order(place: str) -> tuple[bool, list[tuple[int, str]]]:
    """Figures and tables, then theorems; 2 before 10."""
    return not place.startswith(("Fig", "Table")), natural(place)


def build_start(
    root: Path,
    not_run: Mapping[str, str],
    errata: Sequence[Mapping[str, Any]] = (),
    around: Surroundings = ALONE,
) -> Path:
    """index.html of an output folder: every experiment with a report, by paper; not_run: experiment -> reason.

    errata: entries of the audit (paper, class, …), for the table of classes.
    """
    folders = sorted(path.parent for path in root.glob("*/manifest.json"))
    pages = [page for page in map(Page.read, folders) if page is not None]
    readable = {page.folder for page in pages}
    papers = _by_paper(pages)
    write_bytes(root / "rows.js", _rows_script(pages).encode())
    write_bytes(root / "pages.js", _pages_script(papers).encode())
    write_bytes(root / GALLERY, gallery(pages, around).encode())
    documents = around.documents
    html = render(
        "start.html",
        papers=papers,
        cards=_cards(papers, root, documents),
        places=place_index(pages),
        totals=_totals(papers),
        not_run=not_run,
        classes=_classes(errata),
        others=_other_settings(root),
        broken=[folder.name for folder in folders if folder not in readable],
        legend={t: ", ".join(verdict for verdict in MEANINGS if tone(verdict) == t) for t in SIGNS},
        cite=bibtex(*papers),
        summary="" if documents is None else f"{documents}reproduction/README.html",
        **around.header("", "Results"),
    )
    path = root / "index.html"
    write_bytes(path, html.encode())
    return path


def _by_paper(pages: Sequence[Page]) -> dict[str, list[Page]]:
    papers: dict[str, list[Page]] = {}
    for page in pages:
        papers.setdefault(page.paper or "other", []).append(page)
    return {paper: papers[paper] for paper in _sorted(papers)}


def _totals(papers: Mapping[str, Sequence[Page]]) -> dict[str, dict[str, int]]:
    """Paper -> verdict -> how many rows."""
    return {
        paper: in_order(*(page.verdicts for page in members)) for paper, members in papers.items()
    }


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


def _rows_script(pages: Sequence[Page]) -> str:
    """rows.js: what the search finds, by experiment: [paper, rows], "" where the place of a row
    begins with its paper. Formulas of the audit stay text here; its page shows them."""
    found, texts = {}, []
    for page in pages:
        rows = start_rows(page)
        if page.paper != ALL:
            texts += [row[1] for row in rows]
            rows = [[row[0], marked(row[1]), *row[2:]] for row in rows]
        found[page.name] = ["" if page.paper == ALL else page.paper, rows]
    figures = {page.name: [[f.name, f.place, f.caption] for f in page.figures] for page in pages}
    content = {"hessRows": found, "hessMaths": table(texts), "hessFigures": figures}
    return "".join(f"window.{name}={island(value)};\n" for name, value in content.items())


def _pages_script(papers: Mapping[str, Sequence[Page]]) -> str:
    """pages.js: what the navigation lists, [paper, names of its experiments]."""
    names = [[paper, [page.name for page in members]] for paper, members in papers.items()]
    return f"window.hessPages={island(names)};\n"
