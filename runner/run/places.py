"""`hess-run why "Table 5"`: a place of a paper, as a reader names it: whether it holds, its figures
and its rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.contract import SettingError, did_you_mean, short
from runner.report.answers.papers import known_papers
from runner.report.answers.rows import ALL, Row, criterion_of
from runner.report.answers.tones import is_judged, outcome_of
from runner.report.output.commands import (
    as_typed,
    figure_commands,
    figure_words,
    judged_seeds,
    measuring,
    run_words,
    shown_command,
)
from runner.report.output.page import Figure, Page
from runner.run.forecast import price_of
from runner.run.provenance import Answer
from runner.store.archive import where_published

KINDS = {
    **dict.fromkeys(("fig", "figs", "figure"), "Fig."),
    **dict.fromkeys(("tab", "table"), "Table"),
    **dict.fromkeys(("thm", "theorem"), "Theorem"),
    **dict.fromkeys(("prop", "proposition"), "Proposition"),
    **dict.fromkeys(("cor", "corollary"), "Corollary"),
    "lemma": "Lemma",
}
"""What a reader writes -> the word of the rows."""
NAMED = re.compile(
    rf"\b({'|'.join(sorted(KINDS, key=len, reverse=True))})\b\.?\s*(?:([A-Z])\.?)?(\d+)"
    r"(?:[A-D]|\s?\([a-z]\)|(?=\W|$))(?!\w)",
    re.IGNORECASE,
)
TEXTUAL = {
    "Section": r"sections?|secs?",
    "Remark": r"remarks?|rems?",
    "Eq.": r"equations?|eqs?",
    "Definition": r"definitions?|defs?",
    "Assumption": r"assumptions?",
    "Appendix": r"appendix|appendices|app",
    "Experiment": r"experiments?|exps?",
}
"""Places that are no tables, figures or theorems: the word of an answer -> how texts name it."""
NUMBER = r"[IVX]+(?:-[A-Z])?|[A-Z](?:\.\d+)*|\d+(?:\.\d+)*[a-z]?"
"""VI-A, N.2, 5.1, 1b."""
FILLERS = frozenset(("of", "in", "from", "the", "paper", "paper's", "paper’s"))
"""Words between a paper and its place."""


@dataclass(frozen=True)
class PlaceName:
    """A place ("Fig. N.1") of a paper, "" for every paper that has it."""

    place: str
    paper: str = ""


def place_name(text: str) -> PlaceName | None:
    """The place that a text names; None where it names none. Raises SettingError for a paper that
    is not known.

    >>> place_name("Tab. 5"), place_name("figure n1 of DAG")
    (PlaceName(place='Table 5', paper=''), PlaceName(place='Fig. N.1', paper='DAG'))
    """
    if re.search(r"[/\\]|\.[a-z]{2,4}$", text):
        return None
    named = NAMED.search(text)
    if named is not None:
        kind, appendix, number = named.groups()
        letter = f"{appendix.upper()}." if appendix else ""
        place = f"{KINDS[kind.lower()]} {letter}{int(number)}"
    else:
        kinds = "|".join(f"(?P<k{i}>{names})" for i, names in enumerate(TEXTUAL.values()))
        named = re.search(rf"\b(?i:{kinds})\b\.?\s*\(?({NUMBER})\b\)?", text)
        if named is None:
            return None
        found = next(i for i in range(len(TEXTUAL)) if named[f"k{i}"])
        place = f"{list(TEXTUAL)[found]} {named[len(TEXTUAL) + 1]}"
    around = re.sub(r"[,-]", " ", f"{text[: named.start()]} {text[named.end() :]}")
    words = [word for word in around.split() if word.lower() not in FILLERS]
    if not words:
        return PlaceName(place)
    names = _paper_names()
    paper = " ".join(words)
    if paper.lower() not in names:
        raise SettingError(
            f"why: expected a paper ({', '.join(known_papers())}), found "
            f"{short(paper)}{did_you_mean(paper, list(known_papers()))}"
        )
    return PlaceName(place, names[paper.lower()])


def _paper_names() -> dict[str, str]:
    """What a paper is called, in small letters -> its name in papers.toml."""
    names: dict[str, str] = {}
    for paper, about in known_papers().items():
        for name in (paper, about["anchor"], about["key"], about["report"]):
            names[str(name).lower()] = paper
    return names


STATED = ("refuted", "minor error")
"""Verdicts on a statement that are read together with it."""


@dataclass
class _Found:
    """What the reports have on a place of one paper. counts: verdicts, without extensions."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """A number or statement on the place."""
        self.rows.append(shown_row(row))
        if not row.is_extension:
            self.counts[row.verdict] += 1


def shown_row(row: Row) -> dict[str, str]:
    """A number or statement as answers show it."""
    return {
        "id": row.id,
        "claim": row.what,
        "published": row.published if row.is_number else criterion_of(row.record),
        "measured": row.measured,
        "verdict": row.verdict,
        "reason": row.why or _stated(row),
    }


def _is_on(named: PlaceName, row: Row, experiment: str) -> bool:
    """Whether a row is on a place. An experiment is meant by its number in the name of ours, too;
    a section has its subsections."""
    kind, _, number = named.place.partition(" ")
    if kind not in TEXTUAL:
        return named.place in row.places
    if kind == "Experiment" and experiment.startswith(f"exp{number}_"):
        return True
    end = r"(?![\w-])" if kind == "Section" else r"(?!\.?[\w-])"
    listed = rf"(?:(?:{NUMBER})(?:,|,? and|–| to)\s*)*"
    pattern = rf"\b(?i:{TEXTUAL[kind]})\b\.?\s*\(?{listed}{re.escape(number)}{end}"
    return re.search(pattern, row.place) is not None


def of_place(named: PlaceName, pages: Iterable[Page]) -> list[Answer]:
    """Of every paper that has this table, figure or theorem: whether it holds, the figures that
    draw it, the commands that measure it, and its rows. Raises SettingError where none has it."""
    by_paper: dict[str, _Found] = {}
    for page in pages:
        for row in page.rows:
            if _is_on(named, row, page.name):
                about = by_paper.setdefault(row.paper, _Found())
                about.add(row)
                about.commands[page.name] = _measure(page)
        for figure in page.figures:
            if named.place == figure.place and page.paper != ALL:
                about = by_paper.setdefault(page.paper, _Found())
                about.figures.append(_figure(page, figure))
                about.commands[page.name] = _measure(page)
    answers = []
    for paper, about in by_paper.items():
        if named.paper in ("", paper):
            title = f"{paper} paper: {judgement(named.place, about.counts)}"
            facts = {
                "figures": about.figures or None,
                "measure": about.commands,
                "rows": about.rows,
            }
            answers.append(Answer(title, facts))
    if not answers:
        where = f"{named.place} of {named.paper}" if named.paper else named.place
        raise SettingError(
            f"why: found no row on {where}; expected a place of a paper whose report is stored; "
            f"{where_published()}"
        )
    return answers


def _stated(row: Row) -> str:
    """What a paper says that is wrong, marked as what it says; '' for any other row."""
    if row.verdict not in STATED:
        return ""
    says = "tested here, not in the paper" if row.is_extension else "the paper says"
    return f"{says}: {row.what}"


def _measure(page: Page) -> str:
    """The command that measures the judged cells."""
    return measuring(run_words(page.folder, page.manifest), judged_seeds(page.manifest))


def _figure(page: Page, figure: Figure) -> dict[str, Any]:
    """The file of a figure, and the commands that measure and draw it."""
    words = run_words(page.folder, page.manifest)
    about = {"file": str(as_typed(page.folder / figure.file)), "experiment": page.name}
    about["draw"] = shown_command(["report", *words, f"figure={figure.name}"])
    about |= figure_commands(page.manifest, figure.name, words)
    if "measure" in about:
        words, seeds = figure_words(page.manifest, figure.name, words)
        about["cost"] = price_of(words, judged_seeds(page.manifest)[:seeds])
    return about


def judgement(place: str, verdicts: Mapping[str, int]) -> str:
    """Whether a table, figure or theorem holds, in one sentence.

    >>> judgement("Table 5", {"exact match": 15, "reproduced": 2, "calibrated": 1})
    'Table 5 holds: 17 of 17 judged rows agree. Not counted: 1 calibrated.'
    """
    uncounted = [f"{n} {verdict}" for verdict, n in verdicts.items() if not is_judged(verdict)]
    others = f" Not counted: {', '.join(uncounted)}." if uncounted else ""
    outcome = outcome_of(verdicts)
    return f"{place} {outcome}.{others}" if outcome else f"{place}: no row is judged.{others}"
