"""The papers' printed statements, experiments/reference/claims/<name>.csv, and the criteria that we
chose for them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from runner.contract import Experiment, SettingError, Statement, one_of, report_only
from runner.stats.statements import read_statements

FOLDER = Path(__file__).resolve().parent / "reference" / "claims"
TEXTS = FOLDER.parent / "texts"
KINDS = ("claim", "number", "table", "row", "audit", "not checked", "left out")
"""Where a statement of a text is decided: a printed statement, a printed number, all numbers of one
quantity in a table, a row made in code, the audit; or why nowhere: a fact that we could not check,
or no fact that a check decides (a definition, a plan, another paper's result, an opinion)."""
LIMITS = ("low", "high", "margin")
"""What a criterion may give next to its reason."""


@dataclass(frozen=True)
class Said:
    """What one sentence of a paper states, or several of one paragraph that say the same.

    place, statement: in our words, with every place that repeats it; kind: of `KINDS`; experiment,
    row: where it is decided (of an audited one the id of its formula, of one not checked or left
    out the reason); value: of a printed number, "" where the row has one alone.
    """

    place: str
    statement: str
    kind: str
    experiment: str
    row: str
    value: str = ""


@cache
def said(paper: str) -> tuple[Said, ...]:
    """The statements of a paper in the order of its text, from
    experiments/reference/texts/<paper>.csv."""
    with open(TEXTS / f"{paper}.csv", newline="", encoding="utf-8") as stream:
        return tuple(Said(**row) for row in csv.DictReader(stream))


def unchecked(paper: str) -> list[str]:
    """The facts of a paper's text that no check decides, each with its reason, for the findings."""
    stated = [s for s in said(paper) if s.kind != "left out"]
    found = [s for s in stated if s.kind == "not checked"]
    if not found:
        return []
    lines = "; ".join(f"{s.statement} ({s.place}): {s.row}" for s in found)
    return [f"Of {len(stated)} statements of the text {len(found)} are not checked. {lines}."]


def printed_number(name: str, **keys: str) -> float:
    """The one printed mean of experiments/reference/<name>.csv under these keys, for a mark or a
    line of a figure.

    >>> printed_number("ws_bound", metric="lambda_sup_smallest")
    4.52
    """
    found = set()
    with open(FOLDER.parent / f"{name}.csv", newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if keys.items() <= row.items():
                found.add(row["mean"])
    if len(found) != 1:
        raise ValueError(f"{name}: expected one printed value for {keys}, found {len(found)}")
    return float(found.pop())


@cache
def statements(name: str) -> dict[str, Statement]:
    """name of the statement -> statement, of the file of one experiment."""
    return read_statements(FOLDER / f"{name}.csv")


def judged(name: str, criteria: Mapping[str, Mapping[str, Any]]) -> dict[str, Statement]:
    """The printed statements with the criteria of an experiment's YAML: {statement: {low, high,
    margin, reason, history}}.

    A criterion says what words of the paper mean as limits ("two orders slower": log10 of the ratio
    between 1.5 and 2.5), or how a printed number is compared; its limits replace printed ones.
    Raises SettingError for a statement that the file does not have, another key, a limit that is no
    number, and a criterion without its reason.
    """
    found = dict(statements(name))
    for which, criterion in criteria.items():
        one_of("experiment.criteria", which, found)
        found[which] = _with(found[which], criterion)
    return found


def _with(statement: Statement, criterion: Mapping[str, Any]) -> Statement:
    place = f"experiment.criteria.{statement.name}"
    if not isinstance(criterion, Mapping) or not str(criterion.get("reason", "")).strip():
        raise SettingError(f"{place}: expected limits and a reason, found {criterion!r}")
    one_of(place, list(criterion), [*LIMITS, "reason", "history"])
    limits = {key: criterion[key] for key in LIMITS if key in criterion}
    for key, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SettingError(f"{place}.{key}: expected a number, found {value!r}")
    if "low" in limits or "high" in limits:
        limits |= {"number": float("nan"), "rounding": 0.0, "chosen": True}
    history = str(criterion.get("history", ""))
    return replace(statement, **limits, reason=str(criterion["reason"]), history=history)


@dataclass(frozen=True, kw_only=True)
class Judged(Experiment):
    """An experiment whose statements stand in a file of experiments/reference/claims, our criteria
    in its YAML."""

    claimed: ClassVar[str] = ""
    """Name of the file; "" where nothing is printed."""

    criteria: dict[str, Any] = report_only(
        {},
        help=(
            "criteria that we chose, each with its reason, fixed before the results "
            "unless it says otherwise"
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.says

    @property
    def says(self) -> dict[str, Statement]:
        """name -> statement with its limits (`judged`)."""
        if self.claimed:
            return judged(self.claimed, self.criteria)
        return {}
