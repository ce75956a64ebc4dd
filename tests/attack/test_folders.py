"""Odd folders: runs, reports, lists and checks in them give the same bytes, or one line that names
what is wrong."""

import os
import sys
from pathlib import Path

import pytest

from runner.store.job import claim_outputs
from tests import contents
from tests.run.conftest import cell_tables, command_environment, forked

RUN = ("experiment=toy", "width=[1,2]", "shape=round")
ODD = {
    "spaces": "a folder  of mine",
    "quotes": 'it\'s "mine"',
    "newline": "a\nb",
    "unicode": "Ünï 漢字 ☃ \u202e",
    "percent": "100% {a} $HOME ~ #",
    "equals": "seed=3,outputs=x",
    "dash": "-rf",
    "brackets": "[1,2] (x) *?",
    "backslash": "a\\b\\n",
    "control": "a\x1b[31m\x07",
    "not UTF-8": os.fsdecode(b"caf\xe9"),
    "long": "x" * 250,
}
DAILY = ("spaces", "newline")
LIMIT = 4096 - 300  # bytes of a path, less those of the files below


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return tmp_path_factory.mktemp("expected")


@pytest.fixture
def plain(toy_conf, expected):
    """The tables of a run in a folder without oddities."""
    if not (expected / "outputs").exists():
        assert forked(RUN, expected, command_environment()).returncode == 0
    return cell_tables(expected / "outputs")


def without_fault(ended):
    """What a command said, which is no fault of the program."""
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said and "fault of this program" not in said, said
    return said


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def works(folder, tables):
    """A run, a report, a list and a check in a folder, and the tables of the run."""
    for words in (RUN, ("report", "experiment=toy"), ("list",), ("store", "check")):
        ended = forked(words, folder, command_environment())
        said = without_fault(ended)
        assert ended.returncode == 0, said
    assert cell_tables(folder / "outputs") == tables


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k in DAILY else pytest.mark.slow) for k in ODD]
)
def test_a_folder_of_any_name_is_worked_in(plain, tmp_path, kind):
    folder = tmp_path / ODD[kind]
    folder.mkdir()
    works(folder, plain)
    assert sorted(p.name for p in folder.iterdir()) == ["outputs"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ODD)
def test_outputs_of_any_name_are_written_or_refused(plain, tmp_path, kind):
    """On the command line, quoted as Hydra's grammar wants it."""
    name = ODD[kind].replace("\\", "\\\\").replace("'", "\\'")
    ended = forked((*RUN, f"outputs='{name}'"), tmp_path, command_environment())
    said = without_fault(ended)
    assert "\x1b" not in ended.stderr
    written = [p for p in tmp_path.iterdir() if p.name != "conf"]
    assert ended.returncode in (0, 2) and (ended.returncode == 0 or not written), said
    if ended.returncode == 0:
        (place,) = written
        assert cell_tables(place) == plain


@pytest.mark.slow
def test_a_folder_200_deep_is_worked_in_or_named(plain, tmp_path):
    folder = tmp_path
    for number in range(200):
        folder = folder / f"d{number}"
    if len(os.fsencode(folder)) < LIMIT:
        folder.mkdir(parents=True)
    works(folder, plain)


def as_nobody() -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def opened(folder: Path) -> None:
    """Let everyone reach a folder below those of pytest."""
    for place in (folder, *folder.parents):
        if len(place.parts) > 2:
            place.chmod(place.stat().st_mode | 0o055)


def another_user_can_work() -> bool:
    """Only root can become another user, who must then be able to load modules of Python."""
    home = Path(sys.base_prefix)
    return os.geteuid() == 0 and all(f.stat().st_mode & 0o001 for f in (home, *home.parents))


needs_root = pytest.mark.skipif(
    not another_user_can_work(), reason="needs root, and a Python that every user can read"
)


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_folder_that_cannot_be_written_is_named_and_left(plain, work, mode):
    (work / "outputs").mkdir()
    opened(work)
    work.chmod(0o777)
    (work / "outputs").chmod(mode)
    ended = forked(RUN, work, command_environment(), as_nobody)
    said = ended.stderr.strip().splitlines()
    assert ended.returncode == 2 and len(said) == 1 and "outputs" in said[0], ended.stderr
    assert list((work / "outputs").iterdir()) == []


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("words", [RUN, (*RUN, "force=true"), ("report", "experiment=toy")])
def test_results_of_another_user_are_read_and_never_changed(plain, work, words):
    works(work, plain)
    opened(work)
    for path in work.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = contents(work)
    ended = forked(words, work, command_environment(), as_nobody)
    without_fault(ended)
    assert ended.returncode == (0 if words != (*RUN, "force=true") else 2), ended.stderr
    assert contents(work) == before
    read = forked(("list",), work, command_environment(), as_nobody)
    assert read.returncode == 0 and "toy" in read.stdout, read.stderr


@pytest.mark.slow
@needs_root
def test_a_cell_of_another_user_that_is_forced_is_kept_and_named(plain, work):
    works(work, plain)
    opened(work)
    for path in work.rglob("*"):
        if path.is_dir():
            path.chmod(0o777)  # a shared folder, with cells of their own
        elif path.parent.name != "cells":
            path.chmod(0o666)
    theirs = contents(work / "outputs/toy/cells").values()
    ended = forked((*RUN, "force=true"), work, command_environment(), as_nobody)
    without_fault(ended)
    assert set(theirs) <= set(contents(work / "outputs").values())
    if ended.returncode == 0:
        check = forked(("store", "check"), work, command_environment())
        assert check.returncode == 0, check.stdout
        kept = (work / "outputs/toy/cells").glob("*.damaged")
        assert sorted(p.read_bytes() for p in kept) == sorted(theirs)


def test_a_file_in_the_way_is_one_line(toy_conf, work):
    claim_outputs(work / "outputs")
    (work / "outputs" / "toy").write_text("in the way")
    ended = forked(RUN, work, command_environment())
    said = ended.stderr.strip().splitlines()
    assert ended.returncode == 2 and "toy; move it away" in said[-1], ended.stderr
    assert (work / "outputs" / "toy").read_text() == "in the way"
