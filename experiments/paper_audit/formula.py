"""What an audit of a paper consists of: clauses with their checks, root causes of errors, and unchecked places.

A `Formula` is one clause of a paper with the check that recomputes it; an `Erratum` is one root cause, which may affect
several clauses; an `Unchecked` place is named with the reason. A verdict always follows from the numbers that a check
returns and from the class of the root cause; it is never written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Agreement = Literal["holds", "holds after correction", "fails"]
Class = Literal["A", "B", "C", "D", "E"]
Verdict = Literal["holds", "minor error", "major error", "open", "not counted", "not checked"]

CLASSES: dict[str, str] = {
    "A": "major error",
    "B": "minor error",
    "C": "notation",
    "D": "our text only",
    "E": "not checked",
}

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Witness:
    """One instance small enough to recompute by hand: what is printed gives, what is right gives, and the reference."""

    instance: str
    printed: str
    corrected: str
    reference: str


@dataclass(frozen=True)
class Outcome:
    """Numbers of one check.

    printed: largest relative error of the formula as printed (inequality: largest violation, <= 0 when it holds).
    corrected: the same for the corrected formula, None where nothing needs correcting.
    instances: how many instances were tried, steps of a search for violations included.
    witness: the first instance on which the printed formula fails. tolerance: largest error that counts as agreement.
    mean: mean finite error of the printed formula over the instances, where the check has it.
    """

    printed: float
    corrected: float | None = None
    instances: int = 1
    witness: Witness | None = None
    tolerance: float = TOLERANCE
    mean: float = 0.0

    @property
    def agreement(self) -> Agreement:
        if self.printed <= self.tolerance:
            return "holds"
        if self.corrected is not None and self.corrected <= self.tolerance:
            return "holds after correction"
        return "fails"


Check = Callable[[], Outcome]
Dropped = tuple[tuple[str, Check], ...]


class Needs(NamedTuple):
    """A check, and the same check without one hypothesis each, which has to fail if the check means anything."""

    check: Check
    dropped: Dropped


def needs(check: Check, *dropped: tuple[str, Check]) -> Needs:
    """A check with (hypothesis, check without it) pairs."""
    return Needs(check, dropped)


Entry = Check | Needs
"""What a package's modules give for the id of a clause, in their dictionaries CHECKS."""


@dataclass(frozen=True)
class Formula:
    """One clause of a paper (an entry of clauses.toml) and how it is checked.

    id: unique, "paper.place"; place: as printed ("Eq. 25", "Theorem 4, consequence"); statement: the clause in plain
    text; check: recomputes the numbers; expected: the agreement that tests require of the check; root: id of the
    erratum behind it ("" for none); correction: what to use instead; uncounted: why the clause is no evidence (a
    definition, true by construction), "" where it is; dropped: see `Needs`.
    """

    id: str
    place: str
    statement: str
    check: Check
    expected: Agreement = "holds"
    root: str = ""
    correction: str = ""
    uncounted: str = ""
    dropped: Dropped = ()


@dataclass(frozen=True)
class Erratum:
    """One root cause.

    kind: its class, A to E (E: open without the print); printed: a short quotation; corrected: LaTeX; elsewhere: the
    paper's own right line where it has one; consequence: what changes and what survives; view: the authors' view, the
    best argument for them; experiments: what the correction changes in the paper's experiments, with {names} of the
    numbers that `numbers` computes; example: an instance in words, where the one of a check says too little; witness:
    an instance where no clause's check gives one.
    """

    id: str
    place: str
    kind: Class
    printed: str
    corrected: str
    consequence: str
    view: str
    elsewhere: str = ""
    experiments: str = ""
    example: str = ""
    witness: Callable[[], Witness] | None = None
    numbers: Callable[[], Mapping[str, float]] | None = None

    @property
    def effect(self) -> str:
        """`experiments` with its numbers filled in."""
        return self.experiments.format(**(self.numbers() if self.numbers else {}))


@dataclass(frozen=True)
class Unchecked:
    """A place of the paper without a check of its own, and why (class E)."""

    place: str
    reason: str


@dataclass(frozen=True)
class Paper:
    """One audited paper: its package's name, short and full title, what survives, and its cost in seconds."""

    key: str
    title: str
    name: str
    survives: str
    seconds: float
    formulas: tuple[Formula, ...]
    errata: tuple[Erratum, ...]
    unchecked: tuple[Unchecked, ...]

    def kind(self, formula: Formula) -> str:
        """Class of a formula's root cause, "" where it has none."""
        return next((erratum.kind for erratum in self.errata if erratum.id == formula.root), "")


def verdict(agreement: str, kind: str, uncounted: str = "") -> Verdict:
    """What is published: the agreement of the numbers, weighed by the class of the root cause.

    Class D, a loss of our text, is never counted against the authors; E stays open until the print is read.
    """
    if agreement == "not checked":
        return "not checked"
    if kind == "E":
        return "open"
    if agreement == "holds" or kind == "D":
        return "not counted" if uncounted else "holds"
    return "major error" if kind == "A" else "minor error"
