"""From checks to a table: one row a formula, with the numbers, the class of its root cause and what is published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.paper_audit.formula import Formula, Paper, verdict

Row = dict[str, Any]


def check(of: Paper, formula: Formula) -> Row:
    """One formula checked; a check that raises is a row that says so."""
    kind = of.kind(formula)
    row: Row = {"id": formula.id, "place": formula.place, "statement": formula.statement}
    try:
        outcome = formula.check()
        failed = [what for what, without in formula.dropped if without().agreement == "holds"]
    except Exception as error:  # one broken check must not hide the others
        row |= {"verdict": "not checked", "class": kind, "agreement": "not checked", "printed_error": float("nan")}
        row |= {"corrected_error": float("nan"), "tolerance": float("nan"), "mean_error": float("nan")}
        row |= {"instances": 0}
        row |= dict.fromkeys(("instance", "printed", "corrected", "reference"), "")
        row |= {"status": f"{type(error).__name__}: {error}"}
    else:
        corrected = float("nan") if outcome.corrected is None else float(outcome.corrected)
        row |= {"verdict": verdict(outcome.agreement, kind), "class": kind, "agreement": outcome.agreement}
        row |= {"printed_error": float(outcome.printed), "corrected_error": corrected, "tolerance": outcome.tolerance}
        row |= {"mean_error": outcome.mean, "instances": outcome.instances}
        names = ("instance", "printed", "corrected", "reference")
        row |= {n: "" if outcome.witness is None else getattr(outcome.witness, n) for n in names}
        row["status"] = "ok" if not failed else f"holds without {', '.join(failed)}"
    row |= {"root": formula.root, "correction": formula.correction, "expected": formula.expected}
    return row | {"hypotheses_dropped": len(formula.dropped)}


def check_all(of: Paper, progress: Callable[[int, int, str], None] = lambda i, n, name: None) -> list[Row]:
    """Every formula of a paper."""
    found = []
    for i, formula in enumerate(of.formulas):
        progress(i, len(of.formulas), formula.id)
        found.append(check(of, formula))
    return found


def entries(of: Paper, rows: list[Row]) -> list[Row]:
    """The errata of one paper with the numbers of a run: classes A to D by root cause, then E, the places not checked.

    Keys: paper, place, class, verdict, printed, corrected, authors, consequence, experiments (what the correction
    changes there), heirs, defence, instances.
    """
    found = []
    for erratum in of.errata:
        own = [row for row in rows if row["root"] == erratum.id]
        shown = [row for row in own if row["instance"]]
        instances = [{k: row[k] for k in ("instance", "printed", "corrected", "reference")} for row in shown[:2]]
        if erratum.witness is not None:
            w = erratum.witness()
            instances = [
                {"instance": w.instance, "printed": w.printed, "corrected": w.corrected, "reference": w.reference}
            ]
        wrong = [row["verdict"] for row in own if row["verdict"] in ("wrong", "slip")]
        found.append(
            {
                "paper": of.key,
                "id": erratum.id,
                "place": erratum.place,
                "class": erratum.kind,
                "verdict": wrong[0] if wrong else "holds",
                "printed": erratum.printed,
                "corrected": erratum.corrected,
                "authors": erratum.authors,
                "consequence": erratum.consequence,
                "experiments": erratum.effect,
                "heirs": [row["place"] for row in own],
                "defence": erratum.defence,
                "instances": instances,
            }
        )
    order = sorted(found, key=lambda entry: "ABCD".index(str(entry["class"])))
    return order + [_unchecked(of.key, u.place, u.reason) for u in of.unchecked]


def _unchecked(key: str, place: str, reason: str) -> Row:
    entry: Row = {"paper": key, "id": "", "place": place, "class": "E", "verdict": "not checked", "printed": ""}
    entry |= {"experiments": ""}
    return entry | {"corrected": "", "authors": "", "consequence": "", "heirs": [], "defence": reason, "instances": []}
