"""The errata as Markdown pages and JSON: one page per paper, one above them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from experiments.paper_audit.measure import WITNESS, Row
from experiments.paper_audit.papers import CLASSES, Erratum, Paper, Unchecked

MADE = "`make errata` writes this page; `hess-run audit PLACE` recomputes one clause."
HEADLINES = ("dag.lambda1", "dag.eq2", "dag.table7", "attention.j.1", "ws.theorem7")
"""Root causes of the most important errors, the most important first."""


def entries(of: Paper, rows: list[Row]) -> list[Row]:
    """The errata of one paper with the numbers of a run: classes A to E by root cause, then the places not checked.

    Keys: paper, id, place, class, verdict, printed, corrected, elsewhere (the paper's own right line), consequence,
    experiments (what the correction changes there), also_affects (places), authors_view, worked_checks.
    """
    by_root: dict[str, list[Row]] = {}
    for row in rows:
        by_root.setdefault(row["root"], []).append(row)
    found = [_entry(of, erratum, by_root.get(erratum.id, [])) for erratum in of.errata]
    return sorted(found, key=lambda entry: str(entry["class"])) + [
        _unchecked(of.key, u) for u in of.unchecked
    ]


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
    entry: Row = {
        "paper": key,
        "place": place.place,
        "class": "E",
        "verdict": "not checked",
    } | dict.fromkeys(texts, "")
    return entry | {"also_affects": [], "authors_view": place.reason, "worked_checks": []}


def code(text: str) -> str:
    return f"`{text}`"


def folded(summary: str, body: Sequence[str]) -> list[str]:
    """Lines that a reader unfolds; none where there is no body."""
    return (
        [f"<details><summary>{summary}</summary>", "", *body, "", "</details>", ""] if body else []
    )


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; none where it has no rows."""
    lines = [header, ["---"] * len(header), *(list(map(_cell, row)) for row in body)]
    return ["| " + " | ".join(row) + " |" for row in lines] if body else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _latex(text: str) -> str:
    r"""A formula without vertical bars, which would end a cell.

    >>> _latex(r"\|x\| = |x|")
    '$\\Vert x\\Vert  = \\vert x\\vert $'
    """
    return f"${text.replace(chr(92) + '|', chr(92) + 'Vert ').replace('|', chr(92) + 'vert ')}$"


def paper_page(of: Paper, rows: list[Row]) -> str:
    """The page of one paper: what survives, class A, B as a table; folded: views, the worked checks of B, C to E."""
    listed = entries(of, rows)
    by_class: dict[str, list[Row]] = {kind: [] for kind in CLASSES}
    for entry in listed:
        by_class[entry["class"]].append(entry)
    lines = [
        f"# Errata: {of.title}",
        "",
        f"*{of.name}.* {MADE}",
        "",
        f"**What survives.** {of.survives}",
        "",
    ]
    lines += [f"{counts(rows)} Root causes: {_by_class(by_class)}.", ""]
    if by_class["A"]:
        lines += ["## A. Major errors", ""]
        for number, entry in enumerate(by_class["A"], start=1):
            lines += _major(f"A{number}", entry)
    if by_class["B"]:
        numbered = [(f"B{number}", entry) for number, entry in enumerate(by_class["B"], start=1)]
        body = [(n, e["place"], code(e["printed"]), _latex(e["corrected"])) for n, e in numbered]
        lines += ["## B. Minor errors", "", *table(("", "place", "printed", "corrected"), body), ""]
        checks = [(n, e["consequence"], _worked(e), _view(e)) for n, e in numbered]
        header = ("", "consequence", "worked check", "authors' view")
        lines += folded(
            "B: consequences, worked checks and the authors' view", table(header, checks)
        )
    lines += folded(f"C to E: {_by_class(by_class, 'CDE')}", list(_others(by_class)))
    return "\n".join(lines).rstrip() + "\n"


def counts(rows: list[Row]) -> str:
    """'55 clauses were checked: 45 hold, 1 with a major error, ...'; notation is a minor error of class C."""
    found = Counter(
        "notation" if (row["verdict"], row["class"]) == ("minor error", "C") else row["verdict"]
        for row in rows
    )
    words = {
        "holds": "hold",
        "major error": "with a major error",
        "minor error": "with a minor error",
    }
    words |= {"notation": "with an error of notation or wording only", "open": "open"}
    words |= {
        "not counted": "true by construction or by definition, not counted",
        "not checked": "not checked",
    }
    parts = [f"{found[verdict]} {text}" for verdict, text in words.items() if found[verdict]]
    return f"{len(rows)} clauses were checked: {', '.join(parts)}."


def _by_class(by_class: dict[str, list[Row]], kinds: str = "ABCDE") -> str:
    words = {
        "A": "major",
        "B": "minor",
        "C": "notation",
        "D": "our text only",
        "E": "open or not checked",
    }
    return ", ".join(f"{len(by_class[k])} {words[k]}" for k in kinds)


def _major(label: str, entry: Row) -> list[str]:
    """A major error in full."""
    parts = {"Printed": code(entry["printed"]), "Corrected": f"${entry['corrected']}$"}
    parts |= {"Consequence": entry["consequence"], "Worked check": _worked(entry)}
    lines = [
        f"### {label}. {entry['place']}",
        "",
        *(f"- *{name}:* {text}" for name, text in parts.items()),
        "",
    ]
    further = {
        "Authors' view": entry["authors_view"],
        "Right elsewhere in the paper": entry["elsewhere"],
    }
    further |= {"Experiments": entry["experiments"], "Also affects": _affects(entry)}
    return lines + folded(
        "Authors' view and effects",
        [f"- *{name}:* {text}" for name, text in further.items() if text],
    )


def _worked(entry: Row) -> str:
    """The first instance: what the printed line gives, what the corrected one gives, and the reference."""
    if not entry["worked_checks"]:
        return ""
    shown = entry["worked_checks"][0]
    values = {
        "printed": shown["printed"],
        "corrected": shown["corrected"],
        "reference": shown["reference"],
    }
    given = ", ".join(f"{name} {value}" for name, value in values.items() if value)
    return f"{shown['instance']}: {given}." if given else shown["instance"]


def _view(entry: Row) -> str:
    right = (
        f" The paper has it right elsewhere: {entry['elsewhere']}." if entry["elsewhere"] else ""
    )
    return entry["authors_view"] + right


def _affects(entry: Row) -> str:
    return "; ".join(p for p in dict.fromkeys(entry["also_affects"]) if p not in entry["place"])


def _others(by_class: dict[str, list[Row]]) -> Iterator[str]:
    """Classes C, D and what is open, then the places without a check."""
    body = [
        (
            f"{k}{n}",
            e["place"],
            code(e["printed"]),
            _latex(e["corrected"]),
            f"{_remark(e)} {_worked(e)}",
        )
        for k in "CDE"
        for n, e in enumerate((e for e in by_class[k] if e["id"]), start=1)
    ]
    yield from table(("", "place", "printed", "corrected", "remark"), body)
    reasons = [(e["place"], e["authors_view"]) for e in by_class["E"] if not e["id"]]
    yield from ["", *table(("not checked", "why"), reasons)]


def _remark(entry: Row) -> str:
    told = "" if entry["consequence"] == "None." else entry["consequence"] + " "
    return told + _view(entry)


def overview(papers: Sequence[tuple[Paper, list[Row]]]) -> str:
    """The page above: the most important errors, the table paper × class, and how a verdict comes about."""
    found = {e["id"]: (of, e) for of, rows in papers for e in entries(of, rows) if e["id"]}
    lines = ["# Errata of the five papers", "", MADE, "", "## The five most important errors", ""]
    chosen = [found[i] for i in HEADLINES if i in found]
    lines += [
        f"{n}. **[{of.title}](errata_{of.key}.md), {e['place']}.** {e['consequence']}"
        for n, (of, e) in enumerate(chosen, start=1)
    ]
    lines += ["", "## All papers", "", *_totals(papers), ""]
    lines += [
        "A to D count distinct errors, each of which can affect several clauses; E also counts places without a",
        "check. **A**, major error:",
        "a theorem, definition, formula or conclusion is false as printed, and the paper rests on it or nowhere has",
        "it right. **B**, minor error: false as printed, but the paper has it right elsewhere and nothing rests on the",
        "printed form, or it is in a display, remark or step of a proof. **C**, notation and wording. **D**, an",
        "error of our text only. **E**, open or not checked. Only A counts as refuted; D and E do not count.",
        "",
        "A clause *holds* when it agrees with float64 automatic differentiation on random instances of several sizes",
        "to 1e-9 relative, or, for an inequality, when neither random instances nor a search exceed it. Each entry has",
        "an instance to recompute and the authors' view.",
        "`experiments/paper_audit/README.md` says how many injected errors its checks notice.",
    ]
    return "\n".join(lines) + "\n"


def _totals(papers: Sequence[tuple[Paper, list[Row]]]) -> list[str]:
    body = []
    for of, rows in papers:
        classes = Counter(e["class"] for e in entries(of, rows))
        verdicts = Counter(row["verdict"] for row in rows)
        kinds = (str(classes[k]) for k in CLASSES)
        counted = str(len(rows) - verdicts["not counted"])
        body.append((f"[{of.title}](errata_{of.key}.md)", counted, str(verdicts["holds"]), *kinds))
    return table(("paper", "clauses counted", "hold", *CLASSES), body)


def as_json(papers: Sequence[tuple[Paper, list[Row]]]) -> str:
    """The same content as a list of entries."""
    found: list[Any] = [entry for of, rows in papers for entry in entries(of, rows)]
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"
