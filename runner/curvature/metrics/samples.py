"""Squares of blocks from probes and from directions that are known exactly, and ratios of them with their errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runner.curvature.matrix_free.probes import student
from runner.curvature.metrics.factors import OutputFactors

Pair = tuple[str, str]

MOST_PROBES = 4096
"""On each node, whatever error is asked for."""
TOLERANCE = 2e-2
"""Relative error of sigma_1 where none is asked for and it needs products."""


@dataclass(frozen=True)
class Square:
    """A squared norm: its value, and the samples that it is the mean of, by the node that the probes were drawn on
    (none where it is exact)."""

    value: float
    samples: Mapping[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(samples: Mapping[str, Tensor]) -> Square:
        """The mean of the nodes' means: a block and its transpose have one norm, so that both sides count."""
        return Square(max(0.0, math.fsum(float(s.mean()) for s in samples.values()) / len(samples)), samples)


Known = tuple[Tensor, Mapping[str, Tensor]]
"""Orthonormal directions Q on a node, (r, d_w), with H[v,w] Q of every v, (r, d_v)."""


def squares_of_probes(
    factors: OutputFactors,
    weights: tuple[float, float],
    w: str,
    others: Iterable[str],
    probes: Tensor,
    images: Mapping[str, Tensor],
    known: Known | None,
) -> dict[str, tuple[Tensor, Tensor]]:
    """v -> samples of ||H[v,w]||^2 and ||T[v,w]||^2 for v in `others`, from probes z on w, (m, d_w), with images
    T[v,w] z, (m, d_v).

    H = g GN + t T with weights (g, t). With z' = z - Q Q^T z and GN known exactly,

        ||H||^2 = ||H Q||^2 + ||GN||^2 - ||GN Q||^2 + E[2 <GN z', T z'> + |T z'|^2],

    so that only the tensor part outside the known directions Q is left to chance.
    """
    g, t = weights

    def smooth(r: Tensor) -> dict[str, Tensor]:
        if factors.zero:
            return {v: torch.zeros(len(r), images[v].shape[1]).to(images[v]).double() for v in images}
        return {v: g * image.double() for v, image in factors.apply({w: r}).items()}

    z = probes.double()
    if known is not None:
        q, hq = known
        gq = smooth(q)
        components = z @ q.mT
        z = z - components @ q
    gz = smooth(z)
    samples = {}
    for v in others:
        image = t * images[v].double()
        exact_total, exact_tensor = g**2 * factors.square(v, w), 0.0
        if known is not None:
            tq = hq[v] - gq[v]
            image = image - components @ tq
            exact_total += float(hq[v].square().sum() - gq[v].square().sum())
            exact_tensor = float(tq.square().sum())
        curved = image.square().sum(1)
        cross = 2 * (gz[v] * image).sum(1)
        samples[v] = exact_total + cross + curved, exact_tensor + curved
    return samples


def relative_error(terms: Sequence[tuple[float, Square]]) -> float:
    """Standard error of sum_k c_k log S_k over squares S_k, to first order; 0 when all are exact.

    Samples drawn on one node share their probes; their influences add up before they are squared. The error is
    widened by Student's factor, so that +-1.96 errors cover 95 % with few probes too.
    """
    influence: dict[str, Tensor] = {}
    for coefficient, square in terms:
        for node, s in square.samples.items():
            if square.value > 0:
                part = coefficient * s / (len(square.samples) * square.value)
                influence[node] = influence[node] + part if node in influence else part
    if not influence:
        return 0.0
    variance = math.fsum(float(i.var()) / len(i) for i in influence.values())
    return math.sqrt(variance) * student(sum(len(i) - 1 for i in influence.values()))
