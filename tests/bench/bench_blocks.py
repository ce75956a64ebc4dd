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
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from runner.curvature import Dag, exact_blocks, split_blocks, verify
from tests.bench.by_hand import batched, functional
from tests.bench.machine import in_turns, operations, peak, seconds
from tests.bench.published import published_blocks
from tests.bench.table import Row, price
from tests.curvature.oracles import assembled
from tests.draws import seeded

WIDTH, BATCH, CLASSES = 64, 32, 10
GOALS = {8: 82, 12: 156}
"""Ratios of an earlier state, which are to be kept."""
NAMES = {"batched": "is_grads_batched", "functional": "torch.func.hessian"}


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
    """Three rows for each depth, of `word`, as in "L=8"."""
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
    for depth in (8,) if quick else (8, 12):
        if word in f"L={depth}":
            case = Case(depth, x, y)
            yield case.by_hand(1 if quick else 7)
            yield case.published(1 if quick else 7)
            yield case.checked(3 if quick else 15)


class Case:
    """One network and its blocks by several ways."""

    def __init__(self, depth: int, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.name = x, y, f"MLP L={depth} width {WIDTH}, B = {BATCH}"
        self.dag, self.nodes = network(depth)
        self.depth, self.sizes = depth, [WIDTH] * depth
        self.split = split_blocks(self.dag, x, y, self.nodes)

    def ours(self) -> object:
        """Exact blocks and their Gauss-Newton split."""
        return split_blocks(self.dag, self.x, self.y, self.nodes)

    def differentiable(self, weights: bool) -> None:
        """Whether gradients of the weights are kept, which no way needs."""
        for node in self.dag.nodes.values():
            for parameter in node.parameters().values():
                parameter.requires_grad_(weights)

    def by_hand(self, repeats: int) -> Row:
        """Blocks alone, against the faster of two ways by hand, weights without gradients."""
        self.differentiable(False)
        given = self.dag, self.x, self.y, self.nodes
        ways = {way.__name__: partial(way, *given, self.sizes) for way in (batched, functional)}
        first = assembled(self.split.total, self.nodes)
        errors = [float((way().detach() - first).norm() / first.norm()) for way in ways.values()]
        ours, *others = in_turns(lambda: exact_blocks(*given), *ways.values(), repeats=repeats)
        times = dict(zip(ways, others, strict=True))
        best = min(times, key=lambda name: median(times[name]))
        slower = max(times, key=lambda name: median(times[name]))
        counts = operations(lambda: exact_blocks(*given)), operations(ways[best])
        what = f"{self.name}: exact blocks, against the best way by hand"
        note = (
            f"theirs: {NAMES[best]} with shared perturbations ({NAMES[slower]}: "
            f"{median(times[slower]) / median(ours):.3g}); largest relative difference "
            f"{max(errors):.1e}"
        )
        about = {"operations": counts, "peak": peak(), "note": note}
        return Row("blocks", what, ours, times[best], 9, **about)

    def published(self, repeats: int) -> Row:
        """Blocks and split, against the way of the authors, weights with gradients."""
        self.differentiable(True)
        theirs = partial(published_blocks, self.dag, self.x, self.y, self.nodes)
        pairs = [
            (getattr(self.split, part)[p], expected)
            for p, both in theirs().items()
            for part, expected in zip(("total", "gauss_newton"), both, strict=True)
        ]
        error = max(float((found - expected).norm() / expected.norm()) for found, expected in pairs)
        ours: tuple[float, ...] = ()
        other: tuple[float, ...] = ()
        for _ in range(repeats):  # in turns: the machine is not equally fast in every second
            ours += in_turns(self.ours, repeats=5)[0]
            other += (seconds(theirs),)
        counts = operations(self.ours), operations(theirs)
        self.differentiable(False)
        once = seconds(partial(theirs, ordered=False))
        what = f"{self.name}: exact blocks and their Gauss-Newton split, against the published way"
        note = (
            f"largest relative difference {error:.1e}; each pair once, weights without "
            f"gradients: {once / median(ours):.3g}"
        )
        about = {"operations": counts, "peak": peak(), "note": note}
        return Row("blocks", what, ours, other, GOALS[self.depth], **about)

    def checked(self, repeats: int) -> Row:
        """The numerical check of the blocks, in costs of the blocks."""

        def check() -> object:
            generator = seeded()
            return verify(self.dag, self.x, self.y, blocks=self.split.total, generator=generator)

        what = f"{self.name}: numerical check of exact blocks, in costs of the blocks"
        return price("blocks", what, check, self.ours, 3, repeats)
