"""Instances on which the printed formulas of the scalar-spectrum paper are tried, and how one is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from experiments.paper_audit import checks
from experiments.paper_audit.checks import Outcome
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
        return 0.5 * ((network(x, *torch.split(theta, sizes)) - y) ** 2).mean()

    return loss


def autodiff_hessian(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Dense (D, D) Hessian at the given layers, in their order."""
    return torch.func.hessian(autodiff_loss(network, layers, x, y))(torch.cat(list(layers)))


def autodiff_gradient(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """(D,) gradient at the given layers, in their order."""
    return torch.func.grad(autodiff_loss(network, layers, x, y))(torch.cat(list(layers)))


def random_instance(
    seed: int, m: int, n: int, layers: int = 2
) -> tuple[list[Tensor], Tensor, Tensor]:
    """(layers of shape (m,), x (n,), y (n,)), standard normal in float64; x has a mean and a variance of its own."""
    generator = seeded(seed)
    weights = [gauss(generator, m) for _ in range(layers)]
    x = 1.3 * gauss(generator, n) + 0.4
    y = 2.0 * gauss(generator, n) - 0.3
    return weights, x, y


Case = TypeVar("Case", "Linear", "Relu", "Bias")
SIZES = ((1, 1), (2, 1), (2, 3), (3, 8), (6, 5), (11, 20))


@dataclass(frozen=True, eq=False)
class Linear:
    """One linear network with its data; the paper's shorthands as properties. Parameters ordered (v, w)."""

    w: Tensor
    v: Tensor
    x: Tensor
    y: Tensor

    @property
    def m(self) -> int:
        return len(self.w)

    @property
    def a(self) -> Tensor:
        """σ²."""
        return (self.x**2).mean()

    @property
    def yx(self) -> Tensor:
        return (self.y * self.x).mean()

    @property
    def wv(self) -> Tensor:
        return torch.dot(self.w, self.v)

    @property
    def ww(self) -> Tensor:
        return torch.dot(self.w, self.w)

    @property
    def vv(self) -> Tensor:
        return torch.dot(self.v, self.v)

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
        return f"m={self.m}, n={len(self.x)}, " + numbers(w=self.w, v=self.v, x=self.x, y=self.y)


class Relu(Linear):
    """One ReLU network with its data."""

    @cached_property
    def hessian(self) -> Tensor:
        return autodiff_hessian(relu_network, [self.v, self.w], self.x, self.y)

    def cell(self, sign: int, closed: bool = True) -> tuple[Linear, Tensor]:
        """(linear network of the cell, share of the samples n±/n); neurons with v_j = 0 belong to − where `closed`."""
        neurons, samples = self.v > 0, self.x > 0
        if sign < 0:
            neurons, samples = self.v <= 0 if closed else self.v < 0, ~samples
        return Linear(
            self.w[neurons], self.v[neurons], self.x[samples], self.y[samples]
        ), samples.double().mean()


@dataclass(frozen=True, eq=False)
class Bias:
    """One linear network with bias and its data. Parameters ordered (w, v, b)."""

    w: Tensor
    v: Tensor
    b: Tensor
    x: Tensor
    y: Tensor

    @property
    def m(self) -> int:
        return len(self.w)

    @property
    def residual(self) -> Tensor:
        return torch.dot(self.w, self.v) * self.x + torch.dot(self.w, self.b) - self.y

    @property
    def dx(self) -> Tensor:
        return (self.residual * self.x).mean()

    @property
    def d0(self) -> Tensor:
        return self.residual.mean()

    @property
    def r2(self) -> Tensor:
        return self.dx**2 + self.d0**2

    @property
    def s(self) -> Tensor:
        """‖v‖² + ‖w‖²."""
        return torch.dot(self.v, self.v) + torch.dot(self.w, self.w)

    @cached_property
    def hessian(self) -> Tensor:
        return autodiff_hessian(bias_network, [self.w, self.v, self.b], self.x, self.y)

    @cached_property
    def eigenvalues(self) -> Tensor:
        return torch.linalg.eigvalsh(self.hessian)

    def describe(self) -> str:
        return f"m={self.m}, n={len(self.x)}, " + numbers(
            w=self.w, v=self.v, b=self.b, x=self.x, y=self.y
        )


def numbers(**vectors: Tensor) -> str:
    """Vectors of up to three entries with four digits; longer ones are left to their seed."""
    shown = []
    for name, vector in vectors.items():
        entries = ", ".join(f"{entry:.4g}" for entry in vector.tolist())
        if len(vector) <= 3:
            shown.append(f"{name}=({entries})")
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


@lru_cache
def covariance_cases(sign: int) -> tuple[Linear, ...]:
    """Random linear networks whose residual covariance mean xδ has the given sign."""
    return tuple(case for case in linear_cases() if int(torch.sign(case.d)) == sign)


@lru_cache
def relu_cases(samples: int = 0) -> tuple[Relu, ...]:
    """One by hand, then random ReLU networks with neurons and samples in both cells; samples > 0 fixes n."""
    by_hand = Relu(vector(1, 2, 1), vector(1, -1, 2), vector(1, -1), vector(0, 1))
    cases = [] if samples else [by_hand]
    for seed, (m, n) in enumerate(((2, 4), (3, 6), (5, 8), (10, 12))):
        (w, v), x, y = random_instance(40 + seed, m, samples or n)
        v = torch.cat([v[:1].abs(), -v[1:2].abs(), v[2:]])
        if samples != 1:
            x = torch.cat([x[:1].abs(), -x[1:2].abs(), x[2:]])
        cases += [Relu(w, v, x, y), Relu(w, v, -x, y)]
    return tuple(cases)


@lru_cache
def bias_cases(centred: bool = True, unit: bool = True) -> tuple[Bias, ...]:
    """One by hand, then random networks with bias; centred: mean x = 0; unit: mean x² = 1 as well."""
    cases = [Bias(vector(1, 2), vector(1, 0), vector(1, 1), vector(1, -1), vector(0, 1))]
    for seed, (m, n) in enumerate(((2, 3), (3, 5), (4, 9), (8, 12))):
        (w, v, b), x, y = random_instance(80 + seed, m, n, layers=3)
        x = x - x.mean() if centred else x
        cases.append(Bias(w, v, b, x / (x**2).mean().sqrt() if unit else x, y))
    return tuple(cases)


def decorrelated(case: Bias) -> Bias:
    """The same with mean y = mean xy = 0."""
    y = case.y - case.y.mean()
    return Bias(case.w, case.v, case.b, case.x, y - (case.x * y).mean() * case.x)


@lru_cache
def plain_bias_cases() -> tuple[Bias, ...]:
    """Centred unit inputs, mean y = mean xy = 0, any weights."""
    return tuple(decorrelated(case) for case in bias_cases())


@lru_cache
def theorem6_cases() -> tuple[Bias, ...]:
    """As `plain_bias_cases`, with ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖."""
    cases = []
    for case in plain_bias_cases():
        b = case.b - torch.dot(case.b, case.v) / torch.dot(case.v, case.v) * case.v
        b = b * torch.linalg.vector_norm(case.v) / torch.linalg.vector_norm(b)
        cases.append(Bias(case.w, case.v, b, case.x, case.y))
    return tuple(cases)


def worst(
    cases: Sequence[Case],
    printed: Callable[[Case], float],
    corrected: Callable[[Case], float] | None = None,
    what: str = "relative error",
) -> Outcome:
    """Outcome of an error function over the cases; what: the name of the error, for the worked check."""
    return checks.worst(cases, printed, corrected, lambda case: f"{case.describe()}: {what}")


def compare(
    cases: Sequence[Case],
    expected: Callable[[Case], Tensor],
    printed: Callable[[Case], Tensor],
    corrected: Callable[[Case], Tensor] | None = None,
) -> Outcome:
    """Largest relative error of `printed` (and `corrected`) against `expected`."""
    return checks.equality(
        cases, expected, printed, corrected, describe=lambda case: case.describe()
    )


def eigen_error(hessian: Tensor, vector: Tensor, value: Tensor) -> float:
    """‖H z − λ z‖ / (‖H‖₂ ‖z‖); 1 for the zero vector, which is no eigenvector."""
    norm, scale = torch.linalg.vector_norm(vector), spectral_norm(hessian)
    if norm <= 1e-12 * (1 + scale):
        return 1.0
    return float(torch.linalg.vector_norm(hessian @ vector - value * vector) / (scale * norm))


def ascending(*parts: Tensor) -> Tensor:
    """All numbers in one ascending vector."""
    return torch.cat([part.reshape(-1) for part in parts]).sort().values
