"""Kills, lost workers and full disks, each through the command line."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.run.exit_status import NoSpace, ran_full
from runner.run.launch import lost_worker
from runner.store.store import Store
from tests.run.conftest import ROOT
from tests.run.kills import Command, kill_and_resume


def test_three_kills_of_the_whole_command_change_no_byte(toy_conf, tmp_path):
    """A sample: `python -m tests.run.kills 100` is the whole of it."""
    count = kill_and_resume("jobs=1", 3, tmp_path, toy_conf, random.Random(3))
    assert count.kills == 3 and count.folders == 1
    assert not count.faults, "\n".join(count.faults)


def test_a_killed_worker_of_joblib_costs_nothing_but_time(toy_conf, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ("-m", "seed=1,2", "hydra/launcher=processes", "samples=21")
    command = Command(tmp_path / "work", toy_conf, words)
    process = command.start()
    logs = command.outputs / "toy" / "logs"
    while not (found := list(logs.glob("seed-1-*.log"))):
        assert process.poll() is None, (command.work / "stderr").read_text()
        time.sleep(0.02)
    os.kill(int(found[0].stem.rpartition("-")[2]), signal.SIGKILL)
    assert process.wait(120) == 0, (command.work / "stderr").read_text()
    assert "ended early" in (command.work / "stderr").read_text()
    assert len(list(Store(command.outputs, "toy").all())) == 12


def test_a_command_that_ends_before_its_first_job_does_not_wait_for_its_workers(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text('from runner.run import pool\n\nif __name__ == "__main__":\n    pool.prepare(1)\n')
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, script], env=environment, timeout=60).returncode == 0


def test_workers_end_soon_after_a_command_that_was_killed(toy_conf, tmp_path):
    command = Command(tmp_path / "work", toy_conf, ("jobs=2", "experiment.pause=60"))
    process = command.start()
    logs = command.outputs / "toy" / "logs"
    while len(list(logs.glob("seed-42-*.log"))) < 2:  # both workers are in a cell, for a minute
        assert process.poll() is None, (command.work / "stderr").read_text()
        time.sleep(0.02)
    begun = command.processes()
    assert len(begun) >= 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while command.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not command.processes(), "workers outlive their command"
    assert not list((command.outputs / "toy" / "cells").glob("[!.]*"))


def test_what_counts_as_a_lost_worker():
    class Lost(Exception):
        __module__ = "joblib.externals.loky.process_executor"

    assert lost_worker(Lost("a worker process was killed"))
    assert not lost_worker(RuntimeError("the experiment's own"))
    assert not lost_worker(Lost("job 3 failed: runner.run.exit_status.NoSpace: [Errno 28]"))
    assert ran_full(NoSpace("full")) and ran_full(OSError(28, "No space left on device"))
    assert not ran_full(OSError(2, "no such file"))


def with_small_files(kib: int, conf: Path, work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that lets no file grow beyond so many KiB: what a full disk does, without one."""
    work.mkdir(exist_ok=True)
    known = {"PYTHONPATH": str(ROOT), "HESS_CONF": str(conf), "HESS_MODULES": "tests", "PYTHONDONTWRITEBYTECODE": "1"}
    shell = ["bash", "-c", f'ulimit -f {kib}; exec "$@"', "-", sys.executable, "-m", "runner.cli", *words]
    return subprocess.run(shell, cwd=work, env={**os.environ, **known}, text=True, capture_output=True, timeout=120)


def one_line(process: subprocess.CompletedProcess[str]) -> bool:
    """Whether the command ended with status 1 and the line about the disk, once, and no traceback."""
    said = [line for line in process.stderr.splitlines() if line.startswith("hess-run: no space left (")]
    return process.returncode == 1 and len(said) == 1 and "Traceback" not in process.stderr + process.stdout


@pytest.mark.parametrize("how", [(), ("jobs=2",)], ids=["jobs=1", "jobs=2"])
def test_a_full_disk_while_cells_are_written_is_one_line_and_resumes(toy_conf, tmp_path, how):
    words = ("experiment=toy", "samples=2000", *how)
    full = with_small_files(8, toy_conf, tmp_path / "work", *words)
    assert one_line(full), full.stderr
    store = Store(tmp_path / "work" / "outputs", "toy")
    assert not store.names() and not list(store.cells.iterdir())
    if not how:
        assert with_small_files(20000, toy_conf, tmp_path / "work", *words).returncode == 0
        assert len(list(store.all())) == 6


def test_a_full_disk_while_the_report_is_written_is_one_line_and_resumes(toy_conf, tmp_path):
    work = tmp_path / "work"
    words = ("experiment=toy", "samples=100")
    full = with_small_files(8, toy_conf, work, *words)  # cells of 3 KiB fit, the merged table does not
    assert one_line(full), full.stderr
    assert len(list(Store(work / "outputs", "toy").all())) == 6
    again = with_small_files(8, toy_conf, work, "report", *words)
    assert one_line(again), again.stderr
    whole = with_small_files(20000, toy_conf, work, "report", *words)
    assert whole.returncode == 0 and not list(work.rglob("*.tmp"))
