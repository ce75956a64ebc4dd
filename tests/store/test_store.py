"""The store: cells whole or absent, identities that move only when numbers would."""

import dataclasses
import errno
import json
import math
import os
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
import threadpoolctl

from runner.contract import SettingError, since
from runner.files import MARKER, is_scratch, write_bytes
from runner.kinds.dataset import GaussianData
from runner.run.config.jobs import build_job
from runner.run.execute import run
from runner.run.exit_status import LimitReached
from runner.store import identity, tables
from runner.store.identity import Identity
from runner.store.job import Job, check_outputs, claim_outputs
from runner.store.upkeep import make_ready
from tests.errors import refusal
from tests.run.conftest import cell_tables
from tests.run.toy import Toy

TOY = Toy(width=[1, 2], shape=["round"], dataset=GaussianData(train=8))


def job(outputs, experiment=TOY, **about):
    return Job("toy", experiment, 42, outputs, **about)


def test_floats_survive_the_round_trip(tmp_path):
    numbers = np.random.default_rng(0).standard_normal(500) * 10.0 ** np.arange(-250, 250)
    values = np.concatenate([numbers, [np.nan, 0.1]])
    words = ["", "None", "NA", "a,b", 'quoted "x"'] + ["w"] * (len(values) - 5)
    table = pd.DataFrame({"value": values, "word": words, "flag": values > 0})
    content = tables.to_bytes(table)
    for name, packed in (("t.csv", content), ("t.csv.gz", tables.compressed(content))):
        (tmp_path / name).write_bytes(packed)
        back = tables.read(tmp_path / name)
        pd.testing.assert_frame_equal(back, table, check_exact=True)
        assert tables.to_bytes(back) == content
    assert tables.compressed(content) == packed


def test_tables_refuse_ragged_and_contradicting_columns():
    for columns, said in (
        ({"a": [1, 2], "b": [1]}, "equal length"),
        ({"a": np.zeros((2, 2))}, "one dimension"),
        ({"seed": [1, 2]}, "must equal"),
        ([{"seed": 4}], "own seed=1"),
        ({"kind": ["inf", "saddle"]}, "would be read back as a float"),
        ({"kind": ["nan", "saddle"]}, "would be read back as a float"),
        ({"kind": ["-Inf", "saddle"]}, "would be read back as a float"),
        ({"kind": [" NaN", "saddle"]}, "would be read back as a float"),
    ):
        with refusal(said):
            tables.frame("t", columns, {"seed": 1})


@dataclasses.dataclass(frozen=True)
class Grown(GaussianData):
    """GaussianData after two more options."""

    skew: float = since(0.0)
    shifts: list[float] = since([])


def test_identity_moves_with_what_changes_numbers_and_only_with_it():
    cell = next(iter(TOY.cells()))

    def cell_id(name="toy", seed=42, threads=1, device="cpu", **settings):
        experiment = dataclasses.replace(TOY, **settings)
        identity = Identity.of(name, experiment, threads=threads, device=device)
        return identity.cell_id(cell, seed)

    base = Identity.of("toy", TOY).cell_id(cell, 42)
    same = {"width": [1, 2, 3, 4]}, {"dataset": GaussianData(train=8)}, {"dataset": Grown(train=8)}
    assert {cell_id(**settings) for settings in same} == {base}
    others = [
        {"scale": 2.0},
        {"dataset": GaussianData(train=10)},
        {"threads": 2},
        {"device": "cuda"},
        {"name": "other"},
        {"seed": 43},
        {"dataset": Grown(train=8, skew=0.5)},
        {"dataset": Grown(train=8, shifts=[1.0])},
    ]
    assert len({base, *(cell_id(**other) for other in others)}) == len(others) + 1
    assert Grown().shifts is not Grown().shifts


def test_the_processor_has_the_name_that_the_system_gives_it(monkeypatch, tmp_path):
    monkeypatch.setattr(identity, "Path", lambda _: tmp_path / "cpuinfo")
    monkeypatch.setattr(identity.platform, "processor", lambda: "other")
    assert identity.cpu_model.__wrapped__() == "other"
    for text, name in (("flags\n", "other"), ("model name\t: A: 2 GHz\nflags\n", "A: 2 GHz")):
        (tmp_path / "cpuinfo").write_text(text)
        assert identity.cpu_model.__wrapped__() == name


