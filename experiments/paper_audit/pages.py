"""The errata as Markdown pages and JSON: one page per paper, one above them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from experiments.paper_audit.measure import Row
from experiments.paper_audit.papers import CLASSES, errata

MADE = "`hess-run audit {}` recomputes one clause."
OUR_TEXT = "*Our text* of a paper is a scan or conversion, in which signs may be lost."
HEADLINES = ("dag.lambda1", "dag.eq2", "dag.table7", "attention.j.1", "ws.theorem7")
"""Root causes of the most important errors, the most important first."""
SHORT = {
    "A": "major",
    "B": "minor",
    "C": "notation",
    "D": "our text only",
    "E": "open or not checked",
}
"""Classes in the count of root causes."""
COUNTED = {
    "holds": "hold",
    "major error": "with a major error",
    "minor error": "with a minor error",
    "notation": "with an error of notation or wording only",
    "open": "open",
    "not counted": "true by construction, not counted",
    "not checked": "not checked",
}
"""Verdicts in the count of clauses."""
ByClass = dict[str, list[Row]]
Papers = Sequence[tuple[str, list[Row], list[Row]]]
"""Name of the package, rows and errata of every paper."""


def code(text: str) -> str:
    return f"`{text}`"


def folded(summary: str, body: Sequence[str]) -> list[str]:
    """Lines that a reader unfolds; none where there is no body."""
    if not body:
        return []
    return [f"<details><summary>{summary}</summary>", "", *body, "", "</details>", ""]


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; none where it has no rows."""
    if not body:
        return []
    rule = ["---"] * len(header)
    lines = [_table_line(header), _table_line(rule)]
    for row in body:
        lines.append(_table_line([_cell(text) for text in row]))
    return lines


def _table_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _latex(text: str) -> str:
    r"""A formula without vertical bars, which would end a cell.

    >>> _latex(r"\|x\| = |x|")
    '$\\Vert{}x\\Vert{} = \\vert{}x\\vert{}$'
    """
    without_norms = text.replace("\\|", "\\Vert{}")
    return "$" + without_norms.replace("|", "\\vert{}") + "$"


def paper_page(key: str, rows: list[Row], listed: list[Row]) -> str:
    """The page of one paper: what survives, class A, tables of B to D, E; folded: views, the
    worked checks of B, C to E."""
    by_class: ByClass = {kind: [] for kind in CLASSES}
    for entry in listed:
        by_class[entry["class"]].append(entry)
    paper = errata(key)
    lines = [
        f"# Errata: {paper['title']}",
        "",
        f"*{paper['name']}.* {MADE.format(_command_label(listed[0]))}",
        "",
        f"**What survives.** {paper['survives']}",
        "",
        f"{counts(rows)} {paper.get('counted', '')}".rstrip(),
        "",
    ]
    if by_class["A"]:
        lines += ["## A. Major errors", ""]
    major = by_class["A"]
    for entry in major:
        lines += _major(entry)
    if by_class["B"]:
        lines += _minor(by_class["B"])
    lines += folded(f"C to E: {_class_counts(by_class, 'CDE')}", _others(by_class))
    return "\n".join(lines).rstrip() + "\n"


def _command_label(entry: Row) -> str:
    """The label of an erratum as `hess-run audit` takes it: "dag.A1"."""
    prefix = entry["id"].partition(".")[0]
    return f"{prefix}.{entry['label']}"


def counts(rows: list[Row]) -> str:
    """'55 clauses were checked: 45 hold, 1 with a major error, ...'; notation is a minor error of
    class C."""
    number: Counter[str] = Counter()
    for row in rows:
        notation = row["verdict"] == "minor error" and row["class"] == "C"
        number["notation" if notation else row["verdict"]] += 1
    words = [f"{number[verdict]} {text}" for verdict, text in COUNTED.items() if number[verdict]]
    return f"{len(rows)} clauses were checked: {', '.join(words)}."


