"""From checks to a table: one row a formula, with the numbers, the class of its root cause and what is published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from experiments.paper_audit.formula import Erratum, Formula, Paper, Unchecked, verdict

Row = dict[str, Any]
WITNESS = ("instance", "printed", "corrected", "reference")


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
        row |= dict.fromkeys(WITNESS, "")
        row |= {"status": f"{type(error).__name__}: {error}"}
    else:
        corrected = float("nan") if outcome.corrected is None else float(outcome.corrected)
        row |= {
            "verdict": verdict(outcome.agreement, kind, formula.uncounted),
            "class": kind,
            "agreement": outcome.agreement,
        }
        row |= {"printed_error": float(outcome.printed), "corrected_error": corrected, "tolerance": outcome.tolerance}
        row |= {"mean_error": outcome.mean, "instances": outcome.instances}
        row |= {n: "" if outcome.witness is None else getattr(outcome.witness, n) for n in WITNESS}
        row["status"] = "ok" if not failed else f"holds without {', '.join(failed)}"
    row |= {"root": formula.root, "correction": formula.correction, "expected": formula.expected}
    row["uncounted"] = formula.uncounted
    return row | {"hypotheses_dropped": len(formula.dropped)}


def check_all(of: Paper, progress: Callable[[int, int, str], None] = lambda i, n, name: None) -> list[Row]:
    """Every formula of a paper."""
    found = []
    for i, formula in enumerate(of.formulas):
        progress(i, len(of.formulas), formula.id)
        found.append(check(of, formula))
    return found


def entries(of: Paper, rows: list[Row]) -> list[Row]:
    """The errata of one paper with the numbers of a run: classes A to E by root cause, then the places not checked.

    Keys: paper, id, place, class, verdict, printed, corrected, elsewhere (the paper's own right line), consequence,
    experiments (what the correction changes there), also_affects (places), authors_view, worked_checks.
    """
    found = [_entry(of, erratum, [row for row in rows if row["root"] == erratum.id]) for erratum in of.errata]
    return sorted(found, key=lambda entry: str(entry["class"])) + [_unchecked(of.key, u) for u in of.unchecked]


def _entry(of: Paper, erratum: Erratum, own: list[Row]) -> Row:
    verdicts = [row["verdict"] for row in own]
    worst = next((v for v in ("major error", "minor error", "open") if v in verdicts), "holds")
    if erratum.witness is not None:
        shown = [asdict(erratum.witness())]
    else:
        shown = [{k: row[k] for k in WITNESS} for row in own if row["instance"]][:2]
    if erratum.example:
        shown = [dict.fromkeys(WITNESS, "") | {"instance": erratum.example}]
    return {
        "paper": of.key,
        "id": erratum.id,
        "place": erratum.place,
        "class": erratum.kind,
        "verdict": worst,
        "printed": erratum.printed,
        "corrected": erratum.corrected,
        "elsewhere": erratum.elsewhere,
        "consequence": erratum.consequence,
        "experiments": erratum.effect,
        "also_affects": [row["place"] for row in own],
        "authors_view": erratum.view,
        "worked_checks": shown,
    }


def _unchecked(key: str, place: Unchecked) -> Row:
    texts = ("id", "printed", "corrected", "elsewhere", "consequence", "experiments")
    entry: Row = {"paper": key, "place": place.place, "class": "E", "verdict": "not checked"} | dict.fromkeys(texts, "")
    return entry | {"also_affects": [], "authors_view": place.reason, "worked_checks": []}
