"""One cell of the audit as a table, or one clause of a paper on the console (hess-run audit
PLACE)."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from experiments.paper_audit.checks import Outcome, Witness
from experiments.paper_audit.dag import zeros
from experiments.paper_audit.papers import ZEROS, Clause, Paper, keys, paper, papers, verdict
from runner.contract import Cell, Context, Experiment

Row = dict[str, Any]
NO_WITNESS = Witness(instance="", printed="", corrected="", reference="")
NOT_CHECKED = Outcome(math.nan, instances=0, tolerance=math.nan, mean=math.nan)


def measure(experiment: Experiment, cell: Cell, ctx: Context) -> dict[str, Any]:
    """The table of one source."""
    source = str(cell.params["source"])
    if source == ZEROS:
        return {"zeros": zeros.rows()}
    return {"formulas": check_all(paper(source), ctx.progress)}


def check(of: Paper, clause: Clause) -> Row:
    """One clause checked; a check that raises is a row that says so."""
    outcome, status = _evaluated(clause)
    agreement = "not checked" if outcome is NOT_CHECKED else outcome.agreement
    corrected = math.nan if outcome.corrected is None else float(outcome.corrected)
    kind = of.kind(clause)
    return {
        "id": clause.id,
        "place": clause.place,
        "statement": clause.statement,
        "verdict": verdict(agreement, kind, clause.uncounted, outcome.printed),
        "class": kind,
        "agreement": agreement,
        "printed_error": float(outcome.printed),
        "corrected_error": corrected,
        "tolerance": outcome.tolerance,
        "mean_error": outcome.mean,
        "instances": outcome.instances,
        **asdict(outcome.witness or NO_WITNESS),
        "status": status,
        "root": clause.root,
        "correction": clause.correction,
        "expected": clause.expected,
        "uncounted": clause.uncounted,
        "hypotheses_dropped": len(clause.without),
    }


def _evaluated(clause: Clause) -> tuple[Outcome, str]:
    """Outcome of the check, and its status: "ok", the hypotheses without which it passes, or an
    exception."""
    try:
        outcome = clause.check()
        passed = []
        for hypothesis, without in clause.without.items():
            if without().agreement == "holds":
                passed.append(hypothesis)
    except Exception as error:  # one broken check must not hide the others
        return NOT_CHECKED, f"{type(error).__name__}: {error}"
    if passed:
        return outcome, f"holds without {', '.join(passed)}"
    return outcome, "ok"


def _silent(done: int, total: int, name: str) -> None:
    """No progress is reported."""


def check_all(of: Paper, progress: Callable[[int, int, str], None] = _silent) -> list[Row]:
    """Every clause of a paper."""
    rows = []
    for i, clause in enumerate(of.clauses):
        progress(i, len(of.clauses), clause.id)
        rows.append(check(of, clause))
    return rows


USAGE = "audit: expected PLACE, for example attention.d.1, or a paper to list its places, one of: "


def audit(arguments: Sequence[str]) -> int:
    """Print five lines for each clause that PLACE names; 0, or 2 with one line on a mistake.

    PLACE is the id of a clause, of a root cause (its clauses), or of a paper (a list of ids and
    expected verdicts).
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return _mistake(USAGE + ", ".join(keys()))
    place = arguments[0].lower()
    for of in papers():
        if place in (of.key, of.title.lower()):
            for clause in of.clauses:
                print(_line(of, clause))
            return 0
    chosen = _chosen(place)
    for of, clause in chosen:
        print(_five_lines(of, clause))
    return 0 if chosen else _unknown(place, arguments[0])


def _chosen(place: str) -> list[tuple[Paper, Clause]]:
    """The clause with this id, else those with this root cause."""
    clauses = [(of, clause) for of in papers() for clause in of.clauses]
    by_id = [pair for pair in clauses if pair[1].id == place]
    return by_id or [pair for pair in clauses if pair[1].root == place]


def _unknown(place: str, given: str) -> int:
    ids = [clause.id for of in papers() for clause in of.clauses]
    message = f"audit: expected the id of a clause, found '{given}'"
    nearest = difflib.get_close_matches(place, ids, 1, 0.3)
    if nearest:
        message += f"; nearest is {nearest[0]}"
    return _mistake(message)


def _line(of: Paper, clause: Clause) -> str:
    return f"{clause.id:34s} {clause.expected:22s} {of.kind(clause):1s} {clause.place}"


def _five_lines(of: Paper, clause: Clause) -> str:
    """Clause, instance, printed, corrected, reference."""
    row = check(of, clause)
    if row["status"] != "ok":
        return f"{clause.place}: {row['status']}"
    result = row["verdict"]
    if row["class"]:
        result += f", class {row['class']}"
    tried = f"{row['instances']} instances, largest error {row['printed_error']:.1e}"
    within = f"within {row['tolerance']:.0e}"
    corrected = row["corrected"] or clause.correction or _correction(of, clause.root)
    lines = [
        f"{of.title}, {clause.place} [{result}]: {clause.statement}",
        f"  instance   {row['instance'] or tried}",
        f"  printed    {row['printed'] or 'agrees'}",
        f"  corrected  {corrected}",
        f"  reference  {row['reference'] or within}",
    ]
    return "\n".join(lines)


def _correction(of: Paper, root: str) -> str:
    """The corrected line of a root cause; "as printed" where there is none."""
    return next((erratum.corrected for erratum in of.errata if erratum.id == root), "as printed")


def _mistake(text: str) -> int:
    print(f"hess-run: {text}", file=sys.stderr)
    return 2
