"""Instances on which the printed formulas of the scalar-spectrum paper are tried, and how one is
compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor, dot
from torch.linalg import vector_norm

from experiments.paper_audit import checks
from experiments.paper_audit.checks import Check
from experiments.paper_audit.scalar.networks import Bias, Linear, Relu
from experiments.paper_audit.tensors import gauss, real, seeded, spectral_norm


def random_instance(
    seed: int, m: int, n: int, layers: int = 2
) -> tuple[list[Tensor], Tensor, Tensor]:
    """(layers of shape (m,), x (n,), y (n,)), standard normal in float64; x has a mean and a
    variance of its own."""
    generator = seeded(seed)
    weights = [gauss(generator, m) for _ in range(layers)]
    x = 1.3 * gauss(generator, n) + 0.4
    y = 2.0 * gauss(generator, n) - 0.3
    return weights, x, y


Case = TypeVar("Case", "Linear", "Relu", "Bias")
SIZES = ((1, 1), (2, 1), (2, 3), (3, 8), (6, 5), (11, 20))


def vector(*entries: float) -> Tensor:
    return real(entries)


def hand_cases() -> list[Linear]:
    """w = (1, 2), v = (1, −1), one sample x = 1, y = 1 or −3: ⟨w, v⟩ = −1, mean xδ = −2 or 2."""
    w = vector(1, 2)
    v = vector(1, -1)
    return [Linear(w, v, vector(1), vector(y)) for y in (1.0, -3.0)]


@lru_cache
def linear_cases() -> tuple[Linear, ...]:
    """Two networks by hand, then random ones, each also with −y."""
    cases = hand_cases()
    for seed, (m, n) in enumerate(SIZES):
        (w, v), x, y = random_instance(seed, m, n)
        cases += [Linear(w, v, x, y), Linear(w, v, x, -y)]
    return tuple(cases)


def several() -> tuple[Linear, ...]:
    """Linear cases with m >= 2, where there is a bulk."""
    return tuple(c for c in linear_cases() if c.m > 1)


@lru_cache
def covariance_cases(sign: int) -> tuple[Linear, ...]:
    """Random linear networks whose residual covariance mean xδ has the given sign."""
    return tuple(case for case in linear_cases() if int(torch.sign(case.d)) == sign)


@lru_cache
def relu_cases(samples: int = 0) -> tuple[Relu, ...]:
    """One by hand, then random ReLU networks with neurons and samples in both cells; samples > 0
    fixes n."""
    cases = []
    if not samples:
        w = vector(1, 2, 1)
        v = vector(1, -1, 2)
        cases.append(Relu(w, v, vector(1, -1), vector(0, 1)))
    for seed, (m, n) in enumerate(RELU_SIZES):
        (w, v), x, y = random_instance(40 + seed, m, samples or n)
        v = with_both_signs(v)
        if samples != 1:
            x = with_both_signs(x)
        cases += [Relu(w, v, x, y), Relu(w, v, -x, y)]
    return tuple(cases)


RELU_SIZES = ((2, 4), (3, 6), (5, 8), (10, 12))
"""m and n of random ReLU networks."""


def with_both_signs(values: Tensor) -> Tensor:
    """The numbers, the first turned positive and the second negative."""
    signed = values.clone()
    signed[0] = values[0].abs()
    signed[1] = -values[1].abs()
    return signed


BIAS_SIZES = ((2, 3), (3, 5), (4, 9), (8, 12))
"""m and n of random networks with bias."""


@lru_cache
def bias_cases(centred: bool = True, unit: bool = True) -> tuple[Bias, ...]:
    """One by hand, then random networks with bias; centred: mean x = 0; unit: mean x² = 1 as
    well."""
    w = vector(1, 2)
    v = vector(1, 0)
    b = vector(1, 1)
    cases = [Bias(w, v, vector(1, -1), vector(0, 1), b)]
    for seed, (m, n) in enumerate(BIAS_SIZES):
        (w, v, b), x, y = random_instance(80 + seed, m, n, layers=3)
        if centred:
            x = x - x.mean()
        if unit:
            x = x / (x**2).mean().sqrt()
        cases.append(Bias(w, v, x, y, b))
    return tuple(cases)


@lru_cache
def plain_bias_cases() -> tuple[Bias, ...]:
    """Centred unit inputs, mean y = mean xy = 0, any weights."""
    cases = []
    for case in bias_cases():
        y = case.y - case.y.mean()
        slope = (case.x * y).mean()
        y = y - slope * case.x
        cases.append(replace(case, y=y))
    return tuple(cases)


@lru_cache
def theorem6_cases() -> tuple[Bias, ...]:
    """As `plain_bias_cases`, with ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖."""
    cases = []
    for case in plain_bias_cases():
        v = case.v
        b = case.b - (dot(case.b, v) / case.vv) * v
        cases.append(replace(case, b=b * vector_norm(v) / vector_norm(b)))
    return tuple(cases)


Cases = Callable[[], Sequence[Case]]


def errors(
    cases: Cases[Case],
    printed: Callable[[Case], float],
    corrected: Callable[[Case], float] | None = None,
    what: str = "relative error",
) -> Check:
    """Check of an error function over the cases; what: the name of the error, for the worked
    check."""

    def describe(case: Case) -> str:
        return f"{case}: {what}"

    return lambda: checks.worst(cases(), printed, corrected, describe)


def eigen_error(hessian: Tensor, vector: Tensor, value: Tensor) -> float:
    """‖H z − λ z‖ / (‖H‖₂ ‖z‖); 1 for the zero vector, which is no eigenvector."""
    norm = vector_norm(vector)
    scale = spectral_norm(hessian)
    if norm <= 1e-12 * (1 + scale):
        return 1.0
    return float(vector_norm(hessian @ vector - value * vector) / (scale * norm))


def distance_to_spectrum(case: Case, values: Tensor) -> float:
    """Largest distance of the given values to the nearest eigenvalue, relative to the largest
    |eigenvalue|."""
    distances = (values[:, None] - case.eigenvalues[None, :]).abs()
    nearest = distances.min(dim=1).values
    return float(nearest.max() / case.eigenvalues.abs().max())


def ascending(*parts: Tensor) -> Tensor:
    """All numbers in one ascending vector."""
    return torch.cat([part.reshape(-1) for part in parts]).sort().values
