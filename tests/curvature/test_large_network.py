"""The bench of large networks on a tiny one: all quantities against double backward in float64, by torch alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from tests.bench.bench_large import CASES, Case, Clock, measured

pytestmark = pytest.mark.slow


def rows(gradient: tuple[Tensor, ...], leaves: list[Tensor]) -> Tensor:
    """The Hessian, row by row, from the graph of a gradient."""
    flat = torch.cat([g.flatten() for g in gradient])
    found = []
    for unit in torch.eye(len(flat), dtype=flat.dtype).split(96):
        parts = torch.autograd.grad(flat, leaves, unit, retain_graph=True, is_grads_batched=True)
        found.append(torch.cat([part.flatten(1) for part in parts], 1))
    return torch.cat(found)


@pytest.fixture(scope="module")
def tiny() -> Iterator[tuple[Case, dict[str, Any]]]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case, clock = CASES["tiny"](), Clock()
    measured(case, clock)
    return case, clock.results


@pytest.fixture(scope="module")
def hessian(tiny) -> Tensor:
    """By the parameters, in the order of the groups."""
    case, found = tiny
    module = case.module.double()
    named = dict(module.named_parameters())
    leaves = [named[k] for k in found["operator, hessian"].layout.parameters]
    x, y = case.batch
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        value = case.loss(module(x), y)
    return rows(torch.autograd.grad(value, leaves, create_graph=True), leaves)


def test_eigenpairs_trace_bound_and_density(tiny, hessian):
    found, n = tiny[1], len(hessian)
    values = torch.linalg.eigvalsh((hessian + hessian.mT) / 2).flip(0)
    pairs = found["5 eigenpairs"]
    assert bool(pairs.converged.all()) and bool(((pairs.value - values[:5]).abs() <= pairs.error).all())
    trace, square = hessian.trace(), hessian.square().sum()
    assert abs(found["trace"].value - float(trace)) <= 3 * found["trace"].error
    bound = float(wolkowicz_styan_upper(n, trace, square))
    assert abs(found["λ_sup"].value - bound) <= 3 * found["λ_sup"].error
    density = found["spectral density"]
    mean = float((density.weights * density.nodes).sum(1).mean())
    assert mean == pytest.approx(float(trace) / n, abs=4 * (2 * float(square)) ** 0.5 / n / 2**0.5)
    assert float(density.nodes.max()) == pytest.approx(float(values[0]), rel=0.02)


def test_coupling_between_groups(tiny, hessian):
    found, groups = tiny[1]["Φ"], tiny[1]["operator, hessian"].groups
    inside = sum(float(hessian[at, at].square().sum()) for at in groups.values())
    assert abs(found.value - (1 - inside / float(hessian.square().sum()))) <= 3 * found.error


def test_metrics_between_blocks(tiny):
    case, results = tiny
    found, module, (x, y) = results["R, C, D between blocks"], case.module.double(), case.batch
    assert {pair.method for pair in found.values()} == {"products"}
    leaves: list[Tensor] = []

    def add(_: Any, __: Any, output: Tensor) -> Tensor:
        leaves.append(torch.zeros_like(output, requires_grad=True))
        return output + leaves[-1]

    handles = [block.register_forward_hook(add) for block in module.blocks]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        value = case.loss(module(x), y)
    for handle in handles:
        handle.remove()
    whole, d = rows(torch.autograd.grad(value, leaves, create_graph=True), leaves), leaves[0].numel()
    block = {(v, w): whole[v * d : (v + 1) * d, w * d : (w + 1) * d] for v in (0, 1) for w in (0, 1)}
    norm = {pair: float(b.norm()) for pair, b in block.items()}
    for v, w in ((0, 0), (0, 1), (1, 1)):
        pair = found[f"blocks.{v}", f"blocks.{w}"]
        top = float(torch.linalg.matrix_norm(block[v, w], 2))
        expected = {
            "R": norm[v, w], "C": norm[v, w] / (norm[v, v] * norm[w, w]) ** 0.5, "D": (norm[v, w] / top) ** 2
        }  # fmt: skip
        for name, value in expected.items():
            estimate = getattr(pair, name)
            assert abs(estimate.value - value) <= 3 * estimate.error + 1e-6 * value, (v, w, name)
