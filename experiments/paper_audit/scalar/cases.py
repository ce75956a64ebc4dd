"""Instances on which the printed formulas of the scalar-spectrum paper are tried, and how one is
compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import torch
from torch import Tensor, dot

from experiments.paper_audit import checks
from experiments.paper_audit.checks import Check
from experiments.paper_audit.tensors import gauss, real, seeded, spectral_norm

Predictor = Callable[..., Tensor]


def linear_network(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """⟨w, v⟩ x, (n,)."""
    return torch.dot(w, v) * x


def relu_network(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """wᵀ(v x)₊, (n,)."""
    return torch.relu(torch.outer(x, v)) @ w


def bias_network(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """wᵀ(v x + b), (n,)."""
    return (torch.outer(x, v) + b) @ w


def multi_input_network(x: Tensor, w: Tensor, *columns: Tensor) -> Tensor:
    """wᵀ A x with A = [columns], x (n, d)."""
    return x @ (torch.stack(columns, dim=1).T @ w)


def autodiff_loss(
    network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor
) -> Callable[[Tensor], Tensor]:
    """½ mean (network(x, *layers) − y)² as a function of the concatenated layers."""
    sizes = [layer.numel() for layer in layers]

    def loss(theta: Tensor) -> Tensor:
        outputs = network(x, *torch.split(theta, sizes))
        return 0.5 * ((outputs - y) ** 2).mean()

    return loss


def autodiff_hessian(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Dense (D, D) Hessian at the given layers, in their order."""
    loss = autodiff_loss(network, layers, x, y)
    return torch.func.hessian(loss)(torch.cat(list(layers)))


