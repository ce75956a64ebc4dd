"""Reports that are up to date are left alone or copied; changed files, cells or code make them
again."""

import io
import json
import re
import shutil
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import ClassVar

import pytest

from runner.contract import Analysis, Claim, Experiment, SettingError, grid, report_only
from runner.report import figures, update
from runner.report.fingerprint import archive_of, code_files
from runner.report.output.manifest import SUMS, read_manifest, write
from runner.report.output.page import Page
from runner.run.checks import check_store
from runner.run.config.experiment import preview
from runner.run.execute import run
from runner.store.code import tree_of
from runner.store.job import Job
from tests import ROOT, contents
from tests.errors import refusal


@dataclass(frozen=True, kw_only=True)
class Demo(Experiment):
    paper: ClassVar[str] = "WS bound"
    k: list[int] = grid([1, 2])
    shift: float = 0.0
    tight: float = report_only(1.5)

    def measure(self, cell, ctx):
        return {"t": {"x": [self.shift + ctx.seed + cell.params["k"] / 10]}}

    def analysis(self, tables):
        return Readings(self, tables)


class Readings(Analysis):
    def claims(self):
        third = self.tables["t"]["x"].sum() / 3
        return [Claim("sum", "x is large", "Fig. 1", "confirmed", third, "> 0")]

    def figures(self):
        def line():
            figure, axes = figures.new_figure(width=1, height=1)
            axes[0, 0].plot(self.tables["t"]["x"])
            axes[0, 0].set_axis_off()
            return figure

        return {"fig01": line, "fig02": line}


