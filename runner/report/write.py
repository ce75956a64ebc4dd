"""From merged tables to a report: CSV files, statistics, claims, scorecard, figures and one HTML page.

Order matters. The experiment's analysis is asked once, tables are on disk before anything is drawn, and whatever the
experiment's own code raises (a figure, the claims, the tests) is recorded and shown, and loses nothing else. Every file
appears by one rename.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract.analysis import Figures
from runner.contract.experiment import Experiment
from runner.report import compare, figures, page
from runner.report.departures import said_of
from runner.report.findings import Failures, Findings, ask
from runner.report.overview import write_overview
from runner.report.provenance import origin, plain, stamp, warnings_of
from runner.store import tables

if TYPE_CHECKING:
    import pandas as pd

RESERVED = ("stats", "claims", "scorecard", "scorecard_sharpness")
__all__ = ["ReportSummary", "write_overview", "write_report"]


@dataclass(frozen=True, kw_only=True)
class ReportSummary:
    """What a report holds, for the console. claims, scorecard: verdict -> count; failures: one line each."""

    name: str
    directory: Path
    tables: Mapping[str, int]
    figures: Sequence[Path]
    claims: Mapping[str, int]
    scorecard: Mapping[str, int]
    missing: Sequence[str]
    failures: Sequence[str]

    def lines(self) -> list[str]:
        """Lines for printing."""
        drawn = len({path.stem for path in self.figures})
        lines = [
            f"  claims: {page.counts_line(self.claims)}",
            f"  scorecard: {page.counts_line(self.scorecard)}",
        ]
        lines += [f"  {drawn} figures, {len(self.tables)} tables, page {self.directory / 'index.html'}"]
        return lines + [f"  failed: {failure}" for failure in self.failures]


def write_report(
    directory: Path,
    name: str,
    experiment: Experiment,
    tables_by_name: Mapping[str, pd.DataFrame],
    manifest: Mapping[str, Any],
    missing: Sequence[str] = (),
    reference: Path | None = None,
) -> ReportSummary:
    """Write the report of one experiment into `directory` and return what it holds.

    tables_by_name: merged over cells and seeds. manifest: what the report is made from (`collect.manifest`);
    missing: labels of the cells that are not measured; reference: the paper's values, if any.
    Raises ValueError for a table name that the report needs itself, OSError when a file cannot be written.
    """
    taken = [table for table in tables_by_name if table in RESERVED]
    if taken:
        raise ValueError(f"{name}: expected table names other than {', '.join(RESERVED)}, found {taken[0]}")
    reason = str(manifest.get("not_comparable") or "; ".join(said_of(manifest)))
    failures = Failures()
    found = ask(experiment, tables_by_name, reference, reason, failures)

    directory.mkdir(parents=True, exist_ok=True)
    earlier = _artifacts(directory / "manifest.json")
    frames = {**tables_by_name, **found.tables}
    for table, frame in frames.items():
        tables.write(frame, directory / f"{table}.csv")
    for document, text in found.documents.items():
        tables.write_bytes(directory / Path(document).name, text.encode())
    warnings = warnings_of(manifest, missing)
    drawn = _draw(directory / "figures", found.figures, stamp(name, manifest, warnings), failures)

    files = {f"{table}.csv": len(frame) for table, frame in frames.items()}
    artifacts = [*files, *found.documents, *(f"figures/{path.name}" for path in drawn)]
    _remove_stale(directory, earlier, artifacts)
    counts = Counter(found.claims["verdict"])
    summary = ReportSummary(
        name=name,
        directory=directory,
        tables={t: len(frame) for t, frame in tables_by_name.items()},
        figures=drawn,
        claims={verdict: counts[verdict] for verdict in compare.CLAIM_VERDICTS},
        scorecard=compare.summarise(found.scorecard),
        missing=list(missing),
        failures=failures.lines(),
    )
    record = {
        **manifest,
        "experiment": name,
        "missing": list(missing),
        "claims": summary.claims,
        "scorecard": summary.scorecard,
        "report_failures": failures.records,
        "artifacts": [*artifacts, "index.html"],
    }
    html = page.report_page(_page(experiment, record, summary, warnings, found, files))
    tables.write_bytes(directory / "index.html", html.encode())
    tables.write_bytes(directory / "manifest.json", (json.dumps(plain(record), indent=1) + "\n").encode())
    return summary


def _draw(folder: Path, makers: Figures, origin: Mapping[str, Any], failures: Failures) -> list[Path]:
    """Draw and save every figure, one at a time."""
    written: list[Path] = []
    for figure_name, maker in makers.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", figure_name):
            failures.add("figure", ValueError("expected a name of letters, digits and _.=-"), figure_name)
            continue
        figure = failures.guard("figure", maker, None, figure_name) if callable(maker) else maker
        if figure is None:
            continue
        folder.mkdir(exist_ok=True)
        try:
            written += figures.save(figure, folder / figure_name, {**origin, "figure": figure_name})
        except OSError:  # a full disk is no fault of the figure
            raise
        except Exception as error:  # text that cannot be typeset, data that cannot be shown
            failures.add("figure", error, figure_name)
        figure.clear()
    return written


def _page(
    experiment: Experiment,
    record: Mapping[str, Any],
    summary: ReportSummary,
    warnings: Sequence[str],
    found: Findings,
    files: Mapping[str, int],
) -> page.Report:
    """Everything that the HTML page shows."""
    cell_failures = [f"seed={f['seed']} {f['cell']}: {f['error']}" for f in record.get("failures", [])]
    tests = found.stats.dropna(axis=1, how="all")
    return page.Report(
        name=summary.name,
        title=experiment.title,
        lead=" · ".join(t for t in (experiment.paper and f"{experiment.paper} paper", experiment.reproduces) if t),
        warnings=[w[0].upper() + w[1:] + "." for w in warnings if not w.startswith("incomplete")],
        errors=[
            *(f"Could not be made: {line}" for line in summary.failures),
            *(f"Cell failed: {line}" for line in cell_failures),
        ],
        missing=summary.missing,
        commands=record.get("fill_commands", []),
        notes=found.notes,
        sections=[
            _section("Claims", found.claims, page.counts_line(summary.claims)),
            _section("Scorecard", found.scorecard, page.counts_line(summary.scorecard)),
            _section("Statistics", tests, "Two-sided tests; p_holm within a figure.", folded=True),
        ],
        figures=list(dict.fromkeys(path.stem for path in summary.figures)),
        files=files,
        origin=origin(record),
    )


def _section(heading: str, frame: pd.DataFrame, lead: str, folded: bool = False) -> page.Section:
    """A table of the page, verdict first, columns without content left out."""
    rows: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
    columns = [str(c) for c in frame.columns if any(not _blank(row[str(c)]) for row in rows)]
    columns.sort(key=lambda c: c != "verdict")
    return page.Section(heading=heading, columns=columns, rows=rows, lead=lead, folded=folded)


def _blank(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _artifacts(manifest: Path) -> list[str]:
    """Files listed by an earlier report; none when there is no readable one."""
    try:
        listed = json.loads(manifest.read_text()).get("artifacts", [])
    except (OSError, ValueError, AttributeError):
        return []
    return [str(item) for item in listed] if isinstance(listed, list) else []


def _remove_stale(directory: Path, earlier: Iterable[str], now: Iterable[str]) -> None:
    """Remove figures that the earlier report made and this one did not; nothing outside figures/."""
    for item in set(earlier) - set(now):
        folder, _, file = item.partition("/")
        if folder == "figures" and file and "/" not in file and file not in (".", ".."):
            (directory / "figures" / file).unlink(missing_ok=True)
