"""A cell is one zip file and lost at no moment; what killed writers left."""

import os
import zipfile

import pytest

from runner.files import scratch_path
from runner.store.archive import archive_bytes
from runner.store.job import Job
from runner.store.upkeep import make_ready, unfinished
from tests.run.conftest import packed
from tests.store.conftest import TOY


class Killed(BaseException):
    """As a kill: nothing of the program runs after it but what ends `finally` blocks."""


@pytest.fixture
def job(outputs):
    return Job("toy", TOY, 42, outputs)


def killed_at(monkeypatch, number):
    """Let the step of this number to the disk be the last, from 0 on."""
    left = [number]

    def counted(call):
        def step(*arguments, **keywords):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return call(*arguments, **keywords)

        return step

    for name in ("fsync", "replace", "rename", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


def test_a_cell_is_one_zip_file_whose_entries_an_archive_takes_over(job):
    paths = sorted(job.store.cells.iterdir())
    assert [path.name for path in paths] == [f"{name}.zip" for name in job.store.names()]
    entries = [entry for cell in job.store.all() for entry in cell.entries()]
    assert sorted(entries) == sorted(packed(job.store.cells))
    for path in paths:
        cell = job.store.get(path.stem)
        assert path.read_bytes() == archive_bytes(cell.entries())
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                assert entry.compress_type == zipfile.ZIP_STORED
                assert entry.date_time == (1980, 1, 1, 0, 0, 0)


def test_a_kill_at_any_step_of_a_replacement_leaves_the_cell_or_the_new_one(job, monkeypatch):
    name = job.store.names()[0]
    cell = job.store.get(name)
    tables = {table: cell.table(table) for table in cell.meta["tables"]}
    old, path = cell.entries(), job.store.working.path(name)
    for number in range(20):
        path.write_bytes(archive_bytes(old))
        store = job.store
        with monkeypatch.context() as kill:
            killed_at(kill, number)
            try:
                store.write(name, tables, {**cell.meta, "run": "another"})
            except Killed:
                ended = False
            else:
                ended = True
        found = job.store.get(name)
        assert found.meta["run"] in (cell.meta["run"], "another")
        assert found.content("numbers") == cell.content("numbers")
        if ended:
            break
    assert ended and number >= 3 and found.meta["run"] == "another"


def test_what_was_being_written_goes_unless_it_is_held(job):
    store, name = job.store, job.store.names()[0]
    half = scratch_path(store.working.path(name))
    left = half.with_name(half.name.replace(f"{os.getpid()}@", "999999@elsewhere-"))
    left.write_bytes(b"half")
    with store.lock(name):
        make_ready(job.store)
        assert unfinished(store) == [left]
    make_ready(job.store)
    assert unfinished(store) == [] and store.has(name)
