"""The entry point of the command: its own packages count whatever the current folder holds; exit
statuses; progress."""

import os
import subprocess
import sys

import pytest

from runner.contract import Cell, SettingError
from runner.run import exit_status, progress
from tests.run.conftest import ROOT
from tests.run.guests import Mute

INTERRUPTED_IN_A_STRING = """
import sys
from runner.run import exit_status

sys.exit(exit_status.guarded(lambda: exec("raise KeyboardInterrupt")))
"""


def python(*words, cwd, place, **variables):
    """An interpreter in a folder, with these places first on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(place), **variables}
    about = {"cwd": cwd, "env": environment, "timeout": 120}
    return subprocess.run([sys.executable, *words], text=True, capture_output=True, **about)


def test_an_interruption_inside_an_executed_string_ends_with_130(tmp_path):
    """CPython 3.11 ends `python -m` by SIGINT instead, even where the exception was caught."""
    (tmp_path / "interrupted_import.py").write_text(INTERRUPTED_IN_A_STRING)
    ended = python("-m", "interrupted_import", cwd=tmp_path, place=[str(ROOT), str(tmp_path)])
    assert ended.returncode == 130 and ended.stderr.count("hess-run: interrupted") == 1


@pytest.mark.parametrize(
    "error, status, line",
    [
        (SettingError("expected 1, found 2"), 2, "hess-run: expected 1, found 2\n"),
        (KeyboardInterrupt(), 130, "hess-run: interrupted; finished cells are stored."),
        (OSError(28, "No space left on device"), 1, "hess-run: no space left"),
        (ValueError("odd"), 1, "hess-run: a fault of this program: ValueError: odd"),
        (Mute(), 1, "hess-run: a fault of this program: Mute, whose text cannot be made"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_end_has_its_status_and_line(error, status, line, monkeypatch, capsys):
    def action():
        raise error

    monkeypatch.setattr(exit_status, "FULL_ERROR", False)
    assert exit_status.guarded(action) == status
    assert capsys.readouterr().err.startswith(line)
    assert exit_status.guarded(lambda: 0) == 0


@pytest.fixture
def crowded(tmp_path):
    """A folder with a runner.py and packages called experiments and conf."""
    work = tmp_path / "work"
    for name in ("experiments", "conf"):
        (work / name).mkdir(parents=True)
        (work / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    (work / "runner.py").write_text("raise SystemExit('the wrong module')\n")
    (work / "bin").mkdir()
    (work / "bin" / "hess-run").write_text(
        "from hess_run import main\n\nif __name__ == '__main__':\n    main()\n"
    )
    return work


LIST = (("list", "hsr_gradient"), {"HESS_CONF": ""}, "hsr_gradient")
MEASURE = (("experiment=toy", "width=[1]", "jobs=2", "samples=3"), {}, "2 measured")
"""Words, variables and what is shown; the workers of the second import the packages anew."""


@pytest.mark.parametrize(
    "words, variables, shown", [LIST, pytest.param(*MEASURE, marks=pytest.mark.slow)]
)
def test_folders_with_the_names_of_our_packages_are_no_obstacle(
    words, variables, shown, crowded, toy_conf
):
    ended = python("bin/hess-run", *words, cwd=crowded, place=[".", str(ROOT)], **variables)
    assert ended.returncode == 0 and shown in ended.stdout, ended.stderr


CELLS = [Cell({"k": 1}, seconds=10.0), Cell({"k": 2}, seconds=20.0)]


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_running_cell_shows_phase_step_and_rate_before_it_ends(clock, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = progress.open_progress("toy", CELLS)
    bar.start("k=1")
    for step in range(10, 13):
        bar.inside(step, 50, "loss 0.5")
        clock[0] += 0.5
    text = capsys.readouterr().err
    bar.close()
    assert "0/2" in text and "k=1: loss 0.5 12 of 50, 2 a second" in text
    assert "about 29 s to go" in text
    assert "\x1b[3" not in text  # no colour


def test_the_remaining_time_follows_a_cell_that_takes_longer_and_those_measured(clock):
    lines = progress.Lines("toy", CELLS)
    lines.start("k=1")
    clock[0] += 4
    assert lines.left == "about 26 s to go"
    clock[0] += 16
    assert lines.left == "about 25 s to go"
    clock[0] += 100
    assert lines.left == "about 75 s to go"
    clock[0] -= 100
    lines.advance("measured", CELLS[0])  # of 20 s, 10 may have been imports
    assert lines.left == "about 20 s to go"
    lines.advance("measured", CELLS[1], 40.0)
    assert lines.left == ""


def test_imports_before_the_first_of_many_short_cells_do_not_enter_the_remaining_time(clock):
    """80 cells of 1 s, of which the first took 18: a few minutes, not 80 times as long."""
    short = [Cell({"k": k}, seconds=1.0) for k in range(80)]
    lines = progress.Lines("toy", short)
    lines.start("k=0")
    clock[0] += 18
    assert lines.left == "about 3 min to go"
    lines.advance("measured", short[0])
    assert lines.left == "about 2 min to go"
    for cell in short[1:40]:
        lines.advance("measured", cell, 1.0)
    assert lines.left == "about 46 s to go"


def test_several_processes_share_the_remaining_time_and_draw_a_line_each(
    clock, monkeypatch, capsys
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = progress.open_progress("toy", CELLS, 2)
    lines = {label: progress.RunningCell(place) for place, label in ((1, "k=1"), (2, "k=2"))}
    for step in range(3):
        for label, line in lines.items():
            line.start(label)
            clock[0] += 0.6
            line.inside(step, 50, "epoch")
    bar.start("k=3")
    text = capsys.readouterr().err
    for one in (bar, *lines.values()):
        one.close()
    for told in ("k=1: epoch 0 of 50", "k=2: epoch 2 of 50", "to go"):
        assert told in text


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_hess_run_first_makes_room_for_the_package_in_python(tmp_path, kind):
    theirs = tmp_path / ("runner/__init__.py" if kind == "folder" else "runner.py")
    theirs.parent.mkdir(exist_ok=True)
    theirs.touch()

    def ended(code):
        return python("-c", code, cwd=tmp_path, place=[str(tmp_path), str(ROOT)])

    if kind == "file":  # over a folder, the finder of an editable installation finds the submodules
        assert ended("from runner.files import is_scratch").returncode == 1
    first = ended("import hess_run; from runner.files import is_scratch")
    assert first.returncode == 0, first.stderr
    late = ended("import runner, hess_run")
    assert "write `import hess_run` before it" in late.stderr.splitlines()[-1]
