"""DAG paper, Section 5 and Appendix N: structural zeros on the experiments' own networks.

The engine routes second derivatives, so that H^T of a piecewise linear path is an exact zero of its code and no
measurement. Here H[v,w] is the second derivative of the loss by nested automatic differentiation with respect to
increments of both outputs, H^GN[v,w] = J_vᵀ ∇²ℓ J_w from Jacobians of the output, both in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.dag.exp4.settings import MERGES
from experiments.dag.exp5.settings import PAIRS
from experiments.paper_audit.checks import Entry, Outcome, needs
from experiments.paper_audit.tensors import seeded
from runner.contract import Claim
from runner.kinds.model import AttentionModel, DiamondModel
from runner.models.architectures import diamond, mlp, positionwise_mlp
from runner.models.network import INPUT, Network
from runner.training.initial import PUBLISHED_SEEDS, build

CLASSES = 4


def tensor_share(
    network: Network, x: Tensor, v: str, w: str, loss: Callable[[Tensor], Tensor]
) -> float:
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
    networks: list[tuple[Network, str, str]],
    shape: tuple[int, ...],
    loss: Callable[[Tensor], Tensor],
) -> Outcome:
    generator = seeded(7)
    found = [
        tensor_share(network, torch.randn(1, *shape, generator=generator), v, w, loss)
        for network, v, w in networks
    ]
    return Outcome(max(found), instances=len(found))


def _seeded(make: Callable[..., Network], seed: int, **settings: Any) -> Network:
    return make(**settings, generator=seeded(seed))


def chains(*activations: str) -> Outcome:
    """Exp. 3: every third pair of a plain network without LayerNorm."""
    size = {"inputs": 9, "outputs": CLASSES, "width": 7, "depth": 5, "norm": False}
    pairs = (("block0", "block0"), ("block0", "block3"), ("block2", "block3"))
    networks = [
        (_seeded(mlp, s, activation=a, **size), v, w)
        for a in activations
        for s in (0, 1)
        for v, w in pairs
    ]
    return _largest(networks, (9,), cross_entropy)


def merges(*kinds: tuple[str, str]) -> Outcome:
    """Exp. 4: the pair (A_{k−1}, B_{k−1}) at every k."""
    size = {"inputs": 9, "outputs": CLASSES, "width": 6}
    networks = [
        (
            _seeded(diamond, k, branch_depth=k, merge=m, activation=a, **size),
            f"a{k - 1}",
            f"b{k - 1}",
        )
        for m, a in kinds
        for k in (1, 2, 3)
    ]
    return _largest(networks, (9,), cross_entropy)


def positions(activation: str) -> Outcome:
    """Exp. 5: (block0, block1) of the position-wise network."""
    networks = [
        (_seeded(positionwise_mlp, s, width=4, activation=activation), "block0", "block1")
        for s in (0, 1, 2)
    ]
    return _largest(networks, (3, 4), squared)


def before_the_head(activation: str, v: str, w: str) -> Outcome:
    """Exp. 6 in small: a pair of residual networks with a linear head behind the last measured output."""
    size = {
        "inputs": 9,
        "outputs": CLASSES,
        "width": 7,
        "depth": 4,
        "norm": False,
        "residual": True,
    }
    return _largest(
        [(_seeded(mlp, s, activation=activation, **size), v, w) for s in (0, 1, 2)],
        (9,),
        cross_entropy,
    )


DEPTHS, ACTIVATIONS, IMAGE_CLASSES = (1, 2, 3), ("relu", "silu"), 10
PIXELS, TOKENS = (3072,), 8
ZERO, CLEARLY = 1e-12, 1e-4
"""Relative rounding of the two routes in float64; least share of a tensor part that is there."""


@dataclass(frozen=True)
class Untrained:
    """The network of one cell before training: experiment, its grid point, settings, the measured pair, is H^T zero."""

    experiment: str
    network: str
    settings: dict[str, Any]
    pair: tuple[str, str]
    shape: tuple[int, ...]
    flat: bool


def networks() -> Iterator[Untrained]:
    """Exp. 4 at every depth, merge and activation; Exp. 5's two networks, which its protocols share."""
    for k, merge, activation in itertools.product(DEPTHS, MERGES, ACTIVATIONS):
        grid: dict[str, Any] = {"branch_depth": k, "merge": merge, "activation": activation}
        settings = DiamondModel(initial="published").network(outputs=IMAGE_CLASSES, **grid)
        flat = (merge, activation) != ("cat", "silu")
        yield Untrained(
            "exp4_diamond",
            f"k={k} {merge}+{activation}",
            settings,
            (f"a{k - 1}", f"b{k - 1}"),
            PIXELS,
            flat,
        )
    attention = AttentionModel()
    tokens = (TOKENS, attention.width)
    yield Untrained(
        "exp5_attention", "attention", attention.network(), PAIRS["attention"], tokens, False
    )
    shape = {"width": attention.width, "depth": 3, "activation": "relu"}
    settings = {"builder": "positionwise_mlp", **shape}
    yield Untrained("exp5_attention", "relu_mlp", settings, PAIRS["relu_mlp"], tokens, True)


def row(case: Untrained, seed: int) -> dict[str, Any]:
    """share = ‖H − H^GN‖_F / ‖H‖_F of the pair in the network of one published seed, at one Gaussian input."""
    x = torch.randn(1, *case.shape, generator=seeded(seed))
    loss = cross_entropy if case.experiment == "exp4_diamond" else squared
    share = tensor_share(build(case.settings, seed), x, *case.pair, loss)
    found = {
        "experiment": case.experiment,
        "network": case.network,
        "of_seed": seed,
        "v": case.pair[0],
    }
    return {**found, "w": case.pair[1], "flat": case.flat, "share": share}


def rows() -> list[dict[str, Any]]:
    """One row for each network and published seed."""
    return [row(case, seed) for case, seed in itertools.product(networks(), PUBLISHED_SEEDS)]


def claims(found: list[dict[str, Any]]) -> list[Claim]:
    """One claim: the zeros vanish in every cell, and what is no zero does not."""
    if not found:
        return []
    largest = max(float(row["share"]) for row in found if row["flat"])
    least = min(float(row["share"]) for row in found if not row["flat"])
    count = sum(bool(row["flat"]) for row in found)
    detail = f"{count} untrained networks, one for each cell; where H^T is no zero, its share is at least {least:.2g}"
    return [
        Claim(
            name="dag.zeros.cells",
            statement="H^T vanishes in every cell of Exp. 4 and 5 where it is a zero by construction, and nowhere else",
            where="DAG, Sections 5.4 (H4.3) and 5.5 (H5.2)",
            verdict="confirmed" if largest <= ZERO and least >= CLEARLY else "refuted",
            statistic=largest,
            threshold=f"{ZERO:g}",
            detail=detail,
            group="DAG",
        )
    ]


CHECKS: dict[str, Entry] = {
    "dag.zeros.exp3": needs(
        lambda: chains("relu", "leaky_relu"), ("piecewise linear", lambda: chains("softplus"))
    ),
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
