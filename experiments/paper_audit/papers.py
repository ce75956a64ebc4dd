"""The audited papers: clauses with their checks, root causes of errors, and places without a check.

Every folder next to this module with an errata.toml is a paper. Its clauses.toml holds the clauses
in the order of the paper, its errata.toml the titles, what survives, the root causes, and the
places without a check of their own. Its modules hold the checks, in dictionaries CHECKS by the id
of the clause; no list of modules is kept. A verdict always follows from the numbers that a check
returns and from the class of the root cause; it is never written down.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from experiments.paper_audit.checks import Agreement, Check, Witness

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
class Clause:
    """One clause of a paper (an entry of clauses.toml) and how it is checked.

    id: unique, "paper.place"; place: as printed ("Eq. 25", "Theorem 4, consequence"); statement:
    the clause in plain text; check: recomputes the numbers; expected: the agreement that tests
    require of the check; root: id of the erratum behind it ("" for none); correction: what to use
    instead; uncounted: why the clause is no evidence (a definition, true by construction), "" where
    it is; without: the check without each of its hypotheses.
    """

    id: str
    place: str
    statement: str
    check: Check
    expected: Agreement = "holds"
    root: str = ""
    correction: str = ""
    uncounted: str = ""
    without: Mapping[str, Check] = field(default_factory=dict)


@dataclass(frozen=True)
class Erratum:
    """One root cause.

    kind: its class, A to E (E: open without the print); printed: a short quotation; corrected:
    LaTeX; elsewhere: the paper's own right line where it has one; consequence: what changes and
    what survives; view: the authors' view, the best argument for them; experiments: what the
    correction changes in the paper's experiments, with {names} of the numbers that `numbers`
    computes; example: an instance in words, where the one of a check says too little; witness: an
    instance where no clause's check gives one.
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
class Paper:
    """One audited paper: its package's name, short and full title, what survives, and its cost in
    seconds.

    unchecked: the places without a check of their own (class E), each with the reason.
    """

    key: str
    title: str
    name: str
    survives: str
    seconds: float
    clauses: tuple[Clause, ...]
    errata: tuple[Erratum, ...]
    unchecked: Mapping[str, str]

    def kind(self, clause: Clause) -> str:
        """Class of a clause's root cause, "" where it has none."""
        return next((erratum.kind for erratum in self.errata if erratum.id == clause.root), "")


def verdict(agreement: str, kind: str, uncounted: str = "", printed: float = 0.0) -> Verdict:
    """What is published: the agreement of the numbers, weighed by the class of the root cause.

    Class D, a loss of our text, is never counted against the authors; it holds if the corrected
    line does. E stays open until the print is read, and so does a line of which our text has
    nothing (an infinite error `printed`).
    """
    if agreement == "not checked":
        return "not checked"
    if kind == "E" or (kind == "D" and (agreement == "fails" or math.isinf(printed))):
        return "open"
    if agreement == "holds" or kind == "D":
        return "not counted" if uncounted else "holds"
    return "major error" if kind == "A" else "minor error"


@cache
def keys() -> tuple[str, ...]:
    """Names of the papers' packages, in alphabetical order; imports nothing."""
    return tuple(sorted(p.parent.name for p in ROOM.glob("*/errata.toml")))


def titles() -> dict[str, str]:
    """Short titles by package, without importing any check."""
    return {key: _toml(key, "errata")["title"] for key in keys()}


def costs() -> dict[str, float]:
    """Predicted seconds by package, without importing any check."""
    return {key: float(_toml(key, "errata")["seconds"]) for key in keys()}


def _toml(key: str, name: str) -> dict[str, Any]:
    return tomllib.loads((ROOM / key / f"{name}.toml").read_text(encoding="utf-8"))


def read(key: str) -> Paper:
    """The paper of the folder `key`, from its TOML files and all its modules.

    Raises
    ------
    ValueError
        Where clauses and checks do not have the same ids, or a clause names a root cause that
        errata.toml lacks.
    """
    modules = _modules(key)
    witnesses: dict[str, Callable[[], Witness]] = {}
    for module in modules:
        witnesses |= getattr(module, "WITNESSES", {})
    data = _toml(key, "errata")
    clauses = _clauses(key, modules)
    errata = tuple(_erratum(entry, witnesses) for entry in data["erratum"])
    roots = {clause.root for clause in clauses if clause.root} | set(witnesses)
    stray = sorted(roots - {erratum.id for erratum in errata})
    if stray:
        raise ValueError(
            f"{key}/errata.toml: expected entries for every root cause, found none for {stray}"
        )
    return Paper(
        key=key,
        title=data["title"],
        name=data["name"],
        survives=data["survives"],
        seconds=float(data["seconds"]),
        clauses=clauses,
        errata=errata,
        unchecked={entry["place"]: entry["reason"] for entry in data["unchecked"]},
    )


def _modules(key: str) -> list[ModuleType]:
    """All modules of a paper's package."""
    files = sorted(ROOM.joinpath(key).glob("[!_]*.py"))
    return [import_module(f"{__package__}.{key}.{file.stem}") for file in files]


def _clauses(key: str, modules: list[ModuleType]) -> tuple[Clause, ...]:
    """The clauses of clauses.toml with the checks of the modules."""
    checks: dict[str, Check] = {}
    without: dict[str, dict[str, Check]] = {}
    for module in modules:
        if hasattr(module, "CHECKS"):
            checks |= module.CHECKS
            for (name, hypothesis), check in module.CHECKS.without.items():
                without.setdefault(name, {})[hypothesis] = check
    entries = _toml(key, "clauses")["clause"]
    single = sorted({entry["id"] for entry in entries} ^ set(checks))
    if single:
        raise ValueError(
            f"{key}/clauses.toml: expected one check for each clause, "
            f"found one without the other: {single}"
        )
    clauses = []
    for entry in entries:
        name = entry["id"]
        clauses.append(Clause(**entry, check=checks[name], without=without.get(name, {})))
    return tuple(clauses)


def _erratum(entry: dict[str, Any], witnesses: Mapping[str, Callable[[], Witness]]) -> Erratum:
    from experiments.paper_audit.effects import NUMBERS

    name = entry["id"]
    numbers = cache(NUMBERS.get(name, dict))
    return Erratum(**entry, witness=witnesses.get(name), numbers=numbers)


@cache
def paper(key: str) -> Paper:
    """The paper of the folder `key`, read once.

    >>> paper("scalar").title
    'Scalar spectrum'
    """
    return read(key)


def papers() -> list[Paper]:
    return [paper(key) for key in keys()]
