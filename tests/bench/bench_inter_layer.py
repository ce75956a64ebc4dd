"""R, C, D and the GN-gap of every pair: inter_layer_metrics against 30 probes and 20 power steps, pair by pair.

The usual way: one graph with the gradients kept, and for each pair 30 probes (R), 20 steps of power iteration on H^T H
(D), and for the gap 30 probes more with the total and the Gauss-Newton product; one Hessian product at a time, as
research code does it. Its CPU time is extrapolated from a share of its products (all are alike), its error is taken
from the engine's own estimators at the same 30 probes and 20 steps. The truth is `inter_layer_metrics` where exact,
else the same with an error of 0.8 % asked for.

The error of both ways stands beside the ratio: root mean square over the pairs, against exact values (MLP: exact
blocks; ResNet-18 with ReLU: by factors) or long runs (SiLU: 0.8 % asked for, which takes minutes: --truth).

Operation counts stand in runner/curvature/metrics/measure.py; those of our way are counted and printed, with the share
of the rate of a large matrix product on the same thread.

Run: python -m tests.bench.bench_inter_layer [--quick] [--truth] [NAME ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from runner.curvature import CurvatureOperator, Dag, frobenius_norms, gn_gaps, inter_layer_metrics, stable_ranks
from runner.curvature.metrics.by_blocks import metrics_from_blocks
from runner.models.mlps import mlp
from runner.models.resnet import resnet18
from tests.bench.machine import operations, share

PROBES, STEPS = 30, 20
GOALS = {"ResNet-18 ReLU": (25, 80, 5), "ResNet-18 SiLU": (0, 8, 5), "MLP L = 6, width 256": (6, 6, 6)}
"""Ratios asked for: R, R and D, gap."""

Pair = tuple[str, str]


class PairByPair:
    """Products of one pair and one direction at a time from a graph that is kept."""

    def __init__(self, dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...]) -> None:
        self.leaves: dict[str, Tensor] = {}
        values = {"input": x}
        for name in dag.order:
            node = dag.nodes[name]
            value = node(*(values[p] for p in node.parents))
            if name in nodes:
                self.leaves[name] = torch.zeros_like(value[:1]).requires_grad_()
                value = value + self.leaves[name]
            values[name] = value
        self.output = values[dag.output]
        loss = dag.loss.per_example(self.output, y).mean()
        found = torch.autograd.grad(loss, list(self.leaves.values()), create_graph=True)
        self.gradients = dict(zip(self.leaves, found, strict=True))
        self.loss_hessian = dag.loss.hessian(self.output.detach(), y) / len(x)

    def hessian(self, v: str, w: str, z: Tensor) -> Tensor:
        dot = (self.gradients[w] * z.view_as(self.leaves[w])).sum()
        return torch.autograd.grad(dot, self.leaves[v], retain_graph=True)[0].flatten()

    def gauss_newton(self, v: str, w: str, z: Tensor) -> Tensor:
        u = torch.zeros_like(self.output, requires_grad=True)
        (pulled,) = torch.autograd.grad(self.output, self.leaves[w], u, create_graph=True)
        (tangent,) = torch.autograd.grad((pulled * z.view_as(pulled)).sum(), u)
        curved = torch.einsum("bkl,bl->bk", self.loss_hessian, tangent)
        return torch.autograd.grad(self.output, self.leaves[v], curved, retain_graph=True)[0].flatten()


def usual_seconds(
    dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], pairs: list[Pair]
) -> tuple[float, float, float]:
    """CPU seconds of R, of R and D, and of the gap: 3 products of each pair timed, after one to warm up."""
    way = PairByPair(dag, x, y, nodes)
    generator = torch.Generator().manual_seed(0)
    hessian = gauss_newton = 0.0
    for v, w in pairs:
        z = torch.randn(way.leaves[w].numel(), generator=generator)
        way.hessian(v, w, z)
        hessian += seconds(lambda v=v, w=w, z=z: way.hessian(v, w, z), 3)
        gauss_newton += seconds(lambda v=v, w=w, z=z: way.gauss_newton(v, w, z), 3)
    resonance = PROBES * hessian
    return resonance, resonance + 2 * STEPS * hessian, PROBES * (hessian + gauss_newton)


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Mean CPU time of a call."""
    start = time.process_time()
    for _ in range(repeats):
        function()
    return (time.process_time() - start) / repeats


