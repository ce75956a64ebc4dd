"""A fresh clone without data: published cells count, reports appear, and git sees no change
whatever is run."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
COMMANDS = """
demo
list
list exp1_resonance
experiment=exp3_stochastic
-m experiment=exp3_stochastic seed=42,43
experiment=hsr_gradient profile=quick
report experiment=exp3_stochastic
report experiment=exp3_stochastic figure=tableN6_discrepancy
store check
"""


def in_clone(clone, *command):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HESS_")}
    about = {"cwd": clone, "env": environment | {"PYTHONPATH": str(clone)}, "timeout": 900}
    return subprocess.run(command, capture_output=True, text=True, **about)


def hess_run(clone, *words):
    return in_clone(clone, sys.executable, "-m", "runner", *words)


def assert_unchanged(clone):
    assert not subprocess.check_output(["git", "status", "--porcelain"], cwd=clone)


def test_every_command_works_without_data_and_leaves_nothing_for_git(clone):
    for words in COMMANDS.strip().splitlines():
        ended = hess_run(clone, *words.split())
        assert ended.returncode == 0, (words, ended.stderr)
        if words == "experiment=exp3_stochastic":
            assert "3 of 3 cells are stored (all published)" in ended.stderr
            assert (clone / "outputs" / "exp3_stochastic" / "index.html").is_file()
        assert_unchanged(clone)


def test_data_are_asked_for_when_a_cell_must_be_measured(clone):
    for words, status in ((["seed=47"], 2), (["-m", "seed=42,47"], 1), (["force=true"], 1)):
        ended = hess_run(clone, "experiment=exp3_stochastic", *words)
        assert ended.returncode == status, (words, ended.stderr)
        last = ended.stderr.strip().splitlines()[-1]
        assert "hess-run data fetch cifar10" in last and "profile=quick" in last
