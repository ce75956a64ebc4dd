"""`hess-run publish`: cells and report into the published layer, whole or not at all, and the same
bytes twice."""

import json
import os
import shutil

import pytest

from runner.contract import SettingError
from runner.files import scratch_path
from runner.run.config.jobs import build_job
from runner.run.execute import run
from runner.run.publish import publish as published
from tests.errors import refusal
from tests.run.conftest import COMMIT, TWO_CELLS, committed, entries_of, kills, packed


@pytest.fixture
def places(layers):
    """(output folder with two measured cells, folder of published results)."""
    outputs, root = layers
    measure(outputs)
    return outputs, root / "toy"


def measure(outputs, *words):
    assert not run(build_job([*TWO_CELLS, *words, f"outputs={outputs}"])).failed


def state(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in files
    }


def contents(folder):
    return {name: content for name, (content, _) in state(folder).items()}


def test_cells_and_report_are_published_once_and_a_second_time_changes_nothing(places):
    outputs, folder = places
    lines = published("toy", [], outputs)
    assert lines[-1].startswith("toy: 2 cells added, 0 replaced")
    assert entries_of(folder / "cells.zip") == packed(outputs / "toy" / "cells")
    before = state(folder)
    assert {"cells.zip", "manifest.json", "claims.csv"} < set(before)
    assert not {"index.html", "numbers.csv"} & set(before)
    commands = json.loads(before["manifest.json"][0])["fill_commands"]
    assert commands == ["hess-run experiment=toy seed=42"]
    assert published("toy", [], outputs) == ["toy: nothing to publish"]
    measure(outputs, "force=true")  # other times, the same tables
    (outputs / "toy" / "manifest.json").unlink()
    assert published("toy", [], outputs) == ["toy: nothing to publish"]
    assert state(folder) == before


def test_further_cells_are_added_and_changed_ones_replaced(places, monkeypatch):
    outputs, folder = places
    published("toy", [], outputs)
    measure(outputs, "seed=43")
    monkeypatch.setattr("tests.run.toy.decide", lambda holds: "refuted")
    (outputs / "toy" / "manifest.json").unlink()
    lines = published("toy", [], outputs)
    assert "  file claims.csv" in lines
    assert lines[-1].startswith("toy: 2 cells added, 0 replaced")
    changed = min((outputs / "toy" / "cells").glob("*.zip"))
    assert "0 cells added, 0 replaced" not in published("toy", [], outputs)[-1]
    other = {"numbers": {"value": [2.0]}}
    monkeypatch.setattr("tests.run.toy.Toy.measure", lambda self, cell, ctx: other)
    measure(outputs, "force=true")
    assert published("toy", [], outputs)[-1].startswith("toy: 0 cells added, 2 replaced")
    assert set(entries_of(changed)) <= set(entries_of(folder / "cells.zip"))


@pytest.mark.parametrize("commit", ["", "0123456", f"{COMMIT}+changes"])
def test_cells_of_changed_trees_are_refused_and_nothing_is_written(places, monkeypatch, commit):
    outputs, folder = places
    committed(monkeypatch, commit)
    measure(outputs, "seed=43")
    with refusal("expected cells measured from a clean commit, found 2 cells", SettingError):
        published("toy", [], outputs)
    assert state(folder) == {}


def test_cells_of_other_settings_are_published_where_they_are_named(places):
    outputs, folder = places
    measure(outputs, "experiment.samples=5")
    assert published("toy", [], outputs)[-1].startswith("toy: 2 cells added")
    assert published("toy", ["samples=5"], outputs)[-1].startswith("toy: 2 cells added")
    assert list(folder.glob("paper-*/manifest.json"))
    assert published("toy", ["samples=5"], outputs) == ["toy: nothing to publish"]


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_publication_that_was_killed_is_completed_by_the_next(every, places, monkeypatch):
    outputs, folder = places
    half = folder / scratch_path(folder / "cells.zip").name.replace(str(os.getpid()), "999999")
    published("toy", [], outputs)
    whole = contents(folder)
    shutil.rmtree(folder)
    for number in kills(monkeypatch, lambda: published("toy", [], outputs), every):
        folder.mkdir(exist_ok=True)
        half.touch()
        published("toy", [], outputs)
        assert contents(folder) == whole and not half.exists(), number
        shutil.rmtree(folder)
    assert number > 10


def test_a_damaged_archive_is_never_written(places):
    outputs, folder = places
    published("toy", [], outputs)
    measure(outputs, "seed=43")
    content = (folder / "cells.zip").read_bytes()
    (folder / "cells.zip").write_bytes(content[: len(content) // 2])
    before = state(folder)
    with refusal("restore it with git checkout", SettingError):
        published("toy", [], outputs)
    assert state(folder) == before
