"""The content of a report: what report.md and index.html show, made once from the manifest, the
rows and the statistics; `Page.read` makes it from the files of a report that is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from runner.report.answers.findings import Failures
from runner.report.answers.formatting import counts_of, one_digit, place_rows, sentence
from runner.report.answers.rows import Record, Row, criterion_of, read_table, rows_of, shown
from runner.report.answers.scope import Scope
from runner.report.answers.tones import in_order
from runner.report.collect import measuring
from runner.report.output.commands import figure_commands, settings_words
from runner.report.output.listing import Listing
from runner.report.output.manifest import changed_files, is_published, read_manifest, warnings_of

VECTOR = ("pdf", "svg")
"""Formats of a figure next to PNG."""
MOST_TESTS = 200
"""Rows of the statistics that a page shows."""


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
    """The report of one experiment under one set of settings.

    folder: of the report. rows: numbers, then statements. statistics: rows of stats.csv.
    listings: further tables. document: a text that the analysis gives in the place of report.md, ""
    for none.
    """

    folder: Path
    manifest: Mapping[str, Any]
    rows: Sequence[Row] = ()
    statistics: Sequence[Record] = ()
    listings: Sequence[Listing] = ()
    document: str = ""

    @classmethod
    def read(cls, folder: Path) -> Page | None:
        """None where there is no report, or one whose files are not those of its manifest."""
        manifest = read_manifest(folder)
        if manifest is None or any(map(is_published, changed_files(folder, manifest))):
            return None
        scorecard, claims, stats = (
            read_table(folder / f"{name}.csv") for name in ("scorecard", "claims", "stats")
        )
        rows = rows_of(scorecard, claims, manifest["paper"], manifest["experiment"])
        return cls(folder, manifest, rows, stats.to_dict("records"))

    @property
    def name(self) -> str:
        return str(self.manifest["experiment"])

    @property
    def title(self) -> str:
        return str(self.manifest["title"] or self.name)

    @property
    def paper(self) -> str:
        return str(self.manifest["paper"])

    @property
    def command(self) -> str:
        """The command that makes this report, if that is not a run of an experiment; such a report
        has no verdicts."""
        return str(self.manifest.get("command", ""))

    @property
    def reproduce(self) -> str:
        """The command that measures the cells of this report and makes it."""
        return self.command or measuring(settings_words(self.manifest), self.manifest["seeds"])

    @cached_property
    def scope(self) -> Scope:
        return Scope.of(self.manifest)

    @property
    def complete(self) -> bool:
        return not self.manifest["missing"]

    @property
    def warnings(self) -> list[str]:
        """What a reader of any part of the report has to know, a phrase each."""
        return warnings_of(self.manifest)

    @property
    def alerts(self) -> list[str]:
        """What stands above everything else: warnings, numerical checks that failed, and what could
        not be made."""
        failed = [f"Could not be made: {line}" for line in self.failures.lines()]
        return [*map(sentence, self.warnings), *self.manifest["not_certified"], *failed]

    @property
    def failures(self) -> Failures:
        return Failures(self.manifest["report_failures"])

    # ------------------------------------------------------------------ verdicts

    @cached_property
    def numbers(self) -> list[Row]:
        """Published numbers that are compared; none outside the paper's scope."""
        return [row for row in self.rows if row.is_number and self.scope.is_papers]

    @cached_property
    def _stated(self) -> list[Row]:
        """Statements that keep a verdict."""
        stated = [row for row in self.rows if not row.is_number]
        return [row for row in stated if self.scope.keeps(bool(row.record.get("independent")))]

    @property
    def statements(self) -> list[Row]:
        return [row for row in self._stated if not row.is_extension]

    @property
    def extensions(self) -> list[Row]:
        """Statements that are ours and no paper's."""
        return [row for row in self._stated if row.is_extension]

    @property
    def verdicts(self) -> dict[str, int]:
        """Verdict -> number of published values and of the paper's statements, in the order of
        tiles."""
        statements = Counter(self.manifest["claims"]) - Counter(self.manifest["extensions"])
        return in_order(self.manifest["scorecard"], statements)

    @property
    def verdicts_of_extensions(self) -> dict[str, int]:
        return in_order(self.manifest["extensions"])

    @property
    def of_paper(self) -> str:
        """What follows "statements" where there is a paper."""
        return " of the paper" if self.paper else ""

    @property
    def aside(self) -> str:
        """What follows "extensions" where there is a paper."""
        return " (not in the paper)" if self.paper else ""

    @property
    def counts(self) -> str:
        """How many numbers and statements have which verdict."""
        kept = "statements that do not depend on the protocol"
        if self.scope.is_papers:
            kept = f"statements{self.of_paper}"
        kinds = (
            (self.numbers, "published numbers"),
            (self.statements, kept),
            (self.extensions, f"extensions{self.aside}"),
        )
        counts = [f"{len(rows)} {what}: {counts_of(rows)}." for rows, what in kinds if rows]
        if short := one_digit(self.numbers):
            counts.insert(1, f"Of the exact matches {short} are printed with one digit only.")
        return " ".join(counts)

    @property
    def open_numbers(self) -> list[Row]:
        """The numbers that are not reproduced, or inconclusive."""
        return [r for r in self.numbers if r.verdict in ("not reproduced", "inconclusive")]

    def by_kind(self, kind: str) -> list[Row]:
        """All numbers, statements or extensions, whatever their verdict."""
        return [row for row in self.rows if row.kind == kind]

    def facts(self, row: Row) -> list[tuple[str, str]]:
        """The evidence of a row: names and values."""
        facts = [(self.scope.replicated, row.replication)] if self.scope.replicated else []
        facts += _of_number(row) if row.is_number else _of_statement(row)
        return [(name, value) for name, value in facts if value]

    @property
    def tests(self) -> dict[str, Any]:
        """The columns of the statistics that are not empty, and the first rows."""
        rows = [_texts(row) for row in self.statistics[:MOST_TESTS]]
        names = list(rows[0]) if rows else []
        columns = [name for name in names if any(map(itemgetter(name), rows))]
        return {"columns": columns, "rows": [list(map(row.get, columns)) for row in rows]}

    @property
    def places(self) -> list[Sequence[str]]:
        return place_rows(self.numbers)

    @property
    def lead(self) -> str:
        """The summary, and why nothing is judged."""
        parts = (self.manifest["summary"], sentence(self.scope.not_judged))
        return " ".join(part for part in parts if part)

    @property
    def limitations(self) -> list[str]:
        """Sentences on rows that cannot be compared, missing cells, and what the report is not."""
        rows = [row for row in self.numbers if row.verdict == "not comparable"]
        left = Counter(str(row.record["reason"]) for row in rows)
        reasons = [f"Not comparable ({count}): {reason}." for reason, count in left.items()]
        lines = [line for line in self.warnings if line != self.scope.not_judged]
        return [*reasons, *map(sentence, lines)]

    # ------------------------------------------------------------------ figures and provenance

    @cached_property
    def figures(self) -> list[Figure]:
        """Figures in the order in which the experiment gives them."""
        made = []
        for file in self.manifest["files"]:
            if file.startswith("figures/") and file.endswith(".png"):
                made.append(self._figure(file))
        return made

    def _figure(self, file: str) -> Figure:
        name = Path(file).stem
        caption = str(self.manifest["captions"].get(name) or name.replace("_", " "))
        commands = {"redraw": self.command}
        if not self.command:
            commands = figure_commands(self.manifest, name, settings_words(self.manifest))
        others = {suffix.upper(): str(Path(file).with_suffix(f".{suffix}")) for suffix in VECTOR}
        return Figure(
            name=name,
            file=file,
            caption=caption,
            alt=str(self.manifest["alts"].get(name) or caption),
            command=commands["redraw"],
            measure=commands.get("measure", ""),
            source=self.manifest["sources"].get(name, ""),
            place=self.manifest["places"].get(name, ""),
            vector={k: other for k, other in others.items() if other in self.manifest["files"]},
        )

    def figure_of(self, row: Row) -> str:
        """The name of the first figure that redraws a place of a row; "" for none."""
        by_place = {figure.place: figure.name for figure in reversed(self.figures)}
        return next((by_place[place] for place in row.places if place in by_place), "")

    @property
    def commits(self) -> list[tuple[str, int]]:
        """Commits that measured the cells, with how many each."""
        commits = [str(cell.get("git_commit", "")) for cell in self.manifest["cells"]]
        return Counter(commits).most_common()

    @property
    def version(self) -> str:
        """The version of hess-run that made the report, with its commit."""
        by = self.manifest["software"]
        return f"hess-run {by['hess_run']} ({by.get('git_commit', '')})" if "hess_run" in by else ""

    @property
    def downloads(self) -> list[str]:
        """Tables and texts of the report."""
        return [name for name in self.manifest["files"] if name.endswith((".csv", ".md"))]


