"""Cells know the code that measured them: a run names the files that have changed since."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from runner.run.config import build_job, preview
from runner.run.execute import run
from runner.run.planning import survey
from runner.store import code
from runner.store.archive import archive_bytes
from runner.store.store import Store
from tests.run.conftest import packed, toy_conf  # noqa: F401

SETTINGS = """from dataclasses import dataclass
from runner.contract import Experiment
@dataclass(frozen=True, kw_only=True)
class Mine(Experiment):
    pass
"""
MEASURE = '"""What is measured."""\nFACTOR = 2.0  # twice\n'


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """(folder of a package, an experiment of it)."""
    folder = tmp_path / "mine_of_code"
    folder.mkdir()
    texts = {"__init__": "", "settings": SETTINGS, "measure": MEASURE, "report": ""}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield folder, import_module("mine_of_code.settings").Mine()
    for name in list(sys.modules):
        if name.startswith("mine_of_code"):
            del sys.modules[name]
    forget()


def forget():
    """As in a new process."""
    for cached in (code._files, code._bytes_of, code._tree):
        cached.cache_clear()


def changed(mine, file, text, key=code.PUBLISHED):
    """Files that have changed after one has."""
    folder, experiment = mine
    (folder / file).write_text(text)
    forget()
    return code.changes(experiment, [key], [folder])


def test_a_file_counts_as_changed_when_its_code_does(mine):
    folder, experiment = mine
    code.publish(folder, experiment)
    assert code.changes(experiment, [code.PUBLISHED], [folder]) == []
    assert changed(mine, "measure.py", '"""Other words."""\nFACTOR = 2.0\n') == []
    assert changed(mine, "report.py", "x = 1\n") == []
    assert changed(mine, "measure.py", MEASURE.replace("2.0", "3.0")) == ["measure.py"]
    assert changed(mine, "measure.py", MEASURE) == []
    assert changed(mine, "more.py", "") == ["more.py"]
    assert code.changes(experiment, ["unknown"], [folder]) == [code.UNRECORDED]
    assert code.changes(experiment, [code.PUBLISHED], []) == []


def test_cells_of_ones_own_are_compared_with_the_code_of_their_own_time(mine):
    folder, experiment = mine
    code.record(folder, experiment)
    before = code.digest_of(experiment)
    assert changed(mine, "measure.py", MEASURE.replace("2.0", "3.0"), before) == ["measure.py"]
    code.record(folder, experiment)
    assert set(code.read(folder)) == {before, code.digest_of(experiment)}
    (folder / code.FILE).write_text("torn")
    assert code.changes(experiment, [before], [folder]) == [code.UNRECORDED]


def test_a_run_with_other_code_says_so_in_one_line(toy_conf, tmp_path, monkeypatch):  # noqa: F811
    words = ["experiment=toy", "experiment.width=[1]", f"outputs={tmp_path / 'out'}"]
    job = build_job(words)
    run(job)
    (cell, *_) = Store(tmp_path / "out", "toy").all()
    assert cell.meta["code"] == code.digest_of(job.experiment)
    assert len(survey([job])[0]) == 1
    folder = tmp_path / "published" / "toy"
    folder.mkdir(parents=True)
    (folder / "cells.zip").write_bytes(archive_bytes(packed(job.store.cells)))
    code.publish(folder, preview("toy"))
    monkeypatch.setenv("HESS_PUBLISHED", str(folder.parent))
    fresh = build_job([*words[:2], f"outputs={tmp_path / 'clone'}"])
    assert len(survey([fresh])[0]) == 1
    monkeypatch.setattr(code, "_bytes_of", lambda module: {"toy.py": "other"})
    monkeypatch.setattr(code, "_files", lambda module: {"toy.py": Path(__file__)})
    for place in (job, fresh):
        (_, line) = survey([place])[0]
        assert "stored cells were measured by other code" in line and "and " in line
        assert line.endswith("more files; force=true measures again")


def test_the_code_of_an_experiment_is_that_of_its_paper_and_of_what_measures():
    names = code._files(type(preview("exp1_resonance")).__module__)
    assert "experiments/dag/exp1/settings.py" in names and "runner/curvature/verify.py" in names
    places = {tuple(name.split("/")[:2]) for name in names}
    assert {place for top, place in places if top == "experiments"} == {"dag"}
    assert {place for top, place in places if top == "runner"} == {*code.MEASURING}
