"""The entry point of the command: its own packages count, whatever the current folder or PYTHONPATH holds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.run.conftest import ROOT


@pytest.fixture
def crowded(tmp_path):
    """A folder with a runner.py and packages called experiments and conf."""
    work = tmp_path / "work"
    for name in ("experiments", "conf"):
        (work / name).mkdir(parents=True)
        (work / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    (work / "runner.py").write_text("raise SystemExit('the wrong module')\n")
    (work / "bin").mkdir()
    (work / "bin" / "hess-run").write_text("from hess_run import main\n\nif __name__ == '__main__':\n    main()\n")
    return work


def test_folders_with_the_names_of_our_packages_are_no_obstacle(crowded, toy_conf):
    place = os.pathsep.join([".", str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": place}

    def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(crowded / "bin" / "hess-run"), *words]
        return subprocess.run(
            command, cwd=crowded, env={**environment, **variables}, text=True, capture_output=True, timeout=120
        )

    listed = call("list", "hsr_gradient", HESS_CONF="")
    assert listed.returncode == 0 and "hsr_gradient" in listed.stdout, listed.stderr
    measured = call("experiment=toy", "width=[1]", "jobs=2", "samples=3")  # workers import the packages anew
    assert measured.returncode == 0 and "2 measured" in measured.stdout, measured.stderr
