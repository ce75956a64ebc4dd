"""A fresh clone without data: published cells count, reports appear, and git sees no change
whatever is run."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
COMMANDS = (
    ["demo"],
    ["list"],
    ["plan", "experiment=exp1_resonance"],
    ["experiment=exp3_stochastic"],
    ["-m", "experiment=exp3_stochastic", "seed=42,43"],
    ["experiment=hsr_stochastic", "profile=quick"],
    ["report", "experiment=exp3_stochastic"],
    ["report", "experiment=exp3_stochastic", "figure=tableN6_discrepancy"],
    ["store", "check"],
)


def hess_run(clone, *words):
    outside = ("HESS_PUBLISHED", "HESS_CONF", "HESS_DATA", "HESS_MODULES")
    environment = {key: value for key, value in os.environ.items() if key not in outside}
    command = [sys.executable, "-m", "runner", *words]
    environment["PYTHONPATH"] = str(clone)
    return subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, timeout=600
    )


def test_every_command_works_without_data_and_leaves_nothing_for_git(clone):
    for words in COMMANDS:
        ended = hess_run(clone, *words)
        assert ended.returncode == 0, (words, ended.stderr)
        if words == ["experiment=exp3_stochastic"]:
            assert "3 of 3 cells are stored (all published)" in ended.stderr
            assert (clone / "outputs" / "exp3_stochastic" / "index.html").is_file()
        status = subprocess.run(
            ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
        )
        assert status.stdout == "", words


def test_data_are_asked_for_when_a_cell_must_be_measured(clone):
    for words, status in ((["seed=47"], 2), (["-m", "seed=42,47"], 1), (["force=true"], 1)):
        ended = hess_run(clone, "experiment=exp3_stochastic", *words)
        assert ended.returncode == status, (words, ended.stderr)
        last = ended.stderr.strip().splitlines()[-1]
        assert "hess-run data fetch cifar10" in last and "profile=quick" in last
