"""The three-layer network of the WS-bound and the HSR paper in plain torch, and checks on its
instances.

The network is written from Eqs. 1–5 of the WS-bound paper for one sample, its activation
derivatives are nested `torch.func.grad`, and Jacobians with respect to theta are
`torch.func.jacrev`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

from experiments.paper_audit.checks import Check, matches
from experiments.paper_audit.tensors import gauss, ones, real, seeded, zeros

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda y: 1.0 * y,
    "sigmoid": lambda y: 1 / (1 + torch.exp(-y)),
    "tanh": torch.tanh,
    "softplus": lambda y: torch.log1p(torch.exp(y)),
    "gelu": lambda y: 0.5 * y * (1 + torch.erf(y / math.sqrt(2))),
}
FURTHER: dict[str, Callable[[Tensor], Tensor]] = {
    "sine": torch.sin,
    "cubic": lambda y: y**3 / 3 - y,
    "relu": torch.relu,
}
"""Activations that neither paper names; ReLU away from its kink."""
NAMES = tuple(FUNCTIONS)
INCREASING = tuple(name for name in NAMES if name != "gelu")
SIZES = ((1, 1, 1), (2, 3, 5), (3, 2, 4))


@lru_cache
def at_number(name: str, order: int) -> Callable[[Tensor], Tensor]:
    """f^(order) of a named activation at a 0-d argument."""
    function = (FUNCTIONS | FURTHER)[name]
    for _ in range(order):
        function = grad(function)
    return function


@lru_cache
def derivative(name: str, order: int) -> Callable[[Tensor], Tensor]:
    """f^(order) of a named activation, elementwise over a vector."""
    return vmap(at_number(name, order))


@dataclass(frozen=True)
class Sample:
    """The network on one sample: hx = h(x) (M+1,), y (N,), V = Ṽ (N,), full = [c, Ṽ] (N+1,), z and
    q 0-d.

    The other letters are the paper's: f, p, delta, o, F^(k), with s1 = s'(z), s2 = s''(z).
    """

    hx: Tensor
    y: Tensor
    V: Tensor
    full: Tensor
    z: Tensor
    q: Tensor
    name: str
    known: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def d(self, order: int) -> Tensor:
        """f^(order)(y), (N,)."""
        if order not in self.known:
            self.known[order] = derivative(self.name, order)(self.y)
        return self.known[order]

    @property
    def f(self) -> Tensor:
        return self.d(0)

    @property
    def hr(self) -> Tensor:
        """h(r), (N+1,)."""
        return torch.cat([ones(1), self.f])

    def F(self, order: int) -> Tensor:
        """F^(order)(y) = diag f^(order)(y), (N, N)."""
        return torch.diag(self.d(order))

    def f0(self, order: int) -> Tensor:
        """f_0^(order)(y): a leading zero, (N+1,)."""
        return torch.cat([zeros(1), self.d(order)])

    def F0(self, order: int) -> Tensor:
        """F_0^(order)(y): a leading zero row, (N+1, N)."""
        return torch.cat([zeros(1, len(self.y)), self.F(order)])

    @property
    def p(self) -> Tensor:
        return at_number("sigmoid", 0)(self.z)

    @property
    def delta(self) -> Tensor:
        return self.p - self.q

    @property
    def s1(self) -> Tensor:
        return at_number("sigmoid", 1)(self.z)

    @property
    def s2(self) -> Tensor:
        return at_number("sigmoid", 2)(self.z)

    @property
    def o(self) -> Tensor:
        return torch.stack([self.s1, self.delta])

    @property
    def s21(self) -> Tensor:
        """s''/'(z) = [s'' s'], (2,)."""
        return torch.stack([self.s2, self.s1])

    @property
    def norm(self) -> Tensor:
        """1 + xᵀx."""
        return self.hx @ self.hx


def evaluate(theta: Tensor, x: Tensor, q: Tensor, name: str) -> Sample:
    """The network with parameters theta (D,) on one sample x (M,) with label q; differentiable in
    theta."""
    columns = len(x) + 1
    units = (len(theta) - 1) // (columns + 1)
    hx = torch.cat([ones(1), x])
    weights = theta[: units * columns].reshape(columns, units)
    full = theta[units * columns :]
    y = (hx[:, None] * weights).sum(0)
    z = full[0] + full[1:] @ derivative(name, 0)(y)
    return Sample(hx, y, full[1:], full, z, q, name)


@dataclass(frozen=True)
class Instance:
    """A network and its data: theta (D,), x (I, M), q (I,)."""

    name: str
    theta: Tensor
    x: Tensor
    q: Tensor

    @property
    def units(self) -> int:
        return (len(self.theta) - 1) // (self.x.shape[1] + 2)

    @property
    def count(self) -> int:
        """How many of theta's entries are w."""
        return self.units * (self.x.shape[1] + 1)

    @property
    def w(self) -> slice:
        """Where w stands in theta."""
        return slice(self.count)

    @property
    def v(self) -> slice:
        """Where v stands in theta."""
        return slice(self.count, None)

    @property
    def samples(self) -> list[Sample]:
        return [evaluate(self.theta, x, q, self.name) for x, q in zip(self.x, self.q, strict=True)]

    @property
    def sizes(self) -> str:
        return f"(M, N, I) = ({self.x.shape[1]}, {self.units}, {len(self.x)}), {self.name}"

    def __str__(self) -> str:
        if len(self.theta) > 4:
            return self.sizes
        theta = self.theta.tolist()
        x = self.x.tolist()
        return f"{self.sizes}, theta = (b, W, c, V) = {theta}, x = {x}"

    @property
    def gradient(self) -> Tensor:
        return grad(loss)(self.theta, self.x, self.q, self.name)

    @property
    def hessian(self) -> Tensor:
        return jacrev(grad(loss))(self.theta, self.x, self.q, self.name)

    def jacobian(self, quantity: Callable[[Sample, Sample], Tensor], i: int, j: int) -> Tensor:
        """d quantity(sample i, sample j) / d theta in denominator layout: (D, *shape of the
        quantity)."""

        def function(theta: Tensor) -> Tensor:
            first = evaluate(theta, self.x[i], self.q[i], self.name)
            second = evaluate(theta, self.x[j], self.q[j], self.name)
            return quantity(first, second)

        return jacrev(function)(self.theta).movedim(-1, 0)


