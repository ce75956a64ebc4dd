"""The site: anchors, verdicts and evidence in the pages, and the files of a whole site."""

import json
import re

from docs.results import build
from runner.report.manifest import checksums
from runner.report.page import Page
from runner.report.rendering import island, markdown
from runner.report.site import build_experiment
from runner.report.start import Place, build_start, place_index, points
from tests.errors import refusal
from tests.report.made_up import FILES, built, report, written


def test_every_row_has_an_anchor_of_its_own_that_lasts(tmp_path):
    page = Page.read(report(tmp_path))
    ids = [row["id"] for row in (*page.scores, *page.claims)]
    assert ids[0] == "dag.T5.relu.final.0.gap" and ids[-1] == "dag.exp3.falls"
    assert len(set(ids)) == len(ids)
    assert page.scores[0]["values"] == [[42, 1.0], [43, 1.0]]
    assert page.verdicts == {
        "reproduced": 4,
        "confirmed": 1,
        "not reproduced": 4,
        "inconclusive": 4,
    }


def test_the_page_holds_what_it_must_and_nothing_from_elsewhere(tmp_path):
    html = built(tmp_path).read_text()
    for text in (
        "Made with other settings",
        "<em>gap</em>",
        "mean ± std over seeds. Seeds 42, 43 (n = 2)",
        "abc (2",
    ):
        assert text in html
    assert 'alt="3 printed numbers: all reproduced."' in html
    assert html.index('id="figures"') < html.index('id="rows"')
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", html)
    assert "<b>why</b>" not in html  # what comes from tables is text
    assert (
        (tmp_path / "exp3" / "stats.js")
        .read_text()
        .startswith('window.hessStats={"columns":["name","p"]')
    )
    assert html.count("@misc{") == 1 and "eprint={2604.11639}" in html  # the paper of this page
    assert (tmp_path / "pages.js").read_text() == 'window.hessPages=[["DAG",["exp3"]]];\n'
    start = (tmp_path / "index.html").read_text()
    for text in ("exp3/index.html#rows?verdict=reproduced", "no GPU at hand", "class A 1"):
        assert text in start


def test_pages_stay_small(tmp_path):
    assert built(tmp_path, rows=500).stat().st_size < 400_000
    assert (tmp_path / "index.html").stat().st_size < 300_000


def test_nothing_that_is_shown_can_run():
    assert "</script>" not in island({"a": "</script><script>alert(1)</script>"})
    assert "<script>" not in markdown("<script>alert(1)</script>")
    for address in (
        "javascript:alert(1)",
        "JAVASCRIPT:alert(1)",
        "data:text/html;x",
        "vbscript:x",
        "file:///etc/passwd",
    ):
        assert "href" not in markdown(f"[a]({address})")
    assert 'href="figures/a.png"' in markdown("[a](figures/a.png)") and "href" in markdown(
        "[a](https://arxiv.org)"
    )


def test_every_link_of_the_site_leads_somewhere(tmp_path):
    built(tmp_path)
    for path in tmp_path.rglob("index.html"):
        html = path.read_text()
        ids = set(re.findall(r'\bid="([^"]+)"', html))
        for link in re.findall(r'(?:href|src)="([^"]+)"', html):
            target, _, fragment = link.partition("#")
            if target.startswith("data:") or "${" in link:
                continue
            assert not target or (path.parent / target).exists(), f"{path.name}: {link}"
            if not target and "?" not in fragment:
                assert fragment in ids, f"{path.name}: #{fragment}"


def test_pages_of_the_documentation_are_those_of_whole_reports(tmp_path):
    folders = [report(tmp_path / "outputs", name) for name in ("exp3", "exp4")]
    results = tmp_path / "results"
    build(folders, results)
    assert (results / "exp3" / "figures" / "gap.png").is_file()
    start = (results / "index.html").read_text()
    assert 'href="../reproduction/README.html"' in start and 'href="../user-guide.html"' in start
    html = (results / "exp3" / "index.html").read_text()
    assert 'href="../../user-guide.html"' in html and "gap.pdf" not in html
    (folders[1] / "claims.csv").write_text("changed")
    with refusal("exp4: expected a whole report, found changed files", ValueError):
        build(folders, tmp_path / "others")


def test_a_figure_that_was_drawn_as_pdf_has_a_button(tmp_path):
    folder = report(tmp_path)
    (folder / "figures" / "gap.pdf").write_bytes(b"%PDF")
    html = build_experiment(Page.read(folder), []).read_text()
    assert '<a href="figures/gap.pdf" download>PDF</a>' in html


def test_marks_and_places_of_the_start_page_lead_to_the_pages(tmp_path):
    page = Page.read(report(tmp_path))
    marks = points([page])
    assert len(marks) == len(page.scores) == 12
    about = {"page": "exp3", "paper": "DAG", "id": "dag.T5.relu.final.0.gap"}
    about |= {"what": page.scores[0]["label"], "place": "DAG paper, Table 5"}
    assert marks[0] == about | {"published": 1.0, "measured": 1.0, "verdict": "reproduced"}
    counts = {"good": 4, "bad": 4, "open": 4}
    assert place_index([page]) == {"DAG": {"Table 5": [Place("exp3", counts, "Table 5")]}}


def test_the_index_leads_to_the_figure_of_a_place_and_to_what_the_audit_says_of_theorems(tmp_path):
    folder = report(tmp_path, "paper_audit")
    claim = {
        "name": "bound",
        "statement": "R(d) ≤ ρ^d",
        "where": "DAG, Theorem 25, Eq. 9",
        "verdict": "refuted",
    }
    written(folder / "claims.csv", [claim | {"statistic": 0.5, "threshold": "< 1"}])
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["places"] = {"gap": "Fig. 5"}
    manifest |= {
        "paper": "all five",
        "files": checksums(folder, FILES),
        "sources": {"gap": "experiments/dag/x.py:7"},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    page = Page.read(folder)
    assert page.figures[0].place == "Fig. 5"
    at = place_index([page])["DAG"]["Theorem 25"]
    assert at == [Place("paper_audit", {"bad": 1}, "DAG Theorem 25")]
    html = build_experiment(page, []).read_text()
    assert "<code>experiments/dag/x.py:7</code>" in html and '"Fig. 5":"gap"' in html
    assert "R(d) ≤ ρ^d" in html  # of the statement, for the script


def test_the_start_page_counts_verdicts_by_paper_and_the_experiments_begin_with_figures(tmp_path):
    report(tmp_path, "exp3", rows=12)
    report(tmp_path, "exp4", rows=6)
    page = Page.read(tmp_path / "exp3")
    html = build_start(tmp_path, {}).read_text()
    whole = html[html.index('<h2 id="dag">') : html.index('<div class="cards">')]
    assert re.findall(r"<b>(\d+)</b> <span[^>]*>.</span> ([a-z ]+)<", whole) == [
        *(("6", "reproduced"), ("2", "confirmed")),
        *(("6", "not reproduced"), ("6", "inconclusive")),
    ]
    html = build_experiment(page, []).read_text()
    order = (
        "The <em>gap</em> holds",
        '<div class="bar"',
        '<ul class="tiles">',
        'id="figures"',
        'id="rows"',
        'id="findings"',
    )
    places = [html.index(text) for text in order]
    assert places == sorted(places)
