"""Experiments that exit, print, fork, change the process, or return what is no table: each is a
failed cell with one line, or harmless."""

import os
import re
import sys
from pathlib import Path

import pytest

from runner.run import exit_status, guest
from runner.run.execute import run
from runner.run.streams import Tolerant
from runner.run.verify import verify_jobs
from runner.store.job import Job, claim_outputs
from runner.store.store import Store
from tests.run import guests


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job of the cells of these ways, in a folder named from the working folder."""
    monkeypatch.chdir(tmp_path)

    def make(*ways, seed=42, outputs="outputs", force=False):
        made = Job("guest", guests.Guest(way=list(ways)), seed, tmp_path / outputs, force=force)
        claim_outputs(made.outputs)
        return made

    return make


def values(job):
    return {c.meta["params"]["way"]: c.table("rows")["value"].tolist() for c in job.store.all()}


FAIL = {
    "exits": r"guests.py:\d+ called sys.exit\(0\); remove that call",
    "exits with a text": r"called sys.exit\('no data'\)",
    "raises no Exception": "GeneratorExit: odd",
    "raises without a text": "Mute, whose text cannot be made",
    "nothing": "expected tables by name, found None",
    "no table": "expected tables by name, found {}",
    "a list": r"expected tables by name, found \[1.0\]",
    "a table of numbers": r"table rows: expected columns .*, found \[1.0\]",
    "a frame with an index": r"table rows: expected no index of its own, call .reset_index\(\)",
    "a name with capitals": "expected table names of at most 64 letters .*, found 'Rows'",
    "a name of an answer": "expected table names other than stats, claims, scorecard",
    "a long name": "expected table names of at most 64 letters .*, found 'rowsrows",
    "two columns of one name": "table rows: expected columns of different names, found two 'value'",
    "another certificate": "table certificate: expected rows of .*certificate_row, found columns",
    "a carriage return": "texts of one line, read back",
    "a column without a name": "expected names and texts of one line, read back",
    "complex numbers": "column value: expected numbers, texts or truth values, found complex",
    "mappings": "column value: expected numbers, texts or truth values, found dict",
    "rows of other lengths": "column value: expected one dimension of values",
    "a type that numpy lacks": "column value: expected one dimension of values",
}


@pytest.mark.parametrize("way", FAIL)
def test_a_cell_that_cannot_be_stored_fails_alone_and_says_why(way, job):
    outcome = run(job(way, "prints"))
    assert (len(outcome.failed), len(outcome.measured), outcome.interrupted) == (1, 1, False)
    (record,) = job("prints").store.failed().values()
    assert re.search(FAIL[way], record["error"])
    assert list(values(job("prints"))) == ["prints"]


def test_what_a_cell_changes_ends_with_it(job, capfd, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Tolerant(sys.stderr, text_alone=False))  # as in a command
    alone = job("draws")
    assert not run(alone).failed
    ways = ("changes defaults", "prints", "closes", "forks", "a frame", "draws")
    after = job(*ways, outputs="after")
    before = [read() for read, _ in guest._settings()]
    assert not run(after).failed and os.getcwd() == str(alone.outputs.parent)
    assert values(after)["draws"] == values(alone)["draws"]
    assert values(after)["a frame"] == [1.0]
    assert [read() for read, _ in guest._settings()] == before
    print("still there")
    captured = capfd.readouterr()
    assert captured.out == "still there\n" and captured.err.count("printed") == 1


def test_checkpoints_stay_where_the_run_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store(Path("outputs"), "guest")
    monkeypatch.chdir("/")
    assert store.checkpoints({}).folder.is_relative_to(tmp_path / "outputs" / "guest")


def test_global_random_streams_begin_at_the_seed_in_every_cell(job):
    drawn = []
    for number, seed in enumerate((42, 43, 42)):
        one = job("draws", seed=seed, outputs=str(number))
        assert not run(one).failed
        drawn.append(values(one)["draws"])
    assert drawn[0] == drawn[2] and not set(drawn[0]) & set(drawn[1])


def test_verify_prints_its_answer_alone_and_counts_a_cell_that_fails_now(job, capsys, monkeypatch):
    stored = job("prints", "draws")
    run(stored)
    monkeypatch.setitem(guests.WAYS, "draws", lambda: sys.exit(0))
    assert verify_jobs([stored], 0) == 1
    *cells, counts = capsys.readouterr().out.splitlines()
    assert len(cells) == 2 and sum("called sys.exit(0)" in line for line in cells) == 1
    assert counts.endswith("1 agree, 1 differ")


def test_code_that_exits_while_it_is_imported_is_an_error(capsys):
    assert exit_status.guarded(lambda: sys.exit(0)) == 1
    assert "called sys.exit(0); remove that call" in capsys.readouterr().err
