"""The header that all pages of a site share: its sections, and where its search looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.report.tones import MEANINGS, tone

RESULTS = (("Results", "index.html"), ("Figures", "gallery.html"))
DOCUMENTS = (("Summary", "reproduction/README.html"), ("Errata", "errata.html"))
DOCUMENTATION = (
    ("Reports", "reports.html"),
    ("User guide", "user-guide.html"),
    ("Concepts", "concepts.html"),
    ("API", "api.html"),
    ("Contributing", "contributing.html"),
)


@dataclass(frozen=True)
class Surroundings:
    """What the result pages are part of.

    documents: path from their folder to that of the reports and errata, None without those;
    documentation: the same for the pages of docs/.
    """

    documents: str | None = None
    documentation: str | None = None

    @property
    def sections(self) -> list[tuple[str, str]]:
        """(label, path from the folder of the result pages) of every link of the header."""
        links = [*RESULTS]
        if self.documentation is not None:
            links += [(label, self.documentation + page) for label, page in DOCUMENTATION]
        elif self.documents is not None:
            links += [(label, self.documents + page) for label, page in DOCUMENTS]
        return links

    @property
    def summary(self) -> str:
        """Path of the page on all papers, "" where it is not there."""
        return "" if self.documents is None else self.documents + DOCUMENTS[0][1]

    def header(self, root: str | None, here: str = "") -> dict[str, Any]:
        """What `base.html` needs of a page.

        root: path from the page to the folder of the result pages, None for a page that stands
        alone; here: label of the section that the page belongs to.
        """
        documentation = None
        if root is not None and self.documentation is not None:
            documentation = root + self.documentation
        tones = {verdict: tone(verdict) for verdict in MEANINGS}
        return {
            "root": root,
            "here": here,
            "sections": self.sections if root is not None else [],
            "site": {"root": root, "documentation": documentation, "tones": tones},
        }


ALONE = Surroundings()
"""Pages of an output folder."""
SITE = Surroundings(documents="")
"""A site that `hess-run site` builds: reports and errata are among its pages."""
IN_DOCUMENTATION = Surroundings(documents="../", documentation="../")
"""A site in the folder results/ of the documentation."""
