"""Metrics of pairs with the Gauss-Newton part from factors and the tensor part, where there is one,
from products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from runner.curvature.basics.estimate import on_sphere
from runner.curvature.basics.symmetric import Pair
from runner.curvature.graphs.factors import OutputFactors, TensorPart
from runner.curvature.pairs.probes import SWEPT, Probes
from runner.curvature.pairs.ratios import Asked, Measured, Square
from runner.curvature.pairs.singular_values import (
    Directions,
    Leading,
    leading_singular_values,
    partner,
)

PROBES = 8
"""On each node to begin with. Root mean square errors of R and D over seeds: 2.3 and 4.3 % in an
MLP of width 256, 1.6 and 4.0 % in ResNet-18, where 30 probes and 20 power steps for each pair leave
3.5 and 4.6, 1.8 and 5.3 %."""
START = 0.3


class FactorMetrics(Probes):
    """H = g GN + t T of the pairs `asked`, in units of the larger of the two parts' scales."""

    power = 2.0

    def __init__(
        self, factors: OutputFactors, tensor: TensorPart, curved: set[str], asked: Asked
    ) -> None:
        super().__init__(asked, tensor.sizes, tensor.dtype)
        self.factors = factors
        self.tensor = tensor
        # T is symmetric: a block of it is zero where either row is
        self.bent = [pair for pair in self.pairs if curved.issuperset(pair)]
        self.scale = max(factors.scale, tensor.scale)
        self.method = "factors, products" if self.bent else "factors"
        unit = self.scale if self.scale > 0 else 1.0
        self.weights = (factors.scale / unit, tensor.scale / unit)
        self._rounds = dict.fromkeys(self.nodes, 0)
        self.bent_nodes = list(dict.fromkeys(u for pair in self.bent for u in pair))
        self.planned = len(self.bent_nodes) * (PROBES + (SWEPT if asked.ranks else 0))

    def steps(self) -> Iterator[None]:
        """Probes, then sigma_1 from the spaces they span, then more probes until the errors are as
        asked."""
        plain: dict[Pair, Leading] = {}
        if self.asked.ranks:
            starts = {pair: _start(self.factors.rows[pair[1]]) for pair in self.pairs}
            plain = leading_singular_values(self._gauss_newton, starts, self.eps)
            self.sigmas |= {pair: plain[pair] for pair in self.pairs if pair not in self.bent}
        for w in self.bent_nodes:
            yield from self.sample(w, PROBES)
        if self.bent and self.asked.ranks:
            yield from self._add_gauss_newton_vectors(plain)
            yield from self.spaces.sweeps(self.sigmas, self.bent, self.asked.tolerance)
        yield from self.refine(PROBES)

    def known(self, pair: Pair) -> bool:
        return pair not in self.bent or pair in self.samples

    def _add_gauss_newton_vectors(self, plain: Mapping[Pair, Leading]) -> Iterator[None]:
        """Where Gauss-Newton is a good part of a block, its singular vector is a good start."""
        proposals: dict[str, list[Tensor]] = {}
        for v, w in self.bent:
            if plain[v, w].value > START * self.spaces.leading((v, w)).value:
                proposals.setdefault(w, []).append(plain[v, w].right)
        for w, directions in proposals.items():
            yield
            self.spaces.add(w, directions)

    # ------------------------------------------------------------------ products

    def _gauss_newton(self, directions: Directions) -> Directions:
        """Products with g GN, the directions of one node together."""
        factors = self.factors
        inner = dict[Pair, Tensor]()
        images = dict[Pair, Tensor]()
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
        g = self.weights[0]
        images = self.factors.apply({w: directions})
        return {v: g * image.double() for v, image in images.items()}

    def times(self, w: str, directions: Tensor) -> dict[str, Tensor]:
        images = self.tensor.apply({w: directions.to(self.tensor.dtype)})
        self.multiplied[w] += len(directions)
        return self._sum(w, directions, images)

    def _sum(self, w: str, directions: Tensor, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """g GN of the directions, and t times their images by T."""
        t = self.weights[1]
        smooth = self._smooth(w, directions)
        return {v: smooth[v] + t * image.double() for v, image in images.items()}

    # ------------------------------------------------------------------ squares

    def sample(self, w: str, count: int) -> Iterator[None]:
        """The first ones start the subspaces, which hold what is known exactly under the later
        ones: those replace the first, which knew nothing."""
        spaces = self.spaces
        size = self.sizes[w]
        yield
        first = self._rounds[w] == 0
        self._rounds[w] += 1
        if not first and size <= count:
            # What is missing of the whole space costs no more.
            units = torch.eye(size, device="cpu").to(spaces.basis[w])
            spaces.add(w, list(units), worth=1e-6)
        if spaces.complete(w):
            return
        z = self._probes(w, count)
        images = self.tensor.apply({w: z})
        self.multiplied[w] += len(z)
        self._take(w, z, images, not first)
        if first and (self.asked.ranks or self.asked.error is not None or len(z) == size):
            spaces.know(w, z, self._sum(w, z, images))

    def _probes(self, w: str, count: int) -> Tensor:
        """Directions z on a node with mean z z^T = I, (k, d_w); all unit vectors where they are no
        more than probes."""
        size = self.tensor.sizes[w]
        dtype = self.tensor.dtype
        device = self.tensor.device
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
            q = self.spaces.basis[w]
            known = self.spaces.images[w]
            smooth_q = self._smooth(w, q)
            components = z @ q.mT
            z = z - components @ q
        smooth = self._smooth(w, z)
        for pair in self.bent:
            if w not in pair:
                continue
            v = partner(pair, w)
            bend = self.weights[1] * images[v].double()
            total = self._gauss_newton_square(pair)
            tensor = 0.0
            if deflate:
                bent_q = known[v] - smooth_q[v]
                bend = bend - components @ bent_q
                total += float(known[v].square().sum() - smooth_q[v].square().sum())
                tensor = float(bent_q.square().sum())
            squares = bend.square().sum(1)
            cross = 2 * (smooth[v] * bend).sum(1)
            samples = (total + cross + squares, tensor + squares)
            self.keep(pair, w, samples, fresh=self._rounds[w] == 2)

    def _gauss_newton_square(self, pair: Pair) -> float:
        return self.weights[0] ** 2 * self.factors.square(*pair)

    def squares(self, pair: Pair) -> Measured:
        gauss_newton = Square(self._gauss_newton_square(pair))
        if pair not in self.samples:
            return Measured(gauss_newton, gauss_newton, Square(0.0))
        total, tensor = (Square.of(samples) for samples in self.samples[pair])
        complete = [u for u in reversed(pair) if self.spaces.complete(u)]
        if complete:
            w = complete[0]
            v = partner(pair, w)
            images = self.spaces.images[w][v]
            bend = images - self._smooth(w, self.spaces.basis[w])[v]
            total = Square(float(images.square().sum()))
            tensor = Square(float(bend.square().sum()))
            if tensor.value <= 1e-28 * total.value:  # rounding of a part that is zero
                tensor = Square(0.0)
        cost = sum(self.multiplied[u] for u in set(pair))
        return Measured(total, gauss_newton, tensor, products=cost)


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
    if float(start.norm()) > 0:
        return start
    return torch.ones_like(start)
