"""Damage to a store: every kind is named in one line, nothing damaged is used, nothing is deleted,
all is mended."""

import dataclasses
import gzip
import json
import os
import pickle
import shutil
import warnings
import zipfile
from functools import partial
from pathlib import Path

import pytest

from runner.contract import SettingError
from runner.files import MARKER, scratch_path
from runner.run.checks import check_store
from runner.run.execute import run
from runner.store.archive import Archive, Published, archive_bytes
from runner.store.cells import SUM, Damaged, sum_of, sums_of
from runner.store.checkpoints import DiskCheckpoints
from runner.store.compare import compare
from runner.store.job import Job, check_outputs, claim_outputs
from runner.store.store import Store
from runner.store.upkeep import make_ready
from tests.errors import refusal
from tests.run.conftest import cell_tables, entries_of, opened
from tests.store.conftest import TOY, as_before, flipped


def edited(path, change):
    """Change the rows of a stored table, as an editor would."""
    rows = [line.split(",") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    change(rows)
    path.write_bytes(gzip.compress("".join(",".join(row) + "\n" for row in rows).encode()))


def described(cell, **changes):
    """Change keys of cell.json; None removes one."""
    meta = json.loads((cell / "cell.json").read_text()) | changes
    (cell / "cell.json").write_text(json.dumps({k: v for k, v in meta.items() if v is not None}))


def changed(path, change):
    path.write_bytes(change(path.read_bytes()))


def instead(path, make):
    """Something else in place of a file or folder."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def last_digit(rows):
    rows[1][4] = rows[1][4][:-1] + ("1" if rows[1][4][-1] == "0" else "0")


def on(file, change):
    return lambda cell: change(cell / file)


def nowhere(path):
    path.symlink_to("nowhere")


CONTENT = {
    "empty": lambda p: p.write_bytes(b""),
    "garbage": lambda p: p.write_bytes(os.urandom(300)),
    "truncated": lambda p: changed(p, lambda content: content[:60]),
}
"""Of cell.json, of a table, and of a zip file."""
PLACE = {
    "a folder": lambda p: instead(p, Path.mkdir),
    "a pipe": lambda p: instead(p, os.mkfifo),
    "a dangling link": lambda p: instead(p, nowhere),
    "a loop of links": lambda p: instead(p, lambda path: path.symlink_to(path.name)),
}
"""In place of a zip file."""
JSON = {
    "missing": Path.unlink,
    "a list": lambda p: p.write_text("[1, 2]"),
    "nested beyond reading": lambda p: p.write_text("[" * 200_000),
    "in another encoding": lambda p: changed(p, lambda text: text.replace(b"toy", b"t\xf6y")),
}
KEYS = """
{"settings": null}
{"software": null}
{"seed": "42"}
{"wall_seconds": "fast"}
{"seed": 43}
{"experiment": "other"}
{"version": 2}
{"threads": 7}
{"device": "cuda"}
{"params": {"width": 9, "shape": "round"}}
{"settings": {}}
{"settings_key": "0000000000000000"}
{"id": "0000000000000000"}
{"tables": {"../../evil": 1}}
{"tables": {"/etc/passwd": 1}}
{"tables": {"numbers": 20, "keys": 1, "more": 1}}
{"tables": {"numbers": 20}}
{"tables": ["numbers", "keys"]}
{"sha256": {"numbers": "00000000", "keys": "00000000"}}
{"sha256": {"keys": "00000000"}}
{"sha256": "many"}
{"sizes": [1]}
{"sizes": {"numbers": [1.0, 2]}}
{"sizes": {"numbers": [1]}}
{"sizes": {"numbers": 7}}
"""
"""What cell.json says instead; null: nothing."""
TABLE = {
    "missing": Path.unlink,
    "not packed": lambda p: changed(p, gzip.decompress),
    "packed twice": lambda p: changed(p, gzip.compress),
    "a bit changed": lambda p: changed(p, flipped),
    "with more behind it": lambda p: changed(p, lambda content: content + b"more"),
    "the other one": lambda p: shutil.copy(p.with_name("keys.csv.gz"), p),
}
ROWS = {
    "a number edited": lambda r: r[1].__setitem__(4, "123.456"),
    "a number replaced by text": lambda r: r[1].__setitem__(4, "many"),
    "the last digit of a number": last_digit,
    "rows cut off": lambda r: r.__delitem__(slice(10, None)),
    "a column lost": lambda r: [row.pop() for row in r],
    "a header renamed": lambda r: r[0].__setitem__(4, "worth"),
    "a row twice": lambda r: r.append(r[-1]),
    "rows in another order": lambda r: r.insert(1, r.pop()),
}
DAMAGE = {
    **{f"json {kind}": on("cell.json", change) for kind, change in (CONTENT | JSON).items()},
    **{f"json {line}": partial(described, **json.loads(line)) for line in KEYS.split("\n")[1:-1]},
    **{f"table {kind}": on("numbers.csv.gz", change) for kind, change in (CONTENT | TABLE).items()},
    "a bit of the other table": on("keys.csv.gz", TABLE["a bit changed"]),
    **{kind: on("numbers.csv.gz", partial(edited, change=change)) for kind, change in ROWS.items()},
}
"""Kinds of damage to the files of a cell; the last cell in the order of names stays whole."""


def inside(change):
    """The same damage to the files in a zip file."""

    def damage(path):
        with opened(path) as folder:
            change(folder)

    return damage


def bit_of(find):
    return lambda path: changed(path, lambda content: flipped(content, find(content)))


def repacked(path, method):
    """A zip file whose first entry is there twice, the second time with another content."""
    entries = entries_of(path)
    with zipfile.ZipFile(path, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in [*entries, (entries[0][0], b"{}")]:
            archive.writestr(name, content)


ZIP_DAMAGE = {
    **{kind: inside(change) for kind, change in DAMAGE.items()},
    **{f"zip {kind}": change for kind, change in (CONTENT | PLACE).items()},
    "zip cut off in its directory": lambda z: changed(z, lambda content: content[:-40]),
    "zip zeros": lambda z: changed(z, lambda content: bytes(len(content))),
    "zip with zeros behind its first half": lambda z: changed(
        z, lambda content: content[: len(content) // 2].ljust(len(content), b"\0")
    ),
    "zip a bit of cell.json": bit_of(lambda content: content.index(b'"settings_key"') + 3),
    "zip a bit of a table": bit_of(lambda content: content.index(b"numbers.csv.gz") + 40),
    "zip a bit of a name": bit_of(lambda content: content.rindex(b"numbers.csv.gz")),
    "zip a bit of a size": bit_of(lambda content: content.rindex(b"PK\1\2") + 24),
    "zip an entry twice": lambda z: repacked(z, zipfile.ZIP_STORED),
    "zip a text": lambda z: z.write_text("version https://git-lfs.github.com/spec/v1\n"),
    "zip a folder with files": lambda z: instead(z, lambda p: (p / "inside").mkdir(parents=True)),
    "zip of another cell": lambda z: shutil.copy(max(z.parent.glob("*.zip")), z),
    "zip a link to another cell": lambda z: instead(
        z, lambda path: path.symlink_to(max(z.parent.glob("*.zip")))
    ),
}


def test_damage_is_named_moved_away_and_measured_again(tmp_path, capsys):
    toy = dataclasses.replace(TOY, width=list(range(1, len(ZIP_DAMAGE) + 2)))
    wanted, job = (Job("toy", toy, 42, tmp_path / name) for name in ("wanted", "outputs"))
    run(wanted)
    shutil.copytree(wanted.outputs, job.outputs)
    store = Store(job.outputs, "toy")
    damaged = dict(zip(store.names(), ZIP_DAMAGE, strict=False))
    for name, kind in damaged.items():
        ZIP_DAMAGE[kind](store.working.path(name))

    def none(wrong):
        """No kind of damage whose cell is as it must not be."""
        assert [kind for name, kind in damaged.items() if wrong(name)] == []

    none(store.has)
    assert len(list(store.all())) == 1
    none(lambda name: not store.damaged.get(name))
    capsys.readouterr()
    assert check_store(job.outputs) == 1
    out = capsys.readouterr().out
    none(lambda name: f"damaged cell {name}" not in out)
    outcome = run(job)
    assert (len(outcome.measured), len(outcome.stored), len(outcome.failed)) == (
        len(ZIP_DAMAGE),
        1,
        0,
    )
    err = capsys.readouterr().err
    none(lambda name: f"damaged cell {name} moved to" not in err)
    assert cell_tables(job.outputs) == cell_tables(wanted.outputs)
    kept = {path.name for path in store.cells.iterdir() if path.suffix == ".damaged"}
    assert kept == {f"{name}.zip.damaged" for name in damaged}
    assert check_store(job.outputs) == 0


@pytest.fixture
def store(outputs):
    return Store(outputs, "toy")


def test_records_and_locks_that_cannot_be_read(store):
    (store.failures / "x.json").write_text("{")
    assert store.failed() == {}
    name = store.names()[0]
    (store.locks / f"{name}.lock").mkdir()
    with refusal("found the folder", SettingError), store.lock(name):
        pass
    shutil.rmtree(store.logs)
    store.logs.write_text("")
    with refusal("found the file", SettingError):
        make_ready(store)


@pytest.mark.parametrize("folder", ["cells", "failures", "logs", ".locks"])
def test_a_folder_without_access_is_named_before_anything_is_measured(outputs, monkeypatch, folder):
    place = outputs / "toy" / folder
    place.mkdir(exist_ok=True)
    monkeypatch.setattr(
        os, "access", lambda path, mode, access=os.access: path != place and access(path, mode)
    )
    with refusal(f"{place} cannot be written", SettingError):
        run(Job("toy", TOY, 43, outputs))
    assert len(Store(outputs, "toy").names()) == 3


def test_an_output_folder_whose_marker_was_never_finished_or_was_lost(outputs, tmp_path):
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / scratch_path(fresh / MARKER).name).touch()  # killed while the folder was claimed
    (fresh / ".multirun").mkdir()
    claim_outputs(fresh)
    assert (fresh / MARKER).is_file()
    for content in (b"", b"{", b"\xff\xfe"):
        (outputs / MARKER).unlink()
        if content:
            (outputs / MARKER).write_bytes(content)
        check_outputs(outputs)
        claim_outputs(outputs)
        assert json.loads((outputs / MARKER).read_text())["project"] == "hess-run"
    for refused in (check_outputs, check_store):
        with refusal("cannot be used", SettingError):
            refused(Path("x" * 300))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(SettingError):
        check_outputs(loop)


def test_a_cell_that_is_replaced_is_checked_again_and_each_damaged_copy_is_kept(store):
    name = store.names()[0]
    path = store.working.path(name)
    whole = path.read_bytes()
    for number in range(3):
        path.write_bytes(whole)
        assert store.has(name)
        path.write_bytes(b"%d" % number)
        assert not store.has(name)
        store.quarantine(name)
    kept = [store.cells / f"{name}.zip.damaged{end}" for end in ("", "-1", "-2")]
    assert [path.read_bytes() for path in kept] == [b"0", b"1", b"2"]


def test_a_whole_cell_in_the_folder_of_another_experiment_is_named_and_kept(outputs, store, capsys):
    strayed = min(store.cells.iterdir())
    place = outputs / "other" / "cells" / strayed.name
    place.parent.mkdir(parents=True)
    strayed.rename(place)
    reason = "(expected a cell of other, found one of toy)"
    assert check_store(outputs) == 1
    assert f"other: damaged cell {place.stem} {reason}" in capsys.readouterr().out
    other = Store(outputs, "other")
    assert not other.has(place.stem) and reason in other.quarantine(place.stem)
    assert [path.name for path in other.cells.iterdir()] == [f"{place.name}.damaged"]
    assert place.stem not in store.names() and check_store(outputs) == 0


class Evil:
    """What a foreign pickle may hold: a call, made when it is loaded."""

    def __reduce__(self):
        return Path.touch, (Path("executed"),)


CHECKPOINT = {
    "a number": lambda p: changed(p, lambda c: flipped(c, c.index(bytes(2000)) + 1000)),
    "empty": lambda p: p.write_bytes(b""),
    "of others": lambda p: p.write_bytes(b"theirs"),
    "a pickle": lambda p: p.write_bytes(pickle.dumps(Evil(), protocol=2)),
    "a foreign state": lambda p: DiskCheckpoints(p.parent).save("last", Evil()),
}
"""Damage to a checkpoint; torch itself would load one with a wrong number."""


@pytest.mark.parametrize("kind", CHECKPOINT)
def test_a_damaged_checkpoint_is_set_aside_and_executes_nothing(kind, tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    checkpoints = Store(tmp_path, "toy").checkpoints({"width": 1})
    path = checkpoints.folder / "last.pt"
    checkpoints.save("last", {"weights": torch.zeros(1000)})
    CHECKPOINT[kind](path)
    damaged = path.read_bytes()
    assert checkpoints.load("last") is None and not checkpoints.loaded and not path.exists()
    path.write_bytes(b"theirs")  # in place of a state, found where one is saved
    checkpoints.save("last", {"epoch": 4})
    kept = sorted(checkpoints.folder.glob("*.damaged*"))
    assert [file.read_bytes() for file in kept] == [damaged, b"theirs"]
    assert checkpoints.load("last") == {"epoch": 4} and checkpoints.loaded
    assert not Path("executed").exists()


def test_comparison_knows_rounding_from_change():
    import pandas as pd

    a = {"t": pd.DataFrame({"x": [1.0, float("nan")], "name": ["a", "b"], "seconds": [1.0, 2.0]})}
    b = {"t": a["t"].assign(x=[1.0 + 1e-9, float("nan")], seconds=[3.0, 4.0])}
    near = compare(a, b, 1e-6)
    assert near.agrees and not near.identical and 0.9e-9 < near.differences[0].relative < 1.1e-9
    assert compare(a, {"t": a["t"].copy()}, 0).identical
    assert not compare(a, {"t": a["t"].assign(name=["a", "c"])}, 1).agrees
    shorter = compare(a, {"t": a["t"].iloc[:1]}, 1)
    rows = "2 rows of x, name, seconds stored, 1 rows of x, name, seconds measured"
    assert not shorter.agrees and rows in shorter.line()
    assert not compare(a, {}, 1).agrees


BOMB = gzip.compress(b"value\n" + b"0\n" * (8 << 20), 9)
"""A table of 16 MiB in 16 KiB."""


@pytest.mark.parametrize("packed_twice", [False, True])
def test_a_table_of_an_archive_of_others_is_not_unpacked_beyond_a_limit(
    store, tmp_path, monkeypatch, packed_twice
):
    import tracemalloc

    monkeypatch.setattr(Published, "most", 1 << 20)
    name = store.names()[0]
    meta = dict(store.get(name).meta)
    content = gzip.compress(BOMB) if packed_twice else BOMB
    files = {"numbers": content}
    if packed_twice:
        files["numbers"] = bytes(16 << 20)  # an entry that is packed itself
    meta["tables"] = {"numbers": 20}
    meta[SUM] = sum_of(meta, sums_of(files))
    with zipfile.ZipFile(tmp_path / "cells.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/cell.json", json.dumps(meta))
        archive.writestr(f"{name}/numbers.csv.gz", files["numbers"])
    theirs = Published(tmp_path / "cells.zip")
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match="bytes at most"):
            theirs.cell(name).text("numbers")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_table_name_of_others_leads_nowhere(store, tmp_path):
    name = store.names()[0]
    meta = {**store.get(name).meta, "tables": {"../evil": 1}}
    files = {"../evil": gzip.compress(b"x\n1\n")}
    record = json.dumps({**meta, SUM: sum_of(meta, sums_of(files))}).encode()
    entries = [(f"{name}/cell.json", record), (f"{name}/../evil.csv.gz", files["../evil"])]
    (tmp_path / "cells.zip").write_bytes(archive_bytes(entries))
    with pytest.raises(Damaged, match="expected table names"):
        Archive(tmp_path / "cells.zip").cell(name)


def test_a_cell_of_an_earlier_version_is_read_and_its_damage_found(store):
    """One with a sum for each table; what a run measures anew has one sum."""
    name = store.names()[0]
    path = store.working.path(name)
    before = store.get(name).text("numbers")
    path.write_bytes(archive_bytes(as_before(entries_of(path))))
    assert store.get(name).text("numbers") == before
    assert check_store(store.root.parent) == 0
    for file in ("numbers.csv.gz", "keys.csv.gz"):
        whole = path.read_bytes()
        with opened(path) as cell:
            edited(cell / file, lambda rows: rows.append(rows[-1]))
        assert not store.has(name) and "SHA-256 differs" in store.damaged[name]
        path.write_bytes(whole)
        assert store.has(name)


def test_every_cell_has_one_sum(store):
    for cell in store.all():
        assert 16 < cell.meta["peak_memory_mib"] < 2**15 and "sizes" not in cell.meta
        tables = {name: cell.content(name) for name in cell.meta["tables"]}
        assert cell.sums == sums_of(tables) and cell.meta[SUM] == sum_of(cell.meta, cell.sums)
