"""What the papers state: their sentences, statements and numbers in experiments/reference."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from runner.contract import Experiment, Scalar, Statement
from runner.report.answers.reference import REFERENCE, files, numbers_of
from runner.stats.rows import read_statements

KINDS = ("claim", "number", "table", "audit", "not checked", "left out")
"""Where a statement of a text is decided: a printed statement, a printed number, all numbers of one
quantity in a table, the audit; or why nowhere: a fact that we could not check, or no fact that a
check decides (a definition, a plan, another paper's result, an opinion)."""


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
    experiments/reference/<paper>/texts.csv."""
    with open(REFERENCE / paper / "texts.csv", newline="", encoding="utf-8") as stream:
        return tuple(Said(**row) for row in csv.DictReader(stream))


def unchecked(paper: str) -> list[str]:
    """The facts of a paper's text that no check decides, each with its reason, for the findings."""
    stated = [s for s in said(paper) if s.kind != "left out"]
    found = [s for s in stated if s.kind == "not checked"]
    if not found:
        return []
    lines = "; ".join(f"{s.statement} ({s.place}): {s.row}" for s in found)
    return [f"Of {len(stated)} statements of the text {len(found)} are not checked. {lines}."]


@cache
def printed_rows(name: str) -> list[dict[str, str]]:
    """The printed numbers of an experiment, every field as text."""
    numbers = numbers_of(name)
    if numbers is None:
        return []
    return numbers.read().astype(str).to_dict("records")


def printed_number(name: str, **keys: str) -> float:
    """The one printed mean of an experiment under these keys, for a mark or a line of a figure.

    >>> printed_number("ws_bound", metric="lambda_sup_smallest")
    4.52
    """
    found = {row["mean"] for row in printed_rows(name) if keys.items() <= row.items()}
    if len(found) != 1:
        raise ValueError(f"{name}: expected one printed value for {keys}, found {len(found)}")
    return float(found.pop())


@cache
def statement_rows() -> dict[tuple[str, str], Statement]:
    """(experiment, name) -> statement, of all papers."""
    found: dict[tuple[str, str], Statement] = {}
    for path in files("statements"):
        found |= read_statements(path)
    return found


@cache
def statements(name: str) -> dict[str, Statement]:
    """name of the statement -> statement, of one experiment."""
    return {key[1]: says for key, says in statement_rows().items() if key[0] == name}


SEEDS = tuple(range(42, 47))
"""Of the protocol of an experiment that names a paper and no seeds."""


@dataclass(frozen=True, kw_only=True)
class Judged(Experiment):
    """An experiment whose statements are rows of experiments/reference."""

    claimed: ClassVar[str] = ""
    """Whose rows they are: its name in `conf/`."""
    analysis = "experiments.judged:JudgedAnalysis"
    own_rows: ClassVar[Mapping[str, Scalar]] = {}
    """`paper_rows` of the experiments of a paper."""

    def __init_subclass__(cls, **about: Any) -> None:
        own = dict(vars(cls))
        super().__init_subclass__(**about)
        if "paper" in own:
            cls.paper_seeds = own.get("paper_seeds", SEEDS)
            cls.paper_rows = own.get("paper_rows", cls.own_rows)

    @property
    def says(self) -> Mapping[str, Statement]:
        """name -> statement with its limits."""
        return statements(self.claimed)
