"""The structural zeros of Section 5, on the experiments' own networks, by a route that knows of none of them.

The engine routes second derivatives, so that H^T of a piecewise linear path is an exact zero of its code and no
measurement. Here H[v,w] is the second derivative of the loss by nested automatic differentiation with respect to
increments of both outputs, H^GN[v,w] = J_vᵀ ∇²ℓ J_w from Jacobians of the output, both in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.paper_audit.formula import Entry, Outcome, needs
from runner.models import Network, diamond, mlp, positionwise_mlp
from runner.models.network import INPUT

CLASSES = 4


def tensor_share(network: Network, x: Tensor, v: str, w: str, loss: Callable[[Tensor], Tensor]) -> float:
    """‖H[v,w] − H^GN[v,w]‖_F / ‖H[v,w]‖_F of the first example of x. loss: of the output of one example."""
    network, x = network.double().eval(), x.double()[:1]
    sizes = {name: network.activations(x)[name] for name in (v, w)}

    def output(a: Tensor, b: Tensor) -> Tensor:
        values = {INPUT: x}
        for name, parents, module in network.graph():
            values[name] = module(*(values[p] for p in parents))
            values[name] = values[name] + (a.view_as(sizes[v]) if name == v else 0)
            values[name] = values[name] + (b.view_as(sizes[w]) if name == w else 0)
        return values[name][0]

    zero = [torch.zeros(sizes[name].numel(), dtype=torch.float64) for name in (v, w)]
    block = torch.func.jacfwd(torch.func.jacrev(lambda a, b: loss(output(a, b))), argnums=1)(*zero)
    left, right = (torch.func.jacrev(output, argnums=i)(*zero) for i in (0, 1))
    curvature = torch.func.hessian(loss)(output(*zero)).reshape(left.shape[0], -1)
    gauss_newton = left.mT @ curvature @ right
    return float(((block - gauss_newton).norm() / block.norm()).detach())


def cross_entropy(logits: Tensor) -> Tensor:
    """Of class 0."""
    return -torch.log_softmax(logits, -1)[0]


def squared(output: Tensor) -> Tensor:
    """Against 0.7."""
    return (output.reshape(-1) - 0.7).square().sum()


def _largest(
    networks: list[tuple[Network, str, str]], shape: tuple[int, ...], loss: Callable[[Tensor], Tensor]
) -> Outcome:
    generator = torch.Generator().manual_seed(7)
    found = [
        tensor_share(network, torch.randn(1, *shape, generator=generator), v, w, loss) for network, v, w in networks
    ]
    return Outcome(max(found), instances=len(found))


def _seeded(make: Callable[..., Network], seed: int, **settings: Any) -> Network:
    return make(**settings, generator=torch.Generator().manual_seed(seed))


def chains(*activations: str) -> Outcome:
    """Exp. 3: every third pair of a plain network without LayerNorm."""
    size = {"inputs": 9, "outputs": CLASSES, "width": 7, "depth": 5, "norm": False}
    pairs = (("block0", "block0"), ("block0", "block3"), ("block2", "block3"))
    networks = [(_seeded(mlp, s, activation=a, **size), v, w) for a in activations for s in (0, 1) for v, w in pairs]
    return _largest(networks, (9,), cross_entropy)


def merges(*kinds: tuple[str, str]) -> Outcome:
    """Exp. 4: the pair (A_{k−1}, B_{k−1}) at every k."""
    size = {"inputs": 9, "outputs": CLASSES, "width": 6}
    networks = [
        (_seeded(diamond, k, branch_depth=k, merge=m, activation=a, **size), f"a{k - 1}", f"b{k - 1}")
        for m, a in kinds
        for k in (1, 2, 3)
    ]
    return _largest(networks, (9,), cross_entropy)


def positions(activation: str) -> Outcome:
    """Exp. 5: (block0, block1) of the position-wise network."""
    networks = [(_seeded(positionwise_mlp, s, width=4, activation=activation), "block0", "block1") for s in (0, 1, 2)]
    return _largest(networks, (3, 4), squared)


def before_the_head(activation: str, v: str, w: str) -> Outcome:
    """Exp. 6 in small: a pair of residual networks with a linear head behind the last measured output."""
    size = {"inputs": 9, "outputs": CLASSES, "width": 7, "depth": 4, "norm": False, "residual": True}
    return _largest([(_seeded(mlp, s, activation=activation, **size), v, w) for s in (0, 1, 2)], (9,), cross_entropy)


CHECKS: dict[str, Entry] = {
    "dag.zeros.exp3": needs(lambda: chains("relu", "leaky_relu"), ("piecewise linear", lambda: chains("softplus"))),
    "dag.zeros.exp4": needs(
        lambda: merges(("sum", "relu"), ("sum", "silu"), ("cat", "relu")),
        ("linear or piecewise linear merge", lambda: merges(("cat", "silu"))),
    ),
    "dag.zeros.exp5": needs(lambda: positions("relu"), ("ReLU", lambda: positions("silu"))),
    "dag.zeros.exp6": needs(
        lambda: before_the_head("silu", "block0", "block3"),
        ("linear head", lambda: before_the_head("silu", "block0", "block2")),
    ),
}
