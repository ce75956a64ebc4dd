"""Everything that a report asks an experiment's analysis, asked once; what its code raises is kept, not passed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from runner import stats
from runner.contract import Analysis, Experiment, Figures, Tables, analyse
from runner.report import compare
from runner.report.score import Score, read_reference

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
VALUES, SCORES = ("metric", "seed", "value"), tuple(field.name for field in fields(Score))
"""Columns of measured values and of a scorecard without rows."""


@dataclass
class Failures:
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
        """Record an error under its stage of the report and the name of what was being made."""
        text = " ".join(str(error).split()) or "no message"
        self.records.append(
            {
                "stage": stage,
                "name": name,
                "error": f"{type(error).__name__}: {text}",
                "at": _at(error),
            }
        )

    def lines(self) -> list[str]:
        """One line for each."""
        return [
            f"{' '.join(t for t in (r['stage'], r['name']) if t)}: {r['error']} ({r['at']})"
            for r in self.records
        ]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """An analysis's answers: its tables ready to be written, the rest as it came. Empty where its code raised."""

    stats: pd.DataFrame
    claims: pd.DataFrame
    scorecard: pd.DataFrame
    documents: Mapping[str, str]
    notes: Sequence[str]
    figures: Figures
    captions: Mapping[str, str]
    bars: str
    paper: str

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """stats, claims and scorecard by name, without empty ones where there is no paper."""
        tables = {"stats": self.stats, "claims": self.claims, "scorecard": self.scorecard}
        return {name: table for name, table in tables.items() if self.paper or len(table)}


def ask(
    experiment: Experiment,
    tables: Tables,
    reference: Path | None,
    reason: str,
    failures: Failures,
    beside: Mapping[str, Tables],
    *,
    only_figures: bool = False,
) -> Findings:
    """Make the experiment's analysis of its tables and ask it for everything.

    beside: tables of companions (`Analysis.beside`). reference: file of the paper's values, if any. reason: why this
    run is not comparable with them, '' where it is; single values may say otherwise in their own column `comparable`
    (`compare.scorecard`). only_figures: leave the other answers empty.
    """
    analysis = failures.guard(
        "analysis", lambda: analyse(experiment, tables), Analysis(experiment, tables)
    )
    analysis = replace(analysis, beside=beside) if beside else analysis
    asked = Analysis(experiment, {}) if only_figures else analysis
    no_tests: list[stats.Statistic] = []
    no_notes: list[str] = []
    no_documents: Mapping[str, str] = {}
    no_figures: Figures = {}
    tests = failures.guard("statistics", lambda: stats.correct(asked.statistics()), no_tests)
    nothing = compare.claims_table(())
    measured = failures.guard("values", lambda: _measured(asked, reference), _empty(VALUES))
    return Findings(
        stats=_statistics_table(tests),
        claims=failures.guard("claims", lambda: compare.claims_table(asked.claims()), nothing),
        scorecard=failures.guard(
            "scorecard", lambda: _scorecard(measured, reference, reason), _empty(SCORES)
        ),
        notes=failures.guard("notes", lambda: [str(note) for note in asked.notes()], no_notes),
        documents=failures.guard("documents", asked.documents, no_documents),
        figures=failures.guard("figures", analysis.figures, no_figures),
        captions=failures.guard("captions", asked.captions, no_documents),
        bars=analysis.bars,
        paper=experiment.paper,
    )


def _measured(analysis: Analysis, reference: Path | None) -> pd.DataFrame:
    """The values to compare with the paper's, one row a seed; none where the paper has no values."""
    found = None if reference is None else analysis.measured()
    return _empty(VALUES) if found is None else found


def _empty(columns: Iterable[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns=list(columns))


def _scorecard(measured: pd.DataFrame, reference: Path | None, reason: str) -> pd.DataFrame:
    """The scorecard, without rows where the paper has no values."""
    return (
        _empty(SCORES)
        if reference is None
        else compare.scorecard(measured, read_reference(reference), reason)
    )


def _statistics_table(tests: Sequence[stats.Statistic]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([t.row() for t in tests], columns=[f.name for f in fields(stats.Statistic)])


def _at(error: Exception) -> str:
    """File and line where an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "no place"
    )
