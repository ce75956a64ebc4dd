"""Metrics of pairs with the Gauss-Newton part from factors and the tensor part, where there is one, from products."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from runner.curvature.matrix_free.estimators import rademacher
from runner.curvature.metrics.factors import OutputFactors
from runner.curvature.metrics.golub_kahan import Leading, Requests, leading_singular_values
from runner.curvature.metrics.ratios import Measured, PairMetrics, pair_metrics
from runner.curvature.metrics.samples import (
    Known,
    Pair,
    Square,
    orthonormal,
    relative_error,
    squares_of_probes,
)
from runner.curvature.metrics.tensor_part import TensorPart

PROBES, MOST_PROBES = 8, 4096
MAX_STEPS = 40
TOLERANCE = 1e-3
"""Relative error of sigma_1 where none is asked for and it needs products."""


class FactorMetrics:
    """H = g GN + t T of the pairs `asked`, in units of the larger of the two parts' scales."""

    def __init__(
        self,
        factors: OutputFactors,
        tensor: TensorPart,
        curved: set[str],
        asked: Sequence[Pair],
        error: float | None,
        generator: torch.Generator | None,
    ) -> None:
        self.factors, self.tensor, self.curved, self.generator = factors, tensor, curved, generator
        self.asked, self.error = list(asked), error
        self.pairs = _with_diagonals(asked)
        self.scale = max(factors.scale, tensor.scale)
        unit = self.scale if self.scale > 0 else 1.0
        self.weights = (factors.scale / unit, tensor.scale / unit)
        self.products = dict.fromkeys(factors.nodes, 0)
        self._directions: dict[str, list[Tensor]] = {}
        self._images: dict[str, list[dict[str, Tensor]]] = {}
        self._samples: dict[Pair, tuple[dict[str, Tensor], dict[str, Tensor]]] = {}

    def measure(self) -> dict[Pair, PairMetrics]:
        """All of it: sigma_1, then probes until the errors are as asked."""
        leading = self._singular_values()
        bent = [pair for pair in self.pairs if self._bent(pair)]
        if bent:
            known = {
                w: orthonormal(found, self._images[w], self.factors.nodes) for w, found in self._directions.items()
            }
            self._sample(dict.fromkeys(u for pair in bent for u in pair), PROBES, bent, known)
            while self.error is not None and (missing := self._missing(leading)):
                before = len(self._samples[bent[0]][0][bent[0][0]])
                self._sample(dict.fromkeys(missing), before, bent, known)
        found = {pair: self._measured(pair, leading[pair]) for pair in self.pairs}
        eps = float(torch.finfo(self.tensor.dtype).eps)
        method = "factors, products" if bent else "factors"
        return pair_metrics(found, self.asked, self.scale, eps, method)

    def _bent(self, pair: Pair) -> bool:
        """Whether the pair's tensor part may be other than zero: T is symmetric, so that both rows must be."""
        return pair[0] in self.curved and pair[1] in self.curved

    # ------------------------------------------------------------------ sigma_1

    def _singular_values(self) -> dict[Pair, Leading]:
        """sigma_1 of the Gauss-Newton block, then of the whole one, from the Gauss-Newton singular vector."""
        if self.factors.zero:
            starts = {p: torch.randn(self.tensor.sizes[p[1]], generator=self.generator) for p in self.pairs}
            plain: dict[Pair, Leading] = {
                p: Leading(0.0, 0.0, 0.0, z.to(self.tensor.device).double(), 0) for p, z in starts.items()
            }
        else:
            rows = self.factors.rows
            starts = {(v, w): _start(rows[w]) for v, w in self.pairs}
            eps = float(torch.finfo(self.tensor.dtype).eps)
            plain = leading_singular_values(self._gauss_newton, starts, eps, MAX_STEPS)
        bent = {p: plain[p].right for p in self.pairs if self._bent(p) and float(plain[p].right.norm()) > 0}
        if not bent:
            return plain
        tolerance = TOLERANCE if self.error is None else self.error / 4
        seconds = {p: plain[p].second for p in bent}
        return plain | leading_singular_values(self._total, bent, tolerance, MAX_STEPS, seconds)

    def _gauss_newton(self, requests: Requests) -> dict[Pair, Tensor]:
        """Products with g GN, the directions of one node together."""
        inner: dict[str, Tensor] = {}
        for w, at in _by(requests, 1).items():
            z = torch.stack([requests[i][2] for i in at]).to(self.factors.rows[w])
            inner |= {str(i): c for i, c in zip(at, z @ self.factors.rows[w].mT, strict=True)}
        found: dict[Pair, Tensor] = {}
        weight = self.weights[0] / self.factors.examples
        for v, at in _by(requests, 3).items():
            c = torch.stack([inner[str(i)] for i in at]) * (self.factors.signs * weight)
            found |= {requests[i][0]: image for i, image in zip(at, c @ self.factors.rows[v], strict=True)}
        return found

    def _total(self, requests: Requests) -> dict[Pair, Tensor]:
        """Products with g GN + t T. The directions and their images are kept: they are known exactly afterwards."""
        if self.factors.zero:
            found = {pair: torch.zeros(self.tensor.sizes[v]).to(z) for pair, _, z, v in requests}
        else:
            found = {pair: image.double() for pair, image in self._gauss_newton(requests).items()}
        for w, at in _by(requests, 1).items():
            images = self.tensor.apply({w: torch.stack([requests[i][2] for i in at]).to(self.tensor.dtype)})
            self.products[w] += len(at)
            for k, i in enumerate(at):
                pair, _, direction, v = requests[i]
                found[pair] = found[pair] + self.weights[1] * images[v][k].double()
                self._directions.setdefault(w, []).append(direction)
                self._images.setdefault(w, []).append({u: image[k].double() for u, image in images.items()})
        return found

    # ------------------------------------------------------------------ squares

    def _sample(self, nodes: Iterable[str], count: int, bent: list[Pair], known: dict[str, Known]) -> None:
        """`count` more probes on each of `nodes`, for every pair with it."""
        for w in nodes:
            z = rademacher((count, self.tensor.sizes[w]), self.tensor.dtype, self.generator).to(self.tensor.device)
            images = self.tensor.apply({w: z})
            self.products[w] += count
            for pair in bent:
                if w in pair:
                    v = pair[0] if pair[1] == w else pair[1]
                    samples = squares_of_probes(self.factors, self.weights, (v, w), z, images[v], known.get(w))
                    for kept, new in zip(self._samples.setdefault(pair, ({}, {})), samples, strict=True):
                        kept[w] = torch.cat([kept[w], new]) if w in kept else new

    def _missing(self, leading: dict[Pair, Leading]) -> set[str]:
        """Nodes of pairs whose errors are still above what is asked, while more probes are allowed."""
        assert self.error is not None
        nodes: set[str] = set()
        for pair in filter(self._bent, self.asked):
            m = {p: self._measured(p, leading[p]) for p in (pair, (pair[0], pair[0]), (pair[1], pair[1]))}
            total, a, b = m[pair].total, m[pair[0], pair[0]].total, m[pair[1], pair[1]].total
            errors = {
                relative_error([(1.0, total)]): pair,
                relative_error([(0.5, m[pair].tensor)]): pair,
                relative_error([(0.5, total), (-0.25, a), (-0.25, b)]): pair,
            }
            if max(errors) > self.error:
                nodes.update(pair)
        return {u for u in nodes if self.products[u] < MOST_PROBES}

    def _measured(self, pair: Pair, leading: Leading) -> Measured:
        gauss_newton = Square(self.weights[0] ** 2 * self.factors.square(*pair))
        if pair not in self._samples:
            return Measured(gauss_newton, gauss_newton, Square(0.0), leading.value, leading.error)
        total, tensor = self._samples[pair]
        cost = sum(self.products[u] for u in set(pair))
        return Measured(Square.of(total), gauss_newton, Square.of(tensor), leading.value, leading.error, cost)


