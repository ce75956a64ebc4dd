"""Render the pages: templates and data in, one self-contained HTML file out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner import __version__
from runner.report.captions import seeds_line
from runner.report.page import ALL, MEANINGS, Page, in_order, tone
from runner.store.archive import PUBLISHED
from runner.store.tables import write_bytes

TEMPLATES = Path(__file__).parent / "templates"
STYLE = (TEMPLATES / "site.css").read_text(encoding="utf-8")
SIGNS = {"good": "✓", "bad": "✗", "neutral": "–", "open": "○"}

MOST_CELLS = 2000
"""Cells that a page names behind its rows; of a larger store `hess-run why` names them."""

PAPERS_FILE = Path(__file__).resolve().parents[2] / "experiments" / "papers.toml"
"""What to cite, main finding and figure of each paper."""


@cache
def known_papers() -> Mapping[str, Mapping[str, Any]]:
    """The entries of papers.toml; none where the package of experiments is not installed."""
    return tomllib.loads(PAPERS_FILE.read_text(encoding="utf-8")) if PAPERS_FILE.is_file() else {}


def bibtex(*papers: str) -> str:
    """BibTeX of this software and of some papers; papers without an entry are left out."""
    software = {"author": "{The developers of hess-run}", "title": SOFTWARE, "version": __version__, "year": "2026"}
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
    environment.globals.update(style=_asset("site.css"), script=_asset("site.js"), start_script=_asset("start.js"))
    environment.filters.update(island=island, formulas=formulas)
    return environment


def _asset(name: str) -> Any:
    from markupsafe import Markup

    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def island(value: Any) -> Any:
    """JSON that may stand inside a script element."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def formulas(text: Any) -> Any:
    """Text with the superscripts and indices of its formulas as HTML.

    >>> formulas("‖H^GN‖_F < 1")
    Markup('‖H<sup>GN</sup>‖<sub>F</sub> &lt; 1')
    """
    from markupsafe import Markup, escape

    raised = re.sub(r"(?<=\w)\^(GN|T)\b", r"<sup>\1</sup>", str(escape(text)))
    return Markup(re.sub(r"(?<=[‖λ])_(F|\w+)\b", r"<sub>\1</sub>", raised))


def markdown(text: str) -> Any:
    """Markdown as HTML; raw HTML in it is shown as text. Its headings begin below the page's own."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.validateLink = _safe  # type: ignore[assignment, method-assign]
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    return formulas(Markup(parser.renderer.render(tokens, parser.options, {})))


def _safe(address: str) -> bool:
    """Whether an address is http, https or relative."""
    return urlsplit(address.strip()).scheme in ("", "http", "https")


def build_experiment(page: Page, warnings: Sequence[str], *, up: str = "../index.html") -> Path:
    """index.html next to the report's files, and stats.js, which the page loads when it is asked for."""
    statistics = page.table("stats")
    columns = [c for c in (statistics[0] if statistics else ()) if any(r[c] not in ("", "nan") for r in statistics)]
    rows = [[r[c] for c in columns] for r in statistics]
    if not page.command:
        script = f"window.hessStats={island({'columns': columns, 'rows': rows})};\n"
        write_bytes(page.folder / "stats.js", script.encode())
    cells = page.cells if len(page.cells) <= MOST_CELLS else []
    data = {"name": page.name, "scores": page.scores, "claims": page.claims, "cells": cells}
    html = (
        _environment()
        .get_template("experiment.html")
        .render(
            page=page,
            data=data,
            warnings=list(warnings),
            lead=markdown(page.lead),
            findings=markdown(page.tables) if page.tables else "",
            statistics=len(rows),
            files=[a for a in page.manifest["files"] if a.endswith((".csv", ".md")) and (page.folder / a).is_file()],
            cite=bibtex(*known_papers()) if page.paper == ALL else bibtex(page.paper),
            up=up,
        )
    )
    path = page.folder / "index.html"
    write_bytes(path, html.encode())
    return path


