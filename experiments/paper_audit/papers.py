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
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from experiments.paper_audit.checks import Agreement, Check

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
    require of the check; root: id of the erratum behind it ("" for none); kind: class of that
    erratum; correction: what to use instead; uncounted: why the clause is no evidence (a
    definition, true by construction), "" where it is; criterion: what a word of the clause is taken
    for; history: when that was chosen, where the numbers were in view; without: the check without
    each of its hypotheses.
    """

    id: str
    place: str
    statement: str
    check: Check
    expected: Agreement = "holds"
    root: str = ""
    kind: str = ""
    correction: str = ""
    uncounted: str = ""
    criterion: str = ""
    history: str = ""
    without: Mapping[str, Check] = field(default_factory=dict)


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


@cache
def errata(key: str) -> dict[str, Any]:
    """errata.toml of a paper, which imports no check.

    title, name: short and full; survives: what does; counted: a note on the count of root causes,
    if any; seconds: predicted cost. erratum, one entry
    for each root cause: id, place, kind (class A to E; E: open without the print), number (within
    its class; numbers of removed entries are not used again), printed (a short quotation),
    corrected (LaTeX), consequence (what changes and what survives), view (the authors', what they
    could answer); of classes A and B reply (why that answer does not save the line); of classes A
    to C family and outside (`corrections.scope`); perhaps elsewhere (the paper's own right line),
    experiments (what the correction changes there, with {names} of numbers in `effects.NUMBERS`;
    of each class A, where "" says that no published experiment depends on the line)
    and example (an instance in words). unchecked: places without a check (class E), each with its
    reason.

    >>> errata("scalar")["title"]
    'Scalar spectrum'
    """
    return _toml(key, "errata")


def _toml(key: str, name: str) -> dict[str, Any]:
    return tomllib.loads((ROOM / key / f"{name}.toml").read_text(encoding="utf-8"))


def read(key: str) -> tuple[Clause, ...]:
    """The clauses of clauses.toml with the checks of all modules of the paper's package.

    Raises
    ------
    ValueError
        Where clauses and checks do not have the same ids, or a clause names a root cause that
        errata.toml lacks.
    """
    checks: dict[str, Check] = {}
    without: dict[str, dict[str, Check]] = {}
    files = ROOM.joinpath(key).glob("[!_]*.py")
    for file in sorted(files):
        module = import_module(f"{__package__}.{key}.{file.stem}")
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
    kinds = {"": ""}
    for erratum in errata(key)["erratum"]:
        kinds[erratum["id"]] = erratum["kind"]
    stray = sorted({entry.get("root", "") for entry in entries} - set(kinds))
    if stray:
        raise ValueError(
            f"{key}/errata.toml: expected entries for every root cause, found none for {stray}"
        )
    read_clauses = []
    for entry in entries:
        name = entry["id"]
        kind = kinds[entry.get("root", "")]
        dropped = without.get(name, {})
        read_clauses.append(Clause(**entry, kind=kind, check=checks[name], without=dropped))
    return tuple(read_clauses)


clauses = cache(read)
"""The clauses of a paper, read once."""
