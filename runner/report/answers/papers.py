"""The list of papers: what `experiments/papers.toml` says of each, and how they are cited."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runner import __version__

PAPERS_FILE = Path(__file__).resolve().parents[3] / "experiments" / "papers.toml"
"""What to cite, main finding, figure and anchor of each paper."""


@cache
def known_papers() -> Mapping[str, Mapping[str, Any]]:
    """The entries of papers.toml; none where the package of experiments is not installed."""
    if PAPERS_FILE.is_file():
        return tomllib.loads(PAPERS_FILE.read_text(encoding="utf-8"))
    return {}


@cache
def anchors() -> Mapping[str, str]:
    """Paper -> the first part of the anchors of its rows."""
    return {paper: str(about["anchor"]) for paper, about in known_papers().items()}


SOFTWARE = {
    "author": "{The developers of hess-run}",
    "title": "hess-run: reproducing five papers on the Hessian of neural networks",
    "version": __version__,
    "year": "2026",
}


def bibtex(*papers: str) -> str:
    """BibTeX of this software and of some papers; papers without an entry are left out."""
    known = known_papers()
    entries = [_entry("software", "hess-run", SOFTWARE)]
    for paper in papers:
        if paper in known:
            entries.append(_entry("misc", known[paper]["key"], _fields(known[paper])))
    return "\n".join(entries)


def _fields(about: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"author": about["author"], "title": about["cited"], "year": about.get("year", "")}
    if "arxiv" in about:
        fields["eprint"] = about["arxiv"]
        fields["archivePrefix"] = "arXiv"
    return fields


def _entry(kind: str, key: str, fields: Mapping[str, Any]) -> str:
    lines = [f"  {name}={{{value}}}" for name, value in fields.items() if value]
    return f"@{kind}{{{key},\n" + ",\n".join(lines) + "\n}"
