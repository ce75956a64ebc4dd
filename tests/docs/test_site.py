"""The documentation: its front page, header, search, and a page for each published report."""

import re
import subprocess
import sys

import pytest

from tests import DOCS

PAGES = ("api.html", "errata/dag.html", "results/exp1_resonance.html")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "myst_nb", "numpydoc"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra: docs)")
    folder = tmp_path_factory.mktemp("docs") / "html"
    words = ["-q", "-W", "-b", "html", str(DOCS), str(folder), "-D", "nb_execution_mode=off"]
    subprocess.run([sys.executable, "-m", "sphinx", *words], cwd=DOCS.parent, check=True)
    return folder


def links(page):
    """(label, file) of the links of the header; Sphinx writes "#" for the page itself."""
    header = page.read_text(encoding="utf-8").partition('<header class="top">')[2]
    found = re.findall(r'<li><a href="([^"]+)"[^>]*>([^<]+)</a>', header.partition("</header>")[0])
    files = [(label, address.partition("#")[0] or page.name) for address, label in found]
    return [(label, (page.parent / file).resolve()) for label, file in files]


def test_the_front_page_has_the_results_and_the_figure_of_readme(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    (figure,) = re.findall(r'<img[^>]+src="(_images/[^"]+)"', page)
    assert (site / figure).is_file()
    assert "Main results" in page and "authors’ configuration" in page
    assert page.index("Main results") < page.index("Begin here")
    assert 'href="reproduction/ws_bound.html"' in page and "Quick start" not in page


def test_every_page_has_the_same_header_and_its_links_lead_to_pages(site):
    expected = links(site / PAGES[0])
    assert [label for label, _ in expected][:2] == ["Reports", "User guide"]
    for page in PAGES:
        assert links(site / page) == expected, page
    assert all(target.is_file() for _, target in expected)


def test_pages_share_one_style_sheet_and_one_script_and_load_nothing_from_outside(site):
    for page in PAGES:
        text = (site / page).read_text(encoding="utf-8")
        assert "_static/site.css" in text and "_static/site.js" in text
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', text), page


def test_the_search_page_is_that_of_sphinx(site):
    page = (site / "search.html").read_text(encoding="utf-8")
    for script in ("documentation_options.js", "searchtools.js", "language_data.js"):
        assert f"_static/{script}" in page and (site / "_static" / script).is_file()
    assert 'src="searchindex.js"' in page and 'id="search-results"' in page
    assert 'data-content_root="./"' in page  # results are links relative to it
    assert "LayerOperator" in (site / "searchindex.js").read_text()


def test_the_search_finds_the_published_reports_with_their_figures(site):
    index = (site / "searchindex.js").read_text()
    for folder in (DOCS.parent / "outputs" / "published").glob("*/report.md"):
        name = folder.parent.name
        assert f"results/{name}" in index
        assert (site / "results" / f"{name}.html").is_file()
    page = (site / "results" / "exp1_resonance.html").read_text(encoding="utf-8")
    assert "Statements of the paper" in page and '<img alt="' in page
