"""Exact blocks of all pairs with the Gauss-Newton split: curvature routing against one column and
one pair at a time.

Plain network (Linear, LayerNorm, ReLU) of depth L and width d = 64, B = 32 examples, K = 10
classes, float32, one thread. The published way is that of published.py, called as it is published:
every ordered pair, weights with gradients. The note says what is left of the ratio where it takes
each pair once and weights have none.

Operation count. Routing: one (d x d)(d x d) product per example and pair for the tensor part, 2 B
d^3 L^2 / 2, and one product of two (B K)-row matrices for Gauss-Newton, 2 B K d^2 L^2 / 2: at L =
12 about 1.2 + 0.2 Gflop. Column by column: one backward pass per ordered pair and column, d L^2 =
10,000 passes of up to 20 L operations each, which overhead dominates.

Run: python -m tests.bench blocks [--quick]
"""

from collections.abc import Iterator
from statistics import median

import torch
from torch import Tensor, nn

from runner.curvature import Dag, split_blocks, verify
from tests.bench.machine import in_turns, matmul_peak, operations, seconds
from tests.bench.published import published_blocks
from tests.bench.table import Row

WIDTH, BATCH, CLASSES = 64, 32, 10
GOALS = {8: 82, 12: 156}
"""Ratios of an earlier state, which are to be kept."""


def network(depth: int) -> tuple[Dag, list[str]]:
    """depth + 1 blocks, measured at the last `depth`."""
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU())
        for _ in range(depth + 1)
    ]
    names = [f"block{i}" for i in range(depth)]
    model = nn.ModuleList([*blocks, nn.Linear(WIDTH, CLASSES)])
    return Dag.from_sequential([*model], names=["projection", *names, "head"]), names


def rows(quick: bool = False, word: str = "") -> Iterator[Row]:
    """A row for each depth, and the largest difference of the two ways in its note; of `word`, as
    in "L=8"."""
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
    for depth in (8,) if quick else (8, 12):
        if word not in f"L={depth}":
            continue
        dag, names = network(depth)
        split = split_blocks(dag, x, y, names)
        expected = published_blocks(dag, x, y, names)
        error = max(
            float((found - truth).norm() / truth.norm())
            for p, both in expected.items()
            for found, truth in zip((split.total[p], split.gauss_newton[p]), both, strict=True)
        )
        ours: tuple[float, ...] = ()
        theirs: tuple[float, ...] = ()
        for _ in range(
            1 if quick else 7
        ):  # in turns: the machine is not equally fast in every second
            ours += in_turns(lambda d=dag, n=names: split_blocks(d, x, y, n), repeats=5)[0]
            theirs += (seconds(lambda d=dag, n=names: published_blocks(d, x, y, n)),)
        count = operations(lambda d=dag, n=names: split_blocks(d, x, y, n))
        counted = operations(lambda d=dag, n=names: published_blocks(d, x, y, n))
        for p in (p for node in dag.nodes.values() for p in node.parameters().values()):
            p.requires_grad_(False)
        once = seconds(lambda d=dag, n=names: published_blocks(d, x, y, n, ordered=False))
        yield checked(dag, names, depth, x, y, 3 if quick else 15)
        yield Row(
            "blocks",
            f"MLP L={depth} width 64, B = 32: exact blocks and their Gauss-Newton split, "
            "against the published way",
            ours,
            theirs,
            GOALS[depth],
            operations=(count, counted),
            peak=matmul_peak(),
            note=(
                f"largest relative difference {error:.1e}; each pair once, weights without "
                f"gradients: {once / median(ours):.3g}"
            ),
        )


def checked(dag: Dag, names: list[str], depth: int, x: Tensor, y: Tensor, repeats: int) -> Row:
    """The numerical check of the blocks, in costs of the blocks."""
    blocks = split_blocks(dag, x, y, names)
    ours, theirs = in_turns(
        lambda: verify(dag, x, y, blocks=blocks.total, generator=torch.Generator().manual_seed(0)),
        lambda: split_blocks(dag, x, y, names),
        repeats=repeats,
    )
    what = (
        f"MLP L={depth} width 64, B = 32: numerical check of exact blocks, in costs of the blocks"
    )
    return Row("blocks", what, ours, theirs, 3, at_least=False)
