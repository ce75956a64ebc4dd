"""The three-layer network of the WS-bound and the HSR paper in plain torch, checks, and terms of pairs.

The network is written from Eqs. 1–5 of the WS-bound paper for one sample, its activation derivatives are nested
`torch.func.grad`, and Jacobians with respect to theta are `torch.func.jacrev`. The terms of pairs of samples (from
`signed` on) are transcribed from the HSR paper, whose Eqs. 5–16 are Eqs. 26–28 of the WS-bound paper. Φ_11^{1/2} in
Eqs. 37 and 54 is `signed`, Ṽ F'(y_j) F'(y_i) Ṽᵀ, as the proofs of Lemmas 11 and 22 define it; it is negative where f'
has opposite signs, as GELU's can have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

from experiments.paper_audit import checks
from experiments.paper_audit.checks import TOLERANCE, Check, Outcome, Witness
from experiments.paper_audit.tensors import gauss, real, seeded

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda y: 1.0 * y,
    "sigmoid": lambda y: 1 / (1 + torch.exp(-y)),
    "tanh": torch.tanh,
    "softplus": lambda y: torch.log1p(torch.exp(y)),
    "gelu": lambda y: 0.5 * y * (1 + torch.erf(y / math.sqrt(2))),
}
NAMES = tuple(FUNCTIONS)
INCREASING = tuple(name for name in NAMES if name != "gelu")
SIZES = ((1, 1, 1), (2, 3, 5), (3, 2, 4))


@lru_cache
def derivative(name: str, order: int) -> Callable[[Tensor], Tensor]:
    """f^(order) of a named activation, elementwise over a vector."""
    function = FUNCTIONS[name]
    for _ in range(order):
        function = grad(function)
    return vmap(function)


def logistic(order: int) -> Callable[[Tensor], Tensor]:
    """s^(order) of a 0-d argument."""
    function: Callable[[Tensor], Tensor] = FUNCTIONS["sigmoid"]
    for _ in range(order):
        function = grad(function)
    return function


@dataclass(frozen=True)
class Sample:
    """The network on one sample: hx = h(x) (M+1,), y (N,), V = Ṽ (N,), full = [c, Ṽ] (N+1,), z and q 0-d.

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
        return torch.cat([torch.ones(1, dtype=self.y.dtype), self.f])

    def F(self, order: int) -> Tensor:
        """F^(order)(y) = diag f^(order)(y), (N, N)."""
        return torch.diag(self.d(order))

    def f0(self, order: int) -> Tensor:
        """f_0^(order)(y): a leading zero, (N+1,)."""
        return torch.cat([torch.zeros(1, dtype=self.y.dtype), self.d(order)])

    def F0(self, order: int) -> Tensor:
        """F_0^(order)(y): a leading zero row, (N+1, N)."""
        return torch.cat([torch.zeros(1, len(self.y), dtype=self.y.dtype), self.F(order)])

    @property
    def p(self) -> Tensor:
        return logistic(0)(self.z)

    @property
    def delta(self) -> Tensor:
        return self.p - self.q

    @property
    def s1(self) -> Tensor:
        return logistic(1)(self.z)

    @property
    def s2(self) -> Tensor:
        return logistic(2)(self.z)

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
    """The network with parameters theta (D,) on one sample x (M,) with label q; differentiable in theta."""
    columns = len(x) + 1
    units = (len(theta) - 1) // (columns + 1)
    hx = torch.cat([torch.ones(1, dtype=x.dtype), x])
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
    def samples(self) -> list[Sample]:
        return [evaluate(self.theta, x, q, self.name) for x, q in zip(self.x, self.q, strict=True)]

    @property
    def sizes(self) -> str:
        return f"(M, N, I) = ({self.x.shape[1]}, {self.units}, {len(self.x)}), {self.name}"

    def __str__(self) -> str:
        shown = (
            ""
            if len(self.theta) > 4
            else f", theta = (b, W, c, V) = {self.theta.tolist()}, x = {self.x.tolist()}"
        )
        return self.sizes + shown

    @property
    def gradient(self) -> Tensor:
        return grad(loss)(self.theta, self.x, self.q, self.name)

    @property
    def hessian(self) -> Tensor:
        return jacrev(grad(loss))(self.theta, self.x, self.q, self.name)

    def jacobian(self, quantity: Callable[[Sample, Sample], Tensor], i: int, j: int) -> Tensor:
        """d quantity(sample i, sample j) / d theta in denominator layout: (D, *shape of the quantity)."""

        def function(theta: Tensor) -> Tensor:
            first, second = (evaluate(theta, self.x[k], self.q[k], self.name) for k in (i, j))
            return quantity(first, second)

        return jacrev(function)(self.theta).movedim(-1, 0)


