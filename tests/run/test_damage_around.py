"""Damage around the cells, and disks that fill at any write: each ends in one line or is mended, nothing is lost."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.cli import main
from runner.kinds.dataset import GaussianData
from runner.run.execute import run
from runner.store import tables
from runner.store.job import Job, claim_outputs
from tests.run.toy import Toy

TOY = Toy(width=[1, 2, 3], shape=["round", "square"], dataset=GaussianData(train=8))


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A store of the whole grid without a report."""
    root = tmp_path_factory.mktemp("measured") / "outputs"
    claim_outputs(root)
    run(Job("toy", TOY, 42, root))
    return root


@pytest.fixture
def report(measured, toy_conf, tmp_path, monkeypatch, capsys):
    """A verb of the command line in a folder with a copy of the store and its report, made once: (status, what it said
    on standard error)."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TOY_FIGURES", "1")
    now = time.gmtime(0)
    monkeypatch.setattr(time, "gmtime", lambda *_: now)  # a report says when it was made

    def call(*words: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main(words or ("report", "experiment=toy"))
        return int(ending.value.code or 0), capsys.readouterr().err.splitlines()

    reported = measured.with_name("reported")
    if not reported.exists():
        shutil.copytree(measured, "outputs")
        assert call() == (0, [])
        shutil.copytree("outputs", reported)
    else:
        shutil.copytree(reported, "outputs")
    return call


def written() -> dict[str, bytes]:
    """Every file of the report."""
    found = (p for p in Path("outputs").rglob("*") if p.is_file() and not {"cells", ".locks", "logs"} & set(p.parts))
    return {str(p): p.read_bytes() for p in found}


def folder(path: str) -> Callable[[], object]:
    """A folder with something in it, in place of a file."""

    def change() -> None:
        Path(path).unlink(missing_ok=True)
        (Path(path) / "inside").mkdir(parents=True)

    return change


def file(path: str, content: bytes = b"") -> Callable[[], object]:
    """A file in place of whatever is there."""

    def change() -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        Path(path).write_bytes(content)

    return change


def lose() -> None:
    for name in ("figures/numbers.png", "numbers.csv", "index.html"):
        Path("outputs/toy", name).unlink()
    Path("outputs/not_run.md").write_bytes(b"- toy: \xff\n")


DAMAGE: dict[str, tuple[Callable[[], object], str]] = {
    "a folder in place of a table": (folder("outputs/toy/numbers.csv"), "numbers.csv"),
    "a folder in place of the claims": (folder("outputs/toy/claims.csv"), "claims.csv"),
    "a folder in place of the page": (folder("outputs/toy/index.html"), "index.html"),
    "a folder in place of the manifest": (folder("outputs/toy/manifest.json"), "manifest.json"),
    "a folder in place of a figure": (folder("outputs/toy/figures/numbers.png"), "numbers.png"),
    "a folder in place of the start page": (folder("outputs/index.html"), "index.html"),
    "a file in place of the figures": (file("outputs/toy/figures"), "figures"),
    "a file in place of the locks": (file("outputs/toy/.locks"), ""),
    "a file in place of the failures": (file("outputs/toy/failures"), ""),
    "a manifest of garbage": (file("outputs/toy/manifest.json", b"\xff\xfe\x00"), ""),
    "a manifest that is a list": (file("outputs/toy/manifest.json", b"[1]"), ""),
    "a manifest nested beyond reading": (file("outputs/toy/manifest.json", b"[" * 200_000), ""),
    "an emptied manifest": (file("outputs/toy/manifest.json"), ""),
    "a manifest of another form": (file("outputs/toy/manifest.json", b'{"figures": [1], "files": []}'), ""),
    "a figure, a table, the page lost, words of what was not run in another encoding": (lose, ""),
}
"""Damage -> what is done, and what the line has to name; '' where the report mends it or does without."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_around_the_cells_is_mended_or_named(kind, report):
    before = written()
    change, named = DAMAGE[kind]
    change()
    status, said = report()
    if named:
        assert status in (1, 2) and len(said) == 1 and said[0].startswith("hess-run: ") and named in said[0]
    else:
        assert (status, said) == (0, [])
        after = written()
        assert all(after[name] == before[name] for name in before if name != "outputs/index.html")
    assert report("list")[0] == 0
    assert report("store", "check")[0] == (named not in ("", "index.html"))


def test_what_a_killed_report_left_is_swept_by_the_next_one(report):
    left = [Path("outputs/.index.html.999999.tmp"), Path("outputs/toy/.stats.js.999999.tmp")]
    for path in left:
        path.touch()
    assert report() == (0, []) and not any(path.exists() for path in left)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_disk_full_at_any_write_of_a_report_is_one_line_and_the_next_report_is_whole(
    every, report, measured, monkeypatch
):
    whole = written()
    sync = os.fsync
    for at in range(0, 100, every):
        shutil.rmtree("outputs")
        shutil.copytree(measured, "outputs")
        writes = []

        def full(number: int, at: int = at, writes: list[int] = writes) -> None:
            writes.append(number)
            if len(writes) > at:  # and it stays full
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(number)

        monkeypatch.setattr(tables.os, "fsync", full)
        status, said = report()
        monkeypatch.setattr(tables.os, "fsync", sync)
        if len(writes) <= at:
            break
        assert status == 1 and len(said) == 1 and said[0].startswith("hess-run: no space left ("), said
        assert not list(Path("outputs").rglob("*.tmp"))
        assert report() == (0, []) and written() == whole, f"after a disk full at write {at}"
    assert at >= 12
