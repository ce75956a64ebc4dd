"""From merged tables to the files of a report: tables, figures, report.md, manifest and page, all
from one content (`runner.report.output.page`).

Order matters. The experiment's analysis is asked once, tables are on disk before anything is drawn,
and whatever the experiment's own code raises (a figure, the claims, the tests) is recorded and
shown, and loses nothing else. Every file appears by one rename. Nothing is read back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import CLAIM_VERDICTS, Figures
from runner.contract.records import CERTIFICATE
from runner.files import is_listed, remove
from runner.report.answers.certificates import certificate_lines, not_certified
from runner.report.answers.findings import Failures, Findings, Material, ask
from runner.report.answers.formatting import counts_line
from runner.report.answers.papers import bibtex, known_papers
from runner.report.answers.rows import ALL, JSON_COLUMNS, Row, rows_of
from runner.report.answers.scope import Scope
from runner.report.answers.summary import PARTIAL, summary, summary_path
from runner.report.answers.tones import OF_NUMBERS
from runner.report.figures.captions import outcome_on
from runner.report.output.draw import Gallery
from runner.report.output.listing import Listing
from runner.report.output.manifest import (
    NAME,
    PAGE,
    complete,
    is_merged,
    read_manifest,
    to_bytes,
    write,
)
from runner.report.output.page import Page
from runner.report.output.rendering import render
from runner.store import tables

if TYPE_CHECKING:
    import pandas as pd


DIGITS = "%.9g"
"""Format of floats in the tables that an analysis gives: fewer digits than those in which two
machines may differ."""


def console_lines(directory: Path, record: Mapping[str, Any]) -> list[str]:
    """What the report in `directory` holds, from its manifest, for the console."""
    claims = Counter(record["claims"])
    extensions = Counter(record["extensions"])
    scope = Scope.of(record)
    lines = list(scope.lines)
    if scope.is_papers:
        counted = {"statements": claims - extensions, "extensions": extensions}
        counted["published numbers"] = Counter(record["scorecard"])
        for what, counts in counted.items():
            if counts.total() or (scope.paper and what != "extensions"):
                lines.append(f"{what}: {counts_line(counts)}")
    else:
        kept = {v: n for v, n in claims.items() if n and v not in ("not run", "not comparable")}
        if kept:
            lines.append(f"statements that do not depend on the protocol: {counts_line(kept)}")
    figures = len(record["captions"])
    merged = sum(map(is_merged, record["files"]))
    lines.append(f"{figures} figures, {merged} tables, page {directory / 'index.html'}")
    if record["left_out"]:
        lines.append(f"not drawn, nothing of them is measured: {', '.join(record['left_out'])}")
    lines += [f"failed: {failure}" for failure in Failures(record["report_failures"]).lines()]
    return [f"  {line}" for line in lines]


@dataclass(frozen=True, eq=False)
class Report:
    """The report of one experiment. `write` and `draw` raise OSError where a file cannot be
    written.

    Parameters
    ----------
    directory
        Its folder.
    manifest
        What it is made from (`runner.report.output.record.record_of`).
    material
        Settings, tables, scope and published values.
    listings
        Further tables.
    failures
        What the experiment's own code raises.
    """

    directory: Path
    manifest: Mapping[str, Any]
    material: Material
    listings: Sequence[Listing] = ()
    failures: Failures = field(default_factory=Failures)

    def write(
        self, only_figure: str = "", say: Callable[[str], None] = lambda line: None
    ) -> dict[str, Any]:
        """Write every file, and return the manifest. only_figure: draw no other; say: callback,
        called before each figure is drawn."""
        findings = self.findings  # asked before anything is written
        self.directory.mkdir(parents=True, exist_ok=True)
        earlier = read_manifest(self.directory)
        files = self.write_tables() | self.write_texts()
        figures = findings.figures
        if only_figure:
            figures = {name: one for name, one in figures.items() if name == only_figure}
        gallery = self.gallery()
        gallery.draw(figures, say)
        record = complete(self.record(gallery)) | {"files": files | gallery.files}
        record["files"][PAGE] = write_page(replace(self.page, manifest=record))
        remove_stale(self.directory, earlier["files"] if earlier else {}, record["files"])
        write_manifest(self.directory, record)
        return record

    def draw(self, figures: Figures, suffix: str, size: tuple[float, float]) -> list[str]:
        """Draw some figures and nothing else; a line for each file. size: width and height in
        inches, 0 for the figure's own; figures of another size are no part of the report."""
        (self.directory / "figures").mkdir(parents=True, exist_ok=True)
        gallery = self.gallery(suffix, size)
        gallery.draw(figures)
        earlier = read_manifest(self.directory)
        if earlier is not None and not any(size):  # the figures that it lists are the report's
            earlier["files"] |= gallery.files
            earlier["files"][PAGE] = write_page(replace(self.page, manifest=earlier))
            write_manifest(self.directory, earlier)
        left_out = [f"{name}: not drawn, nothing of it is measured" for name in gallery.left_out]
        failed = [f"  failed: {line}" for line in self.failures.lines()]
        return [*(str(one.path) for one in gallery.drawn.values()), *left_out, *failed]

    @cached_property
    def findings(self) -> Findings:
        """The answers of the analysis."""
        return ask(self.material, self.failures)

    @cached_property
    def certificates(self) -> dict[str, list[str]]:
        """What is to be said about the certificates of the cells, and of those that are wrong."""
        carried = [bool(cell.get("certificate")) for cell in self.manifest["cells"]]
        shown = self.material.shown
        rows: list[Any] = []
        if CERTIFICATE in shown.tables:
            rows = shown.tables[CERTIFICATE].to_dict("records")
        said = certificate_lines(carried, rows, shown.experiment.uncertified) if carried else []
        return {"certificates": said, "not_certified": not_certified(rows)}

    @cached_property
    def summary(self) -> str:
        """The hand-written summary in the paper's scope; where cells or seeds are missing only one
        that is written for partial results."""
        if "summary" in self.manifest:
            return str(self.manifest["summary"])
        path = summary_path(self.manifest["experiment"], self.material.judged.experiment)
        judged = self.material.judged.tables
        scope = self.material.scope
        if path is None or not (judged and scope.is_papers):
            return ""
        if self.manifest["changed"]:
            return ""
        template = path.read_text(encoding="utf-8")
        is_partial = self.manifest["missing"] or scope.lost or scope.unmeasured
        if not template or (is_partial and PARTIAL not in template):
            return ""
        tables = (self.findings.claims, self.findings.scorecard, judged)
        return self.failures.guard("summary", lambda: summary(template, *tables), "")

    @cached_property
    def page(self) -> Page:
        """The content, as far as it is known before anything is drawn."""
        documents = self.findings.documents
        texts = [text for name, text in documents.items() if Path(name).name == "report.md"]
        return Page(
            self.directory,
            complete(self.record(None)),
            self.rows,
            self.findings.stats.to_dict("records"),
            self.listings,
            "".join(texts),
        )

    @cached_property
    def rows(self) -> list[Row]:
        found = self.findings
        return rows_of(found.scorecard, found.claims, found.paper, str(self.manifest["experiment"]))

    def write_tables(self) -> dict[str, str]:
        """Write merged tables, claims, scorecard and statistics; file -> SHA-256."""
        files = {}
        for table, frame in self.material.shown.tables.items():
            files[f"{table}.csv"] = tables.to_bytes(frame)
        for table, frame in self.findings.tables.items():
            content = with_json(frame).to_csv(
                index=False, float_format=DIGITS, na_rep="nan", lineterminator="\n"
            )
            files[f"{table}.csv"] = content.encode()
        return {name: write(self.directory / name, content) for name, content in files.items()}

    def write_texts(self) -> dict[str, str]:
        """Write report.md and what else the analysis has; file -> SHA-256."""
        texts = {Path(name).name: text for name, text in self.findings.documents.items()}
        texts.setdefault("report.md", render("report.md", page=self.page))
        return {name: write(self.directory / name, text.encode()) for name, text in texts.items()}

    def gallery(self, suffix: str = "png", size: tuple[float, float] = (0.0, 0.0)) -> Gallery:
        """What draws and saves figures."""
        return Gallery(
            self.directory,
            self.findings.captions,
            self.rows,
            self.manifest,
            self.failures,
            suffix,
            size,
        )

    def record(self, gallery: Gallery | None) -> dict[str, Any]:
        """The manifest of the report, except its files. gallery: None before anything is drawn."""
        numbers = Counter(self.findings.scorecard["verdict"])
        statements = [row for row in self.rows if not row.is_number]
        counts = Counter(row.verdict for row in statements)
        ours = Counter(row.verdict for row in statements if row.is_extension)
        return {
            **self.manifest,
            "summary": self.summary,
            "claims": {verdict: counts[verdict] for verdict in CLAIM_VERDICTS},
            "extensions": {verdict: ours[verdict] for verdict in CLAIM_VERDICTS if ours[verdict]},
            "scorecard": {verdict: numbers[verdict] for verdict in OF_NUMBERS},
            "outcomes": _outcomes(self.rows),
            "report_failures": self.failures.records,
            **self.certificates,
            "notes": list(self.findings.notes),
            **(gallery.record() if gallery is not None else {}),
        }


