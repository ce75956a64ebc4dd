"""The header that all pages of a site share."""

from __future__ import annotations

from typing import Any

from runner.report.tones import MEANINGS, tone

RESULTS = ("Results", "index.html")
DOCUMENTATION = (
    ("Reports", "reports.html"),
    ("User guide", "user-guide.html"),
    ("Concepts", "concepts.html"),
    ("API", "api.html"),
    ("Contributing", "contributing.html"),
    ("Search", "search.html"),
)
ABOVE = "../"
"""Path to the documentation, from the folder of result pages that are a part of it."""


def sections(documentation: str | None) -> list[tuple[str, str]]:
    """(label, path from the folder of the result pages) of every link of the header.

    documentation: path from there to the documentation, None for the pages of an output folder.
    """
    if documentation is None:
        return [RESULTS]
    return [RESULTS, *((label, documentation + page) for label, page in DOCUMENTATION)]


def header(root: str | None, here: str, documentation: str | None) -> dict[str, Any]:
    """What `base.html` needs of a page.

    root: path from the page to the folder of the result pages, None for a page that stands alone;
    here: label of the section that the page belongs to; documentation: as of `sections`.
    """
    tones = {verdict: tone(verdict) for verdict in MEANINGS}
    site = {"root": root, "tones": tones}
    if root is None:
        return {"root": root, "here": here, "sections": [], "home": "", "site": site}
    home = f"{documentation or ''}index.html"
    return {
        "root": root,
        "here": here,
        "sections": sections(documentation),
        "home": home,
        "site": site,
    }
