"""Everything that a report asks an experiment's analysis, asked once; what its code raises is kept,
not passed on.

Verdicts and what is said of the paper come from what is judged, figures and their captions from all
that is shown; the two are one analysis unless more is stored than the paper's own grid and seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from runner import stats
from runner.contract import (
    Analysis,
    Claim,
    Experiment,
    Figures,
    Tables,
    analyse,
    described,
    where_raised,
)
from runner.report.answers.reference import Numbers
from runner.report.answers.scope import Scope
from runner.stats.intervals import NAN, joined
from runner.stats.score import Score
from runner.stats.scorecard import scorecard

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
VALUES = ("metric", "seed", "value")
SCORES = tuple(field.name for field in fields(Score))
"""Columns of measured values and of a scorecard without rows."""


@dataclass
class Failures:
    """Collects what an experiment's own code raises."""

    records: list[dict[str, str]] = field(default_factory=list)

    def guard(self, stage: str, call: Callable[[], T], default: T, name: str = "") -> T:
        """call(), or `default` with the error recorded."""
        try:
            return call()
        # an experiment's code may raise anything; the rest of the report must not be lost
        except Exception as error:
            self.add(stage, error, name)
            return default

    def add(self, stage: str, error: Exception, name: str = "") -> None:
        """Record an error under its stage of the report and the name of what was being made."""
        line = " ".join(described(error).split())
        record = {"stage": stage, "name": name, "error": line, "at": where_raised(error)}
        self.records.append(record)

    def lines(self) -> list[str]:
        """One line for each."""
        return [
            f"{record['stage']} {record['name']}".strip() + f": {record['error']} ({record['at']})"
            for record in self.records
        ]


@dataclass(frozen=True, eq=False)
class Subject:
    """Settings and merged tables that one analysis reads; beside: those of companions, by name."""

    experiment: Experiment
    tables: Tables
    beside: Mapping[str, Tables] = field(default_factory=dict)

    def analysis(self) -> Analysis:
        """The analysis of these tables; one without answers where no cell is stored."""
        if not self.tables:
            return Analysis(self.experiment, {})
        made = analyse(self.experiment, self.tables)
        if self.beside:
            return replace(made, beside=self.beside)
        return made


@dataclass(frozen=True, kw_only=True, eq=False)
class Material:
    """What a report is made from.

    Parameters
    ----------
    scope
        What the report is.
    shown
        All cells with its settings.
    judged
        What verdicts read, with missing values for the cells that some seeds lack; `shown` itself
        where both are the same.
    replication
        What the second verdict reads; None where the scope has no seeds for one.
    reference
        The paper's values, if any.
    """

    scope: Scope
    shown: Subject
    judged: Subject
    replication: Subject | None = None
    reference: Numbers | None = None

    @cached_property
    def printed(self) -> pd.DataFrame | None:
        """The paper's values, None where it has none."""
        return None if self.reference is None else self.reference.read()


@dataclass(frozen=True, kw_only=True)
class Findings:
    """An analysis's answers: its tables ready to be written, the rest as it came. Empty where its
    code raised."""

    stats: pd.DataFrame
    claims: pd.DataFrame
    scorecard: pd.DataFrame
    documents: Mapping[str, str]
    notes: Sequence[str]
    figures: Figures
    captions: Mapping[str, str]
    paper: str

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """stats, claims and scorecard by name, without empty ones where there is no paper."""
        tables = {"stats": self.stats, "claims": self.claims, "scorecard": self.scorecard}
        return {name: table for name, table in tables.items() if self.paper or len(table)}


def ask(material: Material, failures: Failures) -> Findings:
    """Make the experiment's analyses and ask them for everything."""
    shown = _analysis(material.shown, failures)
    judged = shown
    if material.judged is not material.shown:
        judged = _analysis(material.judged, failures)
    claims, scorecard = _verdicts(judged, material, failures)
    if material.replication is not None:
        again = _verdicts(_analysis(material.replication, failures), material, failures)
        claims = _replicated(claims, again[0])
        scorecard = _replicated(scorecard, again[1])
    return Findings(
        stats=_statistics_table(judged, material.scope, failures),
        claims=claims,
        scorecard=scorecard,
        notes=failures.guard("notes", lambda: [str(note) for note in judged.notes()], []),
        documents=failures.guard("documents", judged.documents, {}),
        figures=failures.guard("figures", shown.figures, {}),
        captions=failures.guard("captions", shown.captions, {}),
        paper=material.shown.experiment.paper,
    )


