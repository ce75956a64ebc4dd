"""The DAG paper's stochastic estimates through the network: common probes for H, H^GN and H^T,
power iteration for D."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from runner.curvature import CurvatureOperator, Dag
from runner.curvature.estimators.estimate import (
    FEW,
    Estimate,
    norm_of,
    on_sphere,
    rademacher,
    squares_of,
    student,
    unit,
)
from runner.curvature.operators.symmetric import Pair

MEMORY_BUDGET = 1 << 30
Stream = Literal["node", "shared"]
"""The probes of a node do not depend on the others, or all come in order from one generator."""


class PartNorms(NamedTuple):
    """Frobenius norms of the parts of one block, from common probes."""

    total: Estimate
    gauss_newton: Estimate
    tensor: Estimate


def part_norms(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Sequence[str],
    pairs: Sequence[Pair],
    probes: int,
    generator: torch.Generator,
    stream: Stream = "node",
) -> dict[Pair, PartNorms]:
    """‖H‖_F, ‖H^GN‖_F and ‖H^T‖_F of each pair (v, w), all from the same probes z on w: √mean |H
    z|² (DAG paper, Eq. 4).

    error: standard error with Student's factor, infinite nowhere. Raises ValueError as
    CurvatureOperator does."""
    operator = CurvatureOperator(dag, x, y, nodes, part="tensor", memory_budget=MEMORY_BUDGET)
    if operator.reason:
        nothing = Estimate.undefined(0, operator.reason)
        return dict.fromkeys(pairs, PartNorms(nothing, nothing, nothing))
    found = {}
    drawn = _probes_of(operator, pairs, probes, generator, stream)
    for w, z, targets in drawn:
        total, gauss_newton = operator.apply_parts({w: z})
        for v in targets:
            tensor = total[v] - gauss_newton[v]
            images = total[v], gauss_newton[v], tensor
            found[v, w] = PartNorms(*(root_mean(image) for image in images))
    return {pair: found[pair] for pair in pairs}


def _probes_of(
    operator: CurvatureOperator,
    pairs: Sequence[Pair],
    probes: int,
    generator: torch.Generator,
    stream: Stream,
) -> Iterator[tuple[str, Tensor, list[str]]]:
    """(w, probes on w, nodes v of the pairs (v, w)) for every w: signs, or on the sphere where a
    node has few components, whose signs agree too often."""
    streams = Streams(generator, stream)
    targets: dict[str, list[str]] = {}
    for v, w in pairs:
        targets.setdefault(w, []).append(v)
    for w, nodes in targets.items():
        size = operator.sizes[w]
        few = size <= FEW and stream == "node"
        draw = on_sphere if few else rademacher
        generator_of_node = streams.of(w)
        z = draw((probes, size), operator.dtype, generator_of_node)
        yield w, z.to(operator.device), nodes


def root_mean(images: Tensor) -> Estimate:
    """√mean |image|² over the rows, with its standard error (delta method), widened for few of
    them."""
    squares = squares_of(images)
    count = len(squares.values)
    mean = float(squares.values.mean())
    if mean == 0:
        return Estimate(0.0, 0.0, count)
    deviation = float(squares.values.std())
    error = deviation / math.sqrt(count) * student(count - 1)
    error_of_root = error / (2 * math.sqrt(mean))
    scale = 2.0**squares.exponent
    return Estimate.if_finite(squares.root_mean, error_of_root * scale, count)


def spectral_norms(
    operator: CurvatureOperator, pairs: Sequence[Pair], steps: int, generator: torch.Generator
) -> dict[Pair, float]:
    """|H q| of each block after `steps` steps u = H q / |H q|, q ← Hᵀ u / |.|, all pairs in the
    same passes.

    From a Gaussian start of the pair's own stream. A power iteration never overestimates ‖H‖₂.
    """
    streams = Streams(generator)
    q = {}
    for v, w in pairs:
        generator_of_pair = streams.of(f"{v}->{w}")
        start = operator.gaussian(operator.sizes[w], generator_of_pair)
        q[v, w] = unit(start)
    sigma = {}
    for _ in range(steps):
        requests = {(v, w): (w, q[v, w], v) for v, w in pairs}
        forward = _products(operator, requests)
        sigma = {pair: norm_of(image) for pair, image in forward.items()}
        requests_back = {(v, w): (v, unit(forward[v, w]), w) for v, w in pairs}
        back = _products(operator, requests_back)
        rest = []
        for pair in pairs:
            image = back[pair]
            along = sigma[pair] * q[pair].double()
            change = image.double() - along
            rest.append(norm_of(change))
            if bool(image.any()):
                q[pair] = unit(image)
        if not any(rest):  # singular vectors to the last digit
            break
    return {pair: value if math.isfinite(value) else math.nan for pair, value in sigma.items()}


def _products(
    operator: CurvatureOperator, requests: dict[Pair, tuple[str, Tensor, str]]
) -> dict[Pair, Tensor]:
    """For each pair (source node, direction, target node): the target's part of H times the
    direction, in one call."""
    directions = {}
    listed = enumerate(requests.values())
    for k, (source, direction, _) in listed:
        if source not in directions:
            size = operator.sizes[source]
            directions[source] = direction.new_zeros(len(requests), size)
        directions[source][k] = direction
    images = operator.apply(directions)
    products = {}
    listed_pairs = enumerate(requests.items())
    for k, (pair, (_, _, target)) in listed_pairs:
        products[pair] = images[target][k]
    return products


class Streams:
    """Random streams by name: one draw from the generator seeds them all, so that what a node gets
    does not depend on what else is asked for. "shared": one stream for everything, in the order of
    the calls."""

    def __init__(self, generator: torch.Generator, kind: Stream = "node") -> None:
        self.generator = generator
        self.kind = kind
        self.seed = 0
        if kind == "node":
            drawn = torch.randint(0, 2**62, (), generator=generator, device="cpu")
            self.seed = int(drawn)

    def of(self, name: str) -> torch.Generator:
        """The stream of a name."""
        if self.kind == "shared":
            return self.generator
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big") >> 1
        return torch.Generator().manual_seed(seed)