def loss(theta: Tensor, x: Tensor, q: Tensor, name: str) -> Tensor:
    """L(theta) = Σ_i −q log p − (1 − q) log(1 − p)."""
    z = vmap(lambda row: evaluate(theta, row, q[0], name).z)(x)
    return torch.nn.functional.binary_cross_entropy_with_logits(z, q, reduction="sum")


def by_hand(name: str) -> Instance:
    """M = N = 1 with b = 0, W = 1, c = 1/2, V = 1, at x = 1 with label 0 and x = −1 with label
    1."""
    theta = real([0.0, 1.0, 0.5, 1.0])
    x = real([[1.0], [-1.0]])
    q = real([0.0, 1.0])
    return Instance(name, theta, x, q)


def instances(
    names: Sequence[str] = NAMES, sizes: Iterable[tuple[int, int, int]] = SIZES, scale: float = 1.0
) -> Iterator[Instance]:
    """One unit by hand, then one random instance per activation and size, N(0, scale²) parameters,
    N(0, 1) inputs."""
    if scale == 1.0:
        for name in names:
            yield by_hand(name)
    for k, (inputs, units, samples) in enumerate(sizes):
        generator = seeded(k)
        count = inputs * units + 2 * units + 1
        theta = scale * gauss(generator, count)
        x = gauss(generator, samples, inputs)
        q = (torch.arange(samples) % 2).double()
        for name in names:
            yield Instance(name, theta, x, q)


def opposed_gelu() -> Instance:
    """One GELU unit seeing y = −1 and y = +1.5, where f' has opposite signs."""
    theta = real([0.0, 1.0, 0.2, 1.5])
    x = real([[-1.0], [1.5]])
    q = real([0.0, 1.0])
    return Instance("gelu", theta, x, q)


def equality(
    found: Callable[[Instance], Tensor],
    expected: Callable[[Instance], Tensor],
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
) -> Check:
    """Largest relative error on random instances of every activation and size."""
    return matches(lambda: instances(sizes=sizes), expected, found)
