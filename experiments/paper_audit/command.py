"""hess-run audit PLACE: recompute one clause of a paper and print instance, printed, corrected and reference."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from experiments.paper_audit.formula import Formula, Paper
from experiments.paper_audit.papers import erratum, keys, papers
from experiments.paper_audit.rows import check

USAGE = "audit: expected PLACE, for example attention.d.1, or a paper to list its places, one of: "


def main(arguments: Sequence[str]) -> int:
    """Print five lines for each clause that PLACE names; 0, or 2 with one line on a mistake.

    PLACE is the id of a clause, of a root cause (its clauses), or of a paper (a list of ids and expected verdicts).
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return _mistake(USAGE + ", ".join(keys()))
    place, given = arguments[0].lower(), arguments[0]
    every = papers()
    for of in every:
        if place in (of.key, of.title.lower()):
            print("\n".join(_line(of, f) for f in of.formulas))
            return 0
    found = [(of, f) for of in every for f in of.formulas if f.id == place]
    found = found or [(of, f) for of in every for f in of.formulas if f.root == place]
    if not found:
        known = [f.id for of in every for f in of.formulas]
        near = difflib.get_close_matches(place, known, 1, 0.3)
        return _mistake(
            f"audit: expected the id of a clause, found '{given}'" + (f"; nearest is {near[0]}" if near else "")
        )
    for of, formula in found:
        print(_five(of, formula))
    return 0


def _line(of: Paper, formula: Formula) -> str:
    kind = of.kind(formula)
    return f"{formula.id:34s} {formula.expected:22s} {kind:1s} {formula.place}"


def _five(of: Paper, formula: Formula) -> str:
    """Clause, instance, printed, corrected, reference."""
    row = check(of, formula)
    cause = erratum(of, formula.root)
    mark = row["verdict"] + (f", class {row['class']}" if row["class"] else "")
    if row["status"] != "ok":
        return f"{formula.place}: {row['status']}"
    instance = row["instance"] or f"{row['instances']} instances, largest error {row['printed_error']:.1e}"
    within = f"within {row['tolerance']:.0e}"
    right = row["corrected"] or formula.correction or (cause.corrected if cause else "as printed")
    return "\n".join(
        (
            f"{of.title}, {formula.place} [{mark}]: {formula.statement}",
            f"  instance   {instance}",
            f"  printed    {row['printed'] or 'agrees'}",
            f"  corrected  {right}",
            f"  reference  {row['reference'] or within}",
        )
    )


def _mistake(text: str) -> int:
    print(f"hess-run: {text}", file=sys.stderr)
    return 2
