"""memory_budget is kept: peaks measured in a process of their own, plans of networks too large for a test."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runner.curvature import Dag, exact_blocks
from runner.curvature.graph.checks import MEMORY_BUDGET, plan_chunk
from tests.curvature.cases import make, relative_error

MIB = 1 << 20

PEAK = """
import torch
from torch import nn
from runner.curvature import Dag, exact_blocks, split_blocks
torch.set_num_threads(1)
torch.manual_seed(0)

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024

def peak(measure, dag, x, y, budget):
    measure(dag, x[:1], y[:1], dag.order[-1:])  # what is loaded at first use
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
    before = status("VmRSS")
    measure(dag, x, y, memory_budget=budget << 20)
    print(status("VmHWM") - before, budget)

conv = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2, 1), nn.GELU(), nn.Conv2d(8, 8, 3, 1, 1), nn.GELU(), nn.Flatten(), nn.Linear(512, 10)
)
dag = Dag.from_sequential(conv, group=[2, 2, 1, 1])
peak(exact_blocks, dag, torch.randn(16, 3, 16, 16), torch.randint(10, (16,)), 96)
body = [nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128), nn.SiLU()) for _ in range(12)]
dag = Dag.from_sequential([*body, nn.Linear(128, 10)])
for measure in (exact_blocks, split_blocks):
    peak(measure, dag, torch.randn(32, 128), torch.randint(10, (32,)), 80)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads peaks from /proc")
def test_peaks_stay_within_the_budget():
    run = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=120)
    rows = [tuple(map(float, line.split())) for line in run.stdout.splitlines()]
    assert len(rows) == 3
    for used, budget in rows:
        assert 0.2 * budget < used <= 1.2 * budget, (used, budget)


@pytest.mark.parametrize(("kept", "least"), [(1, 8), (2, 4)])
def test_a_deep_wide_network_is_streamed_within_the_default_budget(kept, least):
    """L = 50, width 256, B = 32, float32: a matrix of 656 MB whose halves are kept."""
    dag = Dag.from_sequential([torch.tanh] * 51)
    sizes = {"input": 256, **{v: 256 for v in dag.order}, dag.output: 10}
    chunk = plan_chunk(dag, sizes, dag.order, 32, 4, MEMORY_BUDGET, kept=kept)
    assert least <= chunk < 32


def test_what_does_not_fit_says_what_it_needs():
    """The same network with the split: 656 MB three times by half, and one example."""
    dag = Dag.from_sequential([torch.tanh] * 51)
    sizes = {"input": 256, **{v: 256 for v in dag.order}, dag.output: 10}
    with pytest.raises(ValueError, match=r"need 1\.01 GiB, over the budget of 1 GiB"):
        plan_chunk(dag, sizes, dag.order, 32, 4, MEMORY_BUDGET)


@pytest.mark.parametrize("graph", ["attention", "convolution", "nested_branches"])
def test_a_small_budget_gives_the_same_blocks(graph):
    """Rows of the Jacobians in pieces, examples one at a time."""
    case = make(graph, batch=5)
    whole = exact_blocks(case.dag, case.x, case.y)
    for budget in (2**15, 2**16, 2**17):
        try:
            cut = exact_blocks(case.dag, case.x, case.y, memory_budget=budget)
        except ValueError as error:
            assert "over the budget" in str(error)
            continue
        assert relative_error(cut, whole) < 1e-12
        return
    pytest.fail("no budget was enough")
