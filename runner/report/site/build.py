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

from runner.report.captions import seeds_line
from runner.report.site.model import ALL, ORDER, Page, in_order, tone
from runner.store import published
from runner.store.tables import write_bytes

TEMPLATES = Path(__file__).parent / "templates"
STYLE = (TEMPLATES / "site.css").read_text(encoding="utf-8")
SIGNS = {"good": "✓", "bad": "✗", "neutral": "–", "open": "○"}

MOST_CELLS = 2000
"""Cells that a page names behind its rows; of a larger store `hess-run why` names them."""

QUESTIONS = {
    "exact match": "same networks and data; every printed digit agrees",
    "reproduced": "within the margin, by an equivalence test",
    "confirmed": "the statement meets its criterion",
    "not reproduced": "outside the margin",
    "refuted": "the statement does not meet its criterion",
    "minor error": "wrong as printed; no result depends on it",
    "inconclusive": "the interval allows both answers",
    "calibrated": "the protocol was chosen to match these numbers; not counted as evidence",
    "true by construction": "could not have come out otherwise; not counted",
    "not comparable": "other data, or a protocol that the paper does not state",
    "not run": "not measured",
}


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
    environment.globals.update(tone=tone, signs=SIGNS, questions=QUESTIONS, seeds_line=seeds_line, order=ORDER)
    environment.globals.update(style=_asset("site.css"), script=_asset("site.js"), start_script=_asset("start.js"))
    environment.filters["island"] = island
    return environment


def _asset(name: str) -> Any:
    from markupsafe import Markup

    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def island(value: Any) -> Any:
    """JSON that may stand inside a script element."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


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
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _safe(address: str) -> bool:
    """Whether an address is http, https or relative."""
    return urlsplit(address.strip()).scheme in ("", "http", "https")


def build_experiment(page: Page, warnings: Sequence[str], *, up: str = "../index.html") -> Path:
    """index.html beside the report's files, and stats.js, which the page loads when it is asked for."""
    statistics = page.table("stats")
    columns = [c for c in (statistics[0] if statistics else ()) if any(r[c] not in ("", "nan") for r in statistics)]
    rows = [[r[c] for c in columns] for r in statistics]
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
            files=[
                a
                for a in page.manifest["files"]
                if str(a).endswith((".csv", ".md")) and (page.folder / str(a)).is_file()
            ],
            up=up,
        )
    )
    path = page.folder / "index.html"
    write_bytes(path, html.encode())
    return path


PAPERS_FILE = Path(__file__).resolve().parents[3] / "experiments" / "papers.toml"
"""Title, main finding and figure of each paper."""


def _cards(papers: Mapping[str, Sequence[Page]], root: Path) -> list[dict[str, str]]:
    """A card for each paper that has a report and a finding; its figure where that is drawn."""
    known = tomllib.loads(PAPERS_FILE.read_text(encoding="utf-8")) if PAPERS_FILE.is_file() else {}
    found = []
    for paper, about in known.items():
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
    write_bytes(root / "rows.js", f"window.hessRows={island(start_rows(pages))};\n".encode())
    others = sorted(p.as_posix() for p in below if p.parts[0] != published.NAME)
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
        )
    )
    path = root / "index.html"
    write_bytes(path, html.encode())
    return path
