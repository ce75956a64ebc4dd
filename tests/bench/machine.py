"""What a benchmark is held against: operations counted, and the rate of a large matrix product on the same thread."""

import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache

import torch

from runner.curvature.graph.modes import Operations

ALONE = """
import sys, time, warnings
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024

def forget_the_peak():
    open("/proc/self/clear_refs", "w").write("5")
    return status("VmRSS")
"""


def alone(code: str, *arguments: object) -> list[str]:
    """Words that code prints in a process of its own; it finds what stands in ALONE."""
    words = [sys.executable, "-c", ALONE + code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def seconds(function: Callable[[], object], count: int = 1) -> float:
    """Mean CPU seconds of a call."""
    start = time.process_time()
    for _ in range(count):
        function()
    return (time.process_time() - start) / count


def in_turns(
    *functions: Callable[[], object], repeats: int, warm: bool = False
) -> list[tuple[float, ...]]:
    """CPU seconds of `repeats` calls of each function, one after the other in every round, after one to warm up
    (warm: they have been called before)."""
    for function in () if warm else functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, found in zip(functions, times, strict=True):
            found.append(seconds(function))
    return [tuple(found) for found in times]


@cache
def matmul_peak(n: int = 1024) -> float:
    """Operations a second of a float32 product (n, n) x (n, n) on the threads that torch has: the best of 10."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    out = torch.empty(n, n)
    (times,) = in_turns(lambda: torch.mm(a, b, out=out), repeats=10)
    return 2 * n**3 / min(times)


def operations(function: Callable[[], object]) -> float:
    """Operations of the matrix products and convolutions of one call, those of its backward passes too."""
    with Operations() as counted:
        function()
    return counted.total