def _cards(papers: Mapping[str, Sequence[Page]], root: Path) -> list[dict[str, str]]:
    """A card for each paper that has a report and a finding; its figure where that is drawn."""
    found = []
    for paper, about in known_papers().items():
        if paper in papers:
            name, _, figure = str(about["figure"]).partition("/")
            file = f"{name}/figures/{figure}.png"
            drawn = (
                {"figure": file, "page": f"{name}/index.html#figure.{figure}"}
                if (root / file).is_file()
                else {"figure": ""}
            )
            found.append({"paper": paper, "title": about["title"], "finding": about["finding"], **drawn})
    return found


def start_rows(pages: Sequence[Page]) -> list[list[Any]]:
    """Every published number and statement: [page, anchor, paper, text, place, verdict, published, measured]."""

    def head(page: Page, row: Mapping[str, Any]) -> tuple[str, str, str]:
        return page.name, str(row["id"]), page.paper

    rows: list[list[Any]] = []
    for page in pages:
        for row in page.scores:
            printed, ours = row.get("paper_mean"), row.get("measured_mean")
            rows.append(
                [page.name, row["id"], page.paper, row["label"], row.get("source", ""), row["verdict"], printed, ours]
            )
        for row in page.claims:
            rows.append(
                [page.name, row["id"], page.paper, row["statement"], row.get("where", ""), row["verdict"], None, None]
            )
    return rows


def place_index(pages: Sequence[Page]) -> dict[str, dict[str, list[str]]]:
    """Paper -> figure or table of it -> experiments with rows on it."""
    found: dict[str, dict[str, list[str]]] = {}
    for page in pages:
        for row in (*page.scores, *page.claims):
            for place in row["places"] if page.paper != ALL else ():
                names = found.setdefault(page.paper, {}).setdefault(place, [])
                names += [] if page.name in names else [page.name]
    return {paper: dict(sorted(by.items(), key=lambda item: _natural(item[0]))) for paper, by in found.items()}


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.findall(r"\d+|\D+", text)]


def build_start(
    root: Path, not_run: Mapping[str, str], errata: Sequence[Mapping[str, Any]] = (), origin: str = ""
) -> Path:
    """index.html of an output folder: every experiment with a report, by paper; not_run: experiment -> reason.

    errata: entries of the audit (paper, class, …), for the table of classes. origin: what the page is made from, to be
    found in it again.
    """
    folders = sorted(path.parent for path in root.glob("*/manifest.json"))
    pages = [p for p in map(Page.read, folders) if p is not None]
    readable = {page.folder for page in pages}
    broken = [folder.name for folder in folders if folder not in readable]
    papers: dict[str, list[Page]] = {}
    for page in pages:
        papers.setdefault(page.paper or "other", []).append(page)
    papers = dict(sorted(papers.items(), key=lambda item: item[0] == ALL))
    totals = {paper: in_order(*(page.verdicts for page in members)) for paper, members in papers.items()}
    classes: dict[str, dict[str, int]] = {}
    for entry in errata:
        counts = classes.setdefault(str(entry["paper"]), {})
        counts[str(entry["class"])] = counts.get(str(entry["class"]), 0) + 1
    below = [p.parent.relative_to(root) for p in root.glob("*/*/manifest.json")]
    rows: dict[str, list[list[Any]]] = {page.name: [] for page in pages}
    for name, anchor, _, *rest in start_rows(pages):
        rows[name].append([anchor, *rest])
    found = {page.name: [page.paper, rows[page.name]] for page in pages}
    write_bytes(root / "rows.js", f"window.hessRows={island(found)};\n".encode())
    names = [page.name for members in papers.values() for page in members]
    write_bytes(root / "pages.js", f"window.hessPages={island(names)};\n".encode())
    others = sorted(p.as_posix() for p in below if p.parts[0] != PUBLISHED)
    html = (
        _environment()
        .get_template("start.html")
        .render(
            papers=papers,
            cards=_cards(papers, root),
            places=place_index(pages),
            totals=totals,
            not_run=not_run,
            classes=classes,
            others=others,
            pages=pages,
            broken=broken,
            origin=origin,
            cite=bibtex(*papers),
        )
    )
    path = root / "index.html"
    write_bytes(path, html.encode())
    return path
