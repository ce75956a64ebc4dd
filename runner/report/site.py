"""Render the pages: templates and data in, one self-contained HTML file out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner import __version__
from runner.files import write_bytes
from runner.report.captions import seeds_line
from runner.report.formulas import formulas, marked, table
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
    environment.globals.update(
        style=_asset("site.css"), script=_asset("site.js"), start_script=_asset("start.js")
    )
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


def markdown(text: str, *, html: bool = False, below: int = 2) -> Any:
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


def build_experiment(page: Page, warnings: Sequence[str], *, up: str = "../index.html") -> Path:
    """index.html next to the report's files, and stats.js, which the page loads when it is asked for.

    Returns the page.
    """
    statistics = page.table("stats")
    columns = [
        c
        for c in (statistics[0] if statistics else ())
        if any(r[c] not in ("", "nan") for r in statistics)
    ]
    rows = [[r[c] for c in columns] for r in statistics]
    if not page.command:
        script = f"window.hessStats={island({'columns': columns, 'rows': rows})};\n"
        write_bytes(page.folder / "stats.js", script.encode())
    cells = page.cells if len(page.cells) <= MOST_CELLS else []
    data = {
        "name": page.name,
        "scores": [row | {"label": marked(row["label"])} for row in page.scores],
        "claims": [row | {"statement": marked(row["statement"])} for row in page.claims],
        "cells": cells,
        "replicated": Scope.of(page.manifest).replicated,
        "maths": table(
            [*(row["label"] for row in page.scores), *(row["statement"] for row in page.claims)]
        ),
        "figures": {figure.place: figure.name for figure in reversed(page.figures) if figure.place},
    }
    html = render(
        "experiment.html",
        page=page,
        data=data,
        warnings=list(warnings),
        lead=markdown(page.lead),
        findings=markdown(page.tables) if page.tables else "",
        statistics=len(rows),
        files=[
            a
            for a in page.manifest["files"]
            if a.endswith((".csv", ".md")) and (page.folder / a).is_file()
        ],
        cite=bibtex(*known_papers()) if page.paper == ALL else bibtex(page.paper),
        up=up,
    )
    path = page.folder / "index.html"
    write_bytes(path, html.encode())
    return path


def gallery(pages: Sequence[Page]) -> str:
    """A page with every figure of the reports, small."""
    drawn = [page for page in pages if page.figures]
    return render("gallery.html", pages=drawn, count=sum(len(page.figures) for page in drawn))


def _cards(papers: Mapping[str, Sequence[Page]], root: Path) -> list[dict[str, str]]:
    """A card for each paper that has a report and a finding; its figure, report and errata where they are there."""
    found = []
    for paper, about in known_papers().items():
        if paper in papers:
            name, _, figure = str(about["figure"]).partition("/")
            links = {
                "figure": f"{name}/figures/{figure}.png",
                "report": f"reproduction/{about['report']}.html",
                "errata": f"errata/{about['errata']}.html",
            }
            links = {key: file if (root / file).is_file() else "" for key, file in links.items()}
            words = {key: str(about[key]) for key in ("title", "finding")}
            found.append(
                {"paper": paper, **words, **links, "page": f"{name}/index.html#figure.{figure}"}
            )
    return found


def start_rows(pages: Sequence[Page]) -> list[list[Any]]:
    """Every published number and statement: [page, anchor, paper, text, place, verdict, published, measured]."""
    rows: list[list[Any]] = []
    for page in pages:
        for row in page.scores:
            values = [
                row.get(key) and float(f"{row[key]:.5g}") for key in ("paper_mean", "measured_mean")
            ]
            rows.append(
                [
                    page.name,
                    row["id"],
                    page.paper,
                    row["label"],
                    row.get("source", ""),
                    row["verdict"],
                    *values,
                ]
            )
        for row in page.claims:
            text = (row["statement"], row.get("where", ""), row["verdict"])
            rows.append([page.name, row["id"], page.paper, *text, None, None])
    return rows


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
            paper = str(row.get("where", "")).partition(",")[0] if page.paper == ALL else page.paper
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
    return not place.startswith(("Fig", "Table")), _natural(place)


def _natural(text: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdigit() else (0, part) for part in re.findall(r"\d+|\D+", text)
    ]


def build_start(
    root: Path,
    not_run: Mapping[str, str],
    errata: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """index.html of an output folder: every experiment with a report, by paper; not_run: experiment -> reason.

    errata: entries of the audit (paper, class, …), for the table of classes.
    """
    folders = sorted(path.parent for path in root.glob("*/manifest.json"))
    pages = [p for p in map(Page.read, folders) if p is not None]
    readable = {page.folder for page in pages}
    broken = [folder.name for folder in folders if folder not in readable]
    papers: dict[str, list[Page]] = {}
    for page in pages:
        papers.setdefault(page.paper or "other", []).append(page)
    papers = {paper: papers[paper] for paper in _sorted(papers)}
    totals = {
        paper: in_order(*(page.verdicts for page in members)) for paper, members in papers.items()
    }
    classes: dict[str, dict[str, int]] = {}
    for entry in errata:
        counts = classes.setdefault(str(entry["paper"]), {})
        counts[str(entry["class"])] = counts.get(str(entry["class"]), 0) + 1
    below = [p.parent.relative_to(root) for p in root.glob("*/*/manifest.json")]
    rows = {page.name: [row[1:2] + row[3:] for row in start_rows([page])] for page in pages}
    texts = [
        row for page in pages if page.paper != ALL for row in rows[page.name]
    ]  # formulas of the audit: on its page
    maths = table(row[1] for row in texts)
    for row in texts:
        row[1] = marked(row[1])
    found = {page.name: [page.paper, rows[page.name]] for page in pages}
    content = f"window.hessRows={island(found)};\nwindow.hessMaths={island(maths)};\n"
    write_bytes(root / "rows.js", content.encode())
    write_bytes(root / GALLERY, gallery(pages).encode())
    names = [page.name for members in papers.values() for page in members]
    write_bytes(root / "pages.js", f"window.hessPages={island(names)};\n".encode())
    others = sorted(p.as_posix() for p in below if p.parts[0] != PUBLISHED)
    html = render(
        "start.html",
        papers=papers,
        cards=_cards(papers, root),
        places=place_index(pages),
        totals=totals,
        not_run=not_run,
        classes=classes,
        others=others,
        pages=pages,
        broken=broken,
        legend={t: ", ".join(verdict for verdict in MEANINGS if tone(verdict) == t) for t in SIGNS},
        cite=bibtex(*papers),
        summary="reproduction/index.html"
        if (root / "reproduction" / "index.html").is_file()
        else "",
    )
    path = root / "index.html"
    write_bytes(path, html.encode())
    return path
