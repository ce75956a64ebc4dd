"""The DAG paper's stochastic estimates through the network: common probes for H, H^GN and H^T,
power iteration for D."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from experiments.dag.protocol.estimates import rademacher
from runner.curvature import Dag, LayerOperator
from runner.curvature.basics.errors import first_not_finite
from runner.curvature.basics.estimate import (
    Estimate,
    norm_of,
    on_sphere,
    squares_of,
    student_factor,
)
from runner.curvature.basics.precision import full_precision
from runner.curvature.graphs.checks import checked_evaluation
from runner.curvature.graphs.dag import INPUT
from runner.curvature.graphs.derivatives import differentiable_value
from runner.curvature.graphs.losses import repeated
from runner.curvature.graphs.state import measuring

Pair = tuple[str, str]
Products = dict[str, Tensor]
NOT_FINITE = "the products are not finite: the second derivative is NaN or overflows there"
FEW = 12
"""Components of a node below which signs are too often the same, up to the sign of all."""
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
    together: int | None = None,
) -> dict[Pair, PartNorms]:
    """‖H‖_F, ‖H^GN‖_F and ‖H^T‖_F of each pair (v, w), all from the same probes z on w: √mean |H
    z|² (DAG paper, Eq. 4).

    together: probes that go through the network at once (default: all of a node). error: standard
    error with Student's factor, infinite nowhere. Raises ValueError as the checks of a stated graph
    do."""
    network = NetworkParts(dag, x, y, nodes)
    if network.reason:
        nothing = Estimate.undefined(0, network.reason)
        return dict.fromkeys(pairs, PartNorms(nothing, nothing, nothing))
    found = {}
    drawn = _probes_of(network, pairs, probes, generator, stream)
    for w, z, targets in drawn:
        total, gauss_newton = network.products(w, z, together or len(z))
        for v in targets:
            tensor = total[v] - gauss_newton[v]
            images = total[v], gauss_newton[v], tensor
            found[v, w] = PartNorms(*(root_mean(image) for image in images))
    return {pair: found[pair] for pair in pairs}


class NetworkParts:
    """H and H^GN times directions on a node, from one graph of the network.

    Each direction has a copy of the batch and perturbations e_v of its own. With g_v = dL/de_v of
    the mean loss, one backward pass of g_w · r gives H[v,w] r for every v at once; H^GN r = Jᵀ A
    (J r), where J r is the derivative of Jᵀ u, linear in u, by u. reason: why there are no numbers,
    else "".
    """

    def __init__(self, dag: Dag, x: Tensor, y: Tensor, nodes: Sequence[str]) -> None:
        with measuring(dag):
            checked_evaluation(dag, x, y, finite=False)
            with torch.no_grad():
                self.values = dag.forward(x)
            output = self.values[dag.output]
            self.loss_hessian = dag.loss.hessian(output, y)
        self.dag = dag
        self.y = y
        self.nodes = dag.select(nodes)
        self.moving = dag.descendants(self.nodes)  # all others are evaluated once
        self.reason = first_not_finite(self.values)
        self.sizes = {v: self.values[v].shape[1:].numel() for v in self.nodes}
        self.dtype = output.dtype
        self.device = output.device
        self.copies = 0

    def products(self, w: str, directions: Tensor, together: int) -> tuple[Products, Products]:
        """H r and H^GN r on every node, for directions r on w, (k, d_w), so many at a time."""
        pieces = []
        with measuring(self.dag), full_precision():
            for rows in directions.split(together):
                self._evaluate(len(rows))
                pieces.append((self._hessian(w, rows), self._gauss_newton(w, rows)))
        total, gauss_newton = zip(*pieces, strict=True)
        return _joined(total), _joined(gauss_newton)

    def _evaluate(self, copies: int) -> None:
        """The outputs and gradients of so many copies of the batch, as functions of the
        perturbations."""
        if copies == self.copies:
            return
        self.copies = copies
        batch = len(self.y)
        self.leaves = {}
        for v in self.nodes:
            shape = self.values[v].shape[1:]
            self.leaves[v] = self.values[v].new_zeros(copies, 1, *shape).requires_grad_()
        values: dict[str, Tensor] = {}
        for name in (INPUT, *self.dag.order):
            if name in self.moving:
                values[name] = differentiable_value(self.dag.nodes[name], values)
            else:
                values[name] = repeated(self.values[name].detach(), copies)
            if name in self.leaves:
                apart = values[name].view(copies, batch, *values[name].shape[1:])
                values[name] = (apart + self.leaves[name]).flatten(0, 1)
        self.output = values[self.dag.output]
        loss = self.dag.loss.summed(self.output, repeated(self.y, copies)) / batch
        slopes = torch.autograd.grad(
            loss, list(self.leaves.values()), create_graph=True, materialize_grads=True
        )
        self.gradients = dict(zip(self.leaves, slopes, strict=True))

    def _hessian(self, w: str, directions: Tensor) -> Products:
        return self._pull((self.gradients[w].flatten(1) * directions).sum(), None)

    def _gauss_newton(self, w: str, directions: Tensor) -> Products:
        u = torch.zeros_like(self.output, requires_grad=True)
        (pulled,) = torch.autograd.grad(
            self.output, self.leaves[w], u, create_graph=True, materialize_grads=True
        )
        dot = (pulled.flatten(1) * directions).sum()
        if not dot.requires_grad:
            return self._pull(dot, None)
        (tangent,) = torch.autograd.grad(dot, u, retain_graph=True)
        tangent = tangent.reshape(self.copies, len(self.y), -1)
        curved = torch.einsum("bkl,pbl->pbk", self.loss_hessian, tangent) / len(self.y)
        return self._pull(self.output, curved.reshape(self.output.shape))

    def _pull(self, value: Tensor, cotangent: Tensor | None) -> Products:
        if not value.requires_grad:
            return {v: torch.zeros_like(leaf).flatten(1) for v, leaf in self.leaves.items()}
        slopes = torch.autograd.grad(
            value, list(self.leaves.values()), cotangent, retain_graph=True, materialize_grads=True
        )
        return {v: slope.flatten(1) for v, slope in zip(self.nodes, slopes, strict=True)}


def _joined(pieces: Sequence[Products]) -> Products:
    """The rows of all pieces, by node."""
    rows = {}
    for v in pieces[0]:
        rows[v] = torch.cat([piece[v] for piece in pieces])
    return rows


def _probes_of(
    network: NetworkParts,
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
        size = network.sizes[w]
        few = size <= FEW and stream == "node"
        draw = on_sphere if few else rademacher
        z = draw((probes, size), network.dtype, streams.of(w))
        yield w, z.to(network.device), nodes


def root_mean(images: Tensor) -> Estimate:
    """√mean |image|² over the rows, with its standard error (delta method), widened for few of
    them."""
    squares = squares_of(images)
    count = len(squares.values)
    mean = float(squares.values.mean())
    if mean == 0:
        return Estimate(0.0, 0.0, count)
    deviation = float(squares.values.std())
    error = deviation / math.sqrt(count) * student_factor(count - 1)
    error_of_root = error / (2 * math.sqrt(mean))
    root = squares.root_mean
    if not math.isfinite(root):
        return Estimate.undefined(count, NOT_FINITE)
    return Estimate(root, error_of_root * 2.0**squares.exponent, count)


def unit(vector: Tensor) -> Tensor:
    """vector / |vector|, whatever its scale; zeros stay zeros."""
    largest = vector.abs().max()
    if not float(largest) > 0:
        return vector
    scaled = vector / largest
    return scaled / scaled.norm()


def spectral_norms(
    operator: LayerOperator,
    pairs: Sequence[Pair],
    steps: int,
    generator: torch.Generator,
    together: int | None = None,
) -> dict[Pair, float]:
    """|H q| of each block after `steps` steps u = H q / |H q|, q ← Hᵀ u / |.|, all pairs in the
    same passes.

    From a Gaussian start of the pair's own stream. together: directions that go through the network
    at once (default: all). A power iteration never overestimates ‖H‖₂.
    """
    streams = Streams(generator)
    q = {}
    for v, w in pairs:
        start = torch.randn(operator.sizes[w], generator=streams.of(f"{v}->{w}"), device="cpu")
        q[v, w] = unit(start.to(operator.device, operator.dtype))
    sigma = {}
    for _ in range(steps):
        requests = {(v, w): (w, q[v, w], v) for v, w in pairs}
        forward = _products(operator, requests, together)
        sigma = {pair: norm_of(image) for pair, image in forward.items()}
        requests_back = {(v, w): (v, unit(forward[v, w]), w) for v, w in pairs}
        back = _products(operator, requests_back, together)
        rest = []
        for pair in pairs:
            image = back[pair]
            along = sigma[pair] * q[pair].double()
            rest.append(norm_of(image.double() - along))
            if bool(image.any()):
                q[pair] = unit(image)
        if not any(rest):  # singular vectors to the last digit
            break
    return {pair: value if math.isfinite(value) else math.nan for pair, value in sigma.items()}


def _products(
    operator: LayerOperator,
    requests: dict[Pair, tuple[str, Tensor, str]],
    together: int | None,
) -> dict[Pair, Tensor]:
    """For each pair (source node, direction, target node): the target's part of H times the
    direction, in one call."""
    directions = {}
    listed = enumerate(requests.values())
    for k, (source, direction, _) in listed:
        if source not in directions:
            directions[source] = direction.new_zeros(len(requests), operator.sizes[source])
        directions[source][k] = direction
    pieces = []
    for start in range(0, len(requests), together or len(requests)):
        stop = start + (together or len(requests))
        piece = {source: rows[start:stop] for source, rows in directions.items()}
        pieces.append(operator.apply(piece))
    images = _joined(pieces)
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
            self.seed = int(torch.randint(0, 2**62, (), generator=generator, device="cpu"))

    def of(self, name: str) -> torch.Generator:
        """The stream of a name."""
        if self.kind == "shared":
            return self.generator
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