def _class_counts(by_class: ByClass, kinds: str) -> str:
    return ", ".join(f"{len(by_class[kind])} {SHORT[kind]}" for kind in kinds)


def _bullets(texts: Mapping[str, str]) -> list[str]:
    return [f"- *{name}:* {text}" for name, text in texts.items() if text]


def _item(label: str, *texts: str) -> str:
    """An entry of a list."""
    filled = [text for text in texts if text]
    line = " ".join([f"- **{label}**", *filled])
    return " ".join(line.split())


def _major(entry: Row) -> list[str]:
    """A major error in full."""
    shown = {
        "Printed": code(entry["printed"]),
        "Corrected": f"${entry['corrected']}$",
        "Consequence": entry["consequence"],
        "Worked check": _worked(entry),
    }
    further = {
        "Authors' view": entry["authors_view"],
        "Why the error stands": entry["reply"],
        "Right elsewhere": entry["elsewhere"],
        "Experiments": entry["experiments"],
        "Also affects": _affects(entry),
        "Simplest networks": _failed(entry),
    }
    lines = [f"### {entry['label']}. {entry['place']}", "", *_bullets(shown), ""]
    return lines + folded("Authors' view and effects", _bullets(further))


def _minor(listed: list[Row]) -> list[str]:
    """Class B as a table; folded: consequences, worked checks and views."""
    remarks = []
    for entry in listed:
        texts = (_said(entry), _view(entry), _check(entry), _failed(entry))
        remarks.append(_item(entry["label"], *texts))
    lines = ["## B. Minor errors", "", *_formulas(listed), ""]
    return lines + folded("B: consequences, authors' view, worked checks", remarks)


def _formulas(listed: list[Row]) -> list[str]:
    """The table of errors, printed and corrected."""
    body = []
    for entry in listed:
        corrected = _latex(entry["corrected"])
        body.append((entry["label"], entry["place"], code(entry["printed"]), corrected))
    return table(("error", "place", "printed", "corrected"), body)


def _worked(entry: Row) -> str:
    """The first instance: what the printed line gives, what the corrected one gives, and the
    reference."""
    if not entry["worked_checks"]:
        return ""
    shown = entry["worked_checks"][0]
    names = [name for name in ("printed", "corrected", "reference") if shown[name]]
    if not names:
        return str(shown["instance"])
    values = ", ".join(f"{name} {shown[name]}" for name in names)
    return f"{shown['instance']}: {values}."


def _check(entry: Row) -> str:
    """The worked check of an entry of a list."""
    text = _worked(entry)
    return f"*Check:* {text}" if text else ""


def _failed(entry: Row) -> str:
    """Members of the family on which the correction fails; errata.json has those on which it holds
    and those outside its assumptions."""
    failed = [trial for trial in entry["tried"] if not trial["holds"]]
    return " ".join(
        f"The correction **fails** on: {trial['member']}, by {trial['error']:.2g}."
        for trial in failed
    )


def _view(entry: Row) -> str:
    """The authors' view and, after "But", why it does not save the line."""
    view = f"*Authors:* {entry['authors_view']}"
    if entry["reply"]:
        view += f" *But:* {entry['reply']}"
    if entry["elsewhere"]:
        view += f" *Right elsewhere:* {entry['elsewhere']}."
    return view


def _affects(entry: Row) -> str:
    """Places that the heading does not name."""
    heading = re.split(r"[;()]", entry["place"])
    named = {text.strip() for text in heading}
    named |= {text.strip() for text in entry["place"].split(",")}
    places = [place.strip() for text in entry["also_affects"] for place in text.split(";")]
    further = [p for p in places if p not in named and p.partition(",")[0] not in named]
    return "; ".join(dict.fromkeys(further))


