"""Configuration of the documentation site: `make docs` builds it into docs/_build/html.

Pages have the style sheet and the script of the pages of reports, and load nothing from outside:
formulas in LaTeX are MathML.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # Sphinx runs this file outside the package `docs`

from docs.results import build  # noqa: E402
from runner.store.archive import report_folders  # noqa: E402

project = "hess-run"
author = "The developers of hess-run"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = [
    "sphinx.ext.autosummary",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
]
TEMPLATES = "../runner/report/output/templates"
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "examples"]
html_theme = "basic"
html_title = f"hess-run {release}"
html_static_path = ["_static", f"{TEMPLATES}/site.css", f"{TEMPLATES}/site.js"]
html_context = {
    "sections": [
        ("Reports", "reports"),
        ("User guide", "user-guide"),
        ("Concepts", "concepts"),
        ("API", "api"),
        ("Contributing", "contributing"),
        ("Search", "search"),
    ]
}
html_math_renderer = "mathml"
html_show_search_summary = False  # it fetches pages, which browsers refuse for files on disk

toc_object_entries = False
autosummary_generate = True
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
default_role = "code"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_ipywidgets_js: dict[str, Any] = {}

PAGE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+outputs/published/(\w+)/report\.md\)")
"""A link to the report of an experiment: on the site it leads to its page."""
PAGES = {
    "outputs/published/not_run.md": "not-run.md",
    "experiments/paper_audit/README.md": "audit.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files of the repository that are pages of the site."""
ELSEWHERE = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, PAGES))})\)")
MARKUP = re.compile(r"(`[^`]*`)|([|]|[*](?! )|_(?!\w))")
"""Code, or a character that reStructuredText would read as markup; the formulas of docstrings are
plain text."""


def link_pages(app: Any, docname: str, source: list[str]) -> None:
    """Point links to files outside docs/ at the pages of the site that show them."""
    up = "../" * docname.count("/")
    text = PAGE.sub(rf"[\1]({up}results/\2.md)", source[0])
    source[0] = ELSEWHERE.sub(lambda match: f"]({up}{PAGES[match[1]]})", text)


def keep_formulas(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape norms and products in docstrings; examples stay as they are."""
    example = False
    for i, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example:
            lines[i] = MARKUP.sub(lambda match: match[1] or f"\\{match[2]}", line)


def visit_math(translator: Any, node: Any) -> None:
    """Write a formula as MathML; a long one scrolls."""
    from docutils import nodes

    display = "block" if isinstance(node, nodes.math_block) else "inline"
    formula = convert(node.astext(), display=display)
    translator.body.append(f'<span class="formula">{formula}</span>')
    raise nodes.SkipNode


def write_results(app: Any) -> None:
    """The pages of the published reports."""
    build(report_folders(ROOT / "outputs" / "published"))


def setup(app: Any) -> None:
    """Register the MathML renderer, the pages of reports, the links and the treatment of
    docstrings."""
    app.connect("builder-inited", write_results)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("source-read", link_pages)
    # before numpydoc writes markup of its own
    app.connect("autodoc-process-docstring", keep_formulas, priority=100)
