"""The audited papers, found by their folders: a package next to this module with an errata.toml is one.

The package offers PAPER = read(__file__, modules). Its modules hold the checks, in dictionaries CHECKS by id;
clauses.toml holds the clauses in the order of the paper; errata.toml holds the titles, what survives, the root causes,
and the places without a check of their own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.paper_audit.formula import Entry, Erratum, Formula, Needs, Paper, Unchecked, Witness

ROOM = Path(__file__).parent


@cache
def keys() -> tuple[str, ...]:
    """Names of the papers' packages, in alphabetical order; imports nothing."""
    return tuple(sorted(p.parent.name for p in ROOM.glob("*/errata.toml")))


def read(
    face: str,
    modules: Iterable[ModuleType],
    witnesses: Mapping[str, Callable[[], Witness]] | None = None,
    numbers: Mapping[str, Callable[[], Mapping[str, float]]] | None = None,
) -> Paper:
    """The paper of the package whose __init__ is `face`.

    Parameters
    ----------
    face
        `__file__` of the package.
    modules
        Those with a dictionary CHECKS: id of a clause -> its check.
    witnesses
        Instances of errata that no clause's check gives, by the id of the erratum.
    numbers
        What an erratum's text on the paper's experiments quotes.

    Raises
    ------
    ValueError
        Where clauses and checks do not have the same ids, or a clause names a root cause that errata.toml lacks.
    """
    home = Path(face).parent
    data = _table(home / "errata.toml")
    formulas = _formulas(home, {i: check for module in modules for i, check in module.CHECKS.items()})
    own = dict(witnesses or {})
    counted = {root: cache(compute) for root, compute in (numbers or {}).items()}  # four pages quote them
    errata = tuple(
        Erratum(**entry, witness=own.pop(entry["id"], None), numbers=counted.pop(entry["id"], None))
        for entry in data.get("erratum", ())
    )
    known = {erratum.id for erratum in errata}
    stray = sorted({f.root for f in formulas if f.root and f.root not in known} | set(own) | set(counted))
    if stray:
        raise ValueError(f"{home.name}/errata.toml: expected entries for every root cause, found none for {stray}")
    return Paper(
        home.name,
        data["title"],
        data["name"],
        data["survives"],
        float(data["seconds"]),
        formulas,
        errata,
        tuple(Unchecked(**entry) for entry in data.get("unchecked", ())),
    )


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _formulas(home: Path, checks: Mapping[str, Entry]) -> tuple[Formula, ...]:
    """The clauses of clauses.toml with their checks."""
    clauses = _table(home / "clauses.toml")["clause"]
    if apart := sorted({clause["id"] for clause in clauses} ^ set(checks)):
        raise ValueError(
            f"{home.name}/clauses.toml: expected one check for each clause, found one without the other: {apart}"
        )
    entries = ((clause, checks[clause["id"]]) for clause in clauses)
    return tuple(Formula(**clause, **(e._asdict() if isinstance(e, Needs) else {"check": e})) for clause, e in entries)


def titles() -> dict[str, str]:
    """Short titles by package, without importing any check."""
    return {k: _table(ROOM / k / "errata.toml")["title"] for k in keys()}


def costs() -> dict[str, float]:
    """Predicted seconds by package, without importing any check."""
    return {k: float(_table(ROOM / k / "errata.toml")["seconds"]) for k in keys()}


def paper(key: str) -> Paper:
    """The paper of the package `key`.

    >>> paper("scalar").title
    'Scalar spectrum'
    """
    found = import_module(f"experiments.paper_audit.{key}").PAPER
    assert isinstance(found, Paper)
    return found


def papers() -> list[Paper]:
    return [paper(key) for key in keys()]


def erratum(of: Paper, root: str) -> Erratum | None:
    return next((e for e in of.errata if e.id == root), None)


def affected(of: Paper, root: str) -> list[Formula]:
    """Clauses that share the root cause, in the paper's order."""
    return [f for f in of.formulas if f.root == root]
