"""A copy of conf/ with the toy experiment in it, and the command line as a process."""

import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import filelock  # noqa: F401  (a fork of this process need not import these)
import hydra.core.override_parser.overrides_parser  # noqa: F401
import jinja2  # noqa: F401
import markdown_it  # noqa: F401
import pandas  # noqa: F401
import pytest
import torch  # noqa: F401

import runner.report.update
import runner.run.command  # noqa: F401
from runner import cli
from runner.kinds.dataset import GaussianData
from runner.run import loop
from runner.run.config import compose, experiment, files
from runner.run.execute import run
from runner.store.archive import archive_bytes
from runner.store.job import Job, claim_outputs
from tests import ROOT
from tests.run.toy import Toy

TOY = """\
# @package _global_
defaults:
  - override /dataset: gaussian
dataset:
  train: 8
experiment:
  _target_: tests.run.toy.Toy
  width: [1, 2, 3]
  shape: [round, square]
  samples: 20
profiles:
  quick:
    - experiment.width=[1]
    - experiment.samples=5
"""


GRID = Toy(width=[1, 2, 3], shape=["round", "square"], dataset=GaussianData(train=8))
"""The experiment of that file."""


def toy_configuration(folder: Path) -> Path:
    """A copy of conf/ that knows the toy alone."""
    conf = folder / "conf"
    shutil.copytree(
        ROOT / "conf",
        conf,
        ignore=lambda place, names: names if place.endswith("experiment") else (),
    )
    (conf / "experiment" / "toy.yaml").write_text(TOY)
    return conf


@pytest.fixture
def toy_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a configuration that knows `experiment=toy`, in use here and in processes."""
    conf = toy_configuration(tmp_path)
    monkeypatch.setenv("HESS_CONF", str(conf))
    monkeypatch.setenv("HESS_MODULES", "tests")
    monkeypatch.setattr(files, "CONF", conf)
    forget()
    yield conf
    forget()
    files.forget_added()


def forget() -> None:
    """Files are read once a process; tests change them."""
    for read in (files.load, compose._composed, experiment._composition):
        read.cache_clear()


def command_environment(**environment: str) -> dict[str, str]:
    """The environment of a command that finds this tree."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **environment}


def fork_workers() -> None:
    """Let the worker processes of `jobs=N` be forks of this process: they need not import torch."""
    context = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: context  # type: ignore[assignment]


def forked(
    arguments: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    prepare: Callable[[], object] = lambda: None,
    during: Callable[[int], object] = lambda process_id: None,
    encoding: str = "utf-8",
) -> subprocess.CompletedProcess[str]:
    """The command in a fork of this process, which has imported torch and pandas: a tenth of a new
    process's time.

    prepare: called in the fork before the command starts, with standard output and error in files,
    of this encoding.
    during: called here with the fork's process id while the command runs.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            status = 70
            try:
                for number, stream in ((1, out), (2, err)):
                    os.dup2(stream.fileno(), number)
                prepare()
                for number, name in ((1, "stdout"), (2, "stderr")):
                    setattr(sys, name, None)  # as the interpreter starts where the stream is closed
                    with suppress(OSError):
                        setattr(sys, name, os.fdopen(number, "w", encoding=encoding, closefd=False))
                os.chdir(folder)
                os.environ.update(environment)
                sys.path[:0] = [
                    place
                    for place in environment["PYTHONPATH"].split(os.pathsep)
                    if place != str(ROOT)
                ]
                sys.argv = ["hess-run", *arguments]
                forget()
                cli.main()
            except SystemExit as ending:
                status = int(ending.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                try:
                    for stream in filter(None, (sys.stdout, sys.stderr)):
                        stream.flush()
                except OSError:
                    status = 120  # as the interpreter ends
                os._exit(status)
        try:
            during(child)
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess(list(arguments), status, *texts)


class Killed(BaseException):
    """As a kill: nothing of the program runs after it except what ends `finally` blocks."""


def kills(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], every: int = 1
) -> Iterator[int]:
    """Kill an action at its first step to the disk, when called again `every` steps later, and so
    on until it ends by itself: the number of steps after each call."""

    def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **keywords: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return call(*arguments, **keywords)

        return step

    ended = False
    for number in count(0, every):
        left = iter(range(number))
        with monkeypatch.context() as patch, suppress(Killed):
            for name in ("fsync", "replace", "rename", "unlink", "rmdir"):
                patch.setattr(os, name, stepping(getattr(os, name)))
            action()
            ended = True
        yield number
        if ended:
            return


def cell_tables(outputs: Path) -> dict[str, bytes]:
    """Every table of the toy's cells, by its name in an archive."""
    return {
        name: content
        for name, content in packed(outputs / "toy" / "cells")
        if name.endswith(".csv.gz")
    }


def packed(cells: Path) -> list[tuple[str, bytes]]:
    """Every file of the cells of a folder, as an archive takes them."""
    return [entry for path in sorted(cells.glob("*.zip")) for entry in entries_of(path)]


def entries_of(path: Path) -> list[tuple[str, bytes]]:
    """Every file in a zip file."""
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The cell of a zip file as a folder, whose files are put into it again."""
    with tempfile.TemporaryDirectory() as name:
        folder = unpacked(path, Path(name))
        yield folder
        files = [(f"{folder.name}/{file.name}", file.read_bytes()) for file in folder.iterdir()]
        path.write_bytes(archive_bytes(files))


def unpacked(path: Path, place: Path) -> Path:
    """A cell as a folder below `place`, as earlier versions stored it."""
    for name, content in entries_of(path):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
    return place / path.stem


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes of `jobs=N` of this process are its forks."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: fork)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder with the whole grid of the toy, without a report."""
    root = tmp_path_factory.mktemp("measured") / "outputs"
    claim_outputs(root)
    run(Job("toy", GRID, 42, root))
    return root


COMMIT = "0123456789ab"
TWO_CELLS = ("experiment=toy", "experiment.width=[1,2]", "experiment.shape=[round]")


def committed(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    """Measure from here on as a tree at this commit would."""
    software = {**loop.software(), "git_commit": commit}
    monkeypatch.setattr(loop, "software", lambda: software)


@pytest.fixture
def layers(toy_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(output folder, folder of published results), both empty; cells come from a clean commit."""
    outputs, root = tmp_path / "outputs", tmp_path / "published"
    root.mkdir()
    monkeypatch.setenv("HESS_PUBLISHED", str(root))
    committed(monkeypatch, COMMIT)
    claim_outputs(outputs)
    return outputs, root


@pytest.fixture
def command(
    toy_conf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    """Call the command in this process, in an empty working folder: (status, output, errors).

    command.output: what a command that ends well prints; command.refusal: the line of a mistake.
    """
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["hess-run"])

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.main(list(words))
        return (int(ending.value.code or 0), *capfd.readouterr())

    def output(*words: str) -> str:
        status, out, err = call(*words)
        assert status == 0, err
        return out

    def refusal(*words: str) -> str:
        status, out, err = call(*words)
        assert (status, out, err.count("\n")) == (2, "", 1), err
        return err

    call.folder, call.output, call.refusal = folder, output, refusal  # type: ignore[attr-defined]
    root = logging.getLogger()
    before = list(root.handlers)
    yield call
    for handler in [one for one in root.handlers if one not in before]:
        root.removeHandler(handler)  # of Hydra's own options; its stream ends with the test
