"""What the pages show, read from the files of a report: nothing is computed here, only joined and
named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.report.commands import figure_commands, settings_words
from runner.report.manifest import changed_files, is_merged, read_manifest, read_table
from runner.report.rows import number_rows, statement_rows
from runner.report.tones import in_order

ALL = "all five"
"""The name under which experiments on every paper stand."""
VECTOR = ("pdf", "svg")
"""Formats of a figure next to PNG."""


@dataclass(frozen=True)
class Figure:
    """A figure of an experiment: file below the page, caption, text for those who do not see it,
    the command that redraws it, before it the one that measures it where it depends on settings of
    its own, the line of the code that draws it, the figure or table of the paper that it redraws,
    and the same figure as PDF or SVG where that was drawn: format -> file.
    """

    name: str
    file: str
    caption: str
    alt: str
    command: str
    measure: str = ""
    source: str = ""
    place: str = ""
    vector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """The report of one experiment under one set of settings: its folder, and its files."""

    folder: Path
    manifest: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Page | None:
        """None where there is no report, or one whose files are not those of its manifest."""
        manifest = read_manifest(folder)
        if manifest is None or not all(map(is_merged, changed_files(folder, manifest))):
            return None
        return cls(folder, manifest)

    @property
    def name(self) -> str:
        return str(self.manifest["experiment"])

    @property
    def title(self) -> str:
        return str(self.manifest["title"])

    @property
    def command(self) -> str:
        """The command that makes this report, if that is not a run of an experiment; such a report
        has no verdicts."""
        return str(self.manifest.get("command", ""))

    @property
    def paper(self) -> str:
        return str(self.manifest["paper"])

    @property
    def written(self) -> str:
        """The day of the report."""
        return str(self.manifest["written"])[:10]

    @property
    def version(self) -> str:
        """The version of hess-run that made the report, with its commit."""
        by = self.manifest["software"]
        return f"hess-run {by['hess_run']} ({by.get('git_commit', '')})" if "hess_run" in by else ""

    @property
    def complete(self) -> bool:
        return not self.manifest["missing"]

    def table(self, name: str) -> list[dict[str, str]]:
        """Rows of a CSV file of the report; none where it is not there."""
        return read_table(self.folder / f"{name}.csv")

    @cached_property
    def scores(self) -> list[dict[str, Any]]:
        """Rows of the scorecard, each with its anchor, its keys, and the values of the seeds."""
        return number_rows(self.table("scorecard"), self.paper)

    @cached_property
    def claims(self) -> list[dict[str, Any]]:
        """Rows of the claims, each with its anchor."""
        return statement_rows(self.table("claims"), self.paper, self.name)

    def paper_of(self, row: Mapping[str, Any]) -> str:
        """The paper that a row is about; in an audit of all papers its place begins with it."""
        if self.paper == ALL:
            return str(row.get("where", "")).partition(",")[0]
        return self.paper

    @property
    def verdicts(self) -> dict[str, int]:
        """Verdict -> number of published values and of the paper's statements, in the order of
        tiles."""
        numbers = Counter(row["verdict"] for row in self.table("scorecard"))
        return in_order(numbers, self._statements(extensions=False))

    @property
    def extensions(self) -> dict[str, int]:
        """Verdict -> number of statements that are ours and no paper's, in the order of tiles."""
        return in_order(self._statements(extensions=True))

    def _statements(self, *, extensions: bool) -> Counter[str]:
        rows = [row for row in self.claims if row.get("extension", False) == extensions]
        return Counter(row["verdict"] for row in rows)

    @cached_property
    def figures(self) -> list[Figure]:
        """Figures in the order in which the experiment gives them."""
        made = []
        for file in self.manifest["files"]:
            is_figure = file.startswith("figures/") and file.endswith(".png")
            if is_figure and (self.folder / file).is_file():
                made.append(self._figure(file))
        return made

    def _figure(self, file: str) -> Figure:
        name = Path(file).stem
        said = str(self.manifest["captions"].get(name) or name.replace("_", " "))
        commands = {"redraw": self.command}
        if not self.command:
            commands = figure_commands(self.manifest, name, settings_words(self.manifest))
        others = {suffix.upper(): str(Path(file).with_suffix(f".{suffix}")) for suffix in VECTOR}
        vector = {kind: other for kind, other in others.items() if (self.folder / other).is_file()}
        return Figure(
            name,
            file,
            said,
            str(self.manifest["alts"].get(name) or said),
            commands["redraw"],
            commands.get("measure", ""),
            self.manifest["sources"].get(name, ""),
            self.manifest["places"].get(name, ""),
            vector,
        )

    @property
    def findings(self) -> str:
        """report.md, '' where there is none."""
        path = self.folder / "report.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        return ""

    @property
    def lead(self) -> str:
        """The summary of report.md: what stands between its title and its first table."""
        return self.findings.partition("\n## ")[0].partition("\n")[2].strip()

    @property
    def tables(self) -> str:
        """report.md from its first table on."""
        _, mark, rest = self.findings.partition("\n## ")
        return mark + rest

    @property
    def commits(self) -> list[tuple[str, int]]:
        """Commits that measured the cells, with how many each."""
        commits = [str(cell.get("git_commit", "")) for cell in self.manifest["cells"]]
        return Counter(commits).most_common()

    @property
    def cells(self) -> list[dict[str, Any]]:
        """id, parameters and seed of every cell."""
        shown = []
        for cell in self.manifest["cells"]:
            params = cell.get("params", {})
            shown.append({"id": cell.get("id", ""), "params": params, "seed": cell.get("seed")})
        return shown
