"""Several processes on one store, and Ctrl-C: nothing is measured twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from runner.kinds.dataset import GaussianData
from runner.run import execute
from runner.run.execute import dismiss, run
from runner.store.job import Job
from runner.store.store import Store
from tests.run.conftest import command_environment, fork_workers, forked
from tests.run.toy import Toy

SLOW = Toy(width=[1, 2, 3, 4], shape=["round", "square"], pause=0.03, dataset=GaussianData(train=8))


def table_bytes(outputs: Path) -> dict[str, bytes]:
    cells = outputs / "toy" / "cells"
    return {str(p.relative_to(cells)): p.read_bytes() for p in sorted(cells.rglob("*.csv.gz"))}


def start(job: Job) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=run, args=(job,))
    process.start()
    return process


def test_two_processes_on_one_store_measure_each_cell_once(tmp_path):
    together = [start(Job("toy", SLOW, 42, tmp_path)) for _ in range(2)]
    for process in together:
        process.join()
        assert process.exitcode == 0
    logs = "".join(p.read_text() for p in Store(tmp_path, "toy").logs.iterdir())
    assert logs.count(" stored after ") == len(list(SLOW.cells()))
    assert logs.count("measuring ") == len(list(SLOW.cells()))


def test_several_jobs_share_the_cells_and_report_failures_once(tmp_path, monkeypatch):
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: fork)
    failing = Toy(width=[1, 2, 3], shape=["round"], fail_at=2, dataset=GaussianData(train=8))
    outcome = run(Job("toy", failing, 42, tmp_path, jobs=2))
    assert (len(outcome.measured), len(outcome.failed), outcome.interrupted) == (2, 1, False)
    again = run(Job("toy", failing, 42, tmp_path, jobs=2, force=True))
    assert (len(again.measured), len(again.stored), len(again.failed)) == (2, 0, 1)
    dismiss()
    run(Job("toy", failing, 42, tmp_path / "alone"))
    assert table_bytes(tmp_path) == table_bytes(tmp_path / "alone") != {}
    monkeypatch.setattr(execute, "prepare", Mock(side_effect=KeyboardInterrupt))  # without the command's handlers
    stopped = run(Job("toy", failing, 42, tmp_path / "stopped", jobs=2))
    assert stopped.interrupted and not stopped.measured


def interruptible() -> None:
    """A process group of its own that heeds Ctrl-C, which a test run in the background ignores."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fork_workers()


@pytest.mark.parametrize("words", [(), ("jobs=2",)], ids=" ".join)
def test_ctrl_c_ends_soon_and_says_how_to_go_on(words, toy_conf, tmp_path):
    store = Store(tmp_path / "outputs", "toy")

    def ctrl_c(process_id: int) -> None:
        wait_until(lambda: any(store.cells.glob("[!.]*")))
        os.killpg(process_id, signal.SIGINT)

    words = ("experiment=toy", "experiment.pause=1.5", *words)
    ended = forked(words, tmp_path, command_environment(), interruptible, ctrl_c)
    assert ended.returncode == 130 and "Traceback" not in ended.stderr
    assert "run the same command again" in ended.stderr.lower()
    assert 1 <= len(list(store.all())) < 6


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)