def loss(theta: Tensor, x: Tensor, q: Tensor, name: str) -> Tensor:
    """L(theta) = Σ_i −q log p − (1 − q) log(1 − p)."""
    z = vmap(lambda row: evaluate(theta, row, q[0], name).z)(x)
    return torch.nn.functional.binary_cross_entropy_with_logits(z, q, reduction="sum")


def by_hand(name: str) -> Instance:
    """M = N = 1 with b = 0, W = 1, c = 1/2, V = 1, at x = 1 with label 0 and x = −1 with label 1."""
    theta = real([0.0, 1.0, 0.5, 1.0])
    x, q = (
        real([[1.0], [-1.0]]),
        real([0.0, 1.0]),
    )
    return Instance(name, theta, x, q)


def instances(
    names: Sequence[str] = NAMES, sizes: Iterable[tuple[int, int, int]] = SIZES, scale: float = 1.0
) -> Iterator[Instance]:
    """One unit by hand, then one random instance per activation and size, N(0, scale²) parameters, N(0, 1) inputs."""
    if scale == 1.0:
        for name in names:
            yield by_hand(name)
    for k, (inputs, units, samples) in enumerate(sizes):
        generator = seeded(k)
        theta = scale * gauss(generator, inputs * units + 2 * units + 1)
        x = gauss(generator, samples, inputs)
        q = (torch.arange(samples) % 2).double()
        for name in names:
            yield Instance(name, theta, x, q)


def opposed_gelu() -> Instance:
    """One GELU unit seeing y = −1 and y = +1.5, where f' has opposite signs."""
    theta = real([0.0, 1.0, 0.2, 1.5])
    x = real([[-1.0], [1.5]])
    return Instance("gelu", theta, x, real([0.0, 1.0]))


def equality(
    found: Callable[[Instance], Tensor],
    expected: Callable[[Instance], Tensor],
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
) -> Check:
    """Largest relative error on random instances of every activation and size."""
    return lambda: checks.equality(instances(sizes=sizes), expected, found)


Excess = Callable[[Instance], float]


def inequality(
    *excesses: Excess,
    names: tuple[str, ...] = NAMES,
    starts: Callable[[str], Iterable[Instance]] = lambda name: (),
    steps: int = 30,
) -> Check:
    """Largest violation of one or several inequalities, each searched for on its own and for each activation.

    A search begins at the worst of random networks with tiny, small, ordinary and large weights, the same networks
    with a saturated output, and `starts`, networks of that activation that nearly attain the bound.
    """

    def check() -> Outcome:
        found = [_attacked(e, n, [*_ladder(n), *starts(n)], steps) for e in excesses for n in names]
        value, start = max(((v, i) for v, i, _ in found), key=lambda pair: pair[0])
        return Outcome(
            value, instances=sum(count for *_, count in found), witness=_witness(value, start)
        )

    return check


