"""The audited papers: clauses with their checks, root causes of errors, and places without a check.

Every folder next to this module with an errata.toml is a paper. Its clauses.toml holds the clauses in the order of the
paper, its errata.toml the titles, what survives, the root causes, and the places without a check of their own. Its
modules hold the checks, in dictionaries CHECKS by the id of the clause; no list of modules is kept. A verdict always
follows from the numbers that a check returns and from the class of the root cause; it is never written down.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from experiments.paper_audit.checks import Agreement, Check, Dropped, Needs, Witness

Class = Literal["A", "B", "C", "D", "E"]
Verdict = Literal["holds", "minor error", "major error", "open", "not counted", "not checked"]
CLASSES: dict[str, str] = {
    "A": "major error",
    "B": "minor error",
    "C": "notation",
    "D": "our text only",
    "E": "not checked",
}
ROOM = Path(__file__).parent
ZEROS = "zeros"
"""Source of the cell that is no paper: structural zeros of untrained networks."""


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
    numbers: Callable[[], Mapping[str, float]] = dict

    @property
    def effect(self) -> str:
        """`experiments` with its numbers filled in."""
        return self.experiments.format(**self.numbers())


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


@cache
def keys() -> tuple[str, ...]:
    """Names of the papers' packages, in alphabetical order; imports nothing."""
    return tuple(sorted(p.parent.name for p in ROOM.glob("*/errata.toml")))


def _errata(key: str) -> dict[str, Any]:
    return tomllib.loads((ROOM / key / "errata.toml").read_text(encoding="utf-8"))


def titles() -> dict[str, str]:
    """Short titles by package, without importing any check."""
    return {k: _errata(k)["title"] for k in keys()}


def costs() -> dict[str, float]:
    """Predicted seconds by package, without importing any check."""
    return {k: float(_errata(k)["seconds"]) for k in keys()}


def read(key: str) -> Paper:
    """The paper of the folder `key`, from its TOML files and all its modules.

    Raises
    ------
    ValueError
        Where clauses and checks do not have the same ids, or a clause names a root cause that errata.toml lacks.
    """
    from experiments.paper_audit.effects import NUMBERS

    data, known = _errata(key), f"{__package__}.{key}"
    modules = [
        import_module(f"{known}.{file.stem}")
        for file in sorted(ROOM.joinpath(key).glob("[!_]*.py"))
    ]
    witnesses = _joined(modules, "WITNESSES")
    errata = tuple(
        Erratum(
            **entry,
            witness=witnesses.get(entry["id"]),
            numbers=cache(NUMBERS.get(entry["id"], dict)),
        )
        for entry in data["erratum"]
    )
    formulas = _formulas(key, _joined(modules, "CHECKS"))
    roots = {formula.root for formula in formulas if formula.root} | set(witnesses)
    if stray := sorted(roots - {erratum.id for erratum in errata}):
        raise ValueError(
            f"{key}/errata.toml: expected entries for every root cause, found none for {stray}"
        )
    texts = {name: data[name] for name in ("title", "name", "survives")}
    unchecked = tuple(Unchecked(**entry) for entry in data["unchecked"])
    return Paper(
        key,
        **texts,
        seconds=float(data["seconds"]),
        formulas=formulas,
        errata=errata,
        unchecked=unchecked,
    )


def _joined(modules: list[Any], name: str) -> dict[str, Any]:
    """One dictionary of the dictionaries of this name that the modules have."""
    return {i: value for module in modules for i, value in getattr(module, name, {}).items()}


def _formulas(key: str, checks: Mapping[str, Check | Needs]) -> tuple[Formula, ...]:
    """The clauses of clauses.toml with their checks."""
    from experiments.paper_audit.checks import (
        Needs,
    )  # not on top: torch, which listing papers does not need

    clauses = tomllib.loads((ROOM / key / "clauses.toml").read_text(encoding="utf-8"))["clause"]
    if apart := sorted({clause["id"] for clause in clauses} ^ set(checks)):
        raise ValueError(
            f"{key}/clauses.toml: expected one check for each clause, found one without the other: {apart}"
        )
    entries = ((clause, checks[clause["id"]]) for clause in clauses)
    return tuple(
        Formula(**clause, **(e._asdict() if isinstance(e, Needs) else {"check": e}))
        for clause, e in entries
    )


@cache
def paper(key: str) -> Paper:
    """The paper of the folder `key`, read once.

    >>> paper("scalar").title
    'Scalar spectrum'
    """
    return read(key)


def papers() -> list[Paper]:
    return [paper(key) for key in keys()]
