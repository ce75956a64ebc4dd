"""The guides are walked through: their files are written into a folder, and their commands run there."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from runner import cli
from runner.run import command
from runner.run.config import files
from runner.store.store import Store
from tests.run.conftest import forget

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, and nothing of it left afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in ("HESS_MODULES", "HYDRA_FULL_ERROR", "HESS_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield tmp_path
    files.forget_added()
    forget()
    for name in [name for name in sys.modules if name == "lab" or name.startswith("lab.")]:
        del sys.modules[name]


def write_files(guide: str, folder: Path) -> list[str]:
    """Write every file that a guide shows; returns their names."""
    files = re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", (DOCS / guide).read_text(), re.M | re.S)
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "lab" / "__init__.py").touch()
    return [name for name, _ in files]


def commands(guide: str) -> tuple[dict[str, str], list[list[str]]]:
    """What a guide exports, and the arguments of its commands."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", (DOCS / guide).read_text(), re.M | re.S)
    exported = dict(word.split("=", 1) for word in shlex.split(block.splitlines()[0])[1:])
    return exported, [shlex.split(line)[1:] for line in block.splitlines() if line.startswith("hess-run")]


def call(argv: list[str]) -> int:
    """The exit status of a command, in this process."""
    with pytest.raises(SystemExit) as ending:
        cli.main(argv)
    return int(ending.value.code or 0)


@pytest.mark.parametrize(
    ("guide", "files", "column"),
    [
        ("own-folder.md", {"lab/spread.py", "conf/experiment/spread.yaml"}, "distance"),
        ("adding-dataset.md", {"lab/stripes.py", "conf/dataset/stripes.yaml"}, "R"),
        ("adding-model.md", {"lab/funnel.py", "conf/model/funnel.yaml"}, "R"),
        ("adding-metric.md", {"lab/alignment.py", "conf/metric/alignment.yaml"}, "alignment"),
    ],
)
def test_a_guide_does_what_it_says(guide, files, column, folder, monkeypatch, capsys):
    assert set(write_files(guide, folder)) == files  # two files, and none of the project's is touched
    exported, lines = commands(guide)
    refused = call(lines[0])
    assert refused == 2 and "HESS_MODULES=lab" in capsys.readouterr().err and "lab" not in sys.modules
    monkeypatch.setenv("HESS_MODULES", exported["HESS_MODULES"])
    monkeypatch.setattr(sys, "argv", ["hess-run"])
    monkeypatch.setattr(command, "report_jobs", lambda jobs: True)  # its figures take longer than everything else
    forget()
    for line in lines:
        assert call(line) == 0, capsys.readouterr().err
    name, table = ("spread", "distances") if "own-folder" in guide else ("exp1_resonance", "pairs")
    (cell,) = Store(folder / "outputs", name).all()
    assert cell.table(table)[column].notna().any()
    assert os.environ.get("HYDRA_FULL_ERROR") is None
