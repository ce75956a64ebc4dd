"""Archives of others: what they name leads nowhere, and a damaged download is not opened."""

import os
import random
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
from tests.run.conftest import packed
from tests.store.test_accidents import BYTES

CASES, SEED = int(os.environ.get("HESS_CASES", "20")), int(os.environ.get("HESS_SEED", "0"))


@pytest.fixture
def stored(measured):
    """(content of an archive of the toy's cells, id -> table -> bytes)."""
    store = Store(measured, "toy", published=False)
    tables = {}
    for cell in store.all():
        tables[cell.id] = {name: cell.content(name) for name in cell.meta["tables"]}
    return archive_bytes(packed(measured / "toy" / "cells")), tables


def chance_damage(content: bytes, chance: random.Random) -> bytes:
    """The content with one accident that changes it."""
    changed = content
    while changed == content:
        changed = chance.choice(BYTES)(content, chance)
    return changed


def test_damaged_downloads_are_not_opened(tmp_path, monkeypatch):
    path, root = tmp_path / "tiny.tar.gz", tmp_path / "data"
    monkeypatch.setattr(cifar.Archive, "url", path.as_uri())
    for case in range(CASES):
        path.write_bytes(chance_damage(PACKED, random.Random(SEED * 10_000 + case)))
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
