"""BibTeX of this software and of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner import __version__
from runner.report.answers.papers import known_papers

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
