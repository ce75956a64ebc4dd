"""Kills, interrupts, company and full disks: the store stays whole and nothing is measured twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from runner.kinds.dataset import GaussianData
from runner.run.execute import run
from runner.store.job import Job
from runner.store.store import Store
from tests.run.toy import Toy

SLOW = Toy(width=[1, 2, 3, 4], shape=["round", "square"], pause=0.03, dataset=GaussianData(train=8))


def table_bytes(outputs: Path) -> dict[str, bytes]:
    cells = outputs / "toy" / "cells"
    return {str(p.relative_to(cells)): p.read_bytes() for p in sorted(cells.rglob("*.csv.gz"))}


def start(job: Job) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=run, args=(job,))
    process.start()
    return process


def test_killed_at_twenty_moments_the_tables_are_those_of_an_undisturbed_run(tmp_path):
    run(Job("toy", SLOW, 42, tmp_path / "calm"))
    rng = random.Random(0)
    for _ in range(20):
        process = start(Job("toy", SLOW, 42, tmp_path / "killed"))
        time.sleep(rng.uniform(0.005, 0.12))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        for cell in Store(tmp_path / "killed", "toy").all():
            assert set(cell.meta["tables"]) == {"numbers", "keys"}
            assert len(cell.table("numbers")) == 20
    outcome = run(Job("toy", SLOW, 42, tmp_path / "killed"))
    assert not outcome.failed
    assert table_bytes(tmp_path / "killed") == table_bytes(tmp_path / "calm")
    left = [p.name for p in (tmp_path / "killed" / "toy" / "cells").iterdir() if p.name.startswith(".")]
    assert left == []


def test_two_processes_on_one_store_measure_each_cell_once(tmp_path):
    together = [start(Job("toy", SLOW, 42, tmp_path)) for _ in range(2)]
    for process in together:
        process.join()
        assert process.exitcode == 0
    logs = "".join(p.read_text() for p in Store(tmp_path, "toy").logs.iterdir())
    assert logs.count(" stored after ") == len(list(SLOW.cells()))
    assert logs.count("measuring ") == len(list(SLOW.cells()))


def test_several_jobs_share_the_cells_and_report_failures_once(tmp_path):
    failing = Toy(width=[1, 2, 3], shape=["round"], fail_at=2, dataset=GaussianData(train=8))
    outcome = run(Job("toy", failing, 42, tmp_path, jobs=2))
    assert (len(outcome.measured), len(outcome.failed), outcome.interrupted) == (2, 1, False)
    again = run(Job("toy", failing, 42, tmp_path, jobs=2, force=True))
    assert (len(again.measured), len(again.stored), len(again.failed)) == (2, 0, 1)
    run(Job("toy", failing, 42, tmp_path / "alone"))
    assert table_bytes(tmp_path) == table_bytes(tmp_path / "alone") != {}


def test_ctrl_c_ends_soon_and_says_how_to_go_on(hess_run):
    process = hess_run("experiment=toy", "experiment.pause=1.5", start=True)
    cells = hess_run.folder / "outputs" / "toy" / "cells"
    deadline = time.monotonic() + 60
    while not (cells.is_dir() and any(not p.name.startswith(".") for p in cells.iterdir())):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    asked = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    print(f"ended {time.monotonic() - asked:.1f} s after Ctrl-C")
    assert process.returncode == 130
    assert "run the same command again" in err.lower() and "Traceback" not in err
    stored = len(list(Store(hess_run.folder / "outputs", "toy").all()))
    assert 1 <= stored < 6


@pytest.mark.slow
def test_ctrl_c_with_workers(hess_run):
    process = hess_run("experiment=toy", "experiment.pause=1.5", "jobs=2", start=True)
    cells = hess_run.folder / "outputs" / "toy" / "cells"
    deadline = time.monotonic() + 60
    while not (cells.is_dir() and any(not p.name.startswith(".") for p in cells.iterdir())):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err
