"""Attention paper, Sections G to I: bounds, Lipschitz constants and eigenvalue bounds.

A bound is checked as measured / bound - 1 <= 0 over random instances with |W| = |V| = |X| = R, the
worst that Assumption G.1 admits, and then attacked: a population climbs from them on the measured
quantity. Where a sharper constant is proved (`PROVED`; experiments.attention.bounds has the other
proofs), it is what is checked.

Lemmas H.9 and H.10. Along X + t D with |D| = 1 let a_i = x_i^T W x_{i0} be the logits and h = X^T
V_{*,j0}, with derivatives a', a'', h' = e. Then |a'| <= 2 R^2, |a''| <= 2 R, |h| <= R^2, |e| <= R,
and a and h have no further ones. c = <f, h> - b is the mean of h under the softmax weights f, and a
derivative adds one argument a' to a cumulant, so

    d^3c/dt^3 = 3 Cov(e, a'') + 3 k3(e, a', a') + 3 k3(h, a', a'') + k4(h, a', a', a').

|Cov(u, v)| <= |u| |v| / 2 since |diag f - f f^T| <= 1/2; a centred component is at most sqrt(2)
|u|, so |k3(u, v, w)| <= |u| |v| |w| and |k4| <= 7/4 of the product. Hence |d^3c/dt^3| <= 14 R^8 +
24 R^5 + 3 R^2, below 56 R^8 + 48 R^5 + 6 R^2, and a symmetric trilinear form attains its norm on
one direction. For L = sum c^2, with |c| <= 2 R^2, |c'| <= R^4 + R and |c''| <= 6 R^6 + 3 R^3,
|d^3L/dt^3| <= n d (2 |c| |d^3c/dt^3| + 6 |c'| |c''|), which is at most 272 n d R^10, below 548 n d
R^10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.func import grad

from experiments.attention.bounds import BOUNDS, pair_value, point_value, scale_to_norm
from experiments.paper_audit.checks import Checks, Errors, Outcome, strongest
from experiments.paper_audit.tensors import gauss, grid, seeded, spectral_norm, uniform, zeros

CHECKS = Checks()
Limit = Callable[[int, int, float], float]
"""A bound as a function of n, d and R."""
PROVED: dict[str, Limit] = {name: bound.sharper for name, bound in BOUNDS.items() if bound.sharper}
PROVED["H.9"] = lambda n, d, r: 14 * r**8 + 24 * r**5 + 3 * r**2
PROVED["H.10"] = lambda n, d, r: 272 * n * d * r**10
SIZES = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 3))
RADII = (1.01, 2.0, 4.0)
DRAWS = 20
GRID = [(n, d, radius) for n, d in SIZES for radius in RADII]
"""(n, d, R) of every set of draws."""
STEPS = 12
"""Of a climb."""
Matrices = tuple[Tensor, ...]
"""X, Y, W, V, B, a batch of each."""


def draw(n: int, d: int, radius: float, draws: int = DRAWS, frobenius: bool = False) -> Matrices:
    """X, Y, W, V of norm `radius` (spectral, or Frobenius) and B with |b| <= radius^2, `draws` of
    each."""
    generator = seeded(100 * n + 10 * d)
    scaled = []
    shapes = ((d, n), (d, n), (d, d), (d, d))
    for shape in shapes:
        raw = gauss(generator, draws, *shape)
        if frobenius:
            scaled.append(radius * raw / raw.norm(dim=(-2, -1), keepdim=True))
        else:
            scaled.append(scale_to_norm(raw, radius))
    signs = 2 * uniform(generator, draws, n, d) - 1
    b = signs * radius**2
    return (*scaled, b)


def measured(name: str, matrices: Matrices) -> Tensor:
    """Left-hand side of a bound of `BOUNDS` for a batch."""
    x, y, w, v, b = matrices
    if BOUNDS[name].over != "pair":
        return point_value(name, x, w, v, b)
    even = torch.arange(len(x))[:, None, None] % 2 == 0
    # half of the pairs far apart, half close together, never equal, also for n = d = 1
    y = torch.where(even, 0.99 * x + 0.005 * y, 0.9 * y)
    return pair_value(name, x, y, w, v, b)


def climb(name: str, matrices: Matrices, radius: float) -> float:
    """The largest measured value that a population reaches by accepting random moves that increase
    it."""
    generator = seeded(1)
    best = measured(name, matrices)
    size = 0.5
    for _ in range(STEPS):
        moved = _moved(matrices, size, radius, generator)
        value = measured(name, moved)
        better = value > best
        accepted = better[:, None, None]
        pairs = zip(moved, matrices, strict=True)
        matrices = tuple(torch.where(accepted, new, old) for new, old in pairs)
        best = torch.where(better, value, best)
        rate = float(better.double().mean())
        size *= 1.2 if rate > 0.2 else 0.8
    return float(best.max())


def _moved(matrices: Matrices, size: float, radius: float, generator: torch.Generator) -> Matrices:
    """X, Y, W, V moved at random and scaled back to their norm, B moved and clamped."""
    moved = []
    for old in matrices:
        noise = torch.randn(old.shape, generator=generator, dtype=old.dtype)
        moved.append(old + size * old.abs().mean() * noise)
    *raw, b = moved
    scaled = [scale_to_norm(new, radius) for new in raw]
    largest = radius**2
    return (*scaled, b.clamp(-largest, largest))


def bound_check(name: str) -> Outcome:
    """Largest measured / bound - 1 of one bound, random draws and the climb from them."""
    limit = PROVED.get(name, BOUNDS[name].printed)
    worst = -math.inf
    count = 0
    for n, d, radius in GRID:
        matrices = draw(n, d, radius)
        value = float(measured(name, matrices).max())
        count += DRAWS
        if radius == RADII[0]:
            value = max(value, climb(name, matrices, radius))
            count += STEPS * DRAWS
        worst = max(worst, value / limit(n, d, radius) - 1)
    return Outcome(worst, instances=count)


LEMMA_G2 = ("G.2.1", "G.2.2", "G.2.4", "G.2.5", "G.2.6")
"""Names in `BOUNDS`; the parts are clauses of their own."""
LEMMAS = ("G.3", "G.4", "H.3", "H.4", "H.5", "H.6", "H.7", "H.8", "H.10", "I.1", "I.2", "I.3")
for name in LEMMA_G2:
    CHECKS[f"attention.g.2.part_{name[-1]}"] = partial(bound_check, name)
for name in LEMMAS:
    CHECKS[f"attention.{name.lower()}"] = partial(bound_check, name)


@CHECKS.clause("attention.fact_h.1")
def mean_value_fact() -> Outcome:
    """Fact H.1 for g(x) = tanh(A x), whose derivative is at most |A| everywhere."""
    generator = seeded(0)
    a = gauss(generator, 100, 4, 4)
    x, y = gauss(generator, 2, 100, 4, 1).unbind(0)
    moved = (torch.tanh(a @ x) - torch.tanh(a @ y)).norm(dim=(-2, -1))
    distance = (x - y).norm(dim=(-2, -1))
    limit = spectral_norm(a) * distance
    return Outcome(float((moved / limit).max()) - 1, instances=100)


@CHECKS.clause("attention.fact_h.2", instances=300)
def product_fact() -> Errors:
    """Fact H.2 for products of k = 1..6 functions a_i + b_i sin(x + c_i) of one variable."""
    generator = seeded(0)
    x = grid(0, 6, 200)
    for k in range(1, 7):
        size, phase = (uniform(generator, 2, 50, k, 1) * 2).unbind(0)
        factors = 1 + size * torch.sin(x + phase)
        slope = (factors.prod(-2).diff(dim=-1) / x.diff()).abs().amax(-1)
        largest = (1 + size).prod(-2).squeeze(-1)
        amplitude = size.amax((-2, -1))
        limit = 2 ** (k - 1) * amplitude * largest
        yield float((slope / limit).max()) - 1


def cumulant(f: Tensor, *values: Tensor) -> Tensor:
    """Joint cumulant of two, three or four variables with these values under the weights f."""
    centred = [value - (f * value).sum() for value in values]
    joint = (f * torch.stack(centred).prod(0)).sum()
    if len(centred) < 4:
        return joint
    u, v, w, z = centred
    pairings = (((u, v), (w, z)), ((u, w), (v, z)), ((u, z), (v, w)))
    for (a, b), (p, q) in pairings:
        first = (f * a * b).sum()
        second = (f * p * q).sum()
        joint = joint - first * second
    return joint


def third_derivative(x: Tensor, w: Tensor, v: Tensor, d: Tensor) -> Tensor:
    """d^3 c_{0,0} / dt^3 at X + t D by automatic differentiation."""

    def output(t: Tensor) -> Tensor:
        moved = x + t * d
        scores = moved.mT @ w @ moved[:, 0]
        f = torch.softmax(scores, 0)
        return f @ (moved.mT @ v[:, 0])

    return grad(grad(grad(output)))(zeros(()))


def third_cumulants(x: Tensor, w: Tensor, v: Tensor, d: Tensor) -> Tensor:
    """The four cumulants that the third derivative is the sum of."""
    x0 = x[:, 0]
    d0 = d[:, 0]
    v0 = v[:, 0]
    scores = x.mT @ w @ x0
    f = torch.softmax(scores, 0)
    h = x.mT @ v0
    e = d.mT @ v0
    by_query = x.mT @ w @ d0
    first = d.mT @ w @ x0 + by_query
    second = 2 * d.mT @ w @ d0
    terms = [
        3 * cumulant(f, e, second),
        3 * cumulant(f, e, first, first),
        3 * cumulant(f, h, first, second),
        cumulant(f, h, first, first, first),
    ]
    return torch.stack(terms)


def directions() -> Iterator[tuple[tuple[Tensor, ...], float]]:
    """(X, W, V, a direction D of norm 1), and the proved bound of H.9."""
    for n, d, radius in GRID:
        limit = PROVED["H.9"](n, d, radius)
        problems = zip(*draw(n, d, radius, 2), strict=True)
        for x, y, w, v, _ in problems:
            direction = y / y.norm()
            yield (x, w, v, direction), limit


def third_derivative_check() -> Outcome:
    """Lemma H.9, proof: the third derivative less its cumulants, relative to them, and over its
    bound, less 1."""
    errors = []
    excess = []
    for along, limit in directions():
        exact = third_derivative(*along)
        terms = third_cumulants(*along)
        size = float(terms.abs().sum().clamp_min(1e-3))
        errors.append(float((exact - terms.sum()).abs()) / size)
        excess.append(float(exact.abs()) / limit - 1)
    return Outcome(max(*errors, *excess), instances=len(errors))


@CHECKS.clause("attention.h.9")
def second_derivative() -> Outcome:
    """Lemma H.9: the third derivative, and the difference of second derivatives of two points."""
    return strongest(third_derivative_check(), bound_check("H.9"))
