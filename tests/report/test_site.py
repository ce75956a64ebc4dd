"""The site: anchors, verdicts and evidence in the pages; with a browser, that they work, are quick and accessible."""

import json
import os
import re
import shutil
import time
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from runner.report.documents import write_documents
from runner.report.export import export_site
from runner.report.formulas import mathml
from runner.report.manifest import checksums
from runner.report.page import Page
from runner.report.site import (
    Place,
    build_experiment,
    build_start,
    island,
    markdown,
    place_index,
    start_rows,
)

FLAGS = (
    "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync window-size=1280,900"
)
FILES = ("scorecard.csv", "claims.csv", "stats.csv", "report.md", "figures/gap.png")
KEYS = ("metric", "activation", "checkpoint", "distance")


def written(path: Path, rows: list[dict[str, object]]) -> None:
    pd.DataFrame(rows).to_csv(path, index=False)


def report(root: Path, name: str = "exp3", rows: int = 12) -> Path:
    """A report as `runner.report.write` leaves it, with made-up numbers."""
    folder = root / name
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "gap.png").write_bytes(bytes.fromhex("89504e470d0a1a0a"))
    scores = []
    for i in range(rows):
        keys = dict(zip(KEYS, ("gap", ("relu", "silu")[i % 2], "final", i // 2), strict=True))
        verdict = ("reproduced", "not reproduced", "inconclusive")[i % 3]
        scores.append(
            {
                **keys,
                "paper_mean": 1.0,
                "paper_std": 0.1,
                "margin": 0.25,
                "measured_mean": 1.0 + i / 100,
                "n": 5,
            }
            | {
                "measured_std": 0.1,
                "difference": i / 100,
                "low": i / 100 - 0.1,
                "high": i / 100 + 0.1,
                "ratio": 1.0,
            }
            | {
                "verdict": verdict,
                "seeds_needed": "nan",
                "reason": "<b>why</b>",
                "source": "DAG paper, Table 5",
            }
            | {"values": json.dumps([[42, 1 + i / 100], [43, 1 + i / 100]])}
        )
    written(folder / "scorecard.csv", scores)
    claim = {
        "name": "falls",
        "statement": "R falls with d",
        "where": "Section 5",
        "verdict": "confirmed",
    }
    written(folder / "claims.csv", [claim | {"statistic": 0.5, "threshold": "< 1"}])
    written(folder / "stats.csv", [{"name": "t", "p": 0.0625, "empty": ""}])
    (folder / "report.md").write_text("# Gap\n\nThe *gap* holds.\n\n## Statements\n\n- one\n")
    manifest = {
        "experiment": name,
        "title": "Gap",
        "paper": "DAG",
        "seeds": [42, 43],
        "cells": [
            {
                "id": f"{k}",
                "params": {"activation": a},
                "seed": 42,
                "git_commit": "abc",
                "finished": "2026",
            }
            for k, a in enumerate(("relu", "silu"))
        ],
        "captions": {"gap": "Gap against distance, mean ± std over seeds. Seeds 42, 43 (n = 2)."},
        "alts": {"gap": "3 printed numbers: all reproduced."},
        "files": checksums(folder, FILES),
        "missing": [],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def built(root: Path, **about) -> Path:
    folder = report(root, **about)
    page = Page.read(folder)
    path = build_experiment(page, ["Made with other settings."])
    build_start(root, {"exp6": "no GPU at hand"}, [{"paper": "DAG", "class": "A"}])
    return path


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
    assert (tmp_path / "pages.js").read_text() == 'window.hessPages=["exp3"];\n'
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


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, where it and its driver are installed."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed (extra: browser)"
    )
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS.split():
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def rows_of(browser) -> int:
    return browser.execute_script(
        "return document.querySelectorAll('#table tbody tr:not(.detail)').length"
    )


def typed(browser, text: str) -> float:
    """Milliseconds that one change of the search field takes."""
    return browser.execute_script(
        "const f = document.querySelector('[name=q]'), t = performance.now(); f.value = arguments[0];"
        "f.dispatchEvent(new Event('input', {bubbles: true})); document.body.offsetHeight;"
        "return performance.now() - t;",
        text,
    )


def test_rows_filter_sort_open_and_keep_their_state_in_the_address(browser, tmp_path):
    url = built(tmp_path).as_uri()
    browser.get(url)
    assert rows_of(browser) == 13
    typed(browser, "silu")
    assert rows_of(browser) == 6 and browser.current_url.endswith("#rows?q=silu")
    browser.get("about:blank")
    browser.get(url + "#rows?verdict=reproduced&sort=-ours")
    assert rows_of(browser) == 4
    first = "return document.querySelector('#table tbody td:nth-child(4)').textContent"
    assert browser.execute_script(first).startswith("1.09")
    browser.get("about:blank")
    browser.get(url + "?q=Table+5")
    answer = browser.execute_script("return document.querySelector('#filter output').textContent")
    assert answer.startswith("Table 5 ") and "judged rows agree" in answer
    browser.get("about:blank")
    browser.get(url + "#dag.T5.silu.final.3.gap")
    detail = browser.execute_script("return document.querySelector('tr.detail').textContent")
    for text in ("reproduce", "activation=silu", "Circles: our seeds", "cells1"):
        assert text in detail
    browser.execute_script("document.getElementById('load-stats').click()")
    deadline = time.monotonic() + 10
    while not browser.execute_script("return document.querySelector('#stats table') !== null"):
        assert time.monotonic() < deadline
    assert browser.get_log("browser") == []


def test_two_thousand_rows_answer_a_keystroke_at_once(browser, tmp_path):
    browser.get(built(tmp_path, rows=2000).as_uri())
    typed(browser, "silu")
    assert rows_of(browser) == 100  # as many as are shown at first


@pytest.mark.parametrize("page", ["index.html", "exp3/index.html"])
def test_pages_fit_and_are_accessible(browser, tmp_path, page):
    built(tmp_path)
    browser.get((tmp_path / page).as_uri())
    width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for size in ((390, 844), (1280, 900)):
        browser.set_window_size(*size)
        assert browser.execute_script(width) <= 0
    assert [e for e in browser.get_log("browser") if "gap.png" not in e["message"]] == []
    axe_selenium = pytest.importorskip("axe_selenium_python")
    axe = axe_selenium.Axe(browser)
    axe.inject()
    found = axe.run()["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


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


def test_a_site_is_one_folder_and_one_zip_of_whole_reports(tmp_path):
    folders = [report(tmp_path / "outputs", name) for name in ("exp3", "exp4")]
    (folders[1] / "claims.csv").write_text("changed")
    assert export_site(folders, tmp_path / "site") == ["exp4"]
    with zipfile.ZipFile(tmp_path / "site.zip") as archive:
        names = set(archive.namelist())
    assert {
        "site/index.html",
        "site/rows.js",
        "site/exp3/index.html",
        "site/exp3/figures/gap.png",
    } <= names
    assert not any("exp4" in name for name in names)
    before = (tmp_path / "site.zip").read_bytes()
    export_site(folders, tmp_path / "site")
    assert (tmp_path / "site.zip").read_bytes() == before
    html = (tmp_path / "site" / "exp3" / "index.html").read_text()
    assert "gap.pdf" not in html and "figures=pdf" in html
    export_site(
        folders,
        tmp_path / "site",
        lambda page, place: (place / "figures" / "gap.pdf").write_bytes(b"%PDF"),
    )
    assert (
        '<a href="figures/gap.pdf" download>PDF</a>'
        in (tmp_path / "site" / "exp3" / "index.html").read_text()
    )


def test_rows_and_places_of_the_start_page_lead_to_the_pages(tmp_path):
    page = Page.read(report(tmp_path))
    rows = start_rows([page])
    assert rows[0] == [
        "exp3",
        "dag.T5.relu.final.0.gap",
        "DAG",
        page.scores[0]["label"],
        *rows[0][4:],
    ]
    assert rows[0][4:] == ["DAG paper, Table 5", "reproduced", 1.0, 1.0] and len(rows) == 13
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
    manifest["captions"]["gap"] = "Fig. 5: gap against distance."
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
    assert mathml("R(d)").replace("</", "<\\/") in html  # of the statement, for the script


def test_reports_and_errata_of_the_documentation_are_pages_whose_links_lead_to_pages(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "outputs" / "published"))
    docs, site = tmp_path / "docs", tmp_path / "site"
    for name, text in {
        "errata.md": "# Errata\n\n[DAG](errata/dag.md), [audit](../experiments/README.md)\n",
        "errata/dag.md": "# DAG\n\n<details><summary>More</summary>\n\nlog λ_sup of `a_b`, $x$\n\n</details>\n",
        "reproduction/README.md": "# All\n\n5<!--n()--> [of](../errata.md) ![a](../../outputs/published/e/f.png)\n",
        "../outputs/published/not_run.md": "- `e`: no data\n",
    }.items():
        path = Path(os.path.normpath(docs / name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_documents(site, docs)
    written_pages = ("errata.html", "errata/dag.html", "reproduction/index.html")
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} == set(
        written_pages
    )
    top, dag, all_papers = ((site / page).read_text() for page in written_pages)
    assert '<a href="errata/dag.html">DAG</a>, audit' in top and "<title>Errata" in top
    assert f"<details><summary>More</summary>\n<p>log {mathml('λ_sup')} of <code>a_b</code>" in dag
    assert '5 <a href="../errata.html">of</a> <img src="../e/f.png"' in all_papers


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
