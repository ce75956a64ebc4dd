"""Progress on a terminal: the running cell before any has ended, and a remaining time that follows it."""

import multiprocessing
import sys
from typing import Any

import pytest

from runner.contract import Cell
from runner.run import console, execute

CELLS = [Cell({"k": 1}, seconds=10.0), Cell({"k": 2}, seconds=20.0)]


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_a_running_cell_shows_phase_step_and_rate_before_it_ends(clock, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = console.open_progress("toy", CELLS)
    bar.start("k=1")
    for step in range(3):
        bar.inside(step, 50, "loss 0.5")
        clock[0] += 0.5
    text = capsys.readouterr().err
    bar.close()
    assert "0/2" in text and "k=1: loss 0.5 2 of 50, 2 a second" in text and "about 29 s to go" in text
    assert "\x1b[3" not in text  # no colour


def test_the_remaining_time_follows_a_cell_that_takes_longer_and_those_measured(clock):
    lines = console.Lines("toy", CELLS)
    lines.start("k=1")
    clock[0] += 4
    assert lines.left == "about 26 s to go"
    clock[0] += 16
    assert lines.left == "about 40 s to go"
    lines.advance("measured", CELLS[0])
    assert lines.left == "about 40 s to go"
    lines.advance("measured", CELLS[1], 40.0)
    assert lines.left == ""


class Pipe(list[Any]):
    """Both ends of a pipe; a real one waits by the clock that the test has stopped."""

    send = list.append

    def poll(self) -> bool:
        return bool(self)

    def recv(self) -> Any:
        return self.pop(0)


def test_several_processes_share_the_remaining_time_and_the_second_line(clock, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = console.open_progress("toy", CELLS, 2)
    pipe = Pipe()
    sent, worker = execute._Sent(pipe), execute.Worker(multiprocessing.current_process(), pipe, busy=True)
    for step in range(3):
        for label in ("k=1", "k=2"):
            sent.start(label)
            clock[0] += 0.6
            sent.inside(step, 50, "epoch")
    assert worker.outcome(bar) is None and worker.busy
    pipe.send(("done", "outcome"))
    assert worker.outcome(bar) == ("done", "outcome") and not worker.busy
    text = capsys.readouterr().err
    bar.close()
    assert "k=1: epoch 0 of 50" in text and "k=2: epoch 2 of 50" in text and "about 15 s to go" in text
