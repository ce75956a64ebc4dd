"""Corrections of the errata, tried on the family of simplest networks (`family`).

A module of a paper registers what a correction asserts of one network; errata.toml says to which
members of the family its assumptions apply, and why the others are outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from experiments.paper_audit.checks import TOLERANCE
from experiments.paper_audit.family import ABSENT, MEMBERS, Member
from experiments.paper_audit.papers import errata

Network = TypeVar("Network")
CLASSES = "ABC"
"""Of the entries whose corrections are claims on the paper."""


@dataclass(frozen=True)
class Correction:
    """networks: those of a member; errors: relative errors, or violations of an inequality, of the
    correction on one of them, none where it does not meet the assumptions."""

    networks: Callable[[Member], Iterable[Any]]
    errors: Callable[[Any], Iterable[float]]
    tolerance: float


class Corrections(dict[str, Correction]):
    """The corrections of one paper, by the id of the erratum."""

    def on(
        self,
        networks: Callable[[Member], Iterable[Network]],
        *names: str,
        tolerance: float = TOLERANCE,
    ) -> Callable[[Callable[[Network], Iterable[float]]], Callable[[Network], Iterable[float]]]:
        """Decorate what the corrections of these errata assert of one of the networks."""

        def register(
            errors: Callable[[Network], Iterable[float]],
        ) -> Callable[[Network], Iterable[float]]:
            for name in names:
                self[name] = Correction(networks, errors, tolerance)
            return errors

        return register


@dataclass(frozen=True)
class Scope:
    """To which members a correction applies, and why the others are outside."""

    inside: tuple[Member, ...]
    outside: Mapping[str, str]


def scope(key: str, erratum: Mapping[str, Any]) -> Scope:
    """The scope that an entry of errata.toml states.

    `family` names the members, or is "all"; `outside` is one reason for every other member, or a
    table of reasons. Members that no network of the paper can be are outside anyway.

    Raises
    ------
    ValueError
        Where a member has neither or both, or a name is no member.
    """
    absent = {member: ABSENT[key, member] for member in MEMBERS if (key, member) in ABSENT}
    stated = erratum["family"]
    inside = tuple(member for member in MEMBERS if stated == "all" or member in stated)
    inside = tuple(member for member in inside if member not in absent)
    reasons = erratum.get("outside", {})
    others = [member for member in MEMBERS if member not in (*inside, *absent)]
    if isinstance(reasons, str):
        reasons = dict.fromkeys(others, reasons)
    unknown = set(MEMBERS).symmetric_difference({*inside, *absent, *reasons})
    both = {*inside, *absent} & set(reasons)
    if unknown or both or (stated != "all" and set(stated) - set(MEMBERS)):
        raise ValueError(
            f"{erratum['id']}: expected each member of the family in `family` or, with a reason, "
            f"in `outside`, found neither or both for {sorted(unknown | both)}"
        )
    return Scope(inside, reasons | absent)


@cache
def corrections(key: str) -> Corrections:
    """The corrections of a paper.

    Raises
    ------
    ValueError
        Where an entry of classes A to C applies to a member and nothing tries it, or the reverse.
    """
    registered: Corrections = import_module(f"{__package__}.{key}.corrections").CORRECTIONS
    applying = set()
    for erratum in errata(key)["erratum"]:
        if erratum["kind"] in CLASSES and scope(key, erratum).inside:
            applying.add(erratum["id"])
    single = sorted(applying ^ set(registered))
    if single:
        raise ValueError(
            f"{key}/errata.toml: expected one correction for each entry with members of the "
            f"family, found one without the other: {single}"
        )
    return registered


def tried(correction: Correction, member: Member) -> list[float]:
    """Errors of a correction on the networks of a member; NaN counts as infinite."""
    errors = []
    for network in correction.networks(member):
        for error in correction.errors(network):
            errors.append(math.inf if math.isnan(error) else error)
    return errors


def trials(key: str) -> list[dict[str, Any]]:
    """One row for each correction of a paper and each member of the family that it applies to.

    Columns: erratum, member, count (comparisons), error (the largest, infinite without one),
    tolerance, holds.
    """
    rows = []
    for erratum in errata(key)["erratum"]:
        if erratum["kind"] not in CLASSES:
            continue
        for member in scope(key, erratum).inside:
            correction = corrections(key)[erratum["id"]]
            errors = tried(correction, member)
            error = max(errors, default=math.inf)
            row = {
                "erratum": erratum["id"],
                "member": member,
                "count": len(errors),
                "error": error,
                "tolerance": correction.tolerance,
                "holds": error <= correction.tolerance,
            }
            rows.append(row)
    return rows
