"""docs/adding-experiment.md, followed once: its own code blocks in a copy of the repository, run from there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "adding-experiment.md"
NO_CACHE = shutil.ignore_patterns("__pycache__")


def files_of_the_guide() -> dict[str, str]:
    """path -> content of every code block that follows a line with nothing but its path."""
    blocks = re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", GUIDE.read_text(), flags=re.M | re.S)
    return dict(blocks)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the guide's files added, none of its own changed."""
    root = tmp_path_factory.mktemp("guide")
    for folder in ("runner", "experiments", "conf"):
        shutil.copytree(ROOT / folder, root / folder, ignore=NO_CACHE)
    for path, content in files_of_the_guide().items():
        assert not (root / path).exists(), path
        (root / path).write_text(content)
    return root


def hess_run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "HESS_CONF"} | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "runner.cli", *words]
    return subprocess.run(command, cwd=root, env=env, text=True, capture_output=True, timeout=120)


def test_the_guide_names_two_files_for_each_experiment():
    names = [f for name in ("ratio", "decay") for f in (f"experiments/{name}.py", f"conf/experiment/{name}.yaml")]
    assert list(files_of_the_guide()) == names


def test_the_experiment_of_the_guide_runs_and_reports(copy):
    done = hess_run(copy, "experiment=ratio", "profile=quick", "outputs=out")
    assert done.returncode == 0, done.stderr
    assert "2 measured" in done.stdout
    report = copy / "out" / "ratio"  # the quick profile changes a free field, so its cells are cells of their own
    (folder,) = [path.parent for path in report.rglob("manifest.json")]
    points = pd.read_csv(folder / "points.csv")
    assert len(points) == 2 * 20 and (points["ratio"] >= 1).all()
    assert pd.read_csv(folder / "claims.csv")["name"].tolist() == ["tight"]
    assert (folder / "figures" / "ratio.png").exists()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["not_comparable"] == "" and manifest["report_failures"] == [] and manifest["missing"] == []


def test_its_mistakes_are_one_line(copy):
    wrong = hess_run(copy, "experiment=ratio", "hidden=-1", "outputs=none")
    assert wrong.returncode == 2 and "expected a value above zero, found -1" in wrong.stderr
    assert wrong.stderr.count("\n") == 1 and not (copy / "none").exists()


def test_the_experiment_that_trains_measures_blocks_and_refuses_a_wrong_activation(copy):
    wrong = hess_run(copy, "experiment=decay", "activation=tanhh", "outputs=none")
    assert wrong.returncode == 2 and "experiment.activation: expected one of relu" in wrong.stderr
    assert wrong.stderr.count("\n") == 1 and not (copy / "none").exists()
    done = hess_run(copy, "experiment=decay", "profile=quick", "outputs=out")
    assert done.returncode == 0 and "2 measured" in done.stdout, done.stderr
    (folder,) = [path.parent for path in (copy / "out" / "decay").rglob("manifest.json")]
    pairs = pd.read_csv(folder / "pairs.csv")
    assert set(pairs["weight_decay"]) == {0.0, 0.01} and (pairs["R"] > 0).all()
    assert "Mean coupling of neighbours" in (folder / "report.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \|", (ROOT / "docs" / "adding-metric.md").read_text(), flags=re.M)
    for table in ("pairs", "distances", "networks"):
        documented = {name for of, names in rows if of == table for name in re.findall(r"\w+", names)}
        where = {"weight_decay", "seed", "checkpoint", "images", "distance", "status"}
        assert documented - where == set(pd.read_csv(folder / f"{table}.csv").columns) - where