def _others(by_class: ByClass) -> list[str]:
    """Classes C and D as a table, what is open without the print, and places without a check."""
    listed = by_class["C"] + by_class["D"]
    body = _formulas(listed)
    if listed:
        number = listed[0]["label"]
        command = code(f"hess-run audit {_command_label(listed[0])}")
        body += ["", f"{command} prints {number} in full."]
    failed = [_item(entry["label"], _failed(entry)) for entry in listed if _failed(entry)]
    return [*body, "", *failed, *_unchecked(by_class["E"])]


def _unchecked(listed: list[Row]) -> list[str]:
    """Class E: places and reasons; of a line that is open without the print also the line."""
    lines = []
    for entry in listed:
        if entry["id"]:
            formulas = f"{code(entry['printed'])} → ${entry['corrected']}$."
            texts = (f"{entry['place']}: {formulas}", entry["consequence"], entry["authors_view"])
            lines.append(_item(entry["label"], *texts))
        else:
            lines.append(f"- {entry['place']}: {entry['authors_view']}")
    return ["E, open without the print or not checked:", "", *lines] if lines else []


def _said(entry: Row) -> str:
    """Consequence, where there is one."""
    return "" if entry["consequence"] == "None." else str(entry["consequence"])


EXPLANATION = """
A to D count distinct errors, each of which can affect several clauses; E also counts places without
a check. **A**, major error: a theorem, definition, formula or conclusion is false as printed, and
the paper rests on it or nowhere has it right. **B**, minor error: false as printed, but the paper
has it right elsewhere and nothing rests on the printed form, or it is in a display, remark or step
of a proof. **C**, notation and wording; its clauses are minor errors. **D**, an error of our text
only. **E**, open or not checked. Only A counts as refuted; D and E do not count. Numbers of removed
entries are not used again.

A clause *holds* when it agrees with float64 automatic differentiation on random instances of
several sizes to 1e-9 relative, or, for an inequality, when neither random instances nor a search
exceed it. A and B have an instance to recompute, the authors' view and why it does not save the
line; `hess-run audit` prints those of C and D. Where an entry of A names no experiments, no
published experiment depends on the line. A correction is a claim of this project: it is tried on
the eight simplest networks of `experiments/paper_audit/family.py`. `errata.json` (in
`outputs/published/paper_audit/`) says on which it holds and why others are outside its assumptions;
a page says so where it fails. `experiments/paper_audit/README.md` says how many injected errors the
checks notice.
"""


def overview(papers: Papers) -> str:
    """The page above: the most important errors, the table paper × class, and how a verdict comes
    about."""
    by_id: dict[str, Row] = {}
    for _, _, listed in papers:
        by_id |= {entry["id"]: entry for entry in listed}
    chosen = [by_id[name] for name in HEADLINES if name in by_id]
    made = f"{MADE.format(_command_label(chosen[0]))} {OUR_TEXT}"
    lines = ["# Errata of the five papers", "", made, "", "## The five most important errors", ""]
    for number, entry in enumerate(chosen, start=1):
        place = f"{_link(entry['paper'])}, {entry['place']}"
        lines.append(f"{number}. **{place}.** {entry['consequence']}")
    lines += ["", "## All papers", "", *_totals(papers)]
    return "\n".join(lines) + "\n" + EXPLANATION


def _link(key: str) -> str:
    return f"[{errata(key)['title']}](errata_{key}.md)"


def _totals(papers: Papers) -> list[str]:
    body = []
    for key, rows, listed in papers:
        classes = Counter(entry["class"] for entry in listed)
        verdicts = Counter(row["verdict"] for row in rows)
        counted = ("holds", "minor error", "major error")
        counts = [verdicts[verdict] for verdict in counted]
        numbers = [sum(counts), *counts, *(classes[kind] for kind in CLASSES)]
        cells = map(str, numbers)
        body.append([_link(key), *cells])
    head = ("paper", "clauses counted", "hold", "minor error", "major error")
    return table((*head, *CLASSES), body)


def as_json(listed: list[Row]) -> str:
    """The errata of all papers."""
    return json.dumps(listed, ensure_ascii=False, indent=1) + "\n"