def _attacked(
    excess: Excess, name: str, tried: list[Instance], steps: int
) -> tuple[float, Instance, int]:
    """(largest excess, where the search began, networks tried) for one activation."""
    value, k = max((excess(i), k) for k, i in enumerate(tried))
    start = tried[k]
    searches = [
        checks.attack(lambda z: excess(moved(start, z)), flat(start), steps // 2, spread)[0]
        for spread in (0.5, 0.02)
    ]
    return max(value, *searches), start, len(tried) + steps // 2 * 2


def _ladder(name: str) -> Iterator[Instance]:
    for scale in (0.01, 0.1, 1.0, 5.0):
        for instance in instances((name,), scale=scale):
            yield instance
            for bias in (12.0, -12.0) if scale == 1.0 else ():
                theta = instance.theta.clone()
                theta[instance.count] = bias
                yield Instance(name, theta, instance.x, instance.q)


def flat(instance: Instance) -> Tensor:
    """theta and the inputs in one vector, what a search for violations moves."""
    return torch.cat([instance.theta, instance.x.flatten()])


def moved(instance: Instance, z: Tensor) -> Instance:
    theta, x = z.split([len(instance.theta), instance.x.numel()])
    return Instance(instance.name, theta, x.view(instance.x.shape), instance.q)


def _witness(value: float, start: Instance) -> Witness | None:
    if value <= TOLERANCE:
        return None
    return Witness(
        f"search from {start}: largest excess over the bound, relative to it",
        "0",
        "",
        f"{value:.3g}",
    )


def omega_range() -> Outcome:
    """ω_ij = s'(z_i) s'(z_j) in (0, 1/16]: violation of either end, attacked."""

    def excess(z: Tensor) -> float:
        p = torch.sigmoid(z)
        omega = float((p * (1 - p)).prod())
        return max(-omega, omega - 1 / 16)

    found = max(checks.attack(excess, real(z))[0] for z in ((0.1, -0.2), (2.0, -3.0)))
    return Outcome(found, instances=160)


Pair = Callable[[Sample, Sample], Tensor]


def signed(i: Sample, j: Sample) -> Tensor:
    """Φ_11^{1/2} (proofs of Lemmas 11 and 22)."""
    return i.V @ j.F(1) @ i.F(1) @ i.V


def phi_matrix(i: Sample, j: Sample) -> Tensor:
    """Φ_ij, (2, 2) (Eqs. 6–9)."""
    V, weights = i.V, torch.diag(i.V)
    one_two = V @ i.F(1) @ weights @ j.F(2) @ i.F(1) @ V
    two_one = V @ j.F(1) @ weights @ i.F(2) @ j.F(1) @ V
    two_two = V @ i.F(2) @ j.F(2) @ V
    return torch.stack([torch.stack([signed(i, j) ** 2, one_two]), torch.stack([two_one, two_two])])


def psi_matrix(i: Sample, j: Sample) -> Tensor:
    """Ψ_ij, (2, 2) (Eqs. 12–15)."""
    V = i.V
    one_one = (1 + i.f @ j.f) * signed(i, j)
    one_two = i.f @ j.F(1) @ i.F(1) @ V
    two_one = V @ j.F(1) @ i.F(1) @ j.f
    return torch.stack([torch.stack([one_one, one_two]), torch.stack([two_one, i.d(1) @ j.d(1)])])


def phi(i: Sample, j: Sample) -> Tensor:
    return i.o @ phi_matrix(i, j) @ j.o


def psi(i: Sample, j: Sample) -> Tensor:
    return i.o @ psi_matrix(i, j) @ j.o


def omega(i: Sample, j: Sample) -> Tensor:
    return i.o @ torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=i.y.dtype) @ j.o


def inputs(i: Sample, j: Sample) -> Tensor:
    """1 + x_iᵀ x_j."""
    return i.hx @ j.hx


def hidden(i: Sample, j: Sample) -> Tensor:
    """1 + f(y_i)ᵀ f(y_j)."""
    return 1 + i.f @ j.f


def kron(left: Tensor, right: Tensor) -> Tensor:
    return torch.kron(left.contiguous(), right.contiguous())


def a_phi(i: Sample, j: Sample) -> Tensor:
    return 2 * signed(i, j) * (i.F(2) @ j.F(1) @ i.V**2)


def b_phi(i: Sample, j: Sample) -> Tensor:
    return 2 * i.F(1) @ i.F(2) @ j.F(2) @ i.V**3


def c_phi(i: Sample, j: Sample) -> Tensor:
    return i.F(3) @ j.F(1) @ j.F(1) @ i.V**3


def d_phi(i: Sample, j: Sample) -> Tensor:
    return i.F(3) @ j.F(2) @ i.V**2


def a_psi(i: Sample, j: Sample) -> Tensor:
    first = torch.outer(i.F(1) @ j.f, i.V @ i.F(1))
    return (first + torch.diag(i.V) @ i.F(2) * hidden(i, j)) @ j.F(1) @ i.V


