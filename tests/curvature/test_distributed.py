"""Operators over the data of several processes, started by torchrun (distributed.py has the checks)."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_processes_agree_with_the_whole_data(count):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    done = subprocess.run(
        [*torchrun, "-m", "tests.curvature.distributed"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"process {rank} agrees" for rank in range(count)]
