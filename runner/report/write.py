"""From merged tables to a report: CSV files, statistics, claims, scorecard, figures and one HTML page.

Order matters. Tables are on disk before anything is drawn, and whatever an experiment's own code raises (a figure, the
claims, the tests) is recorded and shown, and loses nothing else. Every file appears by one rename.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner import stats
from runner.contract.experiment import Experiment
from runner.report import compare, figures, page
from runner.report.overview import write_overview
from runner.report.provenance import departures, origin, plain, stamp, warnings_of
from runner.store import tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

T = TypeVar("T")
RESERVED = ("stats", "claims", "scorecard")
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


@dataclass
class _Failures:
    """Collects what an experiment's own code raises."""

    records: list[dict[str, str]] = field(default_factory=list)

    def guard(self, stage: str, call: Callable[[], T], default: T, name: str = "") -> T:
        """call(), or `default` with the error recorded."""
        try:
            return call()
        except Exception as error:  # an experiment's code may raise anything; the rest of the report must not be lost
            self.add(stage, error, name)
            return default

    def add(self, stage: str, error: Exception, name: str = "") -> None:
        text = " ".join(str(error).split()) or "no message"
        self.records.append(
            {"stage": stage, "name": name, "error": f"{type(error).__name__}: {text}", "at": _at(error)}
        )

    def lines(self) -> list[str]:
        return [f"{' '.join(t for t in (r['stage'], r['name']) if t)}: {r['error']} ({r['at']})" for r in self.records]


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
    directory.mkdir(parents=True, exist_ok=True)
    earlier = _artifacts(directory / "manifest.json")
    for table, frame in tables_by_name.items():
        tables.write(frame, directory / f"{table}.csv")

    failures = _Failures()
    derived, notes = _derive(experiment, tables_by_name, manifest, reference, failures)
    for table, frame in derived.items():
        tables.write(frame, directory / f"{table}.csv")
    no_documents: dict[str, str] = {}
    documents = failures.guard("documents", lambda: experiment.documents(tables_by_name), no_documents)
    for document, text in documents.items():
        tables.write_bytes(directory / Path(document).name, text.encode())
    warnings = warnings_of(manifest, missing)
    drawn = _draw(directory / "figures", experiment, tables_by_name, stamp(name, manifest, warnings), failures)

    files = {f"{t}.csv": len(frame) for t, frame in {**tables_by_name, **derived}.items()}
    artifacts = [*files, *documents, *(f"figures/{path.name}" for path in drawn)]
    _remove_stale(directory, earlier, artifacts)
    counts = Counter(derived["claims"]["verdict"])
    summary = ReportSummary(
        name=name,
        directory=directory,
        tables={t: len(frame) for t, frame in tables_by_name.items()},
        figures=drawn,
        claims={verdict: counts[verdict] for verdict in compare.CLAIM_VERDICTS},
        scorecard=compare.summarise(derived["scorecard"]),
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
    html = page.report_page(_page(experiment, record, summary, warnings, notes, derived, files))
    tables.write_bytes(directory / "index.html", html.encode())
    tables.write_bytes(directory / "manifest.json", (json.dumps(plain(record), indent=1) + "\n").encode())
    return summary


def _derive(
    experiment: Experiment,
    frames: Mapping[str, pd.DataFrame],
    manifest: Mapping[str, Any],
    reference: Path | None,
    failures: _Failures,
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables stats, claims and scorecard, and the notes; empty where the experiment's code raises."""
    no_tests: list[stats.Statistic] = []
    no_notes: list[str] = []
    tests = failures.guard("statistics", lambda: stats.correct(experiment.statistics(frames)), no_tests)
    claims = failures.guard("claims", lambda: compare.claims_table(experiment.claims(frames)), compare.claims_table(()))
    scores = failures.guard("scorecard", lambda: _scorecard(experiment, frames, manifest, reference), _no_scores())
    notes = failures.guard("notes", lambda: [str(n) for n in experiment.notes(frames)], no_notes)
    return {"stats": _statistics_table(tests), "claims": claims, "scorecard": scores}, notes


def _draw(
    folder: Path,
    experiment: Experiment,
    frames: Mapping[str, pd.DataFrame],
    origin: Mapping[str, Any],
    failures: _Failures,
) -> list[Path]:
    """Draw and save every figure, one at a time."""
    nothing: Mapping[str, Figure | Callable[[], Figure]] = {}
    makers = failures.guard("figures", lambda: experiment.figures(frames), nothing)
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


def _scorecard(
    experiment: Experiment, frames: Mapping[str, pd.DataFrame], manifest: Mapping[str, Any], reference: Path | None
) -> pd.DataFrame:
    """The scorecard, without rows where the paper has no values.

    A run on surrogate data or at another profile is never scored, even where the experiment gives no reason; values
    that such a run can speak to are marked by their own column `comparable` (`compare.scorecard`).
    """
    import pandas as pd

    if reference is None:
        return _no_scores()
    published = compare.read_reference(reference)
    measured = experiment.measured(frames)
    if measured is None:
        measured = pd.DataFrame(columns=["metric", "seed", "value"])
    return compare.scorecard(measured, published, experiment.comparable() or "; ".join(departures(manifest)))


def _statistics_table(tests: Iterable[stats.Statistic]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([t.row() for t in tests], columns=[f.name for f in fields(stats.Statistic)])


def _no_scores() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns=[f.name for f in fields(compare.Score)])


def _page(
    experiment: Experiment,
    record: Mapping[str, Any],
    summary: ReportSummary,
    warnings: Sequence[str],
    notes: Sequence[str],
    derived: Mapping[str, pd.DataFrame],
    files: Mapping[str, int],
) -> page.Report:
    """Everything that the HTML page shows."""
    cell_failures = [f"seed={f['seed']} {f['cell']}: {f['error']}" for f in record.get("failures", [])]
    tests = derived["stats"].dropna(axis=1, how="all")
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
        notes=notes,
        sections=[
            _section("Claims", derived["claims"], page.counts_line(summary.claims)),
            _section("Scorecard", derived["scorecard"], page.counts_line(summary.scorecard)),
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


def _at(error: Exception) -> str:
    """File and line where an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "no place"
