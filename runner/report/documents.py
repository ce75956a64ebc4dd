"""The reproduction reports and the errata of docs/ as pages of the site."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path
from typing import Any

from runner.files import write_bytes
from runner.report.navigation import SITE
from runner.report.rendering import markdown, render
from runner.store.archive import published_root

DOCS = Path(__file__).resolve().parents[2] / "docs"


def write_documents(target: Path, docs: Path = DOCS) -> None:
    """Write docs/errata.md, docs/errata/ and docs/reproduction/ as HTML below `target`, as far as
    they are there."""
    sources = [docs / "errata.md", *docs.glob("errata/*.md"), *docs.glob("reproduction/*.md")]
    pages = {
        source: source.relative_to(docs).with_suffix(".html")
        for source in sources
        if source.is_file()
    }
    published = published_root()
    if published is not None:
        pages[published / "not_run.md"] = Path("index.html")
    for source, page in pages.items():
        if not source.is_relative_to(docs):
            continue

        def moved(found: re.Match[str], source: Path = source, page: Path = page) -> str:
            path = Path(os.path.normpath(source.parent / found[2]))
            place = pages.get(path)
            if place is None and published is not None and path.is_relative_to(published):
                place = path.relative_to(published)
            return (
                found[1]
                if place is None
                else f"[{found[1]}]({os.path.relpath(place, page.parent)})"
            )

        text = re.sub(r"<!--.*?-->", "", source.read_text(encoding="utf-8"))
        text = re.sub(r"\[([^\]]*)\]\((?!https?:)([^)\s]+)\)", moved, text)
        root = "../" * (len(page.parts) - 1)
        html = render(
            "document.html",
            title=text.partition("\n")[0].strip("# "),
            content=document(text),
            **SITE.header(root, "Errata" if page.stem == "errata" else "Summary"),
        )
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target / page, html.encode())


def document(text: str) -> Any:
    """Markdown of the project's own pages as HTML; their TeX as MathML, or as code where
    latex2mathml is missing."""
    return markdown(
        re.sub(r"\$([^$\n]+)\$", lambda found: _tex(found[1]), text), html=True, below=0
    )


def _tex(formula: str) -> str:
    try:
        from latex2mathml.converter import convert
    except ImportError:  # extras dev and docs
        return f"<code>{escape(formula)}</code>"
    return str(convert(formula))
