"""Metrics of pairs from probes on their nodes, in rounds until every error is as asked."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from runner.curvature.basics.symmetric import Pair
from runner.curvature.basics.work import ENDED
from runner.curvature.pairs.ratios import (
    MOST_PROBES,
    Asked,
    InterLayerMetrics,
    Measured,
    Measurement,
    pair_metrics,
    relative_error,
)
from runner.curvature.pairs.singular_values import Leading, SharedSubspaces

SWEPT = 14
"""Products on each node for sigma_1 of all its pairs: three to four sweeps."""


class Probes(Measurement):
    """What probes on the nodes tell of the pairs `asked`, their diagonal blocks included.

    multiplied: products by node. sigmas: what is known of sigma_1. power: the power of R of which
    the error is asked. scale: unit of the blocks. method: how they are measured, for people.
    """

    power: float
    scale: float = 1.0
    method: str

    def __init__(self, asked: Asked, sizes: Mapping[str, int], dtype: torch.dtype) -> None:
        super().__init__(asked)
        self.pairs = asked.with_diagonals
        self.sizes = sizes
        self.nodes = list(dict.fromkeys(u for pair in self.pairs for u in pair))
        self.multiplied = dict.fromkeys(sizes, 0)
        self.eps = float(torch.finfo(dtype).eps)
        self.spaces = SharedSubspaces(self.times, sizes)
        self.samples: dict[Pair, tuple[dict[str, Tensor], ...]] = {}
        self.sigmas: dict[Pair, Leading] = {}

    @property
    def products(self) -> int:  # type: ignore[override]
        return sum(self.multiplied.values())

    @abstractmethod
    def known(self, pair: Pair) -> bool:
        """Whether `squares` can tell anything."""

    @abstractmethod
    def times(self, w: str, directions: Tensor) -> Mapping[str, Tensor]:
        """H r on every node in float64, for directions on w."""

    @abstractmethod
    def sample(self, w: str, count: int) -> Iterator[None]:
        """`count` more probes on w, in steps."""

    @abstractmethod
    def squares(self, pair: Pair) -> Measured:
        """What is known of the pair."""

    def keep(self, pair: Pair, w: str, squares: Sequence[Tensor], fresh: bool = False) -> None:
        """Samples of the squared norms of parts of a block, from probes on w; fresh: in place of
        those before."""
        samples = self.samples.setdefault(pair, tuple({} for _ in squares))
        for of_part, new in zip(samples, squares, strict=True):
            if w in of_part and not fresh:
                of_part[w] = torch.cat([of_part[w], new])
            else:
                of_part[w] = new

    def drawn(self, w: str) -> int:
        """Of which MOST_PROBES are allowed."""
        return self.multiplied[w]

    def refine(self, count: int) -> Iterator[None]:
        """More probes, twice as many at every round."""
        while nodes := self._missing():
            for w in nodes:
                yield from self.sample(w, count)
            count *= 2

    def _missing(self) -> list[str]:
        """Nodes whose probes leave a value of a pair with a larger error than asked, while more are
        allowed."""
        nodes: dict[str, None] = {}
        if self.asked.error is None:
            return []
        for pair in self.asked.pairs:
            v, w = pair
            block, *ends = blocks = [self.squares(p) for p in (pair, (v, v), (w, w))]
            terms = ((self.power / 2, block.total),), block.coupling(*ends), block.gap
            if max(map(relative_error, terms)) > self.asked.error:
                sampled = {u for one in blocks for u in one.total.samples}
                nodes |= dict.fromkeys(u for u in pair if u in sampled)
        return [u for u in nodes if self.drawn(u) < MOST_PROBES]

    def result(self) -> InterLayerMetrics | None:
        """Of the pairs that are known with their diagonal blocks; the others are NaN."""
        measured = {pair: self.squares(pair) for pair in self.pairs if self.known(pair)}
        for pair in {*self.sigmas} & {*measured}:
            sigma = self.sigmas[pair]
            measured[pair] = replace(measured[pair], sigma=sigma.value, sigma_error=sigma.error)
        pairs = []
        for v, w in self.asked.pairs:
            if {(v, w), (v, v), (w, w)} <= {*measured}:
                pairs.append((v, w))
        found = self.undefined(ENDED)
        known = pair_metrics(measured, pairs, self.scale, self.eps, self.method, self.asked.no_gap)
        for pair, metrics in known.items():
            open_rank = self.asked.ranks and math.isnan(measured[pair].sigma)
            if open_rank:
                metrics = metrics._replace(D=found[pair].D)
            found[pair] = metrics
        if len(known) == len(found):
            found.phi = known.phi._replace(products=self.products)
            found.phi_gauss_newton = known.phi_gauss_newton._replace(products=self.products)
        return found if pairs else None
