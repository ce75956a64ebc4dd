"""Kills, lost workers, several processes and Ctrl-C: nothing is lost, and nothing is measured
twice."""

import errno
import fcntl
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from runner.files import machine
from runner.kinds.dataset import GaussianData
from runner.run import execute, launch, loop
from runner.run.command_line import Call
from runner.run.config.overrides import Arguments
from runner.run.execute import run
from runner.run.exit_status import LimitReached, limit
from runner.store.job import Job
from runner.store.store import Store
from tests.run.conftest import cell_tables, command_environment, fork_workers, forked
from tests.run.kills import Command, faults, kill_and_resume
from tests.run.toy import Toy

SLOW = Toy(width=[1, 2, 3, 4], shape=["round", "square"], pause=0.03, dataset=GaussianData(train=8))


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_command_killed_in_its_cells_and_in_its_report_changes_no_byte(toy_conf, tmp_path):
    words = ("experiment=toy", "experiment.pause=0.05")
    calm, killed = (Command(tmp_path / name, toy_conf, words) for name in ("calm", "killed"))

    def start(run, during=lambda process_id: None):
        run.work.mkdir(exist_ok=True)
        return forked(words, run.work, command_environment(), during=during).returncode

    assert start(calm) == 0
    for phases in ({"cells", "report"}, {"report"}):

        def kill(process_id, phases=phases):
            wait_until(lambda: killed.phase() in phases)
            os.kill(process_id, signal.SIGKILL)

        start(killed, kill)
    assert not faults(killed, start(killed), calm.content())


