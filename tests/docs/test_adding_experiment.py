"""docs/adding-experiment.md, followed once: its own code blocks as files of the packages, run as its commands are."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import experiments
from runner.run.config import files
from tests.run.conftest import command_environment, forked

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "adding-experiment.md"


def files_of_the_guide() -> dict[str, str]:
    """path -> content of every code block that follows a line with nothing but its path."""
    blocks = re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", GUIDE.read_text(), flags=re.M | re.S)
    return dict(blocks)


@pytest.fixture
def hess_run(tmp_path: Path):
    """The command in an empty folder, with the guide's files next to the project's."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "experiments").mkdir()
    for path, content in files_of_the_guide().items():
        assert not (ROOT / path).exists(), path
        (tmp_path / path).write_text(content)

    def prepare() -> None:
        experiments.__path__.append(str(tmp_path / "experiments"))
        files.CONF = tmp_path / "conf"

    return lambda *words: forked(words, tmp_path, command_environment(HESS_CONF=str(tmp_path / "conf")), prepare)


def test_the_guide_names_two_files_for_each_experiment():
    names = [f for name in ("ratio", "decay") for f in (f"experiments/{name}.py", f"conf/experiment/{name}.yaml")]
    assert list(files_of_the_guide()) == names


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("ratio", "hidden=-1", "expected a value above zero, found -1"),
        ("decay", "activation=tanhh", "experiment.activation: expected one of relu"),
    ],
)
def test_an_experiment_of_the_guide_refuses_mistakes_runs_and_reports(name, wrong, said, hess_run, tmp_path):
    refused = hess_run(f"experiment={name}", wrong, "outputs=none")
    assert refused.returncode == 2 and said in refused.stderr and refused.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
    done = hess_run(f"experiment={name}", "profile=quick", "outputs=out")
    assert done.returncode == 0 and "2 measured" in done.stdout, done.stderr
    # the quick profile changes a free field, so its cells are cells of their own
    (folder,) = [path.parent for path in (tmp_path / "out" / name).rglob("manifest.json")]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["report_failures"] == [] and manifest["missing"] == []
    if name == "ratio":
        points = pd.read_csv(folder / "points.csv")
        assert len(points) == 2 * 20 and (points["ratio"] >= 1).all() and manifest["not_comparable"] == ""
        assert pd.read_csv(folder / "claims.csv")["name"].tolist() == ["tight"]
        assert (folder / "figures" / "ratio.png").exists()
        return
    pairs = pd.read_csv(folder / "pairs.csv")
    assert set(pairs["weight_decay"]) == {0.0, 0.01} and (pairs["R"] > 0).all()
    assert "Mean coupling of neighbours" in (folder / "report.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \|", (ROOT / "docs" / "adding-metric.md").read_text(), flags=re.M)
    for table in ("pairs", "distances", "networks"):
        documented = {name for of, names in rows if of == table for name in re.findall(r"\w+", names)}
        where = {"weight_decay", "seed", "checkpoint", "images", "distance", "status"}
        assert documented - where == set(pd.read_csv(folder / f"{table}.csv").columns) - where
