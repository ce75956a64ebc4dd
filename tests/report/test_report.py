"""Reports of synthetic experiments: complete, partial, and with every part of the experiment's code
failing."""

import json
import re
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from typing import ClassVar
from unittest.mock import Mock

import pandas as pd
import pytest

from runner import stats
from runner.contract import CLAIM_VERDICTS, Analysis, Claim, Experiment, redraws
from runner.report import figures
from runner.report.answers.findings import Failures, Material, Subject
from runner.report.answers.reference import Numbers
from runner.report.answers.scope import Departure, Scope
from runner.report.answers.tones import OF_NUMBERS
from runner.report.output.draw import caption_of
from runner.report.output.manifest import SUMS, warnings_of
from runner.report.output.page import Page
from runner.report.output.start import write_overview
from runner.report.output.write import Report, console_lines
from tests import contents


@dataclass(frozen=True, kw_only=True)
class Synthetic(Experiment):
    title: ClassVar[str] = "Ratio <of> bound & eigenvalue"
    paper: ClassVar[str] = "WS bound"
    reproduces: ClassVar[str] = "Fig. 7"

    answers: type[Analysis]
    broken: str = ""
    drop: str = ""
    drawing: bool = True

    def analysis(self, tables):
        if self.broken == "analysis":
            raise KeyError("lambda_sup")
        return self.answers(self, tables)


class Readings(Analysis):
    """Every answer of a report, each breakable."""

    experiment: Synthetic

    def _fail(self, part):
        if part in self.experiment.broken.split():
            raise KeyError("lambda_sup")

    @property
    def ratios(self):
        return self.tables["ratios"]["ratio"]

    def figures(self):
        self._fail("figures")
        if not self.experiment.drawing:
            return {}

        def late():
            self._fail("figure")
            figure, axes = figures.new_figure(width=1, height=1)
            axes[0, 0].plot(self.ratios)
            axes[0, 0].set_axis_off()
            if self.experiment.broken == "typeset":
                axes[0, 0].set_title(r"$\notacommand{$")
            return figure

        eager, axes = figures.new_figure(width=1, height=1)
        figures.histogram(axes[0, 0], self.ratios)
        drawn = {"fig07": redraws("Fig. 7", late), "fig06": redraws("Fig. 6", lambda: eager)}
        drawn.pop(self.experiment.drop, None)
        return drawn

    def claims(self):
        self._fail("claims")
        tight = "the bound is tight", "Fig. 2", "confirmed", 1.1, "< 2"
        return [
            Claim("tight", *tight, authors="confirmed"),
            Claim("f1", "low is better", "Fig. 7", "inconclusive", detail="n too small"),
            Claim(
                "wide",
                "it is tight of wide networks, too",
                "",
                "refuted",
                3.1,
                "< 2",
                extension=True,
            ),
        ]

    def statistics(self):
        self._fail("statistics")
        return [stats.wilcoxon(self.ratios, name="ratio", figure="7")]

    def measured(self):
        self._fail("measured")
        table = self.tables["ratios"].rename(columns={"ratio": "value"})
        return table[["seed", "value"]].assign(metric="ratio")

    def notes(self):
        self._fail("notes")
        return ["the ratio stays below <2>"]


TABLES = {
    "ratios": pd.DataFrame(
        {"width": 3, "seed": [42, 43, 44], "ratio": [1.1, 1.2, 0.1], "status": "ok"}
    ),
    "empty": pd.DataFrame({"seed": [], "x": []}),
}
MANIFEST = {
    "experiment": "demo",
    "title": Synthetic.title,
    "paper": "WS bound",
    "profile": "paper",
    "changed": "",
    "version": 1,
    "settings": {"samples": 50, "half": float("nan")},
    "settings_key": "0123456789abcdef",
    "seeds": [42, 43, 44],
    "cells": [{"id": name, "params": {}, "seed": 42} for name in "ab"],
    "failures": [],
    "fill_commands": [],
    "software": {"git_commit": "abc123"},
    "written": "2026-01-01T00:00:00Z",
}


