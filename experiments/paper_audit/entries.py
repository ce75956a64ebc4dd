"""Errata as rows: the root causes of a paper with the numbers of a run."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.paper_audit.checks import Worked, worked
from experiments.paper_audit.corrections import CLASSES, scope
from experiments.paper_audit.effects import EXAMPLES, NUMBERS
from experiments.paper_audit.measure import NOT_WORKED, Row
from experiments.paper_audit.papers import errata


def entries(key: str, rows: list[Row], trials: Sequence[Row] = ()) -> list[Row]:
    """The errata of one paper with the numbers of a run: classes A to E by root cause, then the
    places not checked.

    rows: of clauses; trials: of corrections on the family of simplest networks.
    Keys: paper, id, label ("A4"), place, class, verdict, printed, corrected, elsewhere (the paper's
    own right line), consequence, experiments (what the correction changes there), also_affects
    (places), authors_view, reply (why it does not save the line), worked_checks, tried (members of
    the family, largest error and whether the correction holds), outside (members and reasons).
    """
    by_root: dict[str, list[Row]] = {}
    for row in rows:
        by_root.setdefault(row["root"], []).append(row)
    listed = []
    by_class = sorted(errata(key)["erratum"], key=_class_and_number)
    for erratum in by_class:
        affected = by_root.get(erratum["id"], [])
        entry = _entry(key, erratum, affected, _worst_verdict(affected))
        if erratum["kind"] in CLASSES:
            of_entry = [row for row in trials if row["erratum"] == erratum["id"]]
            entry["tried"] = [_trial(row) for row in of_entry]
            entry["outside"] = dict(scope(key, erratum).outside)
        listed.append(entry)
    for place in errata(key)["unchecked"]:
        unchecked = {"place": place["place"], "kind": "E", "view": place["reason"]}
        entry = _entry(key, unchecked, [], "not checked")
        listed.append(entry)
    return listed


def _class_and_number(erratum: Row) -> tuple[str, int]:
    return str(erratum["kind"]), int(erratum["number"])


def _trial(row: Row) -> Row:
    return {"member": row["member"], "error": row["error"], "holds": bool(row["holds"])}


def _entry(key: str, erratum: Row, rows: list[Row], verdict: str) -> Row:
    name = erratum.get("id", "")
    numbers = NUMBERS[name]() if name in NUMBERS else {}
    experiments = erratum.get("experiments", "").format(**numbers)
    places = [row["place"] for row in rows]
    return {
        "paper": key,
        "id": name,
        "label": f"{erratum['kind']}{erratum.get('number', '')}",
        "place": erratum["place"],
        "class": erratum["kind"],
        "verdict": verdict,
        "printed": erratum.get("printed", ""),
        "corrected": erratum.get("corrected", ""),
        "elsewhere": erratum.get("elsewhere", ""),
        "consequence": erratum.get("consequence", ""),
        "experiments": experiments,
        "also_affects": places,
        "authors_view": erratum["view"],
        "reply": erratum.get("reply", ""),
        "worked_checks": _worked_checks(erratum, rows),
        "tried": [],
        "outside": {},
    }


def _worst_verdict(rows: list[Row]) -> str:
    verdicts = [row["verdict"] for row in rows]
    for verdict in ("major error", "minor error", "open"):
        if verdict in verdicts:
            return verdict
    return "holds"


def _worked_checks(erratum: Row, rows: list[Row]) -> list[Worked]:
    """The example in words, else the erratum's own instance, else those of its first two clauses
    that have one."""
    if "example" in erratum:
        return [worked(erratum["example"], "", "", "")]
    if erratum.get("id") in EXAMPLES:
        return [EXAMPLES[erratum["id"]]()]
    shown: list[Worked] = []
    for row in rows:
        if row["instance"] and len(shown) < 2:
            instance = {column: row[column] for column in NOT_WORKED}
            shown.append(instance)
    return shown
