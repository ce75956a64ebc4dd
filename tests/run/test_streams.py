"""Closed, broken and full standard streams: the work is done, and the exit status is the true one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.run.execute import run
from runner.store.job import Job
from runner.store.outputs import claim_outputs
from tests.run.conftest import ROOT
from tests.run.test_damage_around import TOY

COMMANDS = {
    "run": (("experiment=toy", "shape=round", "samples=3"), 0),
    "two processes": (("experiment=toy", "shape=round", "samples=3", "jobs=2"), 0),
    "sweep": (("-m", "experiment=toy", "width=1", "shape=round", "samples=3", "seed=1,2"), 0),
    "report": (("report", "experiment=toy"), 0),
    "list": (("list",), 0),
    "a mistake": (("experiment=tyo",), 2),
}
STREAMS = {"closed": "{n}<&-", "broken": "", "full": "{n}>/dev/full"}
CASES = [
    *[("run", number, how) for number in (0, 1, 2) for how in STREAMS if number or how == "closed"],
    ("two processes", 2, "closed"),
    ("sweep", 1, "broken"),
    ("report", 1, "full"),
    ("list", 1, "broken"),
    ("a mistake", 2, "closed"),
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A store with the grid of the toy, measured once."""
    root = tmp_path_factory.mktemp("streams") / "outputs"
    claim_outputs(root)
    run(Job("toy", TOY, 42, root))
    return root


@pytest.mark.parametrize(("name", "number", "how"), CASES)
def test_the_work_is_done_and_the_status_is_true(name, number, how, measured, toy_conf, tmp_path):
    words, status = COMMANDS[name]
    work = tmp_path / "work"
    shutil.copytree(measured, work / "outputs")
    before = {path.name for path in (work / "outputs/toy/cells").iterdir()}
    ending = STREAMS[how].format(n=number)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TOY_FIGURES", None)
    shell = f'exec "$@" {ending}'
    streams: dict[int, int] = {}
    if how == "broken":
        reader, writer = os.pipe()
        os.close(reader)
        streams = {number: writer}
    done = subprocess.run(
        ["bash", "-c", shell, "-", sys.executable, "-m", "runner", *words],
        cwd=work,
        env=environment,
        stdout=streams.get(1, subprocess.PIPE),
        stderr=streams.get(2, subprocess.PIPE),
        timeout=120,
    )
    for writer in streams.values():
        os.close(writer)
    said = (done.stdout or b"") + (done.stderr or b"")
    assert done.returncode == status, said
    assert b"Traceback" not in said and b"Exception" not in said
    added = {path.name for path in (work / "outputs/toy/cells").iterdir()} - before
    assert len(added) == {"run": 3, "two processes": 3, "sweep": 2}.get(name, 0)
