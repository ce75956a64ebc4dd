"""Published cells in an archive below the working folder: every reader sees both, and nothing is
written into it."""

import io
import zipfile

import pytest

from runner.files import write_bytes
from runner.run.checks import check_store
from runner.run.execute import run
from runner.run.forecast import cell_lines, planned, survey
from runner.run.verify import verify_jobs
from runner.store.archive import archive_bytes
from runner.store.job import Job, claim_outputs
from runner.store.store import Store, merge
from tests.run.conftest import opened, packed
from tests.store.conftest import TOY, flipped


@pytest.fixture(scope="session")
def files(calm):
    return packed(calm / "toy" / "cells")


@pytest.fixture
def archive(files, tmp_path, monkeypatch):
    """Three published cells of the toy, and an empty working folder beside them."""
    path = tmp_path / "published" / "toy" / "cells.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(archive_bytes(files))
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "published"))
    claim_outputs(tmp_path / "work")
    return path


def job(outputs, seed=42, **settings):
    return Job("toy", TOY, seed, outputs, **settings)


def test_published_cells_count_as_stored_for_every_reader(archive, tmp_path, capsys):
    before, work = archive.read_bytes(), tmp_path / "work"
    outcome = run(job(work))
    assert (len(outcome.measured), len(outcome.stored)) == (0, 3)
    lines, left = survey([job(work)])
    assert "3 of 3 cells are stored (all published)" in lines[0] and left == []
    assert "nothing to do" in cell_lines(planned([job(work)]))[-2]
    assert verify_jobs([job(work)], sample=0) == 0 and check_store(work) == 0
    assert "3 cells are whole, 0 damaged" in capsys.readouterr().out
    assert len(merge(Store(work, "toy").all())["numbers"]) == 60
    outcome = run(job(work, seed=43))
    assert (len(outcome.measured), len(list(Store(work, "toy").all()))) == (3, 6)
    assert archive.read_bytes() == before and len(list((work / "toy" / "cells").iterdir())) == 3


def test_a_forced_run_measures_into_the_working_folder_which_comes_first(archive, tmp_path):
    before = archive.read_bytes()
    assert len(run(job(tmp_path / "work", force=True)).measured) == 3
    cells = list(Store(tmp_path / "work", "toy").all())
    assert archive.read_bytes() == before and len(cells) == 3
    assert {cell.files for cell in cells} == {cells[0].files} and hasattr(cells[0].files, "root")
    assert len(run(job(tmp_path / "alone", published=False)).measured) == 3


def test_a_published_cell_stands_in_for_a_damaged_one(archive, tmp_path):
    run(job(tmp_path, force=True))
    store = Store(tmp_path, "toy")
    name = store.names()[0]
    with opened(store.working.path(name)) as cell:
        (cell / "numbers.csv.gz").write_bytes(b"")
    assert store.has(name) and store.damaged[name]
    assert hasattr(store.get(name).files, "path")


def broken(content, file):
    """The archive with a bit of one entry's content changed; sizes and checksums as before."""
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        entry = found.read(file)
    return flipped(content, content.index(entry) + len(entry) // 2)


@pytest.mark.parametrize("file", ["cell.json", "numbers.csv.gz"])
def test_a_damaged_entry_is_named_and_its_cell_measured_into_the_working_folder(
    archive, tmp_path, capsys, file
):
    name = Store(tmp_path, "toy").names()[1]
    content = broken(archive.read_bytes(), f"{name}/{file}")
    archive.write_bytes(content)
    store = Store(tmp_path / "work", "toy")
    assert not store.has(name) and len(list(store.all())) == 2 and store.damaged == {}
    assert check_store(tmp_path / "work", repair=True) == 1
    assert f"damaged cell {name} ({file}: is not what was stored" in capsys.readouterr().out
    outcome = run(job(tmp_path / "work"))
    assert (len(outcome.measured), len(outcome.stored)) == (1, 2)
    assert archive.read_bytes() == content


DAMAGE = {
    "empty": lambda content: b"",
    "an end without entries": lambda content: b"PK\5\6",
    "an end of ones": lambda content: b"PK\5\6" + b"\xff" * 18,
    "zeros": lambda content: bytes(1 << 20),
    "cut off": lambda content: content[: len(content) // 2],
    "text": lambda content: b"version https://git-lfs.github.com/spec/v1\n",
    "a directory of garbage": lambda content: content[:-200] + bytes(200),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_an_archive_that_cannot_be_read_is_named_and_has_no_cells(archive, tmp_path, capsys, kind):
    archive.write_bytes(DAMAGE[kind](archive.read_bytes()))
    assert list(Store(tmp_path / "work", "toy").all()) == []
    assert check_store(tmp_path / "work") == 1
    assert f"{archive} cannot be read" in capsys.readouterr().out
    assert len(run(job(tmp_path / "work")).measured) == 3


def test_the_bytes_of_an_archive_depend_on_its_content_alone(files):
    content = archive_bytes(files)
    assert content == archive_bytes(reversed(files))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None and archive.namelist() == sorted(name for name, _ in files)
        assert {name: archive.read(name) for name in archive.namelist()} == dict(files)


def test_an_archive_packed_by_another_program_is_read_and_a_new_one_replaces_it(
    files, archive, tmp_path, monkeypatch
):
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 0)  # as with more than 65,535 entries
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as other:
        for name, content in files:
            other.writestr(name, content)
    store = Store(tmp_path, "toy")
    assert len(list(store.all())) == 3
    archive.write_bytes(buffer.getvalue())
    assert len(list(Store(tmp_path, "toy").all())) == 3
    first = files[0][0].split("/")[0]
    write_bytes(archive, archive_bytes([item for item in files if not item[0].startswith(first)]))
    assert first not in Store(tmp_path, "toy").names() and first in store.names()