def protocol(name, profile):
    return Demo()


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Output folder with two cells and their report."""
    made = Job("demo", Demo(), 42, tmp_path_factory.mktemp("reported"))
    run(made)
    update.report([made], protocol)
    return made.outputs


@pytest.fixture
def job(reported, tmp_path):
    """The job of a copy of them."""
    return Job("demo", Demo(), 42, shutil.copytree(reported, tmp_path / "outputs"))


def first_line(job, **about):
    """What is said of the report: "" where it was made."""
    _, (line, *_) = update.report([job], protocol, **about)
    return line.partition(", report in ")[2].partition(", ")[2]


CHANGES = {
    "edited": lambda path: path.write_bytes(
        path.read_bytes().replace(b"confirmed", b"refuted") + b"x"
    ),
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "lost": lambda path: path.unlink(),
}

READ = product(("claims.csv", "manifest.json"), CHANGES)  # by the next report
OTHERS = product(("t.csv", "index.html"), ("edited", "lost"))


@pytest.mark.parametrize(
    "file, change", [*READ, *OTHERS, ("report.md", "edited"), ("figures/fig01.png", "lost")]
)
def test_a_changed_file_is_made_again(job, file, change):
    folder = job.store.root
    before = contents(folder)
    assert check_store(job.outputs) == 0
    CHANGES[change](folder / file)
    theirs = (folder / file).read_bytes() if (folder / file).exists() else b""
    unseen = change == "lost" and file in ("manifest.json", "t.csv", "index.html")
    assert check_store(job.outputs) == (not unseen)
    assert first_line(job) == ""
    after = contents(folder)
    changed = {name for name in before if after[name] != before[name]}
    assert changed <= {"manifest.json", "index.html", SUMS}  # the date of the report
    kept = [content for name, content in after.items() if name not in before]
    assert kept == ([theirs] if theirs else [])
    assert first_line(job) == "unchanged"


def test_a_start_page_does_not_show_a_report_whose_files_have_changed(job):
    assert Page.read(job.store.root).rows[0].verdict == "confirmed"
    CHANGES["edited"](job.store.root / "claims.csv")
    assert Page.read(job.store.root) is None
    (job.store.root / "manifest.json").unlink()
    assert Page.read(job.store.root) is None


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": "javascript:alert(1)"},
        {"experiment": "o<script>"},
        {"files": {"../../precious": "0"}},
        {"seeds": 7},
    ],
)
def test_a_manifest_of_another_schema_is_no_manifest(job, change):
    path = job.store.root / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert read_manifest(job.store.root) is None
    if "files" in change:
        assert first_line(job) == "" and read_manifest(job.store.root) is not None


def test_a_published_report_is_copied_wherever_and_whenever_it_was_made(job, tmp_path, monkeypatch):
    before = contents(job.store.root)
    published = tmp_path / "published" / "demo"
    left_out = shutil.ignore_patterns("cells", "logs", ".*", "t.csv", "*.html")
    shutil.copytree(job.store.root, published, ignore=left_out)
    there = Job("demo", Demo(), 42, tmp_path / "clone")
    run(there)  # other times, another processor for all that the fingerprint knows
    monkeypatch.setattr(update, "Report", lambda *_: pytest.fail("the report was made"))
    assert first_line(there, published=published) == "copied from the published results"
    report = {k: v for k, v in before.items() if not k.startswith(("cells/", "logs/", "."))}
    report.pop(f"figures/{SUMS}")
    assert contents(there.store.root).items() >= report.items()
    assert first_line(there, published=published) == "unchanged"
    _, (_, found, page) = update.report([there], protocol, published=published)
    assert found == "  statements: 1 confirmed"
    assert page == f"  page {there.store.root / 'index.html'}"
    CHANGES["edited"](there.store.root / "claims.csv")
    assert first_line(there, published=published) == "copied from the published results"
    monkeypatch.undo()
    CHANGES["edited"](published / "claims.csv")
    CHANGES["edited"](there.store.root / "claims.csv")
    assert first_line(there, published=published) == ""


def test_a_new_cell_and_changed_code_make_the_report_again(job, monkeypatch):
    run(Job("demo", Demo(), 43, job.outputs))
    assert first_line(job) == "" and first_line(job) == "unchanged"
    monkeypatch.setattr("runner.report.fingerprint.code_files", lambda experiment: [])
    assert first_line(job) == ""


def test_a_setting_that_only_reports_read_makes_the_report_again_and_a_part_of_the_grid_does_not(
    job,
):
    assert first_line(replace(job, experiment=Demo(k=[2]))) == "unchanged"
    other = replace(job, experiment=Demo(tight=1.1))
    assert first_line(other) == "" and first_line(other) == "unchanged"
    assert first_line(job) == ""


def test_a_report_depends_on_the_package_of_its_experiment(tmp_path, monkeypatch):
    settings = "from runner.contract import Experiment\nclass Mine(Experiment):\n    pass\n"
    modules = {"__init__.py": "", "settings.py": settings, "parts/drawing.py": "", "mine.md": ""}
    for name, text in {**modules, "mine.pdf": ""}.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    paths = code_files(import_module("mine.settings").Mine)
    inside = [path for path in paths if path.is_relative_to(tmp_path)]
    assert {path.relative_to(tmp_path / "mine").as_posix() for path in inside} == set(modules)
    assert {path.name for path in paths} - {path.name for path in inside} >= {"printed.py"}
    ours = {path.name for path in code_files(type(preview("ws_bound")))}
    assert {"values.py", "flatness.py", "ws_bound.md"} <= ours and "exp5.md" not in ours


def test_the_audit_names_every_experiment_whose_cells_it_reads(published):
    audit = ROOT / "experiments" / "paper_audit"
    text = "".join(path.read_text() for path in audit.rglob("*.py"))
    read = re.findall(r'\b(?:rows|cells)\(\s*"(\w+)"', text)
    assert set(preview("paper_audit").reads) == set(read)
    assert all(archive_of(name).is_file() for name in read)


def test_floats_of_the_answers_have_nine_digits(job):
    text = (job.store.root / "claims.csv").read_text()
    assert f"{(42.1 + 42.2) / 3:.9g}," in text and f"{(42.1 + 42.2) / 3:.17g}" not in text


def test_one_figure_is_drawn_alone_and_vector_files_lie_next_to_the_others(job):
    folder = job.store.root
    before = contents(folder)
    (folder / "figures" / "fig01.png").unlink()
    (line,) = update.draw([job], protocol, figure="fig01")
    assert line.endswith("figures/fig01.png") and contents(folder) == before
    assert len(update.draw([job], protocol, suffix="svg")) == 2
    added = {f"figures/{name}" for name in ("fig01.svg", "fig02.svg")}
    assert contents(folder).keys() - before.keys() == added
    assert first_line(job) == "unchanged"
    assert '<a href="figures/fig02.svg" download>SVG</a>' in (folder / "index.html").read_text()
    (folder / "claims.csv").write_text("changed")
    assert first_line(job) != "unchanged"
    assert contents(folder).keys() - before.keys() == {"claims.kept.csv"}  # no figure of other data
    with refusal("expected one of png, pdf, svg, found gif", SettingError):
        update.draw([job], protocol, suffix="gif")
    with refusal("expected one of fig01, fig02, found fig1", SettingError):
        update.draw([job], protocol, figure="fig1")


def test_files_of_a_killed_report_are_replaced_and_those_of_others_are_kept(tmp_path):
    page = tmp_path / "index.html"
    (tmp_path / SUMS).write_bytes(b"cut short")
    for content in (b"<p>1</p>", b"<p>2</p>"):
        write(page, content)
    assert {path.name for path in tmp_path.iterdir()} == {"index.html", SUMS}
    page.write_bytes(b"<p>3</p>")
    write(page, b"<p>4</p>")
    assert (tmp_path / "index.kept.html").read_bytes() == b"<p>3</p>"


def test_a_report_is_made_without_reading_its_folder(job, monkeypatch):
    """Data flow in one direction: cells, tables, rows, files."""
    shutil.rmtree(job.store.root / "figures")
    for path in filter(Path.is_file, list(job.store.root.iterdir())):
        path.unlink()
    inside, opened = str(job.store.root), io.open

    def refuse(file, mode="r", *about, **more):
        if str(file).startswith(inside) and ".zip" not in str(file) and not {*mode} & {*"wax"}:
            raise PermissionError(13, "cannot be read", str(file))
        return opened(file, mode, *about, **more)

    monkeypatch.setattr("io.open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    assert first_line(job) == ""
    monkeypatch.undo()
    page = (job.store.root / "index.html").read_text()
    assert "x is large" in page and 'src="figures/fig01.png"' in page
    assert first_line(job) == "unchanged"


def test_a_comment_changes_no_fingerprint_and_code_does(tmp_path):
    path = tmp_path / "report.py"
    path.write_text('"""Words."""\nLIMIT = 1.1\n')
    before = tree_of(path)
    for text, same in (('"""Others."""\n# why\nLIMIT = 1.1\n', True), ("LIMIT = 1.2\n", False)):
        path.write_text(text)
        assert (tree_of(path) == before) == same
