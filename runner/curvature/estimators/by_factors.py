"""Metrics of pairs with the Gauss-Newton part from factors and the tensor part, where there is one,
from products."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

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
)
from runner.curvature.estimators.singular_values import (
    Directions,
    Leading,
    SharedSubspaces,
    leading_singular_values,
    partner,
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
        self.factors, self.tensor, self.asked = factors, tensor, asked
        self.pairs = asked.with_diagonals
        # T is symmetric: a block of it is zero where either row is
        self.bent = [pair for pair in self.pairs if curved.issuperset(pair)]
        self.scale = max(factors.scale, tensor.scale)
        unit = self.scale if self.scale > 0 else 1.0
        self.weights = (factors.scale / unit, tensor.scale / unit)
        self.eps = float(torch.finfo(tensor.dtype).eps)
        self.products = dict.fromkeys(factors.nodes, 0)
        self._deflated: set[str] = set()
        self._spaces = SharedSubspaces(self._total, tensor.sizes)
        self._samples: dict[Pair, tuple[dict[str, Tensor], dict[str, Tensor]]] = {}

    def measure(self) -> InterLayerMetrics:
        """All of it: probes, then sigma_1 from the spaces they span, then more probes until the
        errors are as asked."""
        unknown = Leading(math.nan, math.nan, torch.empty(0, device="cpu"))
        leading = dict.fromkeys(self.pairs, unknown)
        if self.asked.ranks:
            starts = {pair: _start(self.factors.rows[pair[1]]) for pair in self.pairs}
            leading = leading_singular_values(self._gauss_newton, starts, self.eps, MAX_STEPS)
        if self.bent:
            nodes = list(dict.fromkeys(u for pair in self.bent for u in pair))
            self._sample(nodes, PROBES, first=True)
            if self.asked.ranks:
                self._add_gauss_newton_vectors(leading)
                leading |= self._spaces.sweeps(self.bent, self.asked.tolerance, MAX_STEPS)
            self._refine(leading)
        found = {pair: self._measured(pair, leading[pair]) for pair in self.pairs}
        method = "factors, products" if self.bent else "factors"
        return pair_metrics(found, self.asked.pairs, self.scale, self.eps, method)

    def _add_gauss_newton_vectors(self, plain: Mapping[Pair, Leading]) -> None:
        """Where Gauss-Newton is a good part of a block, its singular vector is a good start."""
        proposals: dict[str, list[Tensor]] = {}
        for v, w in self.bent:
            if plain[v, w].value > START * self._spaces.leading((v, w)).value:
                proposals.setdefault(w, []).append(plain[v, w].right)
        for w, directions in proposals.items():
            self._spaces.add(w, directions)

    # ------------------------------------------------------------------ products

    def _gauss_newton(self, directions: Directions) -> Directions:
        """Products with g GN, the directions of one node together."""
        factors, inner, images = self.factors, dict[Pair, Tensor](), dict[Pair, Tensor]()
        for w, pairs in _by_node(directions, 1).items():
            stacked = torch.stack([directions[pair] for pair in pairs]).to(factors.rows[w])
            inner |= zip(pairs, stacked @ factors.rows[w].mT, strict=True)
        weight = factors.signs * (self.weights[0] / factors.examples)
        for v, pairs in _by_node(directions, 0).items():
            cotangents = torch.stack([inner[pair] for pair in pairs]) * weight
            images |= zip(pairs, cotangents @ factors.rows[v], strict=True)
        return images

    def _smooth(self, w: str, directions: Tensor) -> dict[str, Tensor]:
        """The same with directions on w, on every node, in float64."""
        g, images = self.weights[0], self.factors.apply({w: directions})
        return {v: g * image.double() for v, image in images.items()}

    def _total(self, w: str, directions: Tensor) -> dict[str, Tensor]:
        """Products of g GN + t T with directions on w."""
        images = self.tensor.apply({w: directions.to(self.tensor.dtype)})
        self.products[w] += len(directions)
        return self._sum(w, directions, images)

    def _sum(self, w: str, directions: Tensor, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """g GN of the directions, and t times their images by T."""
        t, smooth = self.weights[1], self._smooth(w, directions)
        return {v: smooth[v] + t * image.double() for v, image in images.items()}

    # ------------------------------------------------------------------ squares

    def _sample(self, nodes: Iterable[str], count: int, first: bool = False) -> None:
        """`count` more probes on each of `nodes`, for every pair with it. The first ones start the
        subspaces, which hold what is known exactly under the later ones: those replace the first,
        which knew nothing."""
        spaces = self._spaces
        for w in nodes:
            size = self.tensor.sizes[w]
            if not first and size <= count:
                # What is missing of the whole space costs no more.
                units = torch.eye(size, device="cpu").to(spaces.basis[w])
                spaces.add(w, list(units), worth=1e-6)
            if spaces.complete(w):
                continue
            z = self._probes(w, count)
            images = self.tensor.apply({w: z})
            self.products[w] += len(z)
            self._take(w, z, images, not first)
            if not first:
                self._deflated.add(w)
            elif self.asked.ranks or self.asked.error is not None or len(z) == size:
                spaces.know(w, z, self._sum(w, z, images))

    def _probes(self, w: str, count: int) -> Tensor:
        """Directions z on a node with mean z z^T = I, (k, d_w); all unit vectors where they are no
        more than probes."""
        size, dtype, device = self.tensor.sizes[w], self.tensor.dtype, self.tensor.device
        if size <= count:
            return size**0.5 * torch.eye(size, dtype=dtype, device=device)
        return on_sphere((count, size), dtype, self.asked.generator).to(device)

    def _take(self, w: str, probes: Tensor, images: Mapping[str, Tensor], deflate: bool) -> None:
        """Samples of ||H[v,w]||^2 and ||T[v,w]||^2 from probes z on w, (m, d_w), with images
        T[v,w] z, (m, d_v).

        H = g GN + t T with weights (g, t). With z' = z - Q Q^T z for directions Q whose images are
        known (deflate), and GN known exactly,

            ||H||^2 = ||H Q||^2 + ||GN||^2 - ||GN Q||^2 + E[2 <GN z', T z'> + |T z'|^2],

        so that only the tensor part outside of Q is left to chance.
        """
        z = probes.double()
        if deflate:
            q, known = self._spaces.basis[w], self._spaces.images[w]
            smooth_q = self._smooth(w, q)
            components = z @ q.mT
            z = z - components @ q
        smooth = self._smooth(w, z)
        for pair in self.bent:
            if w not in pair:
                continue
            v = partner(pair, w)
            bend = self.weights[1] * images[v].double()
            total, tensor = self._gauss_newton_square(pair), 0.0
            if deflate:
                bent_q = known[v] - smooth_q[v]
                bend = bend - components @ bent_q
                total += float(known[v].square().sum() - smooth_q[v].square().sum())
                tensor = float(bent_q.square().sum())
            squares = bend.square().sum(1)
            cross = 2 * (smooth[v] * bend).sum(1)
            of_total, of_tensor = self._samples.setdefault(pair, ({}, {}))
            self._keep(of_total, w, total + cross + squares)
            self._keep(of_tensor, w, tensor + squares)

    def _keep(self, samples: dict[str, Tensor], w: str, new: Tensor) -> None:
        if w in samples and w in self._deflated:
            new = torch.cat([samples[w], new])
        samples[w] = new

    def _gauss_newton_square(self, pair: Pair) -> float:
        return self.weights[0] ** 2 * self.factors.square(*pair)

    def _refine(self, leading: Mapping[Pair, Leading]) -> None:
        """More probes, twice as many at every round, until every error is as asked."""
        count, error = PROBES, self.asked.error
        while error is not None and (missing := self._missing(leading, error)):
            self._sample(missing, count)
            count *= 2

    def _missing(self, leading: Mapping[Pair, Leading], error: float) -> list[str]:
        """Nodes of pairs whose errors are still above what is asked, while more probes are
        allowed."""
        nodes: dict[str, None] = {}
        for pair in self.asked.pairs:
            if pair in self.bent:
                v, w = pair
                measured, *ends = (self._measured(p, leading[p]) for p in (pair, (v, v), (w, w)))
                total, (a, b) = measured.total, (end.total for end in ends)
                coupling = [(0.5, total), (-0.25, a), (-0.25, b)]
                terms = ([(1.0, total)], [(0.5, measured.tensor)], coupling)
                if max(map(relative_error, terms)) > error:
                    nodes |= dict.fromkeys(pair)
        return [u for u in nodes if self.products[u] < MOST_PROBES]

    def _measured(self, pair: Pair, leading: Leading) -> Measured:
        gauss_newton = Square(self._gauss_newton_square(pair))
        if pair not in self._samples:
            return Measured(gauss_newton, gauss_newton, Square(0.0), leading.value, leading.error)
        cost = sum(self.products[u] for u in set(pair))
        total, tensor = (Square.of(samples) for samples in self._samples[pair])
        complete = [u for u in reversed(pair) if self._spaces.complete(u)]
        if complete:
            w = complete[0]
            v = partner(pair, w)
            images = self._spaces.images[w][v]
            bend = images - self._smooth(w, self._spaces.basis[w])[v]
            total, tensor = Square(float(images.square().sum())), Square(float(bend.square().sum()))
            if tensor.value <= 1e-28 * total.value:  # rounding of a part that is zero
                tensor = Square(0.0)
        return Measured(total, gauss_newton, tensor, leading.value, leading.error, cost)


def _by_node(directions: Directions, place: int) -> dict[str, list[Pair]]:
    """The pairs by the node of their direction (1) or image (0)."""
    pairs: dict[str, list[Pair]] = {}
    for pair in directions:
        pairs.setdefault(pair[place], []).append(pair)
    return pairs


def _start(rows: Tensor) -> Tensor:
    """A direction in the row space of the factors that favours their large rows: their sum weighted
    by their size."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(len(rows), generator=generator, dtype=torch.float64, device="cpu").to(rows)
    start = (mix @ rows).double()
    return start if float(start.norm()) > 0 else torch.ones_like(start)
