"""The pages: anchors, verdicts and evidence of the rows, and the links of a whole output folder."""

import json
import re

from docs.results import build
from runner.report.output.page import Page
from runner.report.output.rendering import markdown
from runner.report.output.start import write_overview
from runner.report.output.write import write_page
from tests.errors import refusal
from tests.report.made_up import built, report


def test_every_row_has_an_anchor_of_its_own_that_lasts(tmp_path):
    page = Page.read(report(tmp_path))
    ids = [row.id for row in page.rows]
    assert ids[0] == "dag.T5.relu.final.0.gap" and ids[-1] == "dag.exp3.falls"
    assert len(set(ids)) == len(ids)
    assert page.rows[0].record["values"] == [[42, 1.0], [43, 1.0]]
    assert page.verdicts == {
        "reproduced": 4,
        "confirmed": 1,
        "not reproduced": 4,
        "inconclusive": 4,
    }


def test_the_page_holds_what_it_must_and_nothing_from_elsewhere(tmp_path):
    html = built(tmp_path).read_text()
    for text in (
        "Settings changed on the command line: depth=3.",
        "<em>gap</em>",
        "mean ± std over seeds. Seeds 42, 43 (n = 2)",
        "abc (2",
        "<dt>seeds</dt><dd>42: 1.01, 43: 1.01</dd>",
        "<td>0.0625</td>",
    ):
        assert text in html
    assert 'alt="3 printed numbers: all reproduced."' in html
    assert html.index('id="figures"') < html.index('id="rows"')
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", html)
    assert "<b>why</b>" not in html  # what comes from tables is text
    assert html.count("@misc{") == 1 and "eprint={2604.11639}" in html  # the paper of this page
    start = (tmp_path / "index.html").read_text()
    for text in ("exp3/index.html#rows?verdict=reproduced", "no GPU at hand", "holds: 4 of 4"):
        assert text in start


def test_pages_stay_small(tmp_path):
    assert built(tmp_path, rows=500).stat().st_size < 1_000_000
    assert (tmp_path / "index.html").stat().st_size < 300_000


def test_the_script_is_short_and_makes_no_verdict():
    from runner.report.output.rendering import TEMPLATES

    script = (TEMPLATES / "site.js").read_text()
    assert len(script.splitlines()) <= 150
    assert not re.search("hold|confirm|reproduc|agree", script)


def test_nothing_that_is_shown_can_run():
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


def test_every_link_of_the_pages_leads_somewhere(tmp_path):
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


def test_a_page_of_the_documentation_is_the_report_with_its_figures(tmp_path):
    folder = report(tmp_path / "outputs")
    (page,) = build([folder], tmp_path / "results")
    text = page.read_text()
    assert text.startswith((folder / "report.md").read_text())
    assert "![3 printed numbers: all reproduced.](../outputs/exp3/figures/gap.png)" in text
    with refusal("expected a report, found none", ValueError):
        build([tmp_path], tmp_path / "results")


def test_a_figure_that_was_drawn_as_pdf_has_a_button(tmp_path):
    folder = report(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["figures/gap.pdf"] = "0" * 64
    write_page(Page(folder, {**Page.read(folder).manifest, "files": manifest["files"]}))
    assert '<a href="figures/gap.pdf" download>PDF</a>' in (folder / "index.html").read_text()


def test_places_of_the_start_page_lead_to_rows_and_figures(tmp_path):
    folder = report(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["places"] = {"gap": "Table 5"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    html = write_overview(tmp_path).read_text()
    for link in ("exp3/index.html#rows?q=Table%205", "exp3/index.html#figure.gap"):
        assert f'href="{link}"' in html


def test_a_row_of_the_audit_is_about_the_paper_of_its_place(tmp_path):
    folder = report(tmp_path, "paper_audit")
    claim = 'name,statement,where,verdict\nbound,R(d) ≤ ρ^d,"DAG, Theorem 25, Eq. 9",refuted\n'
    (folder / "claims.csv").write_text(claim)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["claims.csv"]
    manifest |= {"paper": "all five", "sources": {"gap": "experiments/dag/x.py:7"}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    page = Page.read(folder)
    row = page.rows[-1]
    assert (row.paper, row.places) == ("DAG", ("Theorem 25",))
    write_page(page)
    html = (folder / "index.html").read_text()
    assert "<code>experiments/dag/x.py:7</code>" in html and "R(d) ≤ ρ^d" in html


def test_the_start_page_counts_verdicts_by_experiment_and_a_page_begins_with_its_finding(tmp_path):
    report(tmp_path, "exp3", rows=12)
    report(tmp_path, "exp4", rows=6)
    html = write_overview(tmp_path).read_text()
    whole = html[html.index('<h3><a href="exp4/') :].partition("</article>")[0]
    assert re.findall(r"<b>(\d+)</b> <span[^>]*>.</span> ([a-z ]+)<", whole) == [
        *(("2", "reproduced"), ("1", "confirmed")),
        *(("2", "not reproduced"), ("2", "inconclusive")),
    ]
    page = Page.read(tmp_path / "exp3")
    write_page(page)
    html = (page.folder / "index.html").read_text()
    order = ("The <em>gap</em> holds", '<ul class="tiles">', 'id="figures"', 'id="rows"')
    places = [html.index(text) for text in order]
    assert places == sorted(places)
