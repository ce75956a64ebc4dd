"""Templates and Markdown as HTML. Pages are self-contained; nothing that a user wrote can run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner.report.captions import seeds_line
from runner.report.tones import MEANINGS, tone

TEMPLATES = Path(__file__).parent / "templates"
SIGNS = {"good": "✓", "bad": "✗", "neutral": "–", "open": "○"}
"""Tone of a verdict -> the sign in front of its word."""


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
    environment.filters["island"] = island
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
