"""DAG paper, Remarks 51, 54, 63 and Algorithm 4: norms and ranks of blocks from random probes."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from experiments.paper_audit.checks import random_matrices, worst
from experiments.paper_audit.dag.ranks import stable
from experiments.paper_audit.formula import Entry, Outcome, Witness


def hutchinson() -> Outcome:
    """E|A z|² = ‖A‖_F² = tr AᵀA over all sign vectors z, exactly."""

    def error(a: Tensor) -> float:
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=a.shape[1])), dtype=torch.float64)
        return abs(float((signs @ a.mT).square().sum(1).mean() / a.square().sum()) - 1) + abs(
            float((a.T @ a).trace() / a.square().sum()) - 1
        )

    return worst(random_matrices(((4, 1), (4, 3), (2, 6))), error)


def algorithm_4() -> Outcome:
    """Power iteration and all probes of Algorithm 4 on rectangular matrices: |estimate / D − 1|."""

    def error(h: Tensor) -> float:
        q = torch.randn(h.shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        q = q / q.norm()
        for _ in range(400):
            p = h @ q
            q = h.T @ p
            q = q / q.norm()
        sigma = float((h @ q).square().sum())
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=h.shape[1])), dtype=torch.float64)
        total = float((signs @ h.mT).square().sum())
        return abs(total / (len(signs) * sigma) / stable(h) - 1)

    return worst(random_matrices(((4, 3), (2, 5), (5, 5)), 3), error)


def power_rate() -> Outcome:
    """Remark 63: relative error of σ² after T steps over (σ2/σ1)^(2T), at most tan² of the starting angle."""

    def violation(h: Tensor) -> float:
        _, s, v = torch.linalg.svd(h)
        q = torch.ones(h.shape[1], dtype=torch.float64) / math.sqrt(h.shape[1])
        angle = float((1 - (v[0] @ q) ** 2) / (v[0] @ q) ** 2)
        found = []
        for steps in (1, 3, 6):
            p = q
            for _ in range(steps):
                p = h.T @ (h @ p)
                p = p / p.norm()
            error = 1 - float((h @ p).square().sum() / s[0] ** 2)
            found.append(error / (angle * float(s[1] / s[0]) ** (2 * steps)) - 1)
        return max(found)

    return worst(random_matrices(((4, 4), (3, 5), (6, 2)), 5), violation)


def coupling_violations() -> Outcome:
    """Remark 51: the share of independent estimates with C > 1 falls as O(1/m)? for v = w it stays near 1/2."""
    m, generator = (
        torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        torch.Generator().manual_seed(1),
    )

    def share(left: Tensor, right: Tensor, cross: Tensor, probes: int) -> float:
        def estimate(a: Tensor) -> Tensor:
            z = torch.randint(0, 2, (400, probes, a.shape[1]), generator=generator).double() * 2 - 1
            return (z @ a.mT).square().sum(-1).mean(-1).sqrt()

        return float((estimate(cross) > (estimate(left) * estimate(right)).sqrt()).double().mean())

    h = m @ m.T
    stays = [share(h, h, h, probes) for probes in (10, 160)]
    a, b = m[:3], m[3:]
    falls = [share(a @ a.T, b @ b.T, a @ b.T, probes) for probes in (1, 160)]
    witness = Witness(
        "H[v,v] = H[w,w] = H[v,w], 10 and 160 probes: share with Ĉ > 1",
        "falls as 1/m",
        "where C < 1",
        f"{stays[0]:.2f}, {stays[1]:.2f}",
    )
    return Outcome(max(0.0, stays[1] - stays[0] / 4), max(0.0, falls[1] - 0.02), 1600, witness)


CHECKS: dict[str, Entry] = {
    "dag.remark54": hutchinson,
    "dag.algorithm4": algorithm_4,
    "dag.remark63": power_rate,
    "dag.remark51": coupling_violations,
}