@pytest.mark.slow
def test_a_kill_at_a_random_moment_changes_no_byte(toy_conf, tmp_path):
    """A sample: `python -m tests.run.kills 100` is the whole of it."""
    phases, wrong = kill_and_resume("jobs=1", 1, tmp_path, toy_conf, random.Random(3))
    assert phases.total() == 1 and not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_a_killed_worker_of_joblib_costs_nothing_but_time(measured, toy_conf, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ("-m", "seed=42,43", "hydra/launcher=processes")
    command = Command(tmp_path / "work", toy_conf, words)
    process = command.start()
    logs = command.outputs / "toy" / "logs"
    while not (found := list(logs.glob("seed-42-*.log"))):
        assert process.poll() is None, command.errors
        time.sleep(0.02)
    os.kill(int(found[0].stem.rpartition("-")[2]), signal.SIGKILL)
    assert process.wait(120) == 0, command.errors
    assert "ended early" in command.errors
    made = cell_tables(command.outputs).values()
    assert len(made) == 2 * 12 and set(cell_tables(measured).values()) <= set(made)


def test_workers_end_soon_after_a_command_that_was_killed(toy_conf, tmp_path):
    command = Command(tmp_path, toy_conf, ("experiment=toy", "jobs=2", "experiment.pause=60"))
    begun: set[str] = set()

    def kill(process_id):
        def in_their_cells():
            for path in (command.outputs / "toy" / "logs").glob("seed-42-*.log"):
                if "measuring" in path.read_text():
                    begun.add(path.stem.rpartition("-")[2])
            return len(begun) == 2

        wait_until(in_their_cells)
        os.kill(process_id, signal.SIGKILL)

    forked(command.words, tmp_path, command_environment(), fork_workers, kill)
    wait_until(lambda: not any(command_line(Path("/proc", number)) for number in begun))
    assert not list((command.outputs / "toy" / "cells").glob("[!.]*"))


@pytest.mark.slow
def test_workers_of_joblib_end_soon_after_a_command_that_was_killed_alone(toy_conf, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ("-m", "seed=42,43", "hydra/launcher=processes", "experiment.pause=60")
    command = Command(tmp_path / "work", toy_conf, words)
    process = command.start()
    begun: set[str] = set()

    def in_their_cells():
        assert process.poll() is None, command.errors
        for path in (command.outputs / "toy" / "logs").glob("seed-*.log"):
            if "measuring" in path.read_text():
                begun.add(path.stem.rpartition("-")[2])
        return len(begun) == 2

    wait_until(in_their_cells)
    process.kill()
    process.wait()
    wait_until(lambda: not any(command_line(Path("/proc", number)) for number in begun))
    assert not list((command.outputs / "toy" / "cells").glob("[!.]*"))


def command_line(process):
    """Empty where it has ended, waited for or not."""
    with suppress(OSError):
        return (process / "cmdline").read_bytes()


def test_what_counts_as_a_lost_worker():
    class Lost(Exception):
        __module__ = "joblib.externals.loky.process_executor"

    assert launch.lost_worker(Lost("a worker process was killed"))
    assert not launch.lost_worker(RuntimeError("the experiment's own"))
    full = "job 3 failed: runner.run.exit_status.LimitReached: no space left: [Errno 28]"
    assert not launch.lost_worker(Lost(full))
    for error in (LimitReached("no space left: full"), OSError(28, "No space left")):
        assert limit(error) == "no space left"
    assert limit(OSError(2, "no such file")) == "" and limit(MemoryError()) == "not enough memory"


@pytest.mark.parametrize(("losses", "starts"), [(0, 1), (3, 4), (4, 4)])
def test_a_launcher_that_loses_processes_is_started_again_three_times(
    losses, starts, tmp_path, monkeypatch, capsys
):
    lost, calls = type("Lost", (Exception,), {"__module__": "joblib.process"}), []

    def application(words):
        calls.append(words)
        if len(calls) <= losses:
            raise lost("killed")

    monkeypatch.setattr(launch, "application", application)
    monkeypatch.setattr(launch, "FULL_ERROR", False)
    job = SimpleNamespace(outputs=tmp_path, seed=1)
    with pytest.raises(lost) if losses > launch.RESTARTS else nullcontext():
        launch.launch(Call(""), Arguments(()), [job])
    assert len(calls) == starts and capsys.readouterr().err.count("ended early") == starts - 1


def start(job: Job) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=run, args=(job,))
    process.start()
    return process


@pytest.mark.parametrize("words", [(), ("jobs=2",)], ids=" ".join)
def test_a_cell_that_kills_its_process_twice_fails_and_the_others_are_measured(
    words, toy_conf, tmp_path
):
    """As for lack of memory: the first cell of three, in the order of the grid."""
    environment = command_environment(TOY_KILLED_AT="1")
    command = ("experiment=toy", "experiment.shape=[round]", *words)
    named = "cell width=1 shape=round was begun by process"
    ended = [forked(command, tmp_path, environment, fork_workers) for _ in range(3 - len(words))]
    if words:  # the second worker takes the cell over
        assert "in cell width=1 shape=round; the finished cells" in ended[0].stderr
        assert named in ended[0].stderr
    else:
        assert [one.returncode for one in ended[:2]] == [-signal.SIGKILL] * 2
        assert named not in ended[0].stderr and named in ended[1].stderr
    assert ended[-1].returncode == 1
    assert "2 were stored, 1 failed" in ended[-1].stdout
    assert "were that measured this cell" in ended[-1].stderr
    mended = forked(command, tmp_path, command_environment(), fork_workers)
    assert mended.returncode == 0 and "1 measured, 2 were stored" in mended.stdout
    assert not list((tmp_path / "outputs" / "toy" / ".locks").glob("*.json"))


def test_a_process_that_holds_a_cell_for_long_is_named(tmp_path, monkeypatch, capsys):
    """Such as one that Ctrl-Z has stopped."""
    monkeypatch.setattr(loop, "NAMED_AFTER", 0.2)
    job = Job("toy", SLOW, 42, tmp_path)
    cell_id, cell = job.cells()[0]
    said = []

    def measured(*arguments):
        said.append(capsys.readouterr().err)
        held.close()  # the other process goes on, and ends

    held = ExitStack()
    with held:
        assert held.enter_context(job.store.lock(cell_id))
        job.store.begin(cell_id, "of another run")
        monkeypatch.setattr(
            loop, "_name_holders", lambda *of, name=loop._name_holders: (name(*of), measured())
        )
        assert len(run(job).measured) == len(list(SLOW.cells()))
    line = f"waiting for cell {cell.label}, which process {os.getpid()} of {machine()} measures"
    assert line in said[0]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_locks_has_soft_ones(number, tmp_path, monkeypatch):
    def refused(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    store = Store(tmp_path, "toy")
    with store.lock("0" * 16) as ours, store.lock("0" * 16) as second:
        assert ours and not second
    assert len(run(Job("toy", SLOW, 42, tmp_path)).measured) == len(list(SLOW.cells()))
    assert not list(store.locks.glob("*.soft-lock"))


def test_two_processes_on_one_store_measure_each_cell_once(tmp_path):
    together = [start(Job("toy", SLOW, 42, tmp_path)) for _ in range(2)]
    for process in together:
        process.join()
        assert process.exitcode == 0
    logs = "".join(p.read_text() for p in Store(tmp_path, "toy").logs.iterdir())
    assert logs.count(" stored after ") == len(list(SLOW.cells()))
    assert logs.count("measuring ") == len(list(SLOW.cells()))


def test_several_jobs_share_the_cells_and_report_failures_once(
    forked_workers, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("HESS_QUIET", "0")
    failing = Toy(width=[1, 2, 3], shape=["round"], fail_at=2, dataset=GaussianData(train=8))
    outcome = run(Job("toy", failing, 42, tmp_path, jobs=2))
    assert (len(outcome.measured), len(outcome.failed), outcome.interrupted) == (2, 1, False)
    progress = capsys.readouterr().err
    assert "measured width=1" in progress and "measured width=3" in progress
    again = run(Job("toy", failing, 42, tmp_path, jobs=2, force=True))
    assert (len(again.measured), len(again.stored), len(again.failed)) == (2, 0, 1)
    run(Job("toy", failing, 42, tmp_path / "alone"))
    assert cell_tables(tmp_path) == cell_tables(tmp_path / "alone") != {}
    # without the command's handlers
    monkeypatch.setattr(execute, "start", Mock(side_effect=KeyboardInterrupt))
    stopped = run(Job("toy", failing, 42, tmp_path / "stopped", jobs=2))
    assert stopped.interrupted and not stopped.measured


def test_stop_ends_a_worker_that_heeds_no_signal_and_skips_one_that_never_started():
    fork = multiprocessing.get_context("fork")
    running, never = (fork.Process(target=time.sleep, args=(60,)) for _ in range(2))
    running.start()
    execute.stop([running, never])
    assert running.exitcode == -signal.SIGKILL and never.pid is None


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), execute.FIRST_LIMIT),
        (KeyboardInterrupt(), execute.INTERRUPTED),
    ],
)
def test_a_worker_tells_the_command_of_a_limit_and_of_an_interruption(error, status, monkeypatch):
    for name in ("protect", "end_with"):
        monkeypatch.setattr(execute, name, Mock())
    monkeypatch.setattr(execute, "measure", Mock(side_effect=error))
    with pytest.raises(SystemExit) as ending:
        execute._work(["a job"], os.getpid(), 1, None)
    assert ending.value.code == status
    monkeypatch.setattr(execute, "measure", Mock(side_effect=ValueError("x")))
    with pytest.raises(ValueError):
        execute._work(["a job"], os.getpid(), 1, None)


@pytest.mark.parametrize("code", [execute.FIRST_LIMIT, -signal.SIGKILL, execute.INTERRUPTED])
def test_what_ends_every_worker_is_told(code, tmp_path, monkeypatch, capsys):
    """Without a cell: a limit, a kill, an interruption."""
    ended = Mock(exitcode=code, pid=7)
    ended.is_alive.return_value = False
    monkeypatch.setattr(execute, "start", Mock(return_value=[ended]))
    job = Job("toy", SLOW, 42, tmp_path, jobs=2)
    if code == execute.INTERRUPTED:
        assert run(job).interrupted
        return
    with pytest.raises(LimitReached if code > 0 else RuntimeError) as error:
        run(job)
    assert limit(error.value) == ("no space left" if code > 0 else "")
    assert ("process 7 of this run was killed (SIGKILL)" in capsys.readouterr().err) == (code < 0)


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
