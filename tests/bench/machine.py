"""What a benchmark is held against: operations counted, and the rate of a large matrix product on the same thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch

from runner.curvature.metrics.operations import Operations


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Smallest CPU time of `repeats` calls after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


@cache
def matmul_peak(n: int = 1024) -> float:
    """Operations a second of a float32 product (n, n) x (n, n) on the threads that torch has."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    out = torch.empty(n, n)
    return 2 * n**3 / seconds(lambda: torch.mm(a, b, out=out), 5)


def operations(function: Callable[[], object]) -> float:
    """Operations of the matrix products and convolutions of one call, those of its backward passes too."""
    with Operations() as counted:
        function()
    return counted.total


def share(count: float, took: float) -> str:
    """Operations, their rate, and the share of the matmul peak."""
    peak = matmul_peak()
    return f"{count / 1e9:.2f} Gflop at {count / took / 1e9:.0f} Gflop/s, {count / took / peak:.0%} of the matmul peak"
