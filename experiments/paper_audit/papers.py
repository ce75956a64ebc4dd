"""The audited papers, found by their folders: a package beside this module with an errata.toml is one.

The package offers PAPER = read(__file__, FORMULAS); errata.toml holds the titles, what survives, the root causes, and
the places without a check of their own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from experiments.paper_audit.formula import Erratum, Formula, Paper, Unchecked, Witness

ROOM = Path(__file__).parent


@cache
def keys() -> tuple[str, ...]:
    """Names of the papers' packages, in alphabetical order; imports nothing."""
    return tuple(sorted(p.parent.name for p in ROOM.glob("*/errata.toml")))


def read(
    face: str,
    formulas: Sequence[Formula],
    witnesses: Mapping[str, Callable[[], Witness]] | None = None,
    numbers: Mapping[str, Callable[[], Mapping[str, float]]] | None = None,
) -> Paper:
    """The paper of the package whose __init__ is `face`; witnesses: instances of errata that no heir's check gives;
    numbers: what an erratum's text on the paper's experiments quotes.

    Raises ValueError where a formula names a root cause that errata.toml does not hold.
    """
    home = Path(face).parent
    data = tomllib.loads((home / "errata.toml").read_text(encoding="utf-8"))
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
        tuple(formulas),
        errata,
        tuple(Unchecked(**entry) for entry in data.get("unchecked", ())),
    )


def titles() -> dict[str, str]:
    """Short titles by package, without importing any check."""
    return {k: tomllib.loads((ROOM / k / "errata.toml").read_text(encoding="utf-8"))["title"] for k in keys()}


def costs() -> dict[str, float]:
    """Predicted seconds by package, without importing any check."""
    return {k: float(tomllib.loads((ROOM / k / "errata.toml").read_text(encoding="utf-8"))["seconds"]) for k in keys()}


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


def heirs(of: Paper, root: str) -> list[Formula]:
    """Formulas that share the root cause, in the paper's order."""
    return [f for f in of.formulas if f.root == root]
