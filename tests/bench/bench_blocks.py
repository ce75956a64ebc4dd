"""Exact blocks of all pairs with the Gauss-Newton split: curvature routing against one column and one pair at a time.

Plain network (Linear, LayerNorm, ReLU) of depth L and width d = 64, B = 32 examples, K = 10 classes, float32, one
thread.

Operation count. Routing: one (d x d)(d x d) product per example and pair for the tensor part, 2 B d^3 L^2 / 2, and
one product of two (B K)-row matrices for Gauss-Newton, 2 B K d^2 L^2 / 2: at L = 12 about 1.2 + 0.2 Gflop. Column by
column: one backward pass per pair and column, d L^2 / 2 = 5,000 passes of up to 20 L operations each, which overhead
dominates.

Run: python -m tests.bench.bench_blocks [--quick]
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import Tensor, nn

from runner.curvature import Dag, split_blocks
from tests.bench.machine import operations, seconds, share

WIDTH, BATCH, CLASSES = 64, 32, 10


def network(depth: int) -> tuple[Dag, list[str]]:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()) for _ in range(depth + 1)]
    names = [f"block{i}" for i in range(depth)]
    return Dag.from_sequential([*blocks, nn.Linear(WIDTH, CLASSES)], names=["projection", *names, "head"]), names


def column_by_column(dag: Dag, x: Tensor, y: Tensor, names: list[str]) -> dict[tuple[str, str], Tensor]:
    """The usual way: one graph, and for each pair and each unit of w a Hessian-vector product by autograd.

    The Gauss-Newton blocks are computed beside the exact ones and dropped, as only time is compared.
    """
    values = {"input": x}
    for name in dag.order:
        node = dag.nodes[name]
        values[name] = node(*(values[p] for p in node.parents))
    output = values[dag.output]
    loss = dag.loss.per_example(output, y).sum()
    found = torch.autograd.grad(loss, [values[v] for v in names], create_graph=True)
    gradients = dict(zip(names, found, strict=True))
    loss_hessian = dag.loss.hessian(output.detach(), y)
    jacobians = {v: columns(output, values[v]) for v in names}
    blocks: dict[tuple[str, str], Tensor] = {}
    for i, v in enumerate(names):
        for w in names[i:]:
            # The gradient at w as a function of f_v, v before w: its derivative is H[w, v] of each example.
            blocks[v, w] = columns(gradients[w], values[v]).mean(0).T
            torch.einsum("bkv,bkl,blw->vw", jacobians[v], loss_hessian, jacobians[w]) / BATCH
    return blocks


def columns(values: Tensor, argument: Tensor) -> Tensor:
    """d values / d argument of each example, one component of `values` at a time: (B, components, d)."""
    rows = []
    for k in range(values.shape[1]):
        (row,) = torch.autograd.grad(values[:, k].sum(), argument, retain_graph=True, allow_unused=True)
        rows.append(torch.zeros_like(argument) if row is None else row)
    return torch.stack(rows, 1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
    for depth in (8,) if "--quick" in sys.argv else (8, 12):
        dag, names = network(depth)
        found, expected = split_blocks(dag, x, y, names).total, column_by_column(dag, x, y, names)
        error = max(float((found[p] - expected[p]).norm() / expected[p].norm()) for p in expected)
        ours = seconds(lambda d=dag, n=names: split_blocks(d, x, y, n), 9)
        theirs = seconds(lambda d=dag, n=names: column_by_column(d, x, y, n), 1)
        count = operations(lambda d=dag, n=names: split_blocks(d, x, y, n))
        print(
            f"exact blocks and GN split, L = {depth}: ours {1e3 * ours:.1f} ms, "
            f"column by column {1e3 * theirs:.0f} ms, ratio {theirs / ours:.0f} "
            f"(largest relative difference {error:.1e})"
            f"; ours {share(count, ours)}"
        )
    depths = (4, 8, 16, 32) if "--quick" in sys.argv else (4, 8, 16, 32, 64)
    times = []
    for depth in depths:
        dag, names = network(depth)
        times.append(seconds(lambda d=dag, n=names: split_blocks(d, x, y, n), 5 if depth < 32 else 2))
        print(f"growth, L = {depth}: ours {1e3 * times[-1]:.1f} ms")
    exponent = np.polyfit(np.log(depths), np.log(times), 1)[0]
    print(f"growth: time ~ L^{exponent:.2f} over L = {depths[0]} to {depths[-1]}")


if __name__ == "__main__":
    main()
