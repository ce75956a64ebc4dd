"""The page of an experiment: one self-contained HTML file, made from the files of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.report.citation import bibtex
from runner.report.manifest import write
from runner.report.navigation import header
from runner.report.page import ALL, Page
from runner.report.papers import known_papers
from runner.report.rendering import island, markdown, render
from runner.report.scope import Scope

MOST_CELLS = 2000
"""Cells that a page names behind its rows; of a larger store `hess-run why` names them."""


def build_experiment(
    page: Page, warnings: Sequence[str], *, root: str = "../", documentation: str | None = None
) -> Path:
    """index.html next to the report's files, and stats.js, which the page loads on demand.

    root: path to the folder of the start page; documentation: as of `navigation.sections`. Returns
    the page.
    """
    statistics = page.table("stats")
    if not page.command:
        write(page.folder / "stats.js", _statistics(statistics).encode())
    place = None if page.command else root
    papers = known_papers() if page.paper == ALL else [page.paper]
    html = render(
        "experiment.html",
        page=page,
        data=_page_data(page),
        warnings=list(warnings),
        lead=markdown(page.lead),
        findings=markdown(page.tables),
        statistics=len(statistics),
        files=_downloads(page),
        cite=bibtex(*papers),
        **header(place, "Results", documentation),
    )
    path = page.folder / "index.html"
    write(path, html.encode())
    return path


def _statistics(rows: Sequence[Mapping[str, str]]) -> str:
    """stats.js: the columns of the statistics that are not empty."""
    columns = []
    for name in rows[0] if rows else ():
        if {row[name] for row in rows} - {"", "nan"}:
            columns.append(name)
    content: dict[str, list[Any]] = {"columns": columns, "rows": []}
    for row in rows:
        content["rows"].append([row[name] for name in columns])
    return f"window.hessStats={island(content)};\n"


def _downloads(page: Page) -> list[str]:
    """Tables and texts of the report that are there."""
    names = [name for name in page.manifest["files"] if name.endswith((".csv", ".md"))]
    return [name for name in names if (page.folder / name).is_file()]


def _page_data(page: Page) -> dict[str, Any]:
    """What the script of a page shows: rows, the cells behind them, and figures."""
    cells = []
    if len(page.cells) <= MOST_CELLS:
        cells = page.cells
    return {
        "name": page.name,
        "scores": page.scores,
        "claims": page.claims,
        "cells": cells,
        "replicated": Scope.of(page.manifest).replicated,
        "figures": {figure.place: figure.name for figure in reversed(page.figures) if figure.place},
    }
