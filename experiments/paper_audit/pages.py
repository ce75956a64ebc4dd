"""The errata as Markdown pages and JSON: one page a paper, one above them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.paper_audit.formula import CLASSES, Paper
from experiments.paper_audit.rows import Row, entries

MADE = (
    "Made by `make errata` from a run of `hess-run experiment=paper_audit`; `hess-run audit PLACE` recomputes one line."
)


def code(text: str) -> str:
    return f"`{text}`"


def folded(summary: str, body: Sequence[str]) -> list[str]:
    """Lines that a reader unfolds; none where there is no body."""
    return [f"<details><summary>{summary}</summary>", "", *body, "", "</details>", ""] if body else []


def paper_page(of: Paper, rows: list[Row]) -> str:
    """The page of one paper: what survives, classes A and B in full, C to E folded, then every clause that holds."""
    listed = entries(of, rows)
    by_class = {k: [e for e in listed if e["class"] == k] for k in CLASSES}
    clean = sum(1 for row in rows if row["verdict"] == "holds")
    lines = [f"# Errata: {of.title}", "", f"*{of.name}.* {MADE}", ""]
    lines += [
        f"**What survives.** {of.survives}",
        "",
        f"{clean} of {len(rows)} clauses checked hold. {_counts(by_class)}",
        "",
    ]
    lines += [f"## A. {CLASSES['A'].capitalize()}", ""] if by_class["A"] else []
    for number, entry in enumerate(by_class["A"], start=1):
        lines += _full(f"A{number}", entry)
    lines += [f"## B. {CLASSES['B'].capitalize()}", ""] if by_class["B"] else []
    lines += [_short(f"B{number}", entry) for number, entry in enumerate(by_class["B"], start=1)]
    lines += [""] if by_class["B"] else []
    for kind in "CD":
        if by_class[kind]:
            body = [_short(f"{kind}{n}", entry) for n, entry in enumerate(by_class[kind], start=1)]
            lines += folded(f"{kind}. {CLASSES[kind].capitalize()} ({len(body)})", body)
    body = [f"- {entry['place']}: {entry['defence']}." for entry in by_class["E"]]
    lines += folded(f"E. Not checked, and why ({len(body)})", body)
    return "\n".join(lines + _clauses(rows)) + "\n"


def _counts(by_class: dict[str, list[Row]]) -> str:
    return "Root causes: " + ", ".join(f"{len(found)} of class {k}" for k, found in by_class.items() if k != "E") + "."


def _full(label: str, entry: Row) -> list[str]:
    """A root cause that changes a result: print, right line, consequence; heirs, an instance and the defence folded."""
    lines = [f"**{label}. {entry['place']}.** Printed: {code(entry['printed'])}. Right: ${entry['corrected']}$.", ""]
    lines += [f"{entry['consequence']} *Experiments.* {entry['experiments']}", ""]
    return [*lines, _defence(entry), ""]


def _short(label: str, entry: Row) -> str:
    """A slip in a line: print and right line; its instance and what can be said for the print folded."""
    return f"- **{label}. {entry['place']}.** {code(entry['printed'])}; right: ${entry['corrected']}$. {_defence(entry, True)}"  # noqa: E501


def _defence(entry: Row, whole: bool = False) -> str:
    """Folded: an instance, what can be said for the print, the authors' own right line, heirs; `whole`: consequence."""
    parts = [f"*By hand.* {_instance(instance)}" for instance in entry["instances"][:1]]
    if whole and entry["consequence"] != "None.":
        parts.append(f"*Consequence.* {entry['consequence']}")
    if whole and entry["experiments"]:
        parts.append(f"*Experiments.* {entry['experiments']}")
    parts.append(f"*Defence.* {entry['defence']}")
    if entry["authors"]:
        parts.append(f"The paper's own right line: {entry['authors']}.")
    others = [place for place in dict.fromkeys(entry["heirs"]) if place not in entry["place"]]
    parts += [f"*Heirs.* {'; '.join(others)}."] if others else []
    return f"<details><summary>By hand, defence, heirs</summary>{' '.join(parts)}</details>"


def _instance(instance: dict[str, str]) -> str:
    right = f", right {instance['corrected']}" if instance["corrected"] else ""
    return f"{instance['instance']}: printed {instance['printed']}{right}; reference {instance['reference']}."


def _clauses(rows: list[Row]) -> list[str]:
    """Every clause, folded: place, statement, verdict, class, instances tried."""
    header = ["| place | clause | verdict | class | instances |", "|---|---|---|---|---|"]
    body = [
        f"| {_cell(r['place'])} | {_cell(r['statement'])} | {r['verdict']} | {r['class']} | {r['instances']} |"
        for r in rows
    ]
    return folded(f"Every clause that was checked ({len(rows)})", [*header, *body])


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def overview(papers: Sequence[tuple[Paper, list[Row]]]) -> str:
    """The page above: a table paper × class, and how a verdict comes about."""
    lines = ["# Errata of the five papers", "", MADE, ""]
    lines += [
        "A clause *holds* when it agrees with float64 automatic differentiation on random instances of several sizes",
        "to 1e-9, or, for an inequality, when neither random instances nor a search for violations exceed it. What is",
        "off is listed once for each root cause, with its heirs, in classes: "
        + "; ".join(f"**{k}** {v}" for k, v in CLASSES.items())
        + ".",
        "Only A counts as *wrong*; B and C are *slips*; D and E are never counted against the authors. Each entry says",
        "what can be said for the print, and gives an instance to recompute by hand; `errata/errata.json` has the same.",  # noqa: E501
        "",
        "| paper | clauses | hold | A | B | C | D | E |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for of, rows in papers:
        counts = Counter(e["class"] for e in entries(of, rows))
        clean = sum(1 for row in rows if row["verdict"] == "holds")
        cells = [f"[{of.title}](errata/{of.key}.md)", len(rows), clean, *(counts[k] for k in CLASSES)]
        lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    lines += ["", "A to D count root causes, E places; clauses are rows of the audit.", ""]
    for of, _ in papers:
        lines += [f"- **{of.title}.** {of.survives}"]
    return "\n".join(lines) + "\n"


def as_json(papers: Sequence[tuple[Paper, list[Row]]]) -> str:
    """The same content as a list of entries."""
    found: list[Any] = [entry for of, rows in papers for entry in entries(of, rows)]
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"
