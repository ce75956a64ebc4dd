"""The formats of a report: templates of Markdown and HTML, both filled from a page (`output.page`).
Pages are self-contained; nothing that a user wrote can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner.contract import seeds_line
from runner.report.answers.formatting import markdown_table
from runner.report.answers.rows import Row
from runner.report.answers.tones import MEANINGS, tone
from runner.report.output.listing import Listing
from runner.report.output.page import listed

TEMPLATES = Path(__file__).parent / "templates"
SIGNS = {"good": "✓", "bad": "✗", "neutral": "–", "open": "○"}
"""Tone of a verdict -> the sign in front of its word."""


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
    about: dict[str, Any] = {"table": markdown_table, "listing": _listing, "rows": _rows}
    about["listings"] = _listings
    if html:
        about = {"style": _asset("site.css"), "script": _asset("site.js"), "markdown": markdown}
        about |= {
            "signs": SIGNS,
            "meanings": MEANINGS,
            "tone": tone,
            "seeds_line": seeds_line,
        }
    environment.globals.update(about)
    return environment


def render(template: str, **about: Any) -> str:
    """A template filled in; one of HTML escapes what is put in."""
    environment = _environment(template.endswith(".html"))
    return str(environment.get_template(template).render(**about))


def _listing(heading: str, lines: Sequence[str]) -> str:
    """A heading and a list of Markdown; "" without lines."""
    return "\n".join([f"## {heading}", "", *(f"- {line}" for line in lines)]) if lines else ""


def _listings(tables: Sequence[Listing]) -> str:
    """Further tables, one below the other."""
    made = (markdown_table(one.heading, one.columns, one.rows, one.lead) for one in tables)
    return "\n".join(made)


def _rows(heading: str, columns: Mapping[str, str], rows: Sequence[Row]) -> str:
    """A table of Markdown with the rows that are listed. columns: head -> attribute of a row."""
    values = attrgetter(*columns.values())
    return markdown_table(heading, list(columns), map(values, listed(rows)))


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
