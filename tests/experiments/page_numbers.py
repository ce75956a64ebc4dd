"""Numbers of pages and summaries, and what accounts for each: a sentence whose numbers are computed
again, a sentence with a check of its own, a phrase that states no result, or a name such as
"Theorem 7" that its paper has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pandas as pd

from runner.report.answers.summary import summary
from tests.experiments.stored import PUBLISHED, ROOT, table, verdicts

SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
WORDS = {word: k for k, word in enumerate(SMALL) if k > 1}
WORDS |= {"thirty": 30, "half": 0.5, "twice": 2, "twenty": 20, "million": 1e6}
DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
POWER = r"[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+"
NUMBER = (
    rf"(?<![\w.,])10(?:{POWER}|\^[−-]?\d+)|(?<![\w.,])[−-]?{DIGITS}(?:·10{POWER}|e-?\d+)?|(?<=[\w.,]){DIGITS}|{POWER}|[½¼¾]"
    rf"|\b(?i:{'|'.join(WORDS)})\b"
)
"""Digits, superscripts and words; one without a sign follows a letter or a point."""
FRACTIONS = {"½": 0.5, "¼": 0.25, "¾": 0.75}

CODE = re.compile(r"```.*?```|<!--.*?-->", re.S)
LINK = re.compile(r"\]\([^)]*\)")
ENUMERATION = re.compile(r"^(\| |\\?)?\d+\. ", re.M)
"""Numbers of items, and of the claims in tables of results."""

KINDS = [
    "Section",
    "Table",
    "Fig.",
    "Eq.",
    "Lemma",
    "Theorem",
    "Proposition",
    "Corollary",
    "Definition",
    "Remark",
    "Appendix",
    "Part",
    "Experiment",
]
PLURALS = {"Figs.": "Fig.", "Eqs.": "Eq.", "Corollaries": "Corollary", "Appendices": "Appendix"}
PLURALS |= {f"{kind}s": kind for kind in KINDS if kind.isalpha()}
KIND = "|".join(re.escape(k) for k in sorted([*KINDS, *PLURALS], key=len, reverse=True))
ID = r"(?:[A-Z]\.\d+|[IVX]+(?:-[A-Z])?|[A-Z](?![a-z])|\d+[a-z]?)(?:\.\d+)*(?:\(\w′?\))?"
LIST = rf"{ID}(?:(?:,|,? and|,? or| to) {ID})*"
REFERENCE = re.compile(rf"\b({KIND}) ({LIST})")
BARE = re.compile(r"\b[A-N]\.\d+\b(?:\.\d+\b)?")
NAMES = re.compile(
    r"ResNet-18|CIFAR-10|CIFAR-100|\bF1\b|[Cc]laims? \d(?: and \d)?|float64|NVIDIA H200|TF32"
    r"|(?<=[\w)\]‖|'′₁₂ᵢⱼᵀ])[²³⁴⁵⁶⁷⁸⁹]"
    r"|\b[RC]\(\d(?:, \d)?\)|\bgap\(1\)|(?<=[KLDm][−+])1\b|(?<=[KLDdm] [−+] )1\b"
)
"""Names, squares and other powers of symbols, values at a distance, and the symbols less one."""
SETTING = re.compile(rf"\b(?:L|N|d|d_u) = ({NUMBER})|\b[Ss]eeds? ({NUMBER})(?: to ({NUMBER}))?")
CHOICES = {"L": (6, 8, 10, 12, 16, 32), "N": (3, 10), "d": (1, 2, 4), "d_u": (4, 32, 256)}


@dataclass(frozen=True)
class Says:
    """Words of a page; each {} is a number, and `values` are what it must show. Other numbers of
    the words are settings, and state no result, or a test of their own computes them."""

    words: str
    values: tuple = ()

    @property
    def pattern(self):
        parts = re.sub(r"\s+", " ", self.words).split("{}")
        return re.compile(f"({NUMBER})".join(map(re.escape, parts)))


def value(token):
    """The number that a token shows.

    >>> value("−1,437"), value("1.6·10⁻¹⁵"), value("Four"), value("⁻¹⁴")
    (-1437.0, 1.6e-15, 4, -14.0)
    """
    if token.lower() in WORDS:
        return WORDS[token.lower()]
    if token in FRACTIONS:
        return FRACTIONS[token]
    base, _, exponent = token.partition("10")
    if re.fullmatch(rf"{POWER}|\^[−-]?\d+", exponent) and not base:
        return 10.0 ** value(exponent.removeprefix("^"))
    plain = token.replace("·10", "e").translate(SUPERSCRIPTS)
    return float(plain.replace("−", "-").replace(",", ""))


def shows(token, own, digits=3):
    """Whether a token shows the value: a float with three significant digits, any other exactly."""
    if isinstance(own, float):
        own = f"{own:.{digits}g}"
    return value(token) == float(own)


def unaccounted(text, says, places):
    """Numbers of a text that nothing accounts for, and words of it that are wrong or not there."""
    taken, wrong = set(), []
    for said in sorted(says, key=lambda said: not said.values):
        spans, errors = compared(said, text)
        if said.values:
            errors += [f"twice: {text[a - 40 : b + 20]!r}" for a, b in spans & taken]
        taken |= spans
        wrong += errors
    named, errors = named_places(text, places)
    for match in re.finditer(NUMBER, text):
        if match.span() not in taken and not any(inside(match, name) for name in named):
            a, b = match.span()
            wrong.append(f"nothing accounts for {match[0]}: {text[max(a - 60, 0) : b + 40]!r}")
    return wrong + errors


def compared(said, text):
    """Places of the numbers of the words, and what is wrong with them."""
    spans, wrong = set(), []
    if said.words.count("{}") != len(said.values):
        wrong.append(f"{said.words!r} has {len(said.values)} values")
    found = list(said.pattern.finditer(text))
    for match in found:
        spans |= numbers_in(text, match)
        for token, own in zip(match.groups(), said.values, strict=False):
            if not shows(token, own):
                wrong.append(f"{match[0]!r}: {token} is {own}")
    if not found:
        wrong.append(f"not on the page, or not with numbers: {said.words!r}")
    return spans, wrong


def named_places(text, places):
    """Matches of names, settings and places, and the places that no paper has."""
    known = {name for _, name in places}
    named = [*NAMES.finditer(text), *(m for m in SETTING.finditer(text) if is_setting(m))]
    named += [match for match in BARE.finditer(text) if match[0] in known]
    wrong = []
    for match in REFERENCE.finditer(text):
        strange = references(match[0]) - places
        if strange:
            wrong.append(f"{match[0]!r}: the paper has no {strange}")
        else:
            named.append(match)
    return named, wrong


def claimed(text, says):
    """Places of the numbers that the sentences account for."""
    found = set()
    for said in says:
        for match in said.pattern.finditer(text):
            found |= numbers_in(text, match)
    return found


def numbers_in(text, outer):
    return {m.span() for m in re.finditer(NUMBER, text) if inside(m, outer)}


def inside(match, outer):
    return outer.start() <= match.start() and match.end() <= outer.end()


def is_setting(match):
    name = match[0].partition(" ")[0]
    numbers = [value(token) for token in match.groups() if token]
    return set(numbers) <= set(CHOICES.get(name, range(42, 47)))


def references(text):
    """(kind, number) of each place that a text names.

    >>> sorted(references("Theorems 25, 44 and 34(b′), Fig. N.1"))
    [('Fig.', 'N.1'), ('Theorem', '25'), ('Theorem', '34'), ('Theorem', '44')]
    """
    found = set()
    for kind, names in REFERENCE.findall(text):
        for name in re.findall(ID, names):
            found.add((PLURALS.get(kind, kind), re.sub(r"\(.*", "", name)))
    return found


@cache
def places():
    """The places that texts, statements, numbers and clauses of the papers have."""
    found = {("Experiment", name) for name in ["1", "1b", "2", "3", "3b", "4", "5", "6"]}
    reference = ROOT / "experiments" / "reference"
    files = [path for path in reference.glob("*/*.csv") if path.parent.name != "unrounded"]
    for file in [*files, PUBLISHED / "paper_audit" / "claims.csv"]:
        content = pd.read_csv(file, dtype=str)
        for column in {"place", "where", "source"} & set(content):
            for text in content[column].dropna().unique():
                found |= references(text)
    # Theorem 83.1 is of Theorem 83, Section V-B of Section V, Lemma G.2 of Section G
    found |= {(kind, part) for kind, name in found for part in parents(name)}
    return found | {("Section", name) for _, name in found if name.isalpha()}


def parents(name):
    """The numbers that contain a number.

    >>> parents("B.17.1")
    ['B.17', 'B']
    """
    pieces = re.split(r"([.-])", name)
    return ["".join(pieces[:k]) for k in range(len(pieces) - 2, 0, -2)]


def page(path):
    """The text of a page without code, targets of links and numbers of items, in one line."""
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    return " ".join(ENUMERATION.sub(r"\1", LINK.sub("]", text)).split())


class Tables(Mapping):
    """Merged tables of an experiment, read when asked for."""

    def __init__(self, experiment):
        self.experiment = experiment

    def __getitem__(self, name):
        return table(self.experiment, name)

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 1


def summary_of(experiment, source):
    """A summary, with its numbers, from its source."""
    claims, scores = verdicts(experiment, "claims"), verdicts(experiment)
    return summary(source, claims, scores, Tables(experiment))
