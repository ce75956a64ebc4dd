"""Random accidents to stored cells: whatever is read afterwards is what was stored.

Every case follows from its number: `HESS_CASES=3000 HESS_SEED=7` tries other and more of them.
"""

import io
import os
import random
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.store.archive import Archive, archive_bytes
from runner.store.cells import CellFiles
from runner.store.working import Working
from tests.run.conftest import entries_of
from tests.store.conftest import as_before, flipped

CASES, SEED = int(os.environ.get("HESS_CASES", "100")), int(os.environ.get("HESS_SEED", "0"))
IDENTITY = ("experiment", "version", "settings", "params", "seed", "threads", "device")
"""Keys of cell.json that decide the numbers: earlier versions have no sum of the others."""
SIZES = (1, 2, 4, 30, 500)


def span(content: bytes, chance: random.Random) -> tuple[int, int]:
    """A piece of a file: begin and end."""
    at = chance.randrange(len(content))
    return at, min(len(content), at + chance.choice(SIZES))


def bits(content: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 8)):
        content = flipped(content, chance.randrange(1, len(content)))
    return content


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def lost(content: bytes, chance: random.Random) -> bytes:
    begin, end = span(content, chance)
    return content[:begin] + content[end:]


def doubled(content: bytes, chance: random.Random) -> bytes:
    begin, end = span(content, chance)
    return content[:end] + content[begin:]


def zeroed(content: bytes, chance: random.Random) -> bytes:
    begin, end = span(content, chance)
    return content[:begin] + bytes(end - begin) + content[end:]


def swapped(content: bytes, chance: random.Random) -> bytes:
    """Two pieces of the same size, each in the place of the other."""
    begin, end = span(content, chance)
    other = chance.randrange(len(content) - (end - begin) + 1)
    changed = bytearray(content)
    one, two = content[begin:end], content[other : other + end - begin]
    changed[begin:end] = two
    changed[other : other + end - begin] = one
    return bytes(changed)


def numbered(content: bytes, chance: random.Random) -> bytes:
    """A number of the file's own structure, maybe, at its limits."""
    at = chance.randrange(len(content) - 4)
    number = chance.choice([0, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF])
    return content[:at] + number.to_bytes(4, "little") + content[at + 4 :]


def packed(entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def entries_in(content: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(entry.filename, archive.read(entry)) for entry in archive.infolist()]


def entries_swapped(content: bytes, chance: random.Random) -> bytes:
    """A zip file whose own sums are right, with two contents exchanged."""
    entries = entries_in(content)
    one, two = chance.sample(range(len(entries)), 2)
    (name, first), (other, second) = entries[one], entries[two]
    entries[one], entries[two] = (name, second), (other, first)
    return packed(entries)


def entry_twice(content: bytes, chance: random.Random) -> bytes:
    """The same with an entry there twice, once with a damaged content."""
    entries = entries_in(content)
    name, kept = chance.choice(entries)
    entries.insert(chance.randint(0, len(entries)), (name, chance.choice(BYTES)(kept, chance)))
    return packed(entries, chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


def entry_changed(content: bytes, chance: random.Random) -> bytes:
    """The same with one content damaged."""
    entries = entries_in(content)
    at = chance.randrange(len(entries))
    name, kept = entries[at]
    entries[at] = (name, chance.choice(BYTES)(kept, chance))
    return packed(entries)


BYTES: list[Callable[[bytes, random.Random], bytes]] = [
    *(bits, cut, lost, doubled, zeroed, swapped, numbered)
]
WHOLE = [*BYTES, entries_swapped, entry_twice, entry_changed]


def damaged(content: bytes, chance: random.Random) -> bytes:
    """One accident that needs a whole zip file or not, and then none to two of the others."""
    content = chance.choice(WHOLE)(content, chance)
    for _ in range(chance.choice([0, 0, 1, 2])):
        if len(content) > 8:
            content = chance.choice(BYTES)(content, chance)
    return content


def read(files: CellFiles, name: str) -> tuple[dict, dict[str, bytes]] | None:
    """(cell.json, table -> CSV) as everything that uses a cell reads it; None for a damaged one."""
    cell = files.usable(name)
    if cell is None:
        assert files.damaged.get(name) or not files.has(name)
        return None
    return dict(cell.meta), {table: cell.text(table) for table in cell.meta["tables"]}


def archive_of(path: Path) -> CellFiles:
    return Archive(path)


def working_of(path: Path) -> CellFiles:
    return Working(path.parent)


@pytest.mark.parametrize("place", ["working", "archive"])
@pytest.mark.parametrize("earlier", [False, True], ids=["one sum", "a sum a table"])
def test_no_accident_gives_a_wrong_number(calm, tmp_path, place, earlier):
    paths = sorted((calm / "toy" / "cells").glob("*.zip"))
    of_cells = {path.stem: entries_of(path) for path in paths}
    if earlier:
        of_cells = {name: as_before(entries) for name, entries in of_cells.items()}
    files = archive_of if place == "archive" else working_of
    several = [entry for entries in of_cells.values() for entry in entries]
    stored, expected = {}, {}
    for name, entries in of_cells.items():
        path = tmp_path / f"{name}.zip"
        stored[name] = archive_bytes(several if place == "archive" else entries)
        path.write_bytes(stored[name])
        expected[name] = read(files(path), name)
        assert expected[name] is not None
    whole = 0
    for case in range(CASES):
        chance = random.Random(SEED * 1_000_000 + case)
        name = chance.choice(sorted(of_cells))
        path = tmp_path / f"{name}.zip"
        path.write_bytes(damaged(stored[name], chance))
        found = read(files(path), name)
        whole += found is not None
        if found is not None:
            assert found[1] == expected[name][1], case
            keys = IDENTITY if earlier else expected[name][0]
            assert {key: found[0][key] for key in keys} == {
                key: expected[name][0][key] for key in keys
            }, case
    assert whole < CASES
