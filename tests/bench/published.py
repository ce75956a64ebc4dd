"""The published way to R, C, D and the GN-gap, and to exact blocks, written anew: what the
benchmarks compare with.

Algorithm I of the DAG paper and the code that its authors published (github.com/comiam/dag-hesse,
commit 4f42d98, hessian/exact.py, stochastic.py and gn_decomposition.py). Every pair (v, w) has a
graph of its own: a forward pass to v without derivatives, f_v of the whole batch as a leaf, the
rest with derivatives, and the gradient at w differentiable. A product is one backward pass through
that graph, one direction at a time; 30 signs give R, 20 steps of power iteration on H^T H and one
product more give D. For the gap, K backward passes give the Jacobian at w, and each of the 30 signs
takes one product and one backward pass of the outputs. Exact blocks: a backward pass for every unit
of w, and from a forward pass of its own 2 K for the Jacobians of the pair; compute_all_blocks takes
ordered pairs, (w, v) anew.

Where the caller's weights have no gradients, no graph reaches them, which is in its favour.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from runner.curvature import Dag
from tests.bench.machine import operations

PROBES, STEPS = 30, 20

Pair = tuple[str, str]
Cost = Callable[[Callable[[], object]], float]
"""Seconds or operations of a call."""


class PublishedPair:
    """Products of one pair, v at or before w, of the mean over the batch. adjoint: H^T u too."""

    def __init__(self, dag: Dag, x: Tensor, y: Tensor, pair: Pair, adjoint: bool = False) -> None:
        self.first, self.last, self.output = _forward(dag, x, pair)
        self.loss_hessian = dag.loss.hessian(self.output.detach(), y)
        loss = dag.loss.per_example(self.output, y).mean()
        (self.gradient_last,) = torch.autograd.grad(loss, self.last, create_graph=True)
        if adjoint:
            (self.gradient_first,) = torch.autograd.grad(loss, self.first, create_graph=True)

    def product(self, z: Tensor) -> Tensor:
        """H[v, w] z."""
        return self._backward(
            (self.gradient_last * z.view(1, *self.last.shape[1:])).sum(), self.first
        )

    def adjoint(self, u: Tensor) -> Tensor:
        """H[v, w]^T u."""
        return self._backward(
            (self.gradient_first * u.view(1, *self.first.shape[1:])).sum(), self.last
        )

    def jacobian(self, at: Tensor) -> Tensor:
        """d output / d `at` of each example, (B, K, d)."""
        return _jacobian(self.output, at)

    def gauss_newton(self, jacobian: Tensor, z: Tensor) -> Tensor:
        """H^GN[v, w] z, from the Jacobian at w."""
        tangent = torch.einsum("bkl,bld,d->bk", self.loss_hessian, jacobian, z)
        return self._backward((self.output * tangent).sum() / len(tangent), self.first)

    def signs(self) -> Tensor:
        """A direction at w."""
        return torch.randint(0, 2, (self.last[0].numel(),)).float() * 2 - 1

    def _backward(self, scalar: Tensor, at: Tensor) -> Tensor:
        return torch.autograd.grad(scalar, at, retain_graph=True)[0].sum(0).flatten()


def _forward(dag: Dag, x: Tensor, pair: Pair) -> tuple[Tensor, Tensor, Tensor]:
    """Values at v, w and the output: without derivatives to v, which is a leaf, with them from
    there."""
    v, w = pair
    values, reached = {"input": x}, False
    for name in dag.order:
        with torch.set_grad_enabled(reached):
            node = dag.nodes[name]
            values[name] = node(*(values[p] for p in node.parents))
        if name == v:
            reached = True
            values[v] = values[v].detach().requires_grad_()
    return values[v], values[w], values[dag.output]


def _jacobian(output: Tensor, at: Tensor) -> Tensor:
    """d output / d `at` of each example, (B, K, d), one backward pass for each output."""
    columns = range(output.shape[1])
    return torch.stack(
        [
            torch.autograd.grad(output[:, k].sum(), at, retain_graph=True)[0].flatten(1)
            for k in columns
        ],
        1,
    )


def published_costs(
    dag: Dag, x: Tensor, y: Tensor, pairs: list[Pair], once: Cost, each: Cost = operations
) -> tuple[float, float, float]:
    """Costs of R, of R and D, and of the gap, over all pairs. once: of a call; each: of one of many
    that are alike."""
    found = [_costs_of_pair(dag, x, y, pair, once, each) for pair in pairs]
    resonance, ranks, gap = (sum(costs) for costs in zip(*found, strict=True))
    return resonance, ranks, gap


def _costs_of_pair(
    dag: Dag, x: Tensor, y: Tensor, pair: Pair, once: Cost, each: Cost
) -> tuple[float, float, float]:
    found: dict[str, PublishedPair] = {}
    set_up = once(lambda: found.update(graph=PublishedPair(dag, x, y, pair)))
    set_up_both = once(lambda: found.update(both=PublishedPair(dag, x, y, pair, adjoint=True)))
    graph, both = found["graph"], found["both"]
    norm = PROBES * each(lambda: graph.product(graph.signs()).square().sum().item())
    v = both.signs() / both.last[0].numel() ** 0.5
    u = both.product(v)
    there, back = each(lambda: both.product(v)), each(lambda: float(both.adjoint(u).norm()))
    passes, jacobian = once(lambda: graph.jacobian(graph.last)), graph.jacobian(graph.last)
    pulled = PROBES * each(
        lambda: graph.gauss_newton(jacobian, graph.signs()).square().sum().item()
    )
    return (
        set_up + norm,
        set_up_both + norm + STEPS * (there + back) + there,
        set_up + norm + passes + pulled,
    )


def published_blocks(
    dag: Dag, x: Tensor, y: Tensor, nodes: list[str], ordered: bool = True
) -> dict[Pair, tuple[Tensor, Tensor]]:
    """(H, H^GN) of every pair, averaged over the batch. ordered: of (w, v) too, computed anew as
    (v, w) and turned."""
    found = {}
    for i, v in enumerate(nodes):
        for j, w in enumerate(nodes):
            if j >= i:
                found[v, w] = _published_block(dag, x, y, (v, w))
            elif ordered:
                hessian, gauss_newton = _published_block(dag, x, y, (w, v))
                found[v, w] = hessian.t(), gauss_newton.t()
    return found


def _published_block(dag: Dag, x: Tensor, y: Tensor, pair: Pair) -> tuple[Tensor, Tensor]:
    """H and H^GN of one pair, v at or before w."""
    graph = PublishedPair(dag, x, y, pair)
    gradient = graph.gradient_last.flatten(1)
    columns = [graph._backward(gradient[:, j].sum(), graph.first) for j in range(gradient.shape[1])]
    first, last, output = _forward(dag, x, pair)
    left = _jacobian(output, first)
    right = left if pair[0] == pair[1] else _jacobian(output, last)
    gauss_newton = torch.einsum("bkv,bkl,blw->vw", left, graph.loss_hessian, right) / len(x)
    return torch.stack(columns, 1), gauss_newton
