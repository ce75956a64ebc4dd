"""Operators over the data of several processes: forks, and torchrun in the slow run (checks:
distributed.py)."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.multiprocessing import start_processes

from runner.curvature import ParameterOperator, top_eigenpairs, trace_estimate
from tests.draws import tanh_net


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_agree_with_the_whole_data(tmp_path, count):
    # with FSDP, which takes a second to import
    from tests.curvature.operators.distributed import checked

    start_processes(checked, (f"file://{tmp_path}/store", count), nprocs=count, start_method="fork")


@pytest.mark.slow
def test_the_example_of_the_guide(tmp_path):
    guide = (Path(__file__).parents[3] / "docs" / "scale.md").read_text(encoding="utf-8")
    (tmp_path / "measure.py").write_text(
        re.search(r"```python\n(# measure\.py\n.*?)```", guide, re.DOTALL)[1]
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=4",
        "measure.py",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    examples, trace, top = line.split(maxsplit=2)
    torch.manual_seed(0)
    net = tanh_net(8, 16, 3).eval()
    x, y = torch.randn(1000, 8), torch.randint(3, (1000,))
    hessian = ParameterOperator(net, nn.CrossEntropyLoss(), (x, y))
    expected = trace_estimate(hessian).value, top_eigenpairs(hessian, 3).values.tolist()
    assert int(examples) == 1000
    assert float(trace) == pytest.approx(expected[0], rel=1e-4)
    assert ast.literal_eval(top) == pytest.approx(expected[1], rel=1e-4)
