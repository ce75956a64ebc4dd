"""DAG paper, Section 5 and Appendix N: structural zeros on the experiments' own networks.

The engine routes second derivatives, so that H^T of a piecewise linear path is an exact zero of its
code and no measurement. Here H[v,w] is the second derivative of the loss by nested automatic
differentiation with respect to increments of both outputs, H^GN[v,w] = J_vᵀ ∇²ℓ J_w from Jacobians
of the output, both in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import hessian, jacfwd, jacrev

from experiments.dag.exp4.settings import MERGES
from experiments.dag.exp5.settings import PAIRS
from experiments.paper_audit.checks import Checks, Outcome, outcome_of
from experiments.paper_audit.tensors import seeded, zeros
from runner.contract import Claim
from runner.kinds.model import AttentionModel, DiamondModel
from runner.models.architectures import diamond, mlp, positionwise_mlp
from runner.models.network import INPUT, Network
from runner.training.initial import build
from runner.training.streams import PUBLISHED_SEEDS

CHECKS = Checks()

CLASSES = 4


def tensor_share(
    network: Network, x: Tensor, v: str, w: str, loss: Callable[[Tensor], Tensor]
) -> float:
    """‖H[v,w] − H^GN[v,w]‖_F / ‖H[v,w]‖_F of the first example of x. loss: of the output of one
    example."""
    network = network.double().eval()
    x = x.double()[:1]
    outputs = network.activations(x)

    def output(a: Tensor, b: Tensor) -> Tensor:
        values = {INPUT: x}
        for name, parents, module in network.graph():
            value = module(*(values[parent] for parent in parents))
            if name == v:
                value = value + a.view_as(outputs[v])
            if name == w:
                value = value + b.view_as(outputs[w])
            values[name] = value
        return value[0]

    of_v = zeros(outputs[v].numel())
    of_w = zeros(outputs[w].numel())
    zero = (of_v, of_w)
    mixed = jacfwd(jacrev(lambda a, b: loss(output(a, b))), argnums=1)
    block = mixed(*zero)
    left = jacrev(output, argnums=0)(*zero)
    right = jacrev(output, argnums=1)(*zero)
    curvature = hessian(loss)(output(*zero)).reshape(left.shape[0], -1)
    gauss_newton = left.mT @ curvature @ right
    tensor_part = block - gauss_newton
    return float((tensor_part.norm() / block.norm()).detach())


def cross_entropy(logits: Tensor) -> Tensor:
    """Of class 0."""
    return -torch.log_softmax(logits, -1)[0]


def squared(output: Tensor) -> Tensor:
    """Against 0.7."""
    return (output.reshape(-1) - 0.7).square().sum()


Measured = tuple[Network, str, str]
"""A network and a pair of its outputs."""


def _largest(
    networks: list[Measured], shape: tuple[int, ...], loss: Callable[[Tensor], Tensor]
) -> Outcome:
    generator = seeded(7)
    shares = []
    for network, v, w in networks:
        x = torch.randn(1, *shape, generator=generator)
        shares.append(tensor_share(network, x, v, w, loss))
    return outcome_of(shares)


def small(seed: int, **settings: Any) -> Network:
    """A fully connected network of width 7 without normalisation."""
    return mlp(inputs=9, outputs=CLASSES, width=7, norm=False, generator=seeded(seed), **settings)


PAIRS_OF_CHAINS = (("block0", "block0"), ("block0", "block3"), ("block2", "block3"))


def chains(*activations: str) -> Outcome:
    """Exp. 3: every third pair of a plain network without LayerNorm."""
    networks = []
    settings = itertools.product(activations, (0, 1))
    for activation, seed in settings:
        network = small(seed, depth=5, activation=activation)
        networks += [(network, v, w) for v, w in PAIRS_OF_CHAINS]
    return _largest(networks, (9,), cross_entropy)


def merges(*kinds: tuple[str, str]) -> Outcome:
    """Exp. 4: the pair (A_{k−1}, B_{k−1}) at every k."""
    networks = []
    settings = itertools.product(kinds, (1, 2, 3))
    for (merge, activation), k in settings:
        network = diamond(
            inputs=9,
            outputs=CLASSES,
            width=6,
            branch_depth=k,
            merge=merge,
            activation=activation,
            generator=seeded(k),
        )
        networks.append((network, f"a{k - 1}", f"b{k - 1}"))
    return _largest(networks, (9,), cross_entropy)


def positions(activation: str) -> Outcome:
    """Exp. 5: (block0, block1) of the position-wise network."""
    networks = []
    for seed in (0, 1, 2):
        network = positionwise_mlp(width=4, activation=activation, generator=seeded(seed))
        networks.append((network, "block0", "block1"))
    return _largest(networks, (3, 4), squared)


def before_the_head(v: str, w: str) -> Outcome:
    """Exp. 6 in small: a pair of residual networks with a linear head behind the last measured
    output."""
    networks = []
    for seed in (0, 1, 2):
        networks.append((small(seed, depth=4, activation="silu", residual=True), v, w))
    return _largest(networks, (9,), cross_entropy)


CHECKS["dag.zeros.exp3"] = lambda: chains("relu", "leaky_relu")
CHECKS.without["dag.zeros.exp3", "piecewise linear"] = lambda: chains("softplus")
CHECKS["dag.zeros.exp4"] = lambda: merges(("sum", "relu"), ("sum", "silu"), ("cat", "relu"))
CHECKS.without["dag.zeros.exp4", "linear or piecewise linear merge"] = lambda: merges(
    ("cat", "silu")
)
CHECKS["dag.zeros.exp5"] = lambda: positions("relu")
CHECKS.without["dag.zeros.exp5", "ReLU"] = lambda: positions("silu")
CHECKS["dag.zeros.exp6"] = lambda: before_the_head("block0", "block3")
CHECKS.without["dag.zeros.exp6", "linear head"] = lambda: before_the_head("block0", "block2")

DEPTHS = (1, 2, 3)
ACTIVATIONS = ("relu", "silu")
IMAGE_CLASSES = 10
PIXELS = (3072,)
TOKENS = 8
ZERO = 1e-12
CLEARLY = 1e-4
"""Relative rounding of the two routes in float64; least share of a tensor part that is there."""


@dataclass(frozen=True)
class Untrained:
    """The network of one cell before training: experiment, its grid point, settings, the measured
    pair, is H^T zero."""

    experiment: str
    network: str
    settings: dict[str, Any]
    pair: tuple[str, str]
    shape: tuple[int, ...]
    flat: bool


def networks() -> Iterator[Untrained]:
    """Exp. 4 at every depth, merge and activation; Exp. 5's two networks, which its protocols
    share."""
    for k, merge, activation in itertools.product(DEPTHS, MERGES, ACTIVATIONS):
        network_settings = DiamondModel(initial="published").network(
            outputs=IMAGE_CLASSES, branch_depth=k, merge=merge, activation=activation
        )
        yield Untrained(
            experiment="exp4_diamond",
            network=f"k={k} {merge}+{activation}",
            settings=network_settings,
            pair=(f"a{k - 1}", f"b{k - 1}"),
            shape=PIXELS,
            flat=(merge, activation) != ("cat", "silu"),
        )
    attention = AttentionModel()
    mlp_settings = {"builder": "positionwise_mlp", "width": attention.width}
    mlp_settings |= {"depth": 3, "activation": "relu"}
    for name, settings, flat in (
        ("attention", attention.network(), False),
        ("relu_mlp", mlp_settings, True),
    ):
        shape = (TOKENS, attention.width)
        yield Untrained("exp5_attention", name, settings, PAIRS[name], shape, flat)


def row(case: Untrained, seed: int) -> dict[str, Any]:
    """share = ‖H − H^GN‖_F / ‖H‖_F of the pair in the network of one published seed, at one
    Gaussian input."""
    x = torch.randn(1, *case.shape, generator=seeded(seed))
    loss = cross_entropy if case.experiment == "exp4_diamond" else squared
    v, w = case.pair
    return {
        "experiment": case.experiment,
        "network": case.network,
        "of_seed": seed,
        "v": v,
        "w": w,
        "flat": case.flat,
        "share": tensor_share(build(case.settings, seed), x, v, w, loss),
    }


def rows() -> list[dict[str, Any]]:
    """One row for each network and published seed."""
    return [row(case, seed) for case, seed in itertools.product(networks(), PUBLISHED_SEEDS)]


def claims(table: list[dict[str, Any]]) -> list[Claim]:
    """One claim: the zeros vanish in every cell, and what is no zero does not."""
    if not table:
        return []
    flat = [float(row["share"]) for row in table if row["flat"]]
    least = min(float(row["share"]) for row in table if not row["flat"])
    vanish = max(flat) <= ZERO and least >= CLEARLY
    claim = Claim(
        name="dag.zeros.cells",
        statement="H^T vanishes in every cell of Exp. 4 and 5 where it is a zero by construction, "
        "and nowhere else",
        where="DAG, Sections 5.4 (H4.3) and 5.5 (H5.2)",
        verdict="confirmed" if vanish else "refuted",
        statistic=max(flat),
        threshold=f"share <= {ZERO:g}",
        detail=f"{len(flat)} untrained networks, one for each cell; "
        f"where H^T is no zero, its share is at least {least:.2g}",
        group="DAG, Exp. 4 and 5",
    )
    return [claim]
