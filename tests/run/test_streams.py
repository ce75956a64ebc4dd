"""Closed, broken and full standard streams: the work is done, and the exit status is the true one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import product

import pytest

from runner.run.console import Tolerant
from tests.run.conftest import command_environment, forked

COMMANDS = {
    "run": (("experiment=toy", "shape=round", "samples=3"), 0),
    "two processes": (("experiment=toy", "shape=round", "samples=3", "jobs=2"), 0),
    "sweep": (("-m", "experiment=toy", "width=1", "shape=round", "samples=3", "seed=1,2"), 0),
    "report": (("report", "experiment=toy"), 0),
    "list": (("list",), 0),
    "a mistake": (("experiment=tyo",), 2),
}
STREAMS = ("closed", "broken", "full")
FAST = {
    *[("run", number, how) for number in (0, 1, 2) for how in STREAMS if number or how == "closed"],
    *[("run", None, "closed"), ("sweep", 1, "broken"), ("report", 1, "full"), ("list", 1, "broken")],
    ("a mistake", 2, "closed"),
}
CASES = [
    pytest.param(*case, marks=[] if case in FAST else pytest.mark.slow)
    for case in [*product(COMMANDS, (0, 1, 2), STREAMS), *product(COMMANDS, (None,), ("closed",))]
]


def replace_stream(number: int | None, how: str) -> None:
    """A pipe without a reader, a full device or nothing in place of a standard stream (None: all) of this process."""
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


def test_what_follows_a_failed_write_is_thrown_away():
    with open("/dev/full", "w") as stream:
        broken = Tolerant(stream)
        broken.write("lost")
        broken.flush()
        stream.write("closing the stream does not fail")


@pytest.mark.parametrize(("name", "number", "how"), CASES)
def test_the_work_is_done_and_the_status_is_true(name, number, how, measured, toy_conf, tmp_path, monkeypatch):
    words, status = COMMANDS[name]
    work = tmp_path / "work"
    shutil.copytree(measured, work / "outputs")
    before = {path.name for path in (work / "outputs/toy/cells").iterdir()}
    monkeypatch.delenv("TOY_FIGURES", raising=False)
    if name == "two processes":  # a new interpreter starts without any
        shell = ["bash", "-c", 'exec "$@" 0<&- 1<&- 2<&-', "-", sys.executable, "-m", "runner", *words]
        done = subprocess.run(shell, cwd=work, env=command_environment(), text=True, capture_output=True, timeout=120)
    else:
        done = forked(words, work, command_environment(), lambda: replace_stream(number, how))
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert "Traceback" not in said and "Exception" not in said
    added = {path.name for path in (work / "outputs/toy/cells").iterdir()} - before
    assert len(added) == {"run": 3, "two processes": 3, "sweep": 2}.get(name, 0)
