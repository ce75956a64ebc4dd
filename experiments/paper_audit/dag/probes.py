"""DAG paper, Appendices A and C: norms and ranks of blocks from random probes."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from experiments.paper_audit.checks import Checks, Outcome, apart, worked
from experiments.paper_audit.dag.ranks import stable
from experiments.paper_audit.tensors import gauss, random_matrices, real, seeded

CHECKS = Checks()


def sign_vectors(size: int) -> Tensor:
    """All vectors of ±1, one a row."""
    signs = itertools.product((-1.0, 1.0), repeat=size)
    return real(list(signs))


@CHECKS.errors("dag.remark54", lambda: random_matrices(((4, 1), (4, 3), (2, 6))))
def hutchinson(a: Tensor) -> float:
    """E|A z|² = ‖A‖_F² = tr AᵀA over all sign vectors z, exactly."""

    images = sign_vectors(a.shape[1]) @ a.mT
    mean = images.square().sum(1).mean()
    trace = (a.T @ a).trace()
    square = a.square().sum()
    of_probes = abs(float(mean / square) - 1)
    of_trace = abs(float(trace / square) - 1)
    return of_probes + of_trace


@CHECKS.errors("dag.algorithm4", lambda: random_matrices(((4, 3), (2, 5), (5, 5)), 3))
def algorithm_4(h: Tensor) -> float:
    """Power iteration and all probes of Algorithm 4 on rectangular matrices: |estimate / D − 1|."""

    q = gauss(seeded(1), h.shape[1])
    q = q / q.norm()
    for _ in range(400):
        p = h @ q
        q = h.T @ p
        q = q / q.norm()
    image = h @ q
    sigma = float(image.square().sum())
    signs = sign_vectors(h.shape[1])
    images = signs @ h.mT
    summed = float(images.square().sum())
    estimate = summed / (len(signs) * sigma)
    return apart(estimate, stable(h))


@CHECKS.errors("dag.remark63", lambda: random_matrices(((4, 4), (3, 5), (6, 2)), 5))
def power_rate(h: Tensor) -> float:
    """Remark 63: relative error of σ² after T steps over (σ2/σ1)^(2T), and against its exact value
    from a start half-way between the two leading directions: r^(4T) (1 − r²) / (1 + r^(4T))."""

    _, s, v = torch.linalg.svd(h)
    ratio = float(s[1] / s[0])
    excess = []
    for steps in (1, 3, 6):
        p = v[0] + v[1]
        for _ in range(steps):
            p = h.T @ (h @ p)
            p = p / p.norm()
        estimate = (h @ p).square().sum()
        error = 1 - float(estimate / s[0] ** 2)
        fallen = ratio ** (4 * steps)
        exact = fallen * (1 - ratio**2) / (1 + fallen)
        excess += [error / ratio ** (2 * steps) - 1, abs(error - exact)]
    return max(excess)


def estimated_norms(a: Tensor, probes: int, generator: torch.Generator) -> Tensor:
    """400 estimates of ‖A‖_F from sign vectors."""
    size = (400, probes, a.shape[1])
    bits = torch.randint(0, 2, size, generator=generator)
    z = bits.double() * 2 - 1
    images = z @ a.mT
    squares = images.square().sum(-1)
    return squares.mean(-1).sqrt()


@CHECKS.clause("dag.remark51")
def coupling_violations() -> Outcome:
    """Remark 51: the share of independent estimates with C > 1 falls as O(1/m)? for v = w it stays
    near 1/2."""
    m = gauss(seeded(0), 6, 6)
    generator = seeded(1)

    def share(left: Tensor, right: Tensor, cross: Tensor, probes: int) -> float:
        of_cross = estimated_norms(cross, probes, generator)
        of_left = estimated_norms(left, probes, generator)
        of_right = estimated_norms(right, probes, generator)
        scale = (of_left * of_right).sqrt()
        above = of_cross > scale
        return float(above.double().mean())

    h = m @ m.T
    few = share(h, h, h, 10)
    many = share(h, h, h, 160)
    a, b = m.split(3)
    _, fallen = (share(a @ a.T, b @ b.T, a @ b.T, probes) for probes in (1, 160))
    witness = worked(
        "H[v,v] = H[w,w] = H[v,w], 10 and 160 probes: share with Ĉ > 1",
        "falls as 1/m",
        "where C < 1",
        f"{few:.2f}, {many:.2f}",
    )
    printed = max(0.0, many - few / 4)
    corrected = max(0.0, fallen - 0.02)
    return Outcome(printed, corrected, 1600, witness)
