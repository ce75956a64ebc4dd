"""The guides are walked through: their files are written into a folder, and their commands run
there."""

import json
import os
import re
import shlex
import shutil
import sys

import pandas as pd
import pytest

import experiments
from experiments import printed
from runner import cli
from runner.report.answers import papers, reference
from runner.report.output.commands import settings_words
from runner.run import command
from runner.run.command_line import parse
from runner.run.config import files
from runner.run.config.jobs import build_jobs
from runner.store.store import Store
from tests import DOCS
from tests.run.conftest import forget


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, and nothing of it left afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in ("HESS_MODULES", "HYDRA_FULL_ERROR", "HESS_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["hess-run"])
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield tmp_path
    files.forget_added()
    forget()
    for name in list(sys.modules):
        if name.startswith(("lab", *(f"experiments.{new}" for new in ("ratio", "decay", "coins")))):
            del sys.modules[name]


def write_files(guide, folder):
    """Write every file that a guide shows; returns their names."""
    text = (DOCS / guide).read_text()
    files = re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", text, re.M | re.S)
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        if name.startswith("lab/"):
            (folder / "lab" / "__init__.py").touch()
    return {name for name, _ in files}


def commands(guide):
    """What a guide exports, and the arguments of its commands."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", (DOCS / guide).read_text(), re.M | re.S)
    (_, *exported), *lines = map(shlex.split, block.splitlines())
    exported = dict(word.split("=", 1) for word in exported)
    return exported, [words[1:] for words in lines if words[:1] == ["hess-run"]]


def call(argv):
    """The exit status of a command, in this process."""
    with pytest.raises(SystemExit) as ending:
        cli.main(argv)
    return int(ending.value.code or 0)


@pytest.mark.parametrize(
    "guide, files, column",
    [
        ("adding-dataset.md", {"lab/stripes.py", "conf/dataset/stripes.yaml"}, "R"),
        ("adding-model.md", {"lab/funnel.py", "conf/model/funnel.yaml"}, "R"),
        ("adding-metric.md", {"lab/alignment.py", "conf/metric/alignment.yaml"}, "alignment"),
    ],
)
def test_a_guide_does_what_it_says(guide, files, column, folder, monkeypatch, capsys):
    assert write_files(guide, folder) == files  # two, and none of the project's is touched
    exported, lines = commands(guide)
    assert call(lines[0]) == 2 and "HESS_MODULES=lab" in capsys.readouterr().err
    assert "lab" not in sys.modules
    monkeypatch.setenv("HESS_MODULES", exported["HESS_MODULES"])
    # its figures take longer than everything else
    monkeypatch.setattr(command, "report_jobs", lambda jobs: True)
    forget()
    for line in lines:
        assert call(line) == 0, capsys.readouterr().err
    (job,) = build_jobs(parse(lines[-1]).arguments())
    assert job.options == ("--config-dir", "conf")  # in the commands that a report prints
    words = settings_words({"experiment": job.name, "options": job.options})
    assert words == ["--config-dir", "conf", "experiment=exp1_resonance"]
    (cell,) = Store(folder / "outputs", "exp1_resonance").all()
    assert cell.table("pairs")[column].notna().any()
    assert os.environ.get("HYDRA_FULL_ERROR") is None


@pytest.mark.parametrize(
    "name, wrong, said",
    [
        ("ratio", "hidden=-1", "expected a value above zero, found -1"),
        ("decay", "activation=tanhh", "experiment.activation: expected one of relu"),
    ],
)
def test_an_added_experiment_refuses_mistakes_runs_and_reports(
    name, wrong, said, folder, monkeypatch, capsys
):
    shutil.copytree(DOCS.parent / "conf", folder / "conf")
    names = {f"experiments/{other}.py" for other in ("ratio", "decay")}
    names |= {f"conf/experiment/{other}.yaml" for other in ("ratio", "decay")}
    assert write_files("adding-experiment.md", folder) == names
    assert not any((DOCS.parent / file).exists() for file in names)
    places = [*experiments.__path__, str(folder / "experiments")]
    monkeypatch.setattr(experiments, "__path__", places)
    monkeypatch.setattr(files, "CONF", folder / "conf")
    forget()
    assert call([f"experiment={name}", wrong, "outputs=none"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not (folder / "none").exists()
    assert call([f"experiment={name}", "profile=quick", "outputs=out"]) == 0
    assert "2 measured" in capsys.readouterr().out
    # the quick profile changes a free field, so its cells are cells of their own
    (made,) = [path.parent for path in (folder / "out" / name).rglob("manifest.json")]
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["report_failures"] == [] and manifest["missing"] == []
    if name == "ratio":
        points = pd.read_csv(made / "points.csv")
        assert len(points) == 2 * 20 and (points["ratio"] >= 1).all()
        assert manifest["scope"]["departures"] == []
        assert pd.read_csv(made / "claims.csv")["name"].tolist() == ["tight"]
        assert (made / "figures" / "ratio.png").exists()
        return
    pairs = pd.read_csv(made / "pairs.csv")
    assert set(pairs["weight_decay"]) == {0.0, 0.01} and (pairs["R"] > 0).all()
    assert "Mean coupling of neighbours" in (made / "report.md").read_text()


CACHED = (papers.known_papers, papers.anchors, printed.statement_rows, printed.statements)
"""What is read once from the lists of papers and their rows."""


@pytest.fixture
def sixth_paper(folder, monkeypatch):
    """The files of the guide, next to the project's own."""
    shutil.copytree(DOCS.parent / "conf", folder / "conf")
    write_files("adding-paper.md", folder)
    (entry,) = re.findall(
        r"```toml\n(.*?)^```", (DOCS / "adding-paper.md").read_text(), re.M | re.S
    )
    listed = folder / "experiments" / "papers.toml"
    listed.write_text(papers.PAPERS_FILE.read_text(encoding="utf-8") + "\n" + entry)
    places = [*experiments.__path__, str(folder / "experiments")]
    monkeypatch.setattr(experiments, "__path__", places)
    monkeypatch.setattr(files, "CONF", folder / "conf")
    monkeypatch.setattr(papers, "PAPERS_FILE", listed)
    monkeypatch.setattr(reference, "REFERENCE", folder / "experiments" / "reference")
    monkeypatch.setattr(printed, "REFERENCE", folder / "experiments" / "reference")
    for read in CACHED:
        read.cache_clear()
    forget()
    yield folder
    monkeypatch.undo()
    for read in CACHED:
        read.cache_clear()


def test_a_sixth_paper_gets_its_page(sixth_paper, capsys):
    outputs = ["seed=range(42,47)", "outputs=out"]
    assert call(["-m", "experiment=coins", *outputs]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "statements: 1 confirmed" in out
    assert "published numbers: 1 reproduced, 1 not reproduced" in out
    assert "Coins" in (sixth_paper / "out" / "index.html").read_text()
    page = (sixth_paper / "out" / "coins" / "index.html").read_text()
    assert "coins.T1.16.error" in page and "coins2026" in page
    assert call(["why", "Coins Table 1", "outputs=out"]) == 0
    assert "1 of 2 judged rows agree" in capsys.readouterr().out
    (line,) = printed.said("coins")[1:]
    assert line.row == "error"