def autodiff_gradient(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """(D,) gradient at the given layers, in their order."""
    loss = autodiff_loss(network, layers, x, y)
    return torch.func.grad(loss)(torch.cat(list(layers)))


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


@dataclass(frozen=True, eq=False)
class Linear:
    """One linear network with its data; the paper's shorthands as properties, a = σ². Parameters
    ordered (v, w)."""

    w: Tensor
    v: Tensor
    x: Tensor
    y: Tensor

    a = property(lambda c: (c.x**2).mean())
    yx = property(lambda c: (c.y * c.x).mean())
    ww = property(lambda c: dot(c.w, c.w))
    vv = property(lambda c: dot(c.v, c.v))
    wv = property(lambda c: dot(c.w, c.v))

    @property
    def m(self) -> int:
        return len(self.w)

    @property
    def residual(self) -> Tensor:
        return self.wv * self.x - self.y

    @property
    def d(self) -> Tensor:
        """mean xδ."""
        return (self.x * self.residual).mean()

    @property
    def loss(self) -> Tensor:
        return 0.5 * (self.residual**2).mean()

    @cached_property
    def hessian(self) -> Tensor:
        return autodiff_hessian(linear_network, [self.v, self.w], self.x, self.y)

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Ascending, from the automatic Hessian."""
        return torch.linalg.eigvalsh(self.hessian)

    def describe(self) -> str:
        entries = numbers(w=self.w, v=self.v, x=self.x, y=self.y)
        return f"m={self.m}, n={len(self.x)}, {entries}"


class Relu(Linear):
    """One ReLU network with its data."""

    @cached_property
    def hessian(self) -> Tensor:
        return autodiff_hessian(relu_network, [self.v, self.w], self.x, self.y)

    def cell(self, sign: int) -> tuple[Linear, Tensor]:
        """(linear network of the cell, share of the samples n±/n); neurons with v_j = 0 belong to
        −."""
        neurons, samples = self.v > 0, self.x > 0
        if sign < 0:
            neurons, samples = ~neurons, ~samples
        cell = Linear(self.w[neurons], self.v[neurons], self.x[samples], self.y[samples])
        return cell, samples.double().mean()


@dataclass(frozen=True, eq=False)
class Bias:
    """One linear network with bias and its data; inner products as properties. Parameters ordered
    (w, v, b)."""

    w: Tensor
    v: Tensor
    b: Tensor
    x: Tensor
    y: Tensor

    ww = property(lambda c: dot(c.w, c.w))
    vv = property(lambda c: dot(c.v, c.v))
    bb = property(lambda c: dot(c.b, c.b))
    wv = property(lambda c: dot(c.w, c.v))
    wb = property(lambda c: dot(c.w, c.b))
    vb = property(lambda c: dot(c.v, c.b))

    @property
    def m(self) -> int:
        return len(self.w)

    @property
    def residual(self) -> Tensor:
        return self.wv * self.x + self.wb - self.y

    @property
    def dx(self) -> Tensor:
        """mean xδ."""
        return (self.residual * self.x).mean()

    @property
    def d0(self) -> Tensor:
        """mean δ."""
        return self.residual.mean()

    @property
    def r2(self) -> Tensor:
        """r² = (mean xδ)² + (mean δ)²."""
        return self.dx**2 + self.d0**2

    @property
    def s(self) -> Tensor:
        """‖v‖² + ‖w‖²."""
        return self.vv + self.ww

    @cached_property
    def hessian(self) -> Tensor:
        return autodiff_hessian(bias_network, [self.w, self.v, self.b], self.x, self.y)

    @cached_property
    def eigenvalues(self) -> Tensor:
        return torch.linalg.eigvalsh(self.hessian)

    def describe(self) -> str:
        entries = numbers(w=self.w, v=self.v, b=self.b, x=self.x, y=self.y)
        return f"m={self.m}, n={len(self.x)}, {entries}"


def numbers(**vectors: Tensor) -> str:
    """Vectors of up to three entries with four digits; longer ones are left to their seed."""
    shown = []
    for name, entries in vectors.items():
        if len(entries) <= 3:
            digits = ", ".join(f"{entry:.4g}" for entry in entries.tolist())
            shown.append(f"{name}=({digits})")
    return ", ".join(shown)


def vector(*entries: float) -> Tensor:
    return real(entries)


def hand_cases() -> list[Linear]:
    """w = (1, 2), v = (1, −1), one sample x = 1, y = 1 or −3: ⟨w, v⟩ = −1, mean xδ = −2 or 2."""
    return [Linear(vector(1, 2), vector(1, -1), vector(1), vector(y)) for y in (1.0, -3.0)]


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
        cases.append(Relu(vector(1, 2, 1), vector(1, -1, 2), vector(1, -1), vector(0, 1)))
    for seed, (m, n) in enumerate(((2, 4), (3, 6), (5, 8), (10, 12))):
        (w, v), x, y = random_instance(40 + seed, m, samples or n)
        v = torch.cat([v[:1].abs(), -v[1:2].abs(), v[2:]])
        if samples != 1:
            x = torch.cat([x[:1].abs(), -x[1:2].abs(), x[2:]])
        cases += [Relu(w, v, x, y), Relu(w, v, -x, y)]
    return tuple(cases)


@lru_cache
def bias_cases(centred: bool = True, unit: bool = True) -> tuple[Bias, ...]:
    """One by hand, then random networks with bias; centred: mean x = 0; unit: mean x² = 1 as
    well."""
    cases = [Bias(vector(1, 2), vector(1, 0), vector(1, 1), vector(1, -1), vector(0, 1))]
    for seed, (m, n) in enumerate(((2, 3), (3, 5), (4, 9), (8, 12))):
        (w, v, b), x, y = random_instance(80 + seed, m, n, layers=3)
        if centred:
            x = x - x.mean()
        if unit:
            x = x / (x**2).mean().sqrt()
        cases.append(Bias(w, v, b, x, y))
    return tuple(cases)


@lru_cache
def plain_bias_cases() -> tuple[Bias, ...]:
    """Centred unit inputs, mean y = mean xy = 0, any weights."""
    cases = []
    for case in bias_cases():
        y = case.y - case.y.mean()
        y = y - (case.x * y).mean() * case.x
        cases.append(Bias(case.w, case.v, case.b, case.x, y))
    return tuple(cases)


@lru_cache
def theorem6_cases() -> tuple[Bias, ...]:
    """As `plain_bias_cases`, with ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖."""
    cases = []
    for case in plain_bias_cases():
        b = case.b - dot(case.b, case.v) / case.vv * case.v
        b = b * torch.linalg.vector_norm(case.v) / torch.linalg.vector_norm(b)
        cases.append(Bias(case.w, case.v, b, case.x, case.y))
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
        return f"{case.describe()}: {what}"

    return lambda: checks.worst(cases(), printed, corrected, describe)


def matches(
    cases: Cases[Case],
    expected: Callable[[Case], Tensor],
    printed: Callable[[Case], Tensor],
    corrected: Callable[[Case], Tensor] | None = None,
) -> Check:
    """Check of the largest relative error of `printed` (and `corrected`) against `expected`."""

    def describe(case: Case) -> str:
        return case.describe()

    return lambda: checks.equality(cases(), expected, printed, corrected, describe=describe)


def dense_hessian(case: Case) -> Tensor:
    """The automatic Hessian."""
    return case.hessian


def dense_eigenvalues(case: Case) -> Tensor:
    """Eigenvalues of the automatic Hessian, ascending."""
    return case.eigenvalues


def eigen_error(hessian: Tensor, vector: Tensor, value: Tensor) -> float:
    """‖H z − λ z‖ / (‖H‖₂ ‖z‖); 1 for the zero vector, which is no eigenvector."""
    norm, scale = torch.linalg.vector_norm(vector), spectral_norm(hessian)
    if norm <= 1e-12 * (1 + scale):
        return 1.0
    residual = hessian @ vector - value * vector
    return float(torch.linalg.vector_norm(residual) / (scale * norm))


def distance_to_spectrum(case: Case, values: Tensor) -> float:
    """Largest distance of the given values to the nearest eigenvalue, relative to the largest
    |eigenvalue|."""
    distances = (values[:, None] - case.eigenvalues[None, :]).abs()
    nearest = distances.min(dim=1).values
    return float(nearest.max() / case.eigenvalues.abs().max())


def ascending(*parts: Tensor) -> Tensor:
    """All numbers in one ascending vector."""
    return torch.cat([part.reshape(-1) for part in parts]).sort().values
