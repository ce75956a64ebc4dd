"""DAG paper, Appendices B, G and N: norms and ranks of blocks from random probes."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from experiments.paper_audit.checks import Checks, Errors, Outcome, apart, worked
from experiments.paper_audit.dag.ranks import stable
from experiments.paper_audit.tensors import gauss, random_matrices, real, seeded

CHECKS = Checks()


def sign_vectors(size: int) -> Tensor:
    """All vectors of ±1, one a row."""
    return real(list(itertools.product((-1.0, 1.0), repeat=size)))


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
    z = torch.randint(0, 2, (400, probes, a.shape[1]), generator=generator).double() * 2 - 1
    return (z @ a.mT).square().sum(-1).mean(-1).sqrt()


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
        return float((of_cross > scale).double().mean())

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


def error_ratios(a: Tensor, above: float) -> list[float]:
    """Errors of the one-probe estimate zᵀ A z of tr A over ‖A‖_F √l + ‖A‖₂ l, l = ln(above/δ): for
    each value that the error takes, with δ the probability of at least that error, over all sign
    vectors."""
    signs = sign_vectors(len(a))
    estimates = torch.einsum("zi,ij,zj->z", signs, a, signs)
    errors = (estimates - a.trace()).abs().sort().values
    frobenius = float(a.norm())
    spectral = float(torch.linalg.matrix_norm(a, 2))
    count = len(errors)
    ratios = []
    for smaller, error in enumerate(errors.tolist()):
        level = math.log(above * count / (count - smaller))
        scale = frobenius * math.sqrt(level) + spectral * level
        if error > 1e-9 * frobenius:
            ratios.append(error / scale if scale > 0 else math.inf)
    return ratios


SWAP = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
"""The estimate zᵀ A z is ±2 for every z, so its error is 2 with certainty (δ = 1)."""


def of_equal_signs(n: int, second: float, above: float = 1.0) -> float:
    """Error over ‖A‖_F √l + `second` · ‖A‖₂ l of A = 1 1ᵀ with n rows and the largest error, n² − n
    where all signs agree."""
    level = (n - 1) * math.log(2) + math.log(above)
    scale = n * math.sqrt(level) + second * n * level
    return (n**2 - n) / scale


@CHECKS.clause("dag.b.hutchinson")
def hutchinson_tail() -> Outcome:
    """Appendix B: |error| <= C ‖T‖_F √(ln(1/δ)/m) with probability >= 1 − δ: growth of the least C
    from 10 to 1,000 rows of T = 1 1ᵀ, m = 1; corrected: with 2/δ for 1/δ and ‖T‖₂ ln(2/δ)/m
    added, C = 2 does, which is tried on every tail of random T and of the simplest one."""
    small, large = (of_equal_signs(n, 0.0) for n in (10, 1000))
    tails = [of_equal_signs(n, 1.0, 2.0) for n in (2, 10, 1000, 10**6)]
    tails += error_ratios(SWAP, 2.0)
    generator = seeded(3)
    for _ in range(6):
        m = gauss(generator, 9, 9)
        for a in (m + m.mT, m @ m.mT, torch.ones(9, 9).double()):
            tails.append(max(error_ratios(a, 2.0)))
    witness = worked(
        "T = 1 1ᵀ with n = 1,000 rows, m = 1, δ = 2^(1 − n), the probability that all signs agree "
        "and the error is n² − n: error over ‖T‖_F √(ln(1/δ))",
        "at most a constant C",
        "at most C with ln(2/δ) and ‖T‖₂ ln(2/δ)/m added",
        f"{large:.1f}, {small:.1f} at n = 10; {of_equal_signs(1000, 1.0, 2.0):.2f} "
        "with the second term",
    )
    return Outcome(large / small - 1, max(tails) - 2, len(tails) + 2, witness)


@CHECKS.clause("dag.n6.noise")
def below_one() -> Errors:
    """Appendix N.6: an estimate of D below 1 comes from the noise of ‖H‖_F: with the exact norm and
    σ of power iteration, which is never above σ_1, it is at least 1; with few probes and the exact
    σ_1 it can be below."""
    for seed in range(5):
        left, right = gauss(seeded(seed), 2, 6)
        h = torch.outer(left, right) + 0.05 * gauss(seeded(9), 6, 6)
        q = gauss(seeded(seed + 20), 6)
        for _ in range(4):
            image = h @ (q / q.norm())
            yield 1 - float(h.square().sum() / image.square().sum())
            q = h.T @ image
        images = sign_vectors(6) @ h.mT
        of_one_probe = images.square().sum(1) / torch.linalg.matrix_norm(h, 2) ** 2
        yield float(of_one_probe.min() >= 1)


@CHECKS.errors("dag.remark15", lambda: random_matrices(((2, 2), (3, 3), (5, 5)), 2))
def symmetrized(h: Tensor) -> float:
    """Remark 15: (H + Hᵀ)/2 has another spectrum than H: Σ λ² grows by ‖H − Hᵀ‖_F²/4, which is
    positive wherever H is not symmetric."""
    half = (h + h.T) / 2
    before = torch.linalg.eigvals(h).square().sum().real
    after = torch.linalg.eigvalsh(half).square().sum()
    growth = float(after - before)
    expected = float((h - h.T).square().sum()) / 4
    return apart(growth, expected)