def _analysis(subject: Subject, failures: Failures) -> Analysis:
    nothing = Analysis(subject.experiment, subject.tables)
    return failures.guard("analysis", subject.analysis, nothing)


def _verdicts(
    analysis: Analysis, material: Material, failures: Failures
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Claims and scorecard of one analysis."""
    nothing = claims_table(())
    measured = failures.guard("values", lambda: _measured(analysis, material), _empty(VALUES))
    claims = failures.guard("claims", lambda: _claims(analysis, material.scope), nothing)
    scores = failures.guard("scorecard", lambda: _scorecard(measured, material), _empty(SCORES))
    return claims, scores


def _replicated(made: pd.DataFrame, again: pd.DataFrame) -> pd.DataFrame:
    """A table of verdicts with those of the seeds declared for a second one, row by row."""
    import pandas as pd

    if "name" not in made:  # the rows of a scorecard are those of the reference file
        return made.assign(replication=again["verdict"].to_list())
    second = again.set_index(["name", "group"])["verdict"]
    rows = pd.MultiIndex.from_frame(made[["name", "group"]])
    return made.assign(replication=second.reindex(rows).fillna("not run").to_list())


def _claims(analysis: Analysis, scope: Scope) -> pd.DataFrame:
    """The claims, each with what would have to be so for it to be false; outside the paper's scope
    only those keep their verdict that do not depend on the protocol."""
    texts = {name: a.text for a in analysis.alternatives for name in a.statements}
    claims = (replace(c, alternative=texts.get(c.name, "")) for c in analysis.claims())
    return claims_table(within_scope(claim, scope) for claim in claims)


def claims_table(claims: Iterable[Claim]) -> pd.DataFrame:
    """Claims as rows, one column per field. Raises ValueError when name and group repeat."""
    import pandas as pd

    table = pd.DataFrame(map(vars, claims), columns=[f.name for f in fields(Claim)])
    keys = table[["name", "group"]]
    if keys.duplicated().any():
        name, group = keys[keys.duplicated()].iloc[0]
        raise ValueError(
            f"claims: expected unique names within a group, found {name!r} twice ({group!r})"
        )
    return table


def within_scope(claim: Claim, scope: Scope) -> Claim:
    """The claim, without a verdict where the scope allows none; what was measured stays."""
    decided = claim.verdict in ("confirmed", "refuted", "minor error")
    if scope.is_papers and not (scope.lost and decided and not claim.independent):
        return claim
    open_ended = replace(claim, seeds_needed=NAN, undecidable="")
    if scope.is_papers:
        return replace(open_ended, verdict="inconclusive", detail=joined(*scope.lost, claim.detail))
    if scope.keeps(claim.independent):
        return open_ended
    return replace(
        open_ended,
        verdict="not comparable",
        detail=scope.reason,
        variants={},
        other_seeds={},
        authors="",
        authors_value=NAN,
    )


def _measured(analysis: Analysis, material: Material) -> pd.DataFrame:
    """The values to compare with the paper's, one row a seed; none where the paper has no
    values."""
    found = None if material.reference is None else analysis.measured()
    return _empty(VALUES) if found is None else found


def _empty(columns: Iterable[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns=list(columns))


def _scorecard(measured: pd.DataFrame, material: Material) -> pd.DataFrame:
    """The scorecard, without rows where the paper has no values."""
    if material.printed is None:
        return _empty(SCORES)
    scope = material.scope
    return scorecard(measured, material.printed, scope.reason, "; ".join(scope.lost))


def _statistics_table(analysis: Analysis, scope: Scope, failures: Failures) -> pd.DataFrame:
    """Tests and fits, each with a note where the run is not the paper's."""
    import pandas as pd

    nothing: list[stats.Statistic] = []
    tests = failures.guard("statistics", lambda: stats.correct(analysis.statistics()), nothing)
    if scope.reason:
        tests = [replace(t, note=joined(t.note, scope.reason)) for t in tests]
    columns = [column.name for column in fields(stats.Statistic)]
    return pd.DataFrame([vars(t) for t in tests], columns=columns)
