"""Archives and cells with random damage: whatever is used is what was stored, and reading ends."""

import os
import random
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from runner.data import cifar
from runner.data.fetch import fetch_archive, unpack
from runner.data.images import DataError
from runner.store.archive import Archive, archive_bytes
from runner.store.cells import Damaged
from runner.store.store import Store
from tests.data.test_fetch import FOLDER, PACKED, spec_of
from tests.run.conftest import opened, packed

CASES, SEED = int(os.environ.get("HESS_CASES", "20")), int(os.environ.get("HESS_SEED", "0"))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """One to three changes of a file: bits, pieces lost, doubled, zeroed or put elsewhere."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randrange(len(changed)), chance.choice([1, 2, 4, 30, 500])
        match chance.randrange(6):
            case 0:
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size]
            case 3:
                changed[at : at + size] = bytes(len(changed[at : at + size]))
            case 4:
                changed = changed[:at] or changed
            case 5:
                number = chance.choice([0, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF])
                changed[at : at + 4] = number.to_bytes(4, "little")
    return bytes(changed)


@pytest.fixture
def stored(measured):
    """(content of an archive of the toy's cells, id -> table -> bytes)."""
    store = Store(measured, "toy", published=False)
    tables = {}
    for cell in store.all():
        tables[cell.id] = {name: cell.content(name) for name in cell.meta["tables"]}
    return archive_bytes(packed(measured / "toy" / "cells")), tables


def test_damaged_archives_give_the_stored_bytes_or_none(stored, tmp_path):
    content, tables = stored
    whole = 0
    for case in range(CASES):
        path = tmp_path / f"{case}.zip"
        path.write_bytes(damaged(content, random.Random(SEED * 10_000 + case)))
        archive = Archive(path)
        for name in list(archive.names()):
            cell = archive.usable(name)
            if cell is not None:
                whole += 1
                assert {t: cell.content(t) for t in cell.meta["tables"]} == tables[name], case
                assert all(len(cell.table(t)) == n for t, n in cell.meta["tables"].items()), case
            else:
                assert archive.damaged[name], case
    assert 0 < whole < CASES * len(tables)


def test_damaged_cells_give_the_stored_bytes_or_none(stored, measured, tmp_path):
    _, tables = stored
    for case in range(CASES):
        chance = random.Random(SEED * 10_000 + case)
        outputs = tmp_path / str(case)
        shutil.copytree(measured, outputs)
        store = Store(outputs, "toy", published=False)
        path = chance.choice(sorted(store.cells.iterdir()))
        if case % 2:
            path.write_bytes(damaged(path.read_bytes(), chance))
            harmless = True  # in the directory, say
        else:
            with opened(path) as folder:
                file = chance.choice(sorted(folder.iterdir()))
                content = damaged(file.read_bytes(), chance)
                harmless = content == file.read_bytes() or file.name == "cell.json"
                file.write_bytes(content)
        found = list(store.all())
        for cell in found:
            assert {t: cell.content(t) for t in cell.meta["tables"]} == tables[cell.id], case
        assert len(found) == len(tables) - 1 or (harmless and len(found) == len(tables)), case
        assert len(store.damaged) == len(tables) - len(found), case
        shutil.rmtree(outputs)


def test_damaged_downloads_are_not_opened(tmp_path, monkeypatch):
    path, root = tmp_path / "tiny.tar.gz", tmp_path / "data"
    monkeypatch.setattr(cifar.Archive, "url", path.as_uri())
    for case in range(CASES):
        path.write_bytes(damaged(PACKED, random.Random(SEED * 10_000 + case)))
        with pytest.raises(DataError, match="expected MD5"):
            fetch_archive(spec_of(PACKED), root)
        assert not (root / FOLDER).exists(), case


HOSTILE = {
    "traversal": "../../outside/cell.json",
    "absolute": "/tmp/outside/cell.json",
    "no folder": "cell.json",
    "empty": "/cell.json",
    "backslash": "..\\outside\\cell.json",
    "control characters": "a\x1b[31m/cell.json",
    "long": f"{'x' * 5000}/cell.json",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_in_an_archive_lead_nowhere(stored, tmp_path, kind):
    content, tables = stored
    path = tmp_path / "deep" / "er" / "cells.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(HOSTILE[kind], b"{}")
    archive = Archive(path)
    usable = {name for name in archive.names() if archive.usable(name)}
    assert usable == set(tables) and len(archive.damaged) == 1
    assert [p.name for p in tmp_path.rglob("*")] == ["deep", "er", "cells.zip"]


def test_an_archive_of_a_cell_under_another_name_is_not_used(measured, tmp_path):
    files = [(f"0{name}", content) for name, content in packed(measured / "toy" / "cells")]
    (tmp_path / "cells.zip").write_bytes(archive_bytes(files))
    archive = Archive(tmp_path / "cells.zip")
    for name in archive.names():
        with pytest.raises(Damaged, match="expected the name and id"):
            archive.cell(name)


def test_a_tar_file_in_a_tar_file_is_not_followed(tmp_path):
    path = tmp_path / "outer.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        (tmp_path / "inner.tar.gz").write_bytes(PACKED)
        tar.add(tmp_path / "inner.tar.gz", f"{FOLDER}/a.bin")
    with pytest.raises(DataError):
        unpack(spec_of(PACKED), path, tmp_path)
    assert not Path(tmp_path, FOLDER).exists()