def b_psi(i: Sample, j: Sample) -> Tensor:
    return (i.F(1) @ i.F(1) + i.F(2) @ i.F(0)) @ j.F(1) @ i.V


def c_psi(i: Sample, j: Sample) -> Tensor:
    return i.F(2) @ j.F(0) @ j.F(1) @ i.V


def d_psi(i: Sample, j: Sample) -> Tensor:
    return i.F(2) @ j.d(1)


def e_phi(i: Sample, j: Sample) -> Tensor:
    return 2 * signed(i, j) * i.full * j.f0(1) * i.f0(1)


def f_phi(i: Sample, j: Sample) -> Tensor:
    return 3 * i.full**2 * i.f0(1) ** 2 * j.f0(2)


def g_phi(i: Sample, j: Sample) -> Tensor:
    return i.full * i.f0(2) * j.f0(2)


def e_psi(i: Sample, j: Sample) -> Tensor:
    return hidden(i, j) * i.F0(1) @ j.F(1) @ i.V


def f_psi(i: Sample, j: Sample) -> Tensor:
    return i.F0(1) @ j.F(1) @ i.f


def G_phi(i: Sample, j: Sample) -> Tensor:
    """Eq. 36, (N, 4)."""
    return torch.stack([a_phi(i, j), b_phi(i, j), c_phi(i, j), d_phi(i, j)], dim=1)


def G_psi(i: Sample, j: Sample) -> Tensor:
    """Eq. 41, (N, 4)."""
    return torch.stack([a_psi(i, j), b_psi(i, j), c_psi(i, j), d_psi(i, j)], dim=1)


def K_phi(i: Sample, j: Sample) -> Tensor:
    """Eq. 53, (N+1, 4)."""
    g = g_phi(i, j)
    return torch.stack([e_phi(i, j), f_phi(i, j), torch.zeros_like(g), g], dim=1)


def K_psi(i: Sample, j: Sample) -> Tensor:
    """Eq. 57, (N+1, 4)."""
    e = e_psi(i, j)
    return torch.stack([e, f_psi(i, j), torch.zeros_like(e), torch.zeros_like(e)], dim=1)


def w_phi(i: Sample, j: Sample) -> Tensor:
    """A^Φ + B^Φ (Eqs. 29, 32), (N,)."""
    by_value = G_phi(i, j) @ kron(i.o, j.o)
    return inputs(i, j) ** 2 * (by_value + (i.F(1) @ i.V) * (i.s21 @ phi_matrix(i, j) @ j.o))


def w_psi(i: Sample, j: Sample) -> Tensor:
    """A^Ψ + B^Ψ (Eqs. 30, 33), (N,)."""
    by_value = G_psi(i, j) @ kron(i.o, j.o)
    return 2 * inputs(i, j) * (by_value + (i.F(1) @ i.V) * (i.s21 @ psi_matrix(i, j) @ j.o))


def w_omega(i: Sample, j: Sample) -> Tensor:
    """A^Ω + B^Ω (Eqs. 31, 34), (N,)."""
    first = hidden(i, j) ** 2 * i.s2 * j.s1 * (i.F(1) @ i.V)
    return first + 2 * i.s1 * j.s1 * hidden(i, j) * (i.F(1) @ j.f)


def v_phi(i: Sample, j: Sample) -> Tensor:
    """C^Φ + D^Φ (Eqs. 47, 50), (N+1,)."""
    by_value = K_phi(i, j) @ kron(i.o, j.o)
    return inputs(i, j) ** 2 * (by_value + i.hr * (i.s21 @ phi_matrix(i, j) @ j.o))


def v_psi(i: Sample, j: Sample) -> Tensor:
    """C^Ψ + D^Ψ (Eqs. 48, 51), (N+1,)."""
    by_value = K_psi(i, j) @ kron(i.o, j.o)
    return 2 * inputs(i, j) * (by_value + i.hr * (i.s21 @ psi_matrix(i, j) @ j.o))


def v_omega(i: Sample, j: Sample) -> Tensor:
    """C^Ω + D^Ω (Eqs. 49, 52), (N+1,)."""
    return i.s2 * j.s1 * hidden(i, j) ** 2 * i.hr
