"""Pages of docs/: links lead somewhere, every page is in the site, the API page names every public
name."""

import ast
import doctest
import re

import pandas as pd
import pytest

import runner.curvature
from docs import published
from docs.render import FIRST, LAST, pages
from tests import DOCS
from tests.sources import files, nodes

MADE = {"_build", "generated", "results"}
PAGES = sorted(path for path in DOCS.rglob("*.md") if not MADE & set(path.relative_to(DOCS).parts))
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.S)
INCLUDE = re.compile(r"```\{include\} (\S+)\n(.*?)```", re.S)


@pytest.mark.parametrize("path", [*PAGES, *DOCS.parent.glob("*.md")], ids=lambda path: path.name)
def test_links_and_figures_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not link.startswith(("http:", "https:")):
            assert (path.parent / link).exists(), link
    assert "<<<<<<<" not in text and ">>>>>>>" not in text, "conflict markers"


def test_every_page_is_in_the_table_of_contents_once():
    entries = [
        (path.parent / line.strip()).relative_to(DOCS).as_posix()
        for path in PAGES
        for block in TOCTREE.findall(path.read_text(encoding="utf-8"))
        for line in block.splitlines()
        if line.strip() and not line.startswith((":", "results/"))  # pages of published reports
    ]
    notebooks = sorted(DOCS.glob("notebooks/*.ipynb"))
    names = [path.relative_to(DOCS).with_suffix("").as_posix() for path in (*PAGES, *notebooks)]
    assert sorted(entries) == sorted(set(names) - {"index"})


def test_the_markers_between_which_a_page_includes_a_file_are_in_that_file():
    marked = 0
    for path in PAGES:
        for file, options in INCLUDE.findall(path.read_text(encoding="utf-8")):
            included = (path.parent / file).read_text(encoding="utf-8")
            for marker in re.findall(r':(?:start-after|end-before): "(.*)"', options):
                assert marker in included, (path.name, marker)
                marked += 1
    assert marked == 2  # the front page, of README


def test_the_api_page_names_every_public_name():
    page = (DOCS / "api.md").read_text(encoding="utf-8").split("currentmodule:: ")[1:]
    listed = [
        (part.split()[0], name) for part in page for name in re.findall(r"^   (\w+)$", part, re.M)
    ]
    assert {("runner.curvature", name) for name in runner.curvature.__all__} <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.usefixtures("published")
def test_the_examples_of_the_api_page_run():
    text = "\n\n".join(
        re.findall(r"```python\n(>>> .*?)```", (DOCS / "api.md").read_text(encoding="utf-8"), re.S)
    )
    test = doctest.DocTestParser().get_doctest(text, {}, "api.md", "api.md", 0)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.tries > 20 and not runner.failures


def test_every_path_of_the_architecture_page_exists():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = {p for p in re.findall(r"`([a-z_./]+/[a-z_.]*)`", text) if p != "reference/"}
    folders = ("", "runner", "runner/curvature", "runner/report", "experiments")
    roots = [DOCS.parent / folder for folder in folders]

    def exists(path):
        return any((root / path).exists() or (root / f"{path}.py").exists() for root in roots)

    missing = [path for path in named if not exists(path)]
    assert len(named) > 30 and not missing


def definitions():
    """Functions, classes and methods of the code."""
    found = set()
    for path in files("runner", "experiments"):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            if isinstance(node, ast.ClassDef):
                inner = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
                found |= {f"{node.name}.{name}" for name in inner}
    return found


OTHERS = {"memory_budget", "shape", "dtype", "device", "exp3_gn_gap"}
"""Options, attributes and experiments that the two lists of the architecture page name."""


def test_the_names_of_a_product_and_of_a_number_are_defined():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    lists = text[text.index("## One product") : text.index("## Where to change what")]
    named = set(re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)`", lists))
    of_code = {name for name in named if not name.endswith((".md", ".html", ".json", ".csv"))}
    missing = of_code - OTHERS - definitions()
    assert not missing


REPORTS = sorted((DOCS.parent / "docs" / "reproduction").glob("*.md"))
QUESTIONS = "questions.md"
"""Without a template: it states no result."""


@pytest.mark.usefixtures("published")
def test_pages_agree_with_their_templates_and_the_published_results():
    made = pages()
    names = {"README.md", *(path.name for path in REPORTS)}
    assert {path.name for path in made} == names - {QUESTIONS}
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "edit docs/templates, run `make readme`"
        assert "<!--" not in text.replace(FIRST, "").replace(LAST, "")
        assert not re.search(r"\bnan\b", text)


def test_digits_are_counted_from_the_rows(monkeypatch):
    """Printed 0.04, 0.12 and 3, 1.2."""
    rows = [(0.04, 0.005), (0.12, 0.005), (3, 0.5), (1.2, 0.05)]
    scores = pd.DataFrame(rows, columns=["paper_mean", "resolution"])
    scores = scores.assign(verdict="exact match")
    monkeypatch.setattr(published, "csv_of", lambda name, table: scores)
    assert published.one_digit("x") == 2
    scores["verdict"] = "inconclusive"
    assert published.one_digit("x") == 0


def test_missing_seeds_are_counted_for_each_cell(monkeypatch):
    """Two widths, two metrics each: of the second width two of five seeds are there."""
    keys = {"metric": ["R", "C"] * 2, "d_u": [4, 4, 8, 8], "checkpoint": "final"}
    scores = pd.DataFrame(keys).assign(paper_mean=1.0, n_seeds=5, n=[5, 5, 2, 2])
    scores["verdict"] = ["reproduced", "inconclusive", "inconclusive", "inconclusive"]
    monkeypatch.setattr(published, "csv_of", lambda name, table: scores)
    assert published.missing_cells("x", checkpoint="final") == (3, 10, 2)


def test_a_number_that_is_tested_in_two_ways_is_counted_once(monkeypatch):
    """Four tests of three numbers: 1.5 as described and otherwise, 1.5 elsewhere, 2; one is not
    tested."""
    described, configured = published.WAYS[:2]
    rows = [
        ("R", 256, 1.5, described, "Table 1", "not reproduced"),
        ("R", 512, 1.5, configured, "Table 1", "exact match"),
        ("R", 512, 1.5, configured, "Table 2", "reproduced"),
        ("C", 256, 2.0, described, "Table 1", "inconclusive"),
        ("C", 512, 2.0, configured, "Table 1", "not run"),
    ]
    columns = ["metric", "base_width", "paper_mean", "way", "source", "verdict"]
    scores = pd.DataFrame(rows, columns=columns)
    monkeypatch.setattr(published, "csv_of", lambda name, table: scores)
    assert published.printed("x") == 3
