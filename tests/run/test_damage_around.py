"""Damage around the cells, and disks that fill at any write: each ends in one line or is mended,
nothing is lost."""

import errno
import io
import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from runner.files import is_scratch, scratch_path
from runner.report.output.manifest import SUMS


@pytest.fixture
def report(measured, command, monkeypatch):
    """A verb of the command line in a folder with a copy of the store and its report, made once:
    (status, lines on standard error)."""
    monkeypatch.setenv("TOY_FIGURES", "1")
    now = time.gmtime(0)
    monkeypatch.setattr(time, "gmtime", lambda *_: now)  # a report says when it was made

    def call(*words):
        status, _, err = command(*(words or ("report", "experiment=toy")))
        return status, err.splitlines()

    reported = measured.with_name("reported")
    if not reported.exists():
        shutil.copytree(measured, "outputs")
        assert call() == (0, [])
        Path("outputs").rename(reported)
    shutil.copytree(reported, "outputs")
    return call


def written():
    """Every file of the report; not the sums of what was written before."""
    files = (path for path in Path("outputs").rglob("*") if path.is_file() and path.name != SUMS)
    stores = {"cells", ".locks", "logs"}
    return {str(path): path.read_bytes() for path in files if not stores & set(path.parts)}


def folder(path):
    """A folder with something in it, in place of a file."""
    Path(path).unlink(missing_ok=True)
    (Path(path) / "inside").mkdir(parents=True)


def file(path, content=b""):
    """A file in place of whatever is there."""
    if Path(path).is_dir():
        shutil.rmtree(path)
    Path(path).write_bytes(content)


def lose():
    for name in ("figures/numbers.png", "numbers.csv", "index.html"):
        Path("outputs/toy", name).unlink()
    Path("outputs/not_run.md").write_bytes(b"- toy: \xff\n")


MANIFEST = "outputs/toy/manifest.json"
DAMAGE = {
    "a folder in place of numbers.csv": partial(folder, "outputs/toy/numbers.csv"),
    "a folder in place of claims.csv": partial(folder, "outputs/toy/claims.csv"),
    "a folder in place of index.html": partial(folder, "outputs/toy/index.html"),
    "a folder in place of manifest.json": partial(folder, MANIFEST),
    "a folder in place of numbers.png": partial(folder, "outputs/toy/figures/numbers.png"),
    "a folder at the start in place of index.html": partial(folder, "outputs/index.html"),
    "a file in place of figures": partial(file, "outputs/toy/figures"),
    "a file for the locks": partial(file, "outputs/toy/.locks"),
    "a file for the failures": partial(file, "outputs/toy/failures"),
    "a manifest that is a list": partial(file, MANIFEST, b"[1]"),
    "a manifest nested beyond reading": partial(file, MANIFEST, b"[" * 200_000),
    "a figure, a table, the page lost, words of what was not run in another encoding": lose,
}
"""Damage -> what is done; what the line has to name is in its place, else the report mends it or
does without."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_around_the_cells_is_mended_or_named(kind, report):
    before = written()
    DAMAGE[kind]()
    named = kind.partition(" in place of ")[2]
    status, said = report()
    if named:
        (line,) = said
        assert status in (1, 2) and line.startswith("hess-run: ") and named in line
    else:
        assert (status, said) == (0, [])
        after = written()
        assert all(after[name] == before[name] for name in before if name != "outputs/index.html")
    assert report("list")[0] == 0
    of_experiment = bool(named) and "at the start" not in kind
    assert report("store", "check")[0] == of_experiment


def test_what_a_killed_report_left_is_swept_by_the_next_one(report):
    names = (scratch_path(Path("outputs", name)) for name in ("index.html", "toy/rows.csv"))
    left = [path.with_name(path.name.replace(str(os.getpid()), "999999")) for path in names]
    for path in left:
        path.touch()
    assert report() == (0, []) and not any(path.exists() for path in left)


@pytest.fixture
def read_only(report, monkeypatch):
    """The same where nothing below outputs/ can be written, as on a disk that is mounted so."""

    def is_inside(path):
        return isinstance(path, str | Path) and "outputs" in Path(path).parts

    def refusing(call, writes=lambda *arguments, **keywords: True):
        def refuse(path, *arguments, **keywords):
            if is_inside(path) and writes(*arguments, **keywords):
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            return call(path, *arguments, **keywords)

        return refuse

    def access(path, mode, ask=os.access):
        return not (is_inside(path) and mode & os.W_OK) and ask(path, mode)

    monkeypatch.setattr(os, "access", access)
    for name in ("rename", "replace", "mkdir", "unlink"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    monkeypatch.setattr(
        "builtins.open", refusing(open, lambda mode="r", *_, **__: mode != "r" and mode != "rb")
    )
    return report


@pytest.mark.parametrize(
    "words",
    [("report",), ("report", "experiment=toy"), ("store", "check"), ("verify", "experiment=toy")],
    ids=" ".join,
)
def test_results_that_cannot_be_written_are_read(words, read_only):
    before = written()
    assert read_only(*words) == (0, []) and written() == before


@pytest.mark.parametrize(
    "words", [("experiment=toy", "seed=7"), ("report", "experiment=toy", "figures=svg")]
)
def test_results_that_cannot_be_written_are_named_where_something_is_to_be(words, read_only):
    before = written()
    status, (*_, line) = read_only(*words)
    assert status == 2 and "outputs cannot be written" in line and written() == before


@pytest.mark.parametrize("words", [("experiment=toy",), ("store", "check", "repair=true")])
def test_a_cell_that_may_not_be_read_is_named_and_stays(words, report, monkeypatch):
    path = min(Path("outputs/toy/cells").iterdir())

    def refuse(name, *arguments, read=io.open, **keywords):
        if name == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return read(name, *arguments, **keywords)

    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(io, "open", refuse)
        status, (line,) = report(*words)
    assert status == 1 and f"{path}: Permission denied" in line and "give access" in line
    assert path.read_bytes() == before and not list(path.parent.glob("*.damaged"))


ENDS = {
    OSError(errno.ENOSPC, "No space left on device"): (1, "hess-run: no space left ("),
    KeyboardInterrupt(): (130, "hess-run: interrupted"),
}


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_an_end_at_any_write_of_a_report_is_one_line_and_the_next_report_is_whole(
    every, error, report, measured, monkeypatch
):
    whole = written()
    sync = os.fsync
    for at in range(0, 100, every):
        shutil.rmtree("outputs")
        shutil.copytree(measured, "outputs")
        writes = []

        def ending(number, at=at, writes=writes):
            writes.append(number)
            if len(writes) > at:  # a disk stays full
                raise error
            sync(number)

        monkeypatch.setattr(os, "fsync", ending)
        status, said = report()
        monkeypatch.setattr(os, "fsync", sync)
        if len(writes) <= at:
            break
        expected, begin = ENDS[error]
        assert status == expected and len(said) == 1 and said[0].startswith(begin), said
        assert not [path for path in Path("outputs").rglob(".*") if is_scratch(path)]
        assert report() == (0, []) and written() == whole, f"after an end at write {at}"
    assert at >= 11