def synthetic(answers=Readings, **settings):
    return Synthetic(answers=answers, **settings)


PLAIN = synthetic(drawing=False)


def report(directory, made=None, tables=TABLES, *, scope=None, **about):
    """The report of one set of tables, in the paper's scope unless another is given; about:
    reference, replication, and what the manifest says."""
    scope, subject = scope or Scope(paper="WS bound"), Subject(made or synthetic(), tables)
    further = {key: about.pop(key, None) for key in ("reference", "replication")}
    material = Material(scope=scope, shown=subject, judged=subject, **further)
    record = {**MANIFEST, "missing": [], "scope": scope.record(), **about}
    return Report(directory, record, material).write()


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def drawn(folder):
    """Names of the files of figures."""
    return {path.name for path in (folder / "figures").glob("*")} - {SUMS}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "demo"


class Checker(HTMLParser):
    """Fails on tags that do not match."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_html(path):
    checker = Checker()
    checker.feed(path.read_text())
    assert checker.open == []
    return path.read_text()


@pytest.fixture
def reference(tmp_path):
    path = tmp_path / "reference.csv"
    path.write_text(
        "metric,mean,std,n_seeds,margin,source,note\nratio,1.0,0.1,5,5,T 1,\nother,2.0,,5,,T 1,\n"
    )
    return Numbers(path)


def test_a_summary_stands_in_the_report_of_all_cells_and_not_in_that_of_a_part(
    tmp_path, monkeypatch
):
    path = tmp_path / "demo.md"
    path.write_text("The ratio is {{ mean('ratios', 'ratio') }}.")
    monkeypatch.setattr("runner.report.output.write.summary_path", lambda name, experiment: path)
    of_one_seed = Scope(paper="WS bound", lost=("4 of 5 seeds missing (43, 44, 45, 46)",))
    cases = (("all", [], None), ("part", ["cell c"], None), ("seed", [], of_one_seed))
    for folder, missing, scope in cases:
        out = tmp_path / folder / "demo"
        report(out, missing=missing, scope=scope)
        assert ("The ratio is 0.8." in (out / "report.md").read_text()) is (folder == "all")


def counted(verdicts, *of_each):
    """One of each of these verdicts, none of the others."""
    return {verdict: int(verdict in of_each) for verdict in verdicts}


def test_a_complete_report(out, tmp_path, reference):
    made = report(out, reference=reference)
    assert made["claims"] == counted(CLAIM_VERDICTS, "confirmed", "inconclusive", "refuted")
    assert made["extensions"] == {"refuted": 1}
    assert made["scorecard"] == counted(OF_NUMBERS, "reproduced", "not run")
    assert not made["report_failures"]
    names = "report.md index.html manifest.json figures ratios.csv empty.csv"
    names += f" stats.csv claims.csv scorecard.csv {SUMS}"
    assert {p.name for p in out.iterdir()} == set(names.split())
    assert drawn(out) == {"fig06.png", "fig07.png"}
    assert "1.1000000000000001" in (out / "ratios.csv").read_text()
    saved = manifest(out)
    assert saved["settings"]["half"] is None
    assert all((out / item).exists() for item in saved["files"])
    tests = pd.read_csv(out / "stats.csv")
    # three seeds have no power: not corrected
    assert tests.p_min[0] == 0.25 and tests.p_holm.isna().all()
    html = check_html(out / "index.html")
    for text in (
        "Ratio &lt;of&gt; bound &amp; eigenvalue",
        "the ratio stays below &lt;2&gt;",
        "</span> confirmed",
        "</span> inconclusive",
        "Extensions (not in the paper): 1 refuted.",
        '<a href="#rows?verdict=confirmed"',
        "<h3>Extensions (not in the paper)</h3>",
    ):
        assert text in html
    assert "Incomplete" not in html
    found = (out / "report.md").read_text()
    assert "1 reproduced, 1 not run" in found
    assert "| the bound is tight | Fig. 2 | 1.1 | < 2 | confirmed |" in found
    assert console_lines(out, made) == [
        "  statements: 1 confirmed, 1 inconclusive",
        "  extensions: 1 refuted",
        "  published numbers: 1 reproduced, 1 not run",
        f"  2 figures, 2 tables, page {out / 'index.html'}",
    ]
    page = Page.read(out)  # extensions are counted apart
    assert page.verdicts["confirmed"] == 1 and "refuted" not in page.verdicts
    assert page.verdicts_of_extensions == saved["extensions"] == {"refuted": 1}
    parts = ("## Statements of the paper", "## Extensions", "| it is tight of wide networks, too |")
    places = [found.index(part) for part in parts]
    assert places == sorted(places)
    again = tmp_path / "again" / out.name
    report(again, reference=reference)
    assert contents(out) == contents(again)  # the same cells, the same files


def test_a_figure_without_panels_is_left_out(out):
    class Nothing(Readings):
        def figures(self):
            return {**super().figures(), "fig08": lambda: figures.new_figure(1, 0)[0]}

    made = report(out, synthetic(Nothing), missing=["seed=45 width=3"])
    assert not made["report_failures"] and set(made["captions"]) == {"fig06", "fig07"}
    assert "  not drawn, nothing of them is measured: fig08" in console_lines(out, made)
    assert "nothing of them is measured: fig08" in check_html(out / "index.html")
    record = manifest(out)
    assert record["left_out"] == ["fig08"] and set(record["captions"]) == {"fig06", "fig07"}
    (failure,) = report(out, synthetic(Nothing))["report_failures"]
    assert "expected at least one panel" in failure["error"]
    with pytest.raises(figures.NothingToDraw, match="at least one panel"):
        figures.new_figure(0, 2)


@pytest.mark.parametrize(
    ("broken", "stage", "lost"),
    [
        ("analysis", "analysis", {"fig06.png", "fig07.png"}),
        ("figures", "figures", {"fig06.png", "fig07.png"}),
        ("figure", "figure fig07", {"fig07.png"}),
        ("typeset", "figure fig07", {"fig07.png"}),
        ("claims statistics measured notes", "claims statistics values notes", set()),
    ],
)
def test_a_part_that_raises_loses_nothing_else(out, reference, broken, stage, lost):
    made = report(out, synthetic(broken=broken), reference=reference)
    stages, failures = [stage] if lost else stage.split(), Failures(made["report_failures"]).lines()
    assert sorted(failure.partition(":")[0] for failure in failures) == sorted(stages)
    lines = "\n".join(console_lines(out, made))
    assert all("failed: " + stage in lines for stage in stages)
    assert {"fig06.png", "fig07.png"} - drawn(out) == lost
    for name in ("ratios", "stats", "claims", "scorecard"):
        assert (out / f"{name}.csv").read_text().count("\n") >= 1
    kinds = {stage.split()[0] for stage in stages}
    assert {failure["stage"] for failure in manifest(out)["report_failures"]} == kinds
    html = check_html(out / "index.html")
    assert all(f"Could not be made: {kind}" in html for kind in kinds)


def test_a_partial_store_says_what_is_missing(out, tmp_path):
    missing = [f"seed=45 width={w}" for w in range(40)]
    left = {"missing": missing, "fill_commands": ["hess-run -m experiment=demo seed=45,46"]}
    made = report(out, PLAIN, **left)
    assert len(made["missing"]) == 40
    html = check_html(out / "index.html")
    assert ">Incomplete</h2>" in html and "40 cells are not measured" in html
    assert "hess-run -m experiment=demo seed=45,46" in html
    assert manifest(out)["missing"] == missing
    empty = report(tmp_path / "none", PLAIN, {}, **left)
    assert empty["report_failures"] == []  # nothing is asked
    assert (tmp_path / "none" / "index.html").exists()


def test_surrogate_data_and_short_profiles_are_said_loudly(out, reference):
    quick = Scope(paper="WS bound", profile="quick", stand_in="cifar10")
    made = report(out, reference=reference, scope=quick)
    assert made["scorecard"]["not comparable"] == 1 and made["scorecard"]["reproduced"] == 0
    assert {v: n for v, n in made["claims"].items() if n} == {"not comparable": 3}
    html = (out / "index.html").read_text()
    assert html.count('class="warning"') == 1
    assert "profile=quick, random-field stand-in data instead of cifar10" in html
    text = (out / "report.md").read_text()
    assert text.split("\n\n")[1].startswith(
        "Nothing on the paper is judged: not the paper's protocol"
    )
    assert not re.search("confirmed|refuted|reproduced|seeds would", text)
    assert "confirmed" not in (out / "claims.csv").read_text()
    assert b"stand-in data" in (out / "figures" / "fig06.png").read_bytes()
    assert "As Fig. 6, quick run; nothing on the paper is judged" in made["captions"]["fig06"]
    (line,) = [line for line in console_lines(out, made) if "judged" in line]
    assert line == f"  {quick.not_judged}"


def test_in_other_settings_only_what_does_not_depend_on_them_is_judged(out, reference):
    class Theorem(Readings):
        def claims(self):
            theorem = Claim("t", "always", "Theorem 1", "confirmed", 0.5, "<= 1", independent=True)
            return [*super().claims(), theorem]

    other = Scope(paper="WS bound", departures=(Departure("epochs", "1", "20"),))
    made = report(out, synthetic(Theorem), reference=reference, scope=other)
    rows = pd.read_csv(out / "claims.csv")
    assert rows["verdict"].to_list() == [*["not comparable"] * 3, "confirmed"]
    assert "epochs=1 instead of 20" in rows["detail"][0] and rows["statistic"][0] == 1.1
    text = (out / "report.md").read_text()
    assert "1 statements that do not depend on the protocol: 1 confirmed." in text
    assert "the bound is tight" not in text
    lines = console_lines(out, made)
    assert "  statements that do not depend on the protocol: 1 confirmed" in lines
    assert "epochs=1 instead of 20" in pd.read_csv(out / "stats.csv")["note"][0]
    assert Scope.of(made) == other


def test_a_second_verdict_has_a_column_and_is_not_counted(tmp_path, reference):
    scope = Scope(paper="WS bound", replication=(1, 2, 3))
    ratios = {"seed": [1, 2, 3, 4, 5], "ratio": [9.0, 9.1, 9.2, 9.0, 9.1]}
    further = Subject(synthetic(), {"ratios": pd.DataFrame(ratios)})
    made = report(tmp_path, reference=reference, scope=scope, replication=further)
    row = pd.read_csv(tmp_path / "scorecard.csv").iloc[0]
    assert row["verdict"] != "not reproduced" and row["replication"] == "not reproduced"
    assert made["scorecard"]["not reproduced"] == 0
    assert "replication, 3 seeds |" in (tmp_path / "report.md").read_text()


def test_published_values_that_nothing_measures_stay_on_the_scorecard(out, reference):
    made = report(out, synthetic(Analysis), reference=reference)
    assert made["scorecard"]["not run"] == 2
    assert not made["report_failures"]


def test_stale_figures_go_and_nothing_else(out):
    report(out)
    (out / "figures" / "mine.png").write_text("a user's own file")
    saved = manifest(out)
    saved["files"] |= {"old.csv": ""}
    (out / "manifest.json").write_text(json.dumps(saved))
    (out / "old.csv").write_text("keep")
    report(out, synthetic(drop="fig06"))
    assert drawn(out) == {"fig07.png", "mine.png"} and (out / "old.csv").exists()
    (out / "manifest.json").write_text("{torn")
    report(out, PLAIN)


def test_a_disk_error_is_not_taken_for_a_figures_fault(out, monkeypatch):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("runner.report.output.draw.write", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space"):
        report(out)
    assert (out / "ratios.csv").exists()


def test_a_bad_reference_file_is_named(out, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("metric,value\n")
    made = report(out, PLAIN, reference=Numbers(path))
    failures = Failures(made["report_failures"]).lines()
    assert failures[0].startswith(f"scorecard: RowError: {path}: expected a column 'mean'")


def test_the_overview_lists_every_report_and_totals_main_ones(tmp_path, reference):
    out, a, b = tmp_path / "out", {"experiment": "a"}, {"experiment": "b", "missing": ["x"]}
    report(out / "a", PLAIN, reference=reference, **a)
    report(out / "b", synthetic(broken="claims", drawing=False), reference=reference, **b)
    report(out / "a/quick", PLAIN, reference=reference, profile="quick", surrogate=True, **a)
    (out / "c").mkdir()
    (out / "c/manifest.json").write_text("[1]")
    html = check_html(write_overview(out))
    assert 'href="a/index.html"' in html and 'href="a/quick/index.html"' in html
    assert "c/manifest.json cannot be read" in html
    assert html.count("</span> reproduced</a>") == 2 and html.count("</span> confirmed</a>") == 1


ASKED = ("__init__", "claims", "documents", "figures", "measured", "notes", "statistics")


def test_the_report_makes_one_analysis_and_asks_each_answer_once(out, reference):
    asked = []

    class Counting(Readings):
        def __init__(self, *about):
            asked.append("__init__")
            super().__init__(*about)

        def __getattribute__(self, name):
            if name in ASKED:
                asked.append(name)
            return super().__getattribute__(name)

    report(out, synthetic(Counting, drawing=False), reference=reference)
    assert tuple(sorted(asked)) == ASKED


def test_captions_are_those_of_the_functions_that_draw():
    def drawn():
        """Ratio against width.

        More for the programmer.
        """

    assert caption_of(drawn) == caption_of(partial(drawn)) == "Ratio against width."
    assert caption_of(partial(figures.histogram, None, [])).startswith("Histogram")
    assert caption_of(3) == ""


def test_cells_of_changed_trees_are_named_in_a_warning():
    cells = [{"git_commit": commit} for commit in ("abc", "def+changes", "abc+changes")]
    (changed,) = warnings_of({"cells": cells, "missing": []})
    assert changed == "2 cells were measured from a changed working tree"
    (incomplete,) = warnings_of({"cells": cells[:1], "missing": ["seed=1"]})
    assert incomplete == "incomplete: 1 cell is not measured (seed=1)"


def test_an_experiment_without_a_paper_has_no_paper_anywhere(out):
    class Own(Readings):
        def claims(self):
            return [Claim("tight", "the bound is tight", "Fig. 2", "confirmed", 1.1, "< 2")]

    @dataclass(frozen=True, kw_only=True)
    class Plain(Synthetic):
        pass

    own = Plain(answers=Own)
    assert own.paper == own.reproduces == "" and synthetic().paper == "WS bound"
    made = report(out, own, scope=Scope(), paper="")
    assert made["claims"]["confirmed"] == 1 and not made["places"] and not made["certificates"]
    assert console_lines(out, made)[0] == "  statements: 1 confirmed"
    text = (out / "report.md").read_text()
    assert "## Statements\n" in text and "paper" not in text
    assert Page.read(out).rows[-1].places == ()


def test_a_figure_is_headed_by_its_place_and_what_all_rows_of_it_say(out, monkeypatch):
    heads = []
    monkeypatch.setattr("runner.report.output.draw.head", lambda figure, text: heads.append(text))
    report(out)
    assert heads[0] == ("Fig. 7 of the WS bound paper, measured (is inconclusive: 1 judged row)")
    assert heads[1] == "Fig. 6 of the WS bound paper, measured"
