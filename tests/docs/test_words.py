"""Texts use the words of the field: words that docs/concepts.md replaces occur nowhere, and pages
keep their length."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

from tests import ROOT

REPLACED = {
    r"h[eo]ld against": "criterion:, or compared with",
    r"heirs?": "also affects",
    r"slips?": "minor error",
    r"trifles?": "minor error",
    r"mute": "inconclusive",
    r"undecided": "inconclusive",
    r"no power": "inconclusive",
    r"foret(?:old|ells?|elling)": "predicted",
    r"but for": "except",
    r"beside": "next to, or compared with",
    r"a hair": "tolerance, or uncertainty",
    r"narrowly": "state the uncertainty",
    r"votes?|voices?": "secondary result, or variant",
    r"defence": "authors' view",
    r"chang\w+ sides": "kink",
    r"in short": "summary",
    r"left (?:alone|open)": "limitations, or unchanged",
    r"to the letter": "as published",
    r"statements? of ours": "extension (not in the paper)",
    r"somebody": "say who",
    r"anew|afresh": "again",
}
"""Pattern -> what to write instead."""
WORDS = re.compile(rf"(?<![.`])\b(?:{'|'.join(REPLACED)})\b(?!:)", re.I)
"""Not as the name of an argument (`name:`) or attribute (`.name`)."""
NAMES = ("slip", "undecided", "no power", "beside")
"""Whole strings that are names: of verdicts in stored tables, of a key of manifests."""
TEXTS = ("*.py", "*.md", "*.yaml", "*.toml", "*.html", "*.js", "Makefile")
OUTSIDE = (
    *("outputs/", "tests/", "experiments/reference/"),
    *("docs/errata", "docs/archive/", "docs/benchmarks"),
)
"""Results, tests, quotations from the papers, and pages that a program writes from checked text."""


def files():
    listed = subprocess.check_output(["git", "ls-files", *TEXTS], cwd=ROOT, text=True)
    return [ROOT / file for file in listed.splitlines() if not file.startswith(OUTSIDE)]


def texts(path):
    """(line, text) of what a person reads: of Python its strings and comments, of other files every
    line."""
    content = path.read_text(encoding="utf-8")
    joined = re.sub(r'"\s*f?"', "", content)  # strings, and below lines too
    if not WORDS.search(" ".join(joined.split())):
        return []
    if path.suffix != ".py":
        return list(enumerate(content.splitlines(), start=1))
    found = []
    for node in ast.walk(ast.parse(content)):
        match node:
            case ast.Constant(value=str(text)) if text not in NAMES:
                found.append((node.lineno, " ".join(text.split())))
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            found.append((token.start[0], token.string))
    return found


def test_replaced_words_occur_nowhere():
    found = []
    for path in filter(Path.exists, files()):
        for line, text in texts(path):
            found += [f"{path}:{line}: {match[0]}" for match in WORDS.finditer(text)]
    assert not found, "\n".join([f"{len(found)} places; see REPLACED for other words", *found])


FOLDS = re.compile(r"<details>.*?</details>", re.S)
NOTES = re.compile(r"^## Notes\n.*?(?=^## |\Z)", re.S | re.M)
SUMMARIES = {
    p.stem: p for p in sorted((ROOT / "experiments").rglob("*.md")) if p.name != "README.md"
}
LENGTHS = {
    "README.md": 900,
    "docs/reproduction/*.md": 1000,
    "docs/errata*.md": 1500,
    "docs/errata/*.md": 1500,
    "outputs/published/*/report.md": 600,
}
"""Pages -> most words; of errata without what is folded, of reports of experiments without their
tables."""


def words(path):
    text = FOLDS.sub("", path.read_text(encoding="utf-8"))
    if path.name == "report.md":
        if path.parent.name in SUMMARIES:  # made before its summary was written
            text = NOTES.sub("", text)
        text = re.sub(r"^\|.*$", "", text, flags=re.M)
    return len(re.findall(r"\S*\w\S*", text))  # the bars of tables are no words


@pytest.mark.parametrize("pattern", LENGTHS)
def test_pages_keep_their_length(pattern, published):
    lengths = {path: words(path) for path in ROOT.glob(pattern)}
    assert lengths
    assert not {path: n for path, n in lengths.items() if n > LENGTHS[pattern]}