@pytest.mark.parametrize(
    "libraries, kernel",
    [
        ([{"internal_api": "openblas", "architecture": "Haswell"}], "Haswell"),
        ([{"internal_api": "openblas"}], ""),
        ([{"internal_api": "mkl", "architecture": "other"}], ""),
    ],
)
def test_the_kernel_is_that_of_openblas_alone(monkeypatch, libraries, kernel):
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: libraries)
    assert identity.openblas_kernel.__wrapped__() == kernel


def test_the_commit_says_whether_code_has_changed(monkeypatch, tmp_path):
    def git(*words):
        called = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(called, check=True, capture_output=True, text=True).stdout.strip()

    file = tmp_path / "runner" / "store" / "identity.py"
    file.parent.mkdir(parents=True)
    file.touch()
    git("init")
    git("add", ".")
    git("commit", "-m", "code")
    monkeypatch.setattr(identity, "__file__", str(file))
    assert identity.git_commit.__wrapped__() == git("rev-parse", "--short=12", "HEAD")
    file.write_text("changed")
    assert identity.git_commit.__wrapped__().endswith("+changes")


def test_outputs_of_another_project_are_refused_and_untouched(tmp_path):
    (tmp_path / "theirs.txt").write_text("x")
    with refusal("not hess-run's", SettingError):
        claim_outputs(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["theirs.txt"]
    with refusal("found the file", SettingError):
        check_outputs(tmp_path / "theirs.txt")
    other = tmp_path / "other"
    other.mkdir()
    (other / MARKER).write_text(json.dumps({"project": "something"}))
    with refusal("not this project's", SettingError):
        check_outputs(other)
    fresh = tmp_path / "fresh"
    check_outputs(fresh)
    assert not fresh.exists()
    claim_outputs(fresh)
    claim_outputs(fresh)
    assert (fresh / MARKER).is_file()
    claim_outputs(tmp_path / "outputs" / "demo")
    claim_outputs(tmp_path / "outputs")
    assert (tmp_path / "outputs" / MARKER).is_file()


def test_no_clock_decides_what_is_measured_again(tmp_path, monkeypatch):
    """A file server may date files an hour ahead of or behind the machine that asks."""
    failing = dataclasses.replace(TOY, fail_at=2)

    def counts(job):
        outcome = run(job)
        return len(outcome.measured), len(outcome.failed)

    for name, hours in (("ahead", 1), ("behind", -1)):

        def dated(path, content, hours=hours):
            write_bytes(path, content)
            os.utime(path, (time.time() + 3600 * hours,) * 2)

        with monkeypatch.context() as clock:
            clock.setattr("runner.store.store.write_bytes", dated)
            first = job(tmp_path / name, failing)
            assert counts(first) == (1, 1)
            assert counts(first) == (0, 1)  # as another process of the run would: not tried again
            logs = "".join(log.read_text() for log in first.store.logs.iterdir())
            assert logs.count("Traceback") == 1
            (record,) = first.store.failed().values()
            assert "told to" in record["error"] and record["params"]["width"] == 2
            assert counts(job(tmp_path / name, failing, force=True)) == (1, 1)
        with monkeypatch.context() as mended:
            mended.setenv("TOY_MENDED", "1")
            assert counts(job(tmp_path / name, failing)) == (1, 0)
        assert first.store.failed() == {}


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Else a power cut leaves an empty file under the name of a finished one."""
    calls = []
    monkeypatch.setattr(os, "fsync", lambda number: calls.append(os.fstat(number).st_size))
    monkeypatch.setattr(
        os, "replace", lambda *names, replace=os.replace: calls.append("named") or replace(*names)
    )
    write_bytes(tmp_path / "a", b"four")
    assert calls == [4, "named"]


def test_a_disk_that_fills_at_any_write_leaves_whole_cells_and_is_named(tmp_path, monkeypatch):
    run(job(tmp_path / "wanted"))
    wanted = cell_tables(tmp_path / "wanted")
    for allowed in range(5):  # three writes a cell: a checkpoint, the cell, its name
        outputs, left = tmp_path / str(allowed), iter(range(allowed))
        one = job(outputs)
        cells = (allowed + 1) // 3  # a name that is not on the disk yet is no loss
        make_ready(one.store)

        def full(number, left=left):
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as disk, pytest.raises(LimitReached):
            disk.setattr(os, "fsync", full)
            run(one)
        kept = cell_tables(outputs)
        assert len(kept) == 2 * cells and kept.items() <= wanted.items()
        assert len(list(one.store.all())) == cells and not one.store.damaged
        assert not any(".tmp" in p.name or is_scratch(p) for p in one.store.root.rglob("*"))
        assert all("no space left: " in log.read_text() for log in one.store.logs.iterdir())
        assert len(run(one).measured) == 2 - cells


def test_a_cell_is_locked_before_its_folder_exists(tmp_path):
    store = job(tmp_path / "new" / "outputs").store
    with store.lock("0" * 16) as ours, store.lock("0" * 16) as second:
        assert ours and not second


@pytest.mark.usefixtures("published")
def test_the_published_cells_are_those_that_the_configuration_asks_for(tmp_path):
    """Every published cell that the five seeds of the paper's protocol ask for is found again."""
    for name in ("scalar_spectrum", "exp5_attention"):
        job = build_job((f"experiment={name}", f"outputs={tmp_path}"))
        assert [cell.label for cell_id, cell in job.cells() if not job.store.has(cell_id)] == []


def test_tables_take_rows_as_well_as_columns():
    rows = [{"v": 1, "status": "ok"}, {"v": 2, "w": 0.5, "status": "late"}]
    columns = {"v": [1, 2], "status": ["ok", "late"], "w": [float("nan"), 0.5]}
    one, two = (tables.frame("t", table, {"width": 3, "seed": 42}) for table in (rows, columns))
    assert tables.to_bytes(one) == tables.to_bytes(two)
    assert list(one.columns) == ["width", "seed", "v", "status", "w"]
    assert len(tables.frame("t", [], {"seed": 1})) == 0


def test_a_text_column_of_infinity_alone_stays_text_and_floats_stay_floats(tmp_path):
    kinds = {
        "kind": ["infinity", "infinity"],
        "sign": ["-Infinity", "infinity"],
        "size": [math.inf, -math.inf],
    }
    path = tmp_path / "t.csv"
    text = tables.to_bytes(tables.frame("t", kinds, {}))
    path.write_bytes(text)
    for back in (tables.read(path), tables.read_many([text]), tables.read_many([text, text])):
        assert set(back["kind"]) == {"infinity"} and set(back["sign"]) == {"-Infinity", "infinity"}
        assert set(back["size"]) == {math.inf, -math.inf} and back["size"].dtype == float
    mixed = tables.frame("t", {"kind": ["saddle", "infinity"]}, {})
    both = tables.read_many([text, tables.to_bytes(mixed)])
    assert both["kind"].tolist() == ["infinity"] * 2 + list(mixed["kind"])


def test_a_masked_and_a_left_out_value_are_missing():
    masked = {"x": np.ma.array([0.1, 2.0], mask=[0, 1]), "n": np.ma.array([1, 2], mask=[1, 0])}
    found = tables.frames({"masked": masked, "rows": [{"x": 1, "word": "a"}, {"x": 2}]}, {})
    assert tables.to_bytes(found["masked"]) == b"x,n\n0.10000000000000001,nan\nnan,2\n"
    assert tables.to_bytes(found["rows"]) == b"x,word\n1,a\n2,nan\n"


@pytest.mark.parametrize(
    "files",
    [
        ["a,b\n1,x\n2,y\n", "a,b\n3,z\n"],
        ["a,b\n1,x\n", "a,b\n0.5,nan\n"],
        ["a,b\nnan,x\n", "a,b\n3,7\n"],
        ["a,b\n1,true\n", "a,b\n2,maybe\n"],
        ["a,b\n1,True\n", "a,b\n2,nan\n"],
        ["a,b\n1,x\n", "b,a\nx,1\n"],
        ["a,b\n1,x\n", "a,b\n"],
        ["a,b\n0.1,x\n", "a,b\n12345678901234567,nan\n"],
        ['a,b\n1,"x,1"\n', 'a,b\n2,"line\nbreak"\n'],
    ],
)
def test_many_tables_read_at_once_are_the_tables_read_one_by_one(tmp_path, files):
    tables_read = []
    for text in files:
        (tmp_path / "t.csv").write_text(text)
        tables_read.append(tables.read(tmp_path / "t.csv"))
    one_by_one = pd.concat(tables_read, ignore_index=True)
    at_once = tables.read_many([text.encode() for text in files])
    assert tables.to_bytes(at_once) == tables.to_bytes(one_by_one)
    assert list(at_once.dtypes) == list(one_by_one.dtypes)