def _with_diagonals(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with the diagonal pairs that C needs."""
    return list(dict.fromkeys([*pairs, *((u, u) for pair in pairs for u in pair)]))


def _start(rows: Tensor) -> Tensor:
    """A direction in the row space of the factors that favours their large rows: their sum weighted by their size."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(len(rows), generator=generator, dtype=torch.float64).to(rows)
    start = (mix @ rows).double()
    return start if float(start.norm()) > 0 else torch.ones_like(start)


def _by(requests: Requests, place: int) -> dict[str, list[int]]:
    """Indices of the requests by the node they are from (place 1) or to (place 3)."""
    found: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        found.setdefault(str(request[place]), []).append(i)
    return found


def metrics_from_factors(
    factors: OutputFactors,
    tensor: TensorPart,
    curved: set[str],
    asked: Sequence[Pair],
    error: float | None,
    generator: torch.Generator | None,
) -> dict[Pair, PairMetrics]:
    """R, C, D, gap of the pairs `asked`; see `inter_layer_metrics`."""
    if not (math.isfinite(factors.scale) and math.isfinite(tensor.scale)):
        raise ValueError("the loss has derivatives that are not finite at this batch: check the input and the weights")
    return FactorMetrics(factors, tensor, curved, asked, error, generator).measure()
