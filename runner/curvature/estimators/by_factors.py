"""Metrics of pairs with the Gauss-Newton part from factors and the tensor part, where there is one,
from products."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from runner.curvature.estimators.estimate import on_sphere
from runner.curvature.estimators.factors import OutputFactors, TensorPart
from runner.curvature.estimators.ratios import (
    MOST_PROBES,
    Asked,
    InterLayerMetrics,
    Measured,
    Pair,
    Square,
    pair_metrics,
    relative_error,
    squares_of_probes,
)
from runner.curvature.estimators.singular_values import (
    Leading,
    Requests,
    SharedSubspaces,
    by_node,
    leading_singular_values,
)

PROBES = 8
"""On each node to begin with. Root mean square errors of R and D over seeds: 2.3 and 4.3 % in an
MLP of width 256, 1.6 and 4.0 % in ResNet-18, where 30 probes and 20 power steps for each pair leave
3.5 and 4.6, 1.8 and 5.3 %."""
MAX_STEPS = 40
START = 0.3


class FactorMetrics:
    """H = g GN + t T of the pairs `asked`, in units of the larger of the two parts' scales."""

    def __init__(
        self, factors: OutputFactors, tensor: TensorPart, curved: set[str], asked: Asked
    ) -> None:
        self.factors, self.tensor, self.curved, self.asked = factors, tensor, curved, asked
        self.pairs = asked.with_diagonals
        self.scale = max(factors.scale, tensor.scale)
        unit = self.scale if self.scale > 0 else 1.0
        self.weights = (factors.scale / unit, tensor.scale / unit)
        self.products = dict.fromkeys(factors.nodes, 0)
        self._deflated: set[str] = set()
        self._spaces = SharedSubspaces(self._total, tensor.sizes)
        self._samples: dict[Pair, tuple[dict[str, Tensor], dict[str, Tensor]]] = {}

    def measure(self) -> InterLayerMetrics:
        """All of it: probes, then sigma_1 from the spaces they span, then more probes until the
        errors are as asked."""
        nothing = Leading(math.nan, math.nan, 0.0, torch.empty(0, device="cpu"), 0)
        plain = dict.fromkeys(self.pairs, nothing)
        if self.asked.ranks:
            plain = self._gauss_newton_values()
        bent = [pair for pair in self.pairs if self._bent(pair)]
        leading = dict(plain)
        if bent:
            nodes = list(dict.fromkeys(u for pair in bent for u in pair))
            self._sample(nodes, PROBES, bent, first=True)
            if self.asked.ranks:
                self._add_gauss_newton_vectors(bent, plain)
                leading |= self._spaces.sweeps(bent, self.asked.tolerance, MAX_STEPS)
            self._refine(bent, leading)
        found = {pair: self._measured(pair, leading[pair]) for pair in self.pairs}
        eps = float(torch.finfo(self.tensor.dtype).eps)
        method = "factors, products" if bent else "factors"
        return pair_metrics(found, self.asked.pairs, self.scale, eps, method)

    def _add_gauss_newton_vectors(self, bent: list[Pair], plain: dict[Pair, Leading]) -> None:
        """Where Gauss-Newton is a good part of a block, its singular vector is a good start."""
        proposals: dict[str, list[Tensor]] = {}
        for v, w in bent:
            if plain[v, w].value > START * self._spaces.leading((v, w)).value:
                proposals.setdefault(w, []).append(plain[v, w].right)
        for w, directions in proposals.items():
            self._spaces.add(w, directions)

    def _bent(self, pair: Pair) -> bool:
        """Whether the pair's tensor part may be other than zero: T is symmetric, so that both rows
        must be."""
        return pair[0] in self.curved and pair[1] in self.curved

    # ------------------------------------------------------------------ products

    def _gauss_newton_values(self) -> dict[Pair, Leading]:
        """sigma_1 and the right singular vector of every Gauss-Newton block."""
        starts = {(v, w): _start(self.factors.rows[w]) for v, w in self.pairs}
        eps = float(torch.finfo(self.tensor.dtype).eps)
        return leading_singular_values(self._gauss_newton, starts, eps, MAX_STEPS)

    def _gauss_newton(self, requests: Requests) -> dict[Pair, Tensor]:
        """Products with g GN, the directions of one node together."""
        inner: dict[Pair, Tensor] = {}
        for w, here in by_node(requests, 1).items():
            z = torch.stack([z for _, _, z, _ in here]).to(self.factors.rows[w])
            inner |= zip((request[0] for request in here), z @ self.factors.rows[w].mT, strict=True)
        found: dict[Pair, Tensor] = {}
        weight = self.weights[0] / self.factors.examples
        for v, here in by_node(requests, 3).items():
            c = torch.stack([inner[request[0]] for request in here]) * (self.factors.signs * weight)
            found |= zip((request[0] for request in here), c @ self.factors.rows[v], strict=True)
        return found

    def _total(self, w: str, directions: Tensor) -> dict[str, Tensor]:
        """Products of g GN + t T with directions on w."""
        images = self.tensor.apply({w: directions.to(self.tensor.dtype)})
        self.products[w] += len(directions)
        return self._add_gauss_newton(w, directions, images)

    def _add_gauss_newton(
        self, w: str, directions: Tensor, images: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        g, t = self.weights
        smooth = self.factors.apply({w: directions})
        return {v: g * smooth[v].double() + t * image.double() for v, image in images.items()}

    # ------------------------------------------------------------------ squares

    def _sample(
        self, nodes: Iterable[str], count: int, bent: list[Pair], first: bool = False
    ) -> None:
        """`count` more probes on each of `nodes`, for every pair with it. The first ones start the
        subspaces, which hold what is known exactly under the later ones: those replace the first,
        which knew nothing."""
        spaces = self._spaces
        for w in nodes:
            if not first and self.tensor.sizes[w] <= count:
                # What is missing of the whole space costs no more.
                units = torch.eye(self.tensor.sizes[w], device="cpu").to(spaces.basis[w])
                spaces.add(w, list(units), worth=1e-6)
            if spaces.complete(w):
                continue
            z = self._probes(w, count)
            images = self.tensor.apply({w: z})
            self.products[w] += len(z)
            known = None if first else (spaces.basis[w], spaces.images[w])
            partners = {pair: pair[0] if pair[1] == w else pair[1] for pair in bent if w in pair}
            others = dict.fromkeys(partners.values())
            squares = squares_of_probes(self.factors, self.weights, w, others, z, images, known)
            for pair, v in partners.items():
                samples = self._samples.setdefault(pair, ({}, {}))
                for kept, new in zip(samples, squares[v], strict=True):
                    longer = w in kept and w in self._deflated
                    kept[w] = torch.cat([kept[w], new]) if longer else new
            if not first:
                self._deflated.add(w)
            elif self.asked.ranks or self.asked.error is not None or len(z) == self.tensor.sizes[w]:
                spaces.know(w, z, self._add_gauss_newton(w, z, images))

    def _probes(self, w: str, count: int) -> Tensor:
        """Directions z on a node with mean z z^T = I, (k, d_w); all unit vectors where they are no
        more than probes."""
        size, dtype, device = self.tensor.sizes[w], self.tensor.dtype, self.tensor.device
        if size <= count:
            return size**0.5 * torch.eye(size, dtype=dtype, device=device)
        return on_sphere((count, size), dtype, self.asked.generator).to(device)

    def _refine(self, bent: list[Pair], leading: dict[Pair, Leading]) -> None:
        """More probes, twice as many at every round, until every error is as asked."""
        count, error = PROBES, self.asked.error
        while error is not None and (missing := self._missing(leading, error)):
            self._sample(missing, count, bent)
            count *= 2

    def _missing(self, leading: dict[Pair, Leading], error: float) -> list[str]:
        """Nodes of pairs whose errors are still above what is asked, while more probes are
        allowed."""
        nodes: dict[str, None] = {}
        for pair in filter(self._bent, self.asked.pairs):
            v, w = pair
            measured, *ends = (self._measured(p, leading[p]) for p in (pair, (v, v), (w, w)))
            total, (a, b) = measured.total, (end.total for end in ends)
            terms = (
                [(1.0, total)],
                [(0.5, measured.tensor)],
                [(0.5, total), (-0.25, a), (-0.25, b)],
            )
            if max(map(relative_error, terms)) > error:
                nodes |= dict.fromkeys(pair)
        return [u for u in nodes if self.products[u] < MOST_PROBES]

    def _measured(self, pair: Pair, leading: Leading) -> Measured:
        gauss_newton = Square(self.weights[0] ** 2 * self.factors.square(*pair))
        if pair not in self._samples:
            return Measured(gauss_newton, gauss_newton, Square(0.0), leading.value, leading.error)
        cost = sum(self.products[u] for u in set(pair))
        total, tensor = (Square.of(samples) for samples in self._samples[pair])
        v, w = pair if self._spaces.complete(pair[1]) else (pair[1], pair[0])
        if self._spaces.complete(w):
            images = self._spaces.images[w][v]
            nothing = {v: torch.zeros_like(images)}
            bent = images - self._add_gauss_newton(w, self._spaces.basis[w], nothing)[v]
            total, tensor = Square(float(images.square().sum())), Square(float(bent.square().sum()))
            if tensor.value <= 1e-28 * total.value:  # rounding of a part that is zero
                tensor = Square(0.0)
        return Measured(total, gauss_newton, tensor, leading.value, leading.error, cost)


def _start(rows: Tensor) -> Tensor:
    """A direction in the row space of the factors that favours their large rows: their sum weighted
    by their size."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(len(rows), generator=generator, dtype=torch.float64, device="cpu").to(rows)
    start = (mix @ rows).double()
    return start if float(start.norm()) > 0 else torch.ones_like(start)
