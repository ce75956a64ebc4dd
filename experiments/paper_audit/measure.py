"""One cell of the audit as a table, or one clause of a paper on the console (hess-run audit
PLACE)."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from experiments.paper_audit.checks import Outcome, worked
from experiments.paper_audit.corrections import trials
from experiments.paper_audit.dag import zeros
from experiments.paper_audit.papers import ZEROS, Clause, clauses, errata, keys, verdict
from runner.contract import Cell, Context, Experiment

Row = dict[str, Any]
NOT_WORKED = worked("", "", "", "")
NOT_CHECKED = Outcome(math.nan, instances=0, tolerance=math.nan, mean=math.nan)


def measure(experiment: Experiment, cell: Cell, ctx: Context) -> dict[str, Any]:
    """The table of one source."""
    source = str(cell.params["source"])
    if source == ZEROS:
        return {"zeros": zeros.rows()}
    return {"formulas": check_all(clauses(source), ctx.progress), "corrections": trials(source)}


def check(clause: Clause) -> Row:
    """One clause checked; a check that raises is a row that says so."""
    outcome, status = _evaluated(clause)
    agreement = "not checked" if outcome is NOT_CHECKED else outcome.agreement
    corrected = math.nan if outcome.corrected is None else float(outcome.corrected)
    return {
        "id": clause.id,
        "place": clause.place,
        "statement": clause.statement,
        "verdict": verdict(agreement, clause.kind, clause.uncounted, outcome.printed),
        "class": clause.kind,
        "agreement": agreement,
        "printed_error": float(outcome.printed),
        "corrected_error": corrected,
        "tolerance": outcome.tolerance,
        "mean_error": outcome.mean,
        "instances": outcome.instances,
        **(outcome.witness or NOT_WORKED),
        "status": status,
        "root": clause.root,
        "correction": clause.correction,
        "expected": clause.expected,
        "uncounted": clause.uncounted,
        "criterion": clause.criterion,
        "history": clause.history,
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


def check_all(
    of_paper: Sequence[Clause], progress: Callable[[int, int, str], None] = _silent
) -> list[Row]:
    """Every clause of a paper."""
    rows = []
    for i, clause in enumerate(of_paper):
        progress(i, len(of_paper), clause.id)
        rows.append(check(clause))
    return rows


USAGE = "audit: expected PLACE, for example attention.d.1, or a paper to list its places, one of: "
SAID = {
    "consequence": "consequence",
    "authors": "view",
    "but": "reply",
    "elsewhere": "elsewhere",
}
"""What `hess-run audit` shows of an erratum: name of the line -> key in errata.toml."""


def audit(arguments: Sequence[str]) -> int:
    """Print five lines for each clause that PLACE names, then what is said of its root cause; 0,
    or 2 with one line on a mistake.

    PLACE is the id of a clause, the id of a root cause or its label on the pages of errata
    ("dag.C5"; its clauses), or a paper (a list of ids and expected verdicts).
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return _mistake(USAGE + ", ".join(keys()))
    place = arguments[0].lower()
    for key in keys():
        if place in (key, errata(key)["title"].lower()):
            for clause in clauses(key):
                print(f"{clause.id:34s} {clause.expected:22s} {clause.kind:1s} {clause.place}")
            return 0
    every = [(key, clause) for key in keys() for clause in clauses(key)]
    roots = {erratum["id"]: erratum for key in keys() for erratum in errata(key)["erratum"]}
    by_label = {label(erratum).lower(): name for name, erratum in roots.items()}
    chosen = [pair for pair in every if pair[1].id == place]
    chosen = chosen or [pair for pair in every if pair[1].root == by_label.get(place, place)]
    for key, clause in chosen:
        print(_five_lines(key, clause))
    for root in dict.fromkeys(clause.root for _, clause in chosen if clause.root):
        print(_said(roots[root]))
    if chosen:
        return 0
    message = f"audit: expected the id of a clause, found '{arguments[0]}'"
    nearest = difflib.get_close_matches(place, [clause.id for _, clause in every], 1, 0.3)
    if nearest:
        message += f"; nearest is {nearest[0]}"
    return _mistake(message)


def _five_lines(key: str, clause: Clause) -> str:
    """Clause, instance, printed, corrected, reference."""
    row = check(clause)
    if row["status"] != "ok":
        return f"{clause.place}: {row['status']}"
    result = row["verdict"]
    if clause.kind:
        result += f", class {clause.kind}"
    tried = f"{row['instances']} instances, largest error {row['printed_error']:.1e}"
    within = f"within {row['tolerance']:.0e}"
    of_roots = {erratum["id"]: erratum["corrected"] for erratum in errata(key)["erratum"]}
    corrected = row["corrected"] or clause.correction or of_roots.get(clause.root, "as printed")
    lines = [
        f"{errata(key)['title']}, {clause.place} [{result}]: {clause.statement}",
        f"  instance   {row['instance'] or tried}",
        f"  printed    {row['printed'] or 'agrees'}",
        f"  corrected  {corrected}",
        f"  reference  {row['reference'] or within}",
    ]
    return "\n".join(lines)


def label(erratum: Row) -> str:
    """The erratum as the pages number it, after the prefix of the paper's ids: "ws.B3"."""
    prefix = erratum["id"].partition(".")[0]
    return f"{prefix}.{erratum['kind']}{erratum['number']}"


def _said(erratum: Row) -> str:
    """The instance that no clause has, consequence, authors' view, why it does not save the line,
    and the paper's own right line."""
    from experiments.paper_audit.effects import EXAMPLES

    lines = [f"{label(erratum)}: {erratum['place']}"]
    if erratum["id"] in EXAMPLES:
        example = EXAMPLES[erratum["id"]]()
        lines += [f"  {name:11s} {text}" for name, text in example.items() if text]
    for name, key in SAID.items():
        if erratum.get(key, "None.") != "None.":
            lines.append(f"  {name:11s} {erratum[key]}")
    return "\n".join(lines)


def _mistake(text: str) -> int:
    print(f"hess-run: {text}", file=sys.stderr)
    return 2
