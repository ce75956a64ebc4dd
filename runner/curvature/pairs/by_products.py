"""Metrics of pairs from products alone, for outputs too many for factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from runner.curvature.basics.estimate import on_sphere
from runner.curvature.basics.symmetric import Pair, SymmetricOperator
from runner.curvature.pairs.probes import SWEPT, Probes
from runner.curvature.pairs.ratios import Asked, Measured, Square, spectral_norm
from runner.curvature.pairs.singular_values import partner

WITHOUT_FACTORS = 30
"""Probes on each node to begin with: the Gauss-Newton part is estimated, too."""


Bent = Callable[[str, Tensor, Mapping[str, Tensor]], Mapping[str, Tensor]]
"""(w, directions on w, their images by H) -> their images by the tensor part H - GN, float64."""


class ProductMetrics(Probes):
    """GN z = H z - T z: T is exactly zero where it is, so that only a Gauss-Newton part far below T
    loses digits.

    Nodes with no more components than probes are multiplied with all unit vectors, which makes
    their blocks exact. sigma_1 begins in the space of the first probes.
    """

    power = 1.0
    method = "products"

    def __init__(self, operator: SymmetricOperator, tensor: Bent, asked: Asked) -> None:
        super().__init__(asked, operator.sizes, operator.dtype)
        self.operator = operator
        self.tensor = tensor
        self._drawn = dict.fromkeys(self.nodes, 0)
        self._exact: dict[Pair, Measured] = {}
        self.planned = len(self.nodes) * (2 * WITHOUT_FACTORS + (SWEPT if asked.ranks else 0))

    @property
    def products(self) -> int:  # type: ignore[override]
        """With H and with the Gauss-Newton matrix."""
        return super().products + sum(self._drawn.values())

    def steps(self) -> Iterator[None]:
        """Probes, more of them until the errors are as asked, then sigma_1."""
        for w in self.nodes:
            yield from self.sample(w, WITHOUT_FACTORS)
        yield from self.refine(2 * WITHOUT_FACTORS)
        if self.asked.ranks:
            unknown = [pair for pair in self.pairs if pair not in self._exact]
            yield from self.spaces.sweeps(self.sigmas, unknown, self.asked.tolerance)

    def known(self, pair: Pair) -> bool:
        return pair in self._exact or pair in self.samples

    def _images(self, w: str, directions: Tensor) -> Mapping[str, Tensor]:
        self.multiplied[w] += len(directions)
        return self.operator.apply({w: directions.to(self.operator.dtype)})

    def times(self, w: str, directions: Tensor) -> Mapping[str, Tensor]:
        return {v: image.double() for v, image in self._images(w, directions).items()}

    def drawn(self, w: str) -> int:
        return self._drawn[w]

    def sample(self, w: str, count: int) -> Iterator[None]:
        size = self.sizes[w]
        dtype = self.operator.dtype
        device = self.operator.device
        exact = size <= count
        if exact:
            pieces: Sequence[Tensor] = [torch.eye(size, dtype=dtype, device=device)]
        else:
            drawn = on_sphere((count, size), dtype, self.asked.generator).to(device)
            pieces = drawn.split(self.asked.together or count)
        for probes in pieces:
            yield
            images = self._images(w, probes)
            bent = self.tensor(w, probes, images)
            total = {v: image.double() for v, image in images.items()}
            if self.asked.ranks and not self._drawn[w]:
                self.spaces.know(w, probes, total)
            self._drawn[w] += len(probes)
            for pair in (pair for pair in self.pairs if w in pair):
                v = partner(pair, w)
                parts = (total[v], total[v] - bent[v], bent[v])
                squares = [part.square().sum(1) for part in parts]
                if exact:
                    whole, smooth, bend = (Square(float(square.sum())) for square in squares)
                    sigma = math.nan
                    if self.asked.ranks:
                        sigma = spectral_norm(total[v])
                    self._exact[pair] = Measured(whole, smooth, bend, sigma)
                else:
                    self.keep(pair, w, squares)

    def squares(self, pair: Pair) -> Measured:
        cost = sum(self._drawn[u] + self.multiplied[u] for u in set(pair))
        if pair in self._exact:
            return replace(self._exact[pair], products=cost)
        total, gauss_newton, tensor = (Square.of(samples) for samples in self.samples[pair])
        return Measured(total, gauss_newton, tensor, products=cost)
