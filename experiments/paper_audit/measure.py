"""One cell of the audit as a table, or one clause of a paper on the console (hess-run audit PLACE)."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from experiments.paper_audit.checks import Outcome
from experiments.paper_audit.dag import zeros
from experiments.paper_audit.papers import ZEROS, Formula, Paper, keys, paper, papers, verdict
from runner.contract import Cell, Context, Experiment

Row = dict[str, Any]
WITNESS = ("instance", "printed", "corrected", "reference")


def measure(experiment: Experiment, cell: Cell, ctx: Context) -> dict[str, Any]:
    """The table of one source."""
    source = str(cell.params["source"])
    if source == ZEROS:
        return {"zeros": zeros.rows()}
    return {"formulas": check_all(paper(source), ctx.progress)}


def check(of: Paper, formula: Formula) -> Row:
    """One formula checked; a check that raises is a row that says so."""
    outcome, agreement = (
        Outcome(math.nan, instances=0, tolerance=math.nan, mean=math.nan),
        "not checked",
    )
    try:
        found = formula.check()
        failed = [what for what, without in formula.dropped if without().agreement == "holds"]
    except Exception as error:  # one broken check must not hide the others
        status = f"{type(error).__name__}: {error}"
    else:
        status = f"holds without {', '.join(failed)}" if failed else "ok"
        outcome, agreement = found, found.agreement
    kind = of.kind(formula)
    row: Row = {"id": formula.id, "place": formula.place, "statement": formula.statement}
    row |= {
        "verdict": verdict(agreement, kind, formula.uncounted),
        "class": kind,
        "agreement": agreement,
    }
    corrected = math.nan if outcome.corrected is None else float(outcome.corrected)
    row |= {
        "printed_error": float(outcome.printed),
        "corrected_error": corrected,
        "tolerance": outcome.tolerance,
    }
    row |= {"mean_error": outcome.mean, "instances": outcome.instances}
    row |= {n: "" if outcome.witness is None else getattr(outcome.witness, n) for n in WITNESS}
    row |= {
        "status": status,
        "root": formula.root,
        "correction": formula.correction,
        "expected": formula.expected,
    }
    return row | {"uncounted": formula.uncounted, "hypotheses_dropped": len(formula.dropped)}


def check_all(
    of: Paper, progress: Callable[[int, int, str], None] = lambda i, n, name: None
) -> list[Row]:
    """Every formula of a paper."""
    found = []
    for i, formula in enumerate(of.formulas):
        progress(i, len(of.formulas), formula.id)
        found.append(check(of, formula))
    return found


USAGE = "audit: expected PLACE, for example attention.d.1, or a paper to list its places, one of: "


def audit(arguments: Sequence[str]) -> int:
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
            f"audit: expected the id of a clause, found '{given}'"
            + (f"; nearest is {near[0]}" if near else "")
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
    cause = next((e for e in of.errata if e.id == formula.root), None)
    found = row["verdict"] + (f", class {row['class']}" if row["class"] else "")
    if row["status"] != "ok":
        return f"{formula.place}: {row['status']}"
    instance = (
        row["instance"] or f"{row['instances']} instances, largest error {row['printed_error']:.1e}"
    )
    within = f"within {row['tolerance']:.0e}"
    right = row["corrected"] or formula.correction or (cause.corrected if cause else "as printed")
    return "\n".join(
        (
            f"{of.title}, {formula.place} [{found}]: {formula.statement}",
            f"  instance   {instance}",
            f"  printed    {row['printed'] or 'agrees'}",
            f"  corrected  {right}",
            f"  reference  {row['reference'] or within}",
        )
    )


def _mistake(text: str) -> int:
    print(f"hess-run: {text}", file=sys.stderr)
    return 2