def _texts(row: Record) -> dict[str, str]:
    return {name: _shown(value) for name, value in row.items()}


def _of_number(row: Row) -> list[tuple[str, str]]:
    about = row.record
    margin = shown(about.get("margin"), 4)
    reason = about.get("margin_reason")
    interval = ""
    if shown(about.get("low")):
        low, high = (shown(about[side], 4) for side in ("low", "high"))
        interval = f", 90 % interval {low} to {high}"
    values = about.get("values") or ()
    return [
        ("identifier", " ".join(f"{key}={value}" for key, value in row.keys.items())),
        ("published", row.published),
        ("measured", row.measured),
        ("±", "population standard deviations over the seeds (ddof 0)"),
        ("seeds", ", ".join(f"{seed}: {shown(value, 4) or 'lost'}" for seed, value in values)),
        ("ratio", shown(about.get("ratio"), 4)),
        ("reason", _shown(about.get("reason"))),
        ("margin", f"{margin}: {reason}" if margin and reason else margin),
        ("difference", shown(about.get("difference"), 4) + interval),
        ("equivalence test", _shown(about.get("equivalence"))),
        ("published value in our 95 % interval", _shown(about.get("in_our_95"))),
        (
            "our mean in the prediction interval of the paper",
            _shown(about.get("in_their_prediction")),
        ),
        ("sign preserved", _shown(about.get("sign_kept"))),
        ("ordering preserved", shown(about.get("order_kept"))),
        ("note", _shown(about.get("note"))),
    ]


def _of_statement(row: Row) -> list[tuple[str, str]]:
    about = row.record
    return [
        ("statement", _shown(about["name"])),
        ("criterion", criterion_of(about)),
        ("measured", row.measured),
        ("variants", _parts(about.get("variants"))),
        ("other seeds", _parts(about.get("other_seeds"))),
        ("details", _shown(about.get("detail"))),
        ("speaks of", _shown(about.get("group"))),
    ]


def _parts(parts: Mapping[str, str] | None) -> str:
    return "; ".join(f"{part}: {verdict}" for part, verdict in (parts or {}).items())


def _shown(value: Any) -> str:
    """A value in a page; '' for none."""
    if value is None or value in ("", "nan") or value != value:
        return ""
    return shown(value, 4) if isinstance(value, float) else str(value)