def _outcomes(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Paper, place and whether it holds, of every place with a judged row."""
    by_paper: dict[str, list[Row]] = {}
    for row in rows:
        by_paper.setdefault(row.paper, []).append(row)
    found = []
    for paper, members in by_paper.items():
        for place in dict.fromkeys(place for row in members for place in row.places):
            if outcome := outcome_on(place, members):
                found.append({"paper": paper, "place": place, "outcome": outcome})
    return found


def write_manifest(directory: Path, record: Mapping[str, Any]) -> None:
    """manifest.json of a report, by one rename."""
    write(directory / NAME, to_bytes(record))


def with_json(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with what is no text or number as JSON, "" where it is empty."""
    columns = [column for column in JSON_COLUMNS if column in frame]
    return frame.assign(**{column: frame[column].map(_json) for column in columns})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def write_page(page: Page) -> str:
    """Write index.html of a report; its SHA-256. Raises OSError when it cannot be written."""
    above = "../" if page.folder.name == page.name else "../../"
    start = "" if page.command else f"{above}index.html"
    papers = known_papers() if page.paper == ALL else [page.paper]
    html = render("experiment.html", page=page, start=start, cite=bibtex(*papers))
    return write(page.folder / PAGE, html.encode())


def remove_stale(directory: Path, earlier: Mapping[str, str], now: Iterable[str]) -> None:
    """Remove files that the earlier report made and this one did not, unless they were changed
    since.

    earlier: file -> SHA-256, as in the manifest.
    """
    gone = {file: earlier[file] for file in set(earlier) - set(now)}
    for file in gone:
        remove(directory / file, is_listed(directory, gone))
