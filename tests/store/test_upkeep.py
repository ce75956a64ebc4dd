"""Cells of earlier versions, which were folders: read as they are, put into zip files once, and
lost at no moment; what killed writers left."""

import os
import shutil
import zipfile

import pytest

from runner.files import scratch_path
from runner.run.checks import check_store
from runner.run.execute import run
from runner.store.archive import archive_bytes
from runner.store.job import Job
from runner.store.upkeep import make_ready, unfinished
from tests.run.conftest import as_folders, kills, packed, unpacked
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


def test_cells_that_are_folders_are_read_and_put_into_zip_files_once(job, calm):
    as_folders(job.store.cells)
    before = files(job.outputs)
    assert entries(job.store) == sorted(packed(calm / "toy" / "cells"))
    assert check_store(job.outputs) == 0 and files(job.outputs) == before
    outcome = run(job)
    assert (len(outcome.measured), len(outcome.stored)) == (0, 3)
    cells = files(job.store.cells)
    wanted = files(calm / "toy" / "cells")
    assert [content for content, _ in cells.values()] == [content for content, _ in wanted.values()]
    assert {path.suffix for path in job.store.cells.iterdir()} == {".zip"}
    run(job)
    assert files(job.store.cells) == cells and not (job.store.root / "quarantine").exists()


def test_a_kill_at_any_step_of_packing_loses_no_cell(job, calm, monkeypatch):
    wanted = packed(calm / "toy" / "cells")
    as_folders(job.store.cells)
    folders = job.outputs.with_name("folders")
    shutil.copytree(job.outputs, folders)
    for number in kills(monkeypatch, lambda: make_ready(job.store)):
        assert entries(job.store) == sorted(wanted) and not job.store.damaged, number
        make_ready(job.store)
        assert packed(job.store.cells) == wanted and not unfinished(job.store), number
        assert not any(path.is_dir() for path in job.store.cells.iterdir())
        shutil.rmtree(job.outputs)
        shutil.copytree(folders, job.outputs)
    assert number > 15


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


def test_what_a_folder_has_and_its_zip_file_has_not_is_kept(job):
    store = job.store
    one, two, three = (unpacked(path, store.cells) for path in sorted(store.cells.glob("*.zip")))
    store.working.path(one.name).unlink()
    (one / "notes.txt").write_text("mine")
    (two / "numbers.csv.gz").write_bytes(b"another")
    for file in three.iterdir():
        file.unlink()
    (three / "cell.json").symlink_to("nowhere")
    assert not run(job).measured
    assert {path.suffix for path in store.cells.iterdir()} == {".zip"}
    left = [store.root / "quarantine" / folder.name for folder in (one, two, three)]
    names = ("notes.txt", "numbers.csv.gz", "cell.json")
    for folder, name in zip(left, names, strict=True):
        assert [path.name for path in folder.iterdir()] == [name]
    assert (left[1] / "numbers.csv.gz").read_bytes() == b"another"
    assert check_store(job.outputs) == 0


def test_a_damaged_zip_file_next_to_a_whole_folder_is_kept_and_replaced(job):
    name = job.store.names()[0]
    path = job.store.working.path(name)
    unpacked(path, job.store.cells)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert job.store.has(name) and not run(job).measured
    assert path.read_bytes() == whole
    assert (job.store.root / "quarantine" / path.name).read_bytes() == whole[:100]


def test_what_was_being_written_goes_unless_it_is_held(job):
    store, name = job.store, job.store.names()[0]
    half = scratch_path(store.working.path(name))
    left = half.with_name(half.name.replace(f"{os.getpid()}@", "999999@elsewhere-"))
    left.write_bytes(b"half")
    earlier = [store.cells / f".tmp-{name}-999{end}" for end in ("", "-old")]
    for folder in earlier:
        unpacked(store.working.path(name), store.cells)
        (store.cells / name).rename(folder)
    (store.cells / ".tmp-mine").mkdir()
    (store.cells / ".mine.zip").touch()
    assert check_store(job.outputs) == 0
    with store.lock(name):
        make_ready(job.store)
        assert unfinished(store) == sorted([left, *earlier])
    make_ready(job.store)
    assert unfinished(store) == [] and (store.cells / ".tmp-mine").is_dir()
    assert (store.cells / ".mine.zip").is_file()
    kept = [store.root / "quarantine" / folder.name[1:] / "cell.json" for folder in earlier]
    assert all(path.is_file() for path in kept) and store.has(name)
