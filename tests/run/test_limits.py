"""Limits of the system (files, memory, disk, processes), ASCII locales, and standard streams that
are closed, broken or full: one line, the true exit status, exact resume."""

import locale
import os
import resource
import shutil
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.run.conftest import cell_tables, command_environment, forked

RUN = ("experiment=toy", "samples=100")
NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
)
"""A user without processes who may read and write everything: the limit of processes does not bind
root."""


def files(more):
    """Let this process open so many files more."""

    def prepare():
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + more, lowest + more))

    return prepare


def memory(mib):
    """Let this process take so much more memory."""

    def prepare():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + mib * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    return prepare


def size(limit):
    """Let no file of this process grow beyond so many bytes: what a full disk does, without one."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


CASES = {
    "too many open files": [files(more) for more in (0, 1, 2)],
    # at the first cell, within one, in the report
    "no space left": [size(limit) for limit in (450, 2000, 8000)],
}


def content(work):
    """Every table and figure, of cells and of the report, by path."""
    found = [path for ending in ("*.csv", "*.png", "*.md") for path in work.rglob(ending)]
    cells = cell_tables(work / "outputs")
    return {**cells, **{str(path.relative_to(work)): path.read_bytes() for path in found}}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def started(kept, toy_conf):
    """A folder with a part of the grid and its report; made once."""
    folder = kept / "started"
    if not folder.exists():
        folder.mkdir()
        assert forked((*RUN, "width=1"), folder, command_environment()).returncode == 0
    return folder


@pytest.fixture
def undisturbed(kept, toy_conf):
    """What an undisturbed run writes; made once."""
    folder = kept / "undisturbed"
    if not folder.exists():
        folder.mkdir()
        assert forked(RUN, folder, command_environment()).returncode == 0
    return content(folder)


@pytest.mark.parametrize("name", CASES)
def test_a_limit_is_one_line_and_the_next_run_is_whole(name, started, undisturbed, tmp_path):
    reached = 0
    for number, prepare in enumerate(CASES[name]):
        work = shutil.copytree(started, tmp_path / str(number))
        ended = forked(RUN, work, command_environment(), prepare)
        if ended.returncode != 0:
            is_limit(ended, name)
            assert not list(work.rglob("*.tmp")) and not list(work.rglob("*.damaged"))
            reached += 1
        assert forked(RUN, work, command_environment()).returncode == 0
        assert content(work) == undisturbed
    assert reached >= 2


def is_limit(ended, name):
    """A command that a limit has ended: one line that names it, and its status."""
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("hess-run: ")]
    assert ended.returncode == 1 and said.startswith(f"hess-run: {name} ("), said
    assert "Traceback" not in ended.stderr + ended.stdout


def test_a_cell_without_enough_memory_fails_alone_and_is_measured_next_time(toy_conf, tmp_path):
    words = ("experiment=toy", "width=1", "shape=round")
    ended = forked(words, tmp_path, command_environment(TOY_MEMORY=str(2**30)), memory(256))
    assert ended.returncode == 1 and "MemoryError" in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr and "a fault" not in ended.stderr
    assert "1 measured" in forked(words, tmp_path, command_environment()).stdout


@pytest.mark.slow
def test_limits_of_workers_are_one_line_and_the_next_run_is_whole(undisturbed, toy_conf, tmp_path):
    cases = [("no space left", ["prlimit", "--fsize=2000"])]
    if os.geteuid() == 0 and shutil.which("setpriv"):
        cases += [
            ("too many processes", [*NOBODY, "prlimit", f"--nproc={count}"]) for count in (1, 2, 3)
        ]
    command = [sys.executable, "-m", "runner.cli", *RUN, "jobs=2"]
    environment = command_environment(OPENBLAS_NUM_THREADS="1")
    for number, (name, limited) in enumerate(cases):
        work = tmp_path / str(number)
        work.mkdir()
        for folder in (work, *work.parents):
            if folder.is_relative_to(tmp_path.parents[1]):
                folder.chmod(0o777)
        about = {"cwd": work, "env": environment, "timeout": 120}
        words = [*limited, *command]
        is_limit(subprocess.run(words, text=True, capture_output=True, **about), name)
        assert forked(RUN, work, command_environment()).returncode == 0
        assert content(work) == undisturbed


def test_a_locale_without_utf8_gives_the_same_bytes(undisturbed, toy_conf, tmp_path):
    work = tmp_path / "ascii"
    work.mkdir()
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    environment = command_environment(PYTHONCOERCECLOCALE="0", **ascii_only)
    to_ascii = partial(locale.setlocale, locale.LC_ALL, "C")
    ended = forked(RUN, work, environment, to_ascii, encoding="ascii")
    assert ended.returncode == 0 and content(work) == undisturbed
    code = "from runner.run.streams import protect; protect(); print('a \\xb1 b'); print('c')"
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment, timeout=60)
    assert shown == b"a \\xb1 b\nc\n"


COMMANDS = {
    "run": "experiment=toy shape=round samples=3",
    "two processes": "experiment=toy shape=round samples=3 jobs=2",
    "sweep": "-m experiment=toy width=1 shape=round samples=3 seed=1,2",
    "report": "report experiment=toy",
    "list": "list",
    "a mistake": "experiment=tyo",
}
STREAMS = ("closed", "broken", "full")
FAST = {
    *[("run", 0, "closed"), ("run", 1, "broken"), ("run", 2, "closed"), ("run", 2, "full")],
    *[("run", None, "closed"), ("sweep", 1, "broken"), ("report", 1, "full")],
    *[("list", 1, "broken"), ("a mistake", 2, "closed")],
}
FORKED = [name for name in COMMANDS if name != "two processes"]  # which starts without any stream
STREAM_CASES = [
    pytest.param(*case, marks=[] if case in FAST else pytest.mark.slow)
    for case in [*product(FORKED, (0, 1, 2), STREAMS), *product(COMMANDS, (None,), ("closed",))]
]


def replace_stream(number, how):
    """A pipe without a reader, a full device or nothing in place of a standard stream (None: all)
    of this process."""
    if number is None:
        for each in (0, 1, 2):
            replace_stream(each, how)
    elif how == "closed":
        os.close(number)
        if number == 0:
            sys.stdin = None  # as the interpreter starts
    else:
        reader, stream = os.pipe() if how == "broken" else (-1, os.open("/dev/full", os.O_WRONLY))
        if how == "broken":
            os.close(reader)
        os.dup2(stream, number)


@pytest.mark.parametrize("name, number, how", STREAM_CASES)
def test_the_work_is_done_and_the_status_is_true(
    name, number, how, measured, toy_conf, tmp_path, monkeypatch
):
    words, status = COMMANDS[name].split(), 2 * (name == "a mistake")
    work = tmp_path / "work"
    shutil.copytree(measured, work / "outputs")
    before = {path.name for path in (work / "outputs/toy/cells").iterdir()}
    monkeypatch.delenv("TOY_FIGURES", raising=False)
    if name == "two processes":  # a new interpreter starts without any
        shell = ["bash", "-c", 'exec "$@" 0<&- 1<&- 2<&-', "-", sys.executable, "-m", "runner"]
        about = {"cwd": work, "env": command_environment(), "timeout": 120}
        done = subprocess.run([*shell, *words], text=True, capture_output=True, **about)
    else:
        done = forked(words, work, command_environment(), lambda: replace_stream(number, how))
    said = done.stdout + done.stderr
    lost = how == "full" and number == 1 and name != "a mistake"  # which writes to stderr alone
    assert done.returncode == (status or int(lost)), said
    assert ("a part of it is lost" in said) == lost
    assert "Traceback" not in said and "Exception" not in said
    added = {path.name for path in (work / "outputs/toy/cells").iterdir()} - before
    assert len(added) == {"run": 3, "two processes": 3, "sweep": 2}.get(name, 0)
