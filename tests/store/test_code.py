"""Cells know the code that measured them: a run says where it has changed since."""

import json
import sys
from importlib import import_module

import pytest

from runner.run.config.experiment import preview
from runner.run.config.jobs import build_job
from runner.run.execute import run
from runner.run.forecast import survey
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
    for cached in (code._files, code._of_bytes, code._of_trees):
        cached.cache_clear()


def is_other(mine, file, text, digest=code.PUBLISHED):
    """Whether code counts as other after a file has changed."""
    folder, experiment = mine
    (folder / file).write_text(text)
    forget()
    return code.is_other(experiment, [digest], folder)


def test_published_cells_are_of_other_code_when_a_syntax_tree_changes(mine):
    folder, experiment = mine
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"code": code.digests_of(experiment)}))
    assert not code.is_other(experiment, [code.PUBLISHED], folder)
    assert not is_other(mine, "measure.py", '"""Other words."""\nFACTOR = 2.0\n')
    assert not is_other(mine, "report.py", "x = 1\n")
    assert is_other(mine, "measure.py", MEASURE.replace("2.0", "3.0"))
    assert not is_other(mine, "measure.py", MEASURE)
    assert is_other(mine, "more.py", "")
    for content in ("{}", "torn"):  # of an earlier version: nothing is known
        manifest.write_text(content)
        assert not code.is_other(experiment, [code.PUBLISHED], folder)
    assert not code.is_other(experiment, [code.PUBLISHED], None)


def test_cells_of_ones_own_are_of_other_code_when_any_byte_changes(mine):
    before = code.digest_of(mine[1])
    assert not is_other(mine, "measure.py", MEASURE, before)
    assert is_other(mine, "measure.py", f"{MEASURE}# more\n", before)


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
    (folder / "manifest.json").write_text(json.dumps({"code": code.digests_of(preview("toy"))}))
    monkeypatch.setenv("HESS_PUBLISHED", str(folder.parent))
    fresh = build_job([*words[:2], f"outputs={tmp_path / 'clone'}"])
    assert len(survey([fresh])[0]) == 1
    for name in ("_of_bytes", "_of_trees"):
        monkeypatch.setattr(code, name, lambda module: "other")
    for place in (job, fresh):
        (_, line) = survey([place])[0]
        assert line.endswith("measured by other code; force=true measures again")


def test_the_code_of_an_experiment_is_that_of_its_paper_and_of_what_measures():
    names = code._files(type(preview("exp1_resonance")).__module__)
    assert {"experiments/dag/exp1/settings.py", "runner/curvature/uses/verify.py"} <= {*names}
    places = {tuple(name.split("/")[:2]) for name in names}
    assert {place for top, place in places if top == "experiments"} == {"dag"}
    assert {place for top, place in places if top == "runner"} == {*code.MEASURING}
