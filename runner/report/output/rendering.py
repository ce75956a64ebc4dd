"""The formats of a report: templates of Markdown and HTML, both filled from a page (`output.page`).
Pages are self-contained; nothing that a user wrote can run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner.contract import seeds_line
from runner.report.answers.rows import Row
from runner.report.answers.tones import COUNTED, MEANINGS, tone

TEMPLATES = Path(__file__).parent / "templates"
SIGNS = {"good": "✓", "bad": "✗", "neutral": "–", "open": "○"}
"""Tone of a verdict -> the sign in front of its word."""
LISTED = (*COUNTED, "not comparable")
"""Verdicts of the rows that report.md lists; all others are counted."""


@cache
def _environment(html: bool) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": _cell, "listed": _listed}
    environment.globals |= {
        "style": _asset("site.css"),
        "script": _asset("site.js"),
        "markdown": markdown,
        "signs": SIGNS,
        "meanings": MEANINGS,
        "tone": tone,
        "seeds_line": seeds_line,
    }
    return environment


def render(template: str, **about: Any) -> str:
    """A template filled in; one of HTML escapes what is put in."""
    return str(_environment(template.endswith(".html")).get_template(template).render(**about))


def _cell(text: str) -> str:
    """A text in one line, with what a table of Markdown would read as markup escaped."""
    return re.sub(r"([|]|(?<=[{,])[*])", r"\\\1", " ".join(text.split()))


def _listed(rows: Sequence[Row], columns: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The values of the rows that report.md lists, the worst verdict first. columns: head ->
    attribute of a row."""
    worst_first = sorted(
        (row for row in rows if row.verdict in LISTED), key=lambda row: LISTED.index(row.verdict)
    )
    return list(map(attrgetter(*columns.values()), worst_first))


def _asset(name: str) -> Any:
    from markupsafe import Markup

    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def markdown(text: str) -> Any:
    """Markdown as HTML. Raw HTML is shown as text. Headings begin one level further down."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.validateLink = _safe  # type: ignore[assignment, method-assign]
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _safe(address: str) -> bool:
    """Whether an address is http, https or relative."""
    return urlsplit(address.strip()).scheme in ("", "http", "https")