def errors(found: dict[Pair, dict[str, float]], truth: dict[Pair, dict[str, float]]) -> dict[str, float]:
    """Root mean square relative error over the pairs."""
    return {
        k: (
            sum((found[p][k] / truth[p][k] - 1) ** 2 for p in truth if truth[p][k] > 0)
            / max(1, sum(truth[p][k] > 0 for p in truth))
        )
        ** 0.5
        for k in ("R", "D", "gap")
    }


def values(found: dict) -> dict[Pair, dict[str, float]]:
    return {p: {k: getattr(m, k).value for k in ("R", "D", "gap")} for p, m in found.items()}


def usual_values(dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], pairs: list[Pair]) -> dict:
    operator = CurvatureOperator(dag, x, y, nodes, check=False)
    generators = [torch.Generator().manual_seed(k) for k in (1, 2, 3)]
    r = frobenius_norms(operator, pairs, PROBES, generators[0])
    d = stable_ranks(operator, pairs, PROBES, STEPS, generators[1])
    gap = gn_gaps(dag, x, y, nodes, pairs, PROBES, generators[2])
    return {p: {"R": r[p].value, "D": d[p].value, "gap": gap[p].gap.value} for p in pairs}


def network(name: str) -> tuple[Dag, tuple[str, ...], tuple[int, ...]]:
    generator = torch.Generator().manual_seed(0)
    if name.startswith("ResNet"):
        net = resnet18(activation=name.split()[1].lower(), generator=generator).eval()
        return net.to_dag(), net.measured, (3, 32, 32)
    net = mlp(depth=6, width=256, activation="silu", generator=generator)
    return net.to_dag(), net.measured, (3072,)


def inputs(name: str) -> tuple[Dag, Tensor, Tensor, tuple[str, ...]]:
    """The network without gradients for its weights, and B = 32 random examples."""
    dag, nodes, shape = network(name)
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(32, *shape, generator=generator), torch.randint(0, 10, (32,), generator=generator)
    for p in (p for node in dag.nodes.values() for p in node.parameters().values()):
        p.requires_grad_(False)
    return dag, x, y, nodes


def bench(name: str, quick: bool, truth: bool) -> None:
    dag, x, y, nodes = inputs(name)

    def ours(ranks: bool = True, error: float | None = None) -> dict:
        generator = torch.Generator().manual_seed(5)
        return inter_layer_metrics(dag, x, y, nodes, relative_error=error, generator=generator, ranks=ranks)

    found = ours()
    pairs, repeats = list(found), 1 if quick else 3
    mine = min(seconds(ours, 1) for _ in range(repeats))
    usual = usual_seconds(dag, x, y, nodes, pairs)
    norms = min(seconds(lambda: ours(ranks=False), 1) for _ in range(repeats))
    print(f"{name}: {len(pairs)} pairs, {found[pairs[0]].method}")
    print(f"  forward pass {operations(lambda: dag.forward(x)) / 1e9:.2f} Gflop, ours {share(operations(ours), mine)}")
    for what, own, theirs, goal in zip(("R", "R and D", "gap"), (norms, mine, norms), usual, GOALS[name], strict=True):
        line = f"  {what:8s} ours {own:6.2f} s, usual way {theirs:6.2f} s, ratio {theirs / own:5.1f}"
        print(line + (f" (goal {goal})" if goal else ""), flush=True)
    exact = all(m.R.error == 0 for m in found.values())
    if quick or not (exact or truth or name.startswith("MLP")):
        return
    if name.startswith("MLP"):
        expected = values(metrics_from_blocks(dag, x, y, nodes, pairs, 1 << 30))
    else:
        expected = values(found) if exact else values(ours(error=8e-3))
    theirs, own = errors(usual_values(dag, x, y, nodes, pairs), expected), errors(values(found), expected)
    print(
        "  relative error of " + ", ".join(f"{k}: ours {own[k]:.2g}, theirs {theirs[k]:.2g}" for k in own), flush=True
    )


def main() -> None:
    torch.set_num_threads(1)
    chosen = [a for a in sys.argv[1:] if not a.startswith("--")]
    for name in GOALS:
        if not chosen or any(c.lower() in name.lower() for c in chosen):
            bench(name, "--quick" in sys.argv, "--truth" in sys.argv)


if __name__ == "__main__":
    main()
