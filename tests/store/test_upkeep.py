"""Cells are zip files that are replaced whole; cells of earlier versions, which were folders, are
named; what killed writers left goes."""

import os
import zipfile

import pytest

from runner.files import scratch_path
from runner.run.checks import check_store
from runner.run.execute import run
from runner.run.reports import PACKING, earlier_cells
from runner.store.archive import archive_bytes
from runner.store.job import Job
from tests.run.conftest import kills, packed, unpacked
from tests.store.conftest import TOY


@pytest.fixture
def job(outputs):
    return Job("toy", TOY, 42, outputs)


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def entries(store):
    """Every file of the cells of a store."""
    return sorted(entry for cell in store.all() for entry in cell.entries())


def test_a_cell_is_one_zip_file_whose_entries_an_archive_takes_over(job):
    paths = sorted(job.store.cells.iterdir())
    assert [path.name for path in paths] == [f"{name}.zip" for name in job.store.names()]
    assert entries(job.store) == sorted(packed(job.store.cells))
    for path in paths:
        cell = job.store.get(path.stem)
        assert path.read_bytes() == archive_bytes(cell.entries())
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                assert entry.compress_type == zipfile.ZIP_STORED
                assert entry.date_time == (1980, 1, 1, 0, 0, 0)


def test_cells_that_are_folders_are_named_with_their_cost_and_left_alone(job, capsys):
    for path in list(job.store.cells.glob("*.zip")):
        unpacked(path, job.store.cells)
        path.unlink()
    before = files(job.store.cells)
    assert check_store(job.outputs) == 0
    assert "3 cells are folders" in (line := earlier_cells(job.store))
    assert line in capsys.readouterr().out and PACKING in line and " of one core" in line
    assert len(run(job).measured) == 3
    assert files(job.store.cells).items() > before.items()


def test_a_kill_at_any_step_of_a_replacement_leaves_the_cell_or_the_new_one(job, monkeypatch):
    name = job.store.names()[0]
    cell = job.store.get(name)
    tables = {table: cell.table(table) for table in cell.meta["tables"]}
    old, path = cell.entries(), job.store.working.path(name)
    meta = {**cell.meta, "run": "another"}
    for number in kills(monkeypatch, lambda: job.store.write(name, tables, meta)):
        found = job.store.get(name)
        assert found.meta["run"] in (cell.meta["run"], "another"), number
        assert found.content("numbers") == cell.content("numbers")
        path.write_bytes(archive_bytes(old))
    assert number >= 3 and found.meta["run"] == "another"


def test_what_was_being_written_goes_when_its_writer_is_gone(job):
    store, name = job.store, job.store.names()[0]
    half = scratch_path(store.working.path(name))
    ours, dead, elsewhere = (
        half.with_name(half.name.replace(f"{os.getpid()}@", other))
        for other in (f"{os.getppid()}@", "999999@", "999999@elsewhere-")
    )
    left = [ours, dead, elsewhere, store.cells / ".mine.zip"]
    for path in left:
        path.write_bytes(b"half")
    assert check_store(job.outputs) == 0
    assert [path.exists() for path in left] == [True, False, True, True]
    cell = store.get(name)  # whoever measures the cell is the one who writes it
    store.write(name, {table: cell.table(table) for table in cell.meta["tables"]}, cell.meta)
    assert [path.exists() for path in left] == [False, False, False, True] and store.has(name)
