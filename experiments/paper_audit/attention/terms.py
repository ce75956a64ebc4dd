"""The attention paper's notation at one point, and how its lemmas on derivatives are checked.

The formulas name every factor that occurs in Sections B-E for one choice of indices (`Terms`), so
that a printed right-hand side is one line of code. A check differentiates the left-hand side by
forward mode in float64 and reports the largest relative error of the printed and of the corrected
right-hand side over instances of several sizes, smallest first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor

from experiments.paper_audit import checks
from experiments.paper_audit.checks import Check, Outcome
from experiments.paper_audit.formulas import Formula, attributes
from experiments.paper_audit.tensors import gauss, ones, real, seeded, unit, zeros

SIZES: tuple[tuple[int, int], ...] = ((1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 3))
TUPLES_PER_SIZE = 8
SCALE_FLOOR = 1e-2
"""Errors are relative to the derivative's norm, or to this where the derivative is nearly zero."""


@dataclass(frozen=True)
class Index:
    """One choice of the paper's indices, counted from zero."""

    i0: int
    i1: int
    i2: int
    j0: int
    j1: int
    j2: int

    def __str__(self) -> str:
        from_one = [str(k + 1) for k in astuple(self)]
        return f"(i0,i1,i2,j0,j1,j2) = ({','.join(from_one)})"


@dataclass(frozen=True)
class Terms:
    """X (d, n), W (d, d), V (d, d), B (n, d), indices k, and the vectors u, f and h = h(X)_{j0} of
    Section B.2.

    The formulas below are the other factors. Vectors: x1 = X^T W_{*,j1}, x2, e0, e1, e2. Scalars:
    f00 = f_{i0,i0}, f01 = f_{i0,i1}, f02 = f_{i0,i2}; h0, h1, h2 = h_{j0,i}; w1 = <W_{j1,*},
    X_{*,i0}>, w2; z1 = <f, x1>, z2; s = <f, h>; y10 = <W_{*,j1}, X_{*,i0}>, y12 = <W_{*,j1},
    X_{*,i2}>, y20; v1 = v_{j1,j0}, v2; w12 = w_{j1,j2}, w21; m1 = <f o x1, h>, m2. Where a lemma
    prints h(X)_{i0,i0}, that is hbad = <X_{*,i0}, V_{*,i0}>; it needs i0 <= d, and where i0 > d the
    lemma is given the benefit of the doubt.
    """

    x: Tensor
    w: Tensor
    v: Tensor
    b: Tensor
    k: Index
    name: str = ""

    def __str__(self) -> str:
        return self.name

    @cached_property
    def scores(self) -> Tensor:
        return self.x.T @ (self.w @ self.x[:, self.k.i0])

    @cached_property
    def u(self) -> Tensor:
        return torch.exp(self.scores)

    @cached_property
    def f(self) -> Tensor:
        return self.u / self.u.sum()

    @cached_property
    def h(self) -> Tensor:
        return self.x.T @ self.v[:, self.k.j0]


X, W, V = attributes("x", "w", "v")
i0, i1, i2 = attributes("k.i0", "k.i1", "k.i2")
j0, j1, j2 = attributes("k.j0", "k.j1", "k.j2")
scores, u, f, h = attributes("scores", "u", "f", "h")
units = Formula(lambda t: unit(t.x.shape[1]))
e0 = units[i0]
e1 = units[i1]
e2 = units[i2]
f00 = f[i0]
f01 = f[i1]
f02 = f[i2]
h0 = h[i0]
h1 = h[i1]
h2 = h[i2]
column0 = X.T[i0]
hbad = Formula(lambda t: t.x[:, t.k.i0] @ t.v[:, t.k.i0] if t.k.i0 < len(t.x) else h0(t))
x1 = X.T @ W.T[j1]
x2 = X.T @ W.T[j2]
w1 = W[j1] @ column0
w2 = W[j2] @ column0
y10 = W.T[j1] @ column0
y12 = W.T[j1] @ X.T[i2]
y20 = W.T[j2] @ column0
z1 = f @ x1
z2 = f @ x2
s = f @ h
m1 = (f * x1) @ h
m2 = (f * x2) @ h
v1 = V[j1][j0]
v2 = V[j2][j0]
w12 = W[j1][j2]
w21 = W[j2][j1]
same2 = Formula(lambda t: float(t.k.i1 == t.k.i2))
"""1 where i1 = i2, else 0."""

Expression = Callable[[Terms], Tensor]
Case = Callable[[Index], bool]
Matrices = tuple[Tensor, Tensor, Tensor, Tensor]
"""X, W, V, B."""
ORIGIN = Index(0, 0, 0, 0, 0, 0)


@cache
def instance(n: int, d: int, seed: int = 0) -> Matrices:
    """X, W, V, B with standard normal entries, the scores of moderate size."""
    generator = seeded(1000 * n + 10 * d + seed)
    x, w, v, b = (gauss(generator, shape) for shape in ((d, n), (d, d), (d, d), (n, d)))
    return x, w / d**0.5, v, b


def indices(n: int, d: int, case: Case, seed: int = 0) -> list[Index]:
    """A few index tuples of the case, the same ones each time; empty where the size has none."""
    tokens = itertools.product(range(n), repeat=3)
    components = list(itertools.product(range(d), repeat=3))
    every = (Index(*i, *j) for i, j in itertools.product(tokens, components))
    admitted = [k for k in every if case(k)]
    chance = random.Random(n + 10 * d + 1000 * seed)
    return chance.sample(admitted, min(TUPLES_PER_SIZE, len(admitted)))


def by_hand() -> Iterator[tuple[str, Matrices]]:
    """Instances to recompute by hand: X = (1, 0) or (1, 0, −1) with W = V = 1 and B = 0, and one
    with d = 2."""
    one = ones(1, 1)
    samples = ((1.0, 0.0), (1.0, 0.0, -1.0))
    for entries in samples:
        x = real([entries])
        yield f"d = 1, X = {entries}, W = V = 1, B = 0", (x, one, one, zeros(x.shape[1], 1))
    w = real([[1.0, 1.0], [0.0, 1.0]])
    v = real([[1.0, 2.0], [0.0, 1.0]])
    text = "X = I, W = ((1, 1), (0, 1)), V = ((1, 2), (0, 1)), B = 0"
    yield text, (unit(2), w, v, zeros(2, 2))


def points(case: Case) -> Iterator[Terms]:
    """Terms of every instance and index tuple, those to recompute by hand first."""
    for text, matrices in by_hand():
        d, n = matrices[0].shape
        for k in indices(n, d, case):
            yield Terms(*matrices, k, f"{text}, {k}")
    settings = itertools.product(SIZES, (0, 1))
    for (n, d), seed in settings:
        for k in indices(n, d, case, seed):
            yield Terms(*instance(n, d, seed), k, f"n = {n}, d = {d}, {k}")


def origins() -> Iterator[Terms]:
    """One set of terms per instance, for statements without indices, those to recompute by hand
    first."""
    for text, matrices in by_hand():
        yield Terms(*matrices, ORIGIN, text)
    for n, d in SIZES:
        yield Terms(*instance(n, d), ORIGIN, f"n = {n}, d = {d}")


def derivative(quantity: Expression, terms: Terms, wrt: int) -> Tensor:
    """d quantity / d x_{i1,j1} (wrt 1) or / d x_{i2,j2} (wrt 2), by forward-mode
    differentiation."""
    k = terms.k
    i, j = (k.i1, k.j1) if wrt == 1 else (k.i2, k.j2)
    direction = torch.zeros_like(terms.x)
    direction[j, i] = 1.0

    def at(x: Tensor) -> Tensor:
        return quantity(replace(terms, x=x))

    result: Tensor = torch.func.jvp(at, (terms.x,), (direction,))[1]
    return result


def second_derivative(terms: Terms) -> Tensor:
    """d2 c_{i0,j0} / dx_{i1,j1} dx_{i2,j2}."""
    return derivative(lambda t: derivative(s, t, 1), terms, 2)


def relative_error(found: Tensor, exact: Tensor) -> float:
    """|found - exact| / max(|exact|, floor)."""
    size = exact.norm().clamp_min(SCALE_FLOOR)
    return float((found - exact).norm() / size)


def compare(
    cases: Iterable[Terms],
    exact: Expression,
    printed: Expression | None,
    corrected: Expression | None = None,
    unusable: str = "nothing",
) -> Outcome:
    """Largest relative errors of the printed and of the corrected expression against the exact
    one."""
    return checks.equality(cases, exact, printed, corrected, relative_error, unusable)


def lemma(
    case: Case,
    exact: Expression,
    printed: Expression | None,
    corrected: Expression | None = None,
) -> Check:
    """Check of a lemma in one of the paper's index cases."""
    return lambda: compare(points(case), exact, printed, corrected)


def identity(exact: Expression, printed: Expression, corrected: Expression | None = None) -> Check:
    """Check of an equation without indices."""
    return lambda: compare(origins(), exact, printed, corrected)


def by_x1(quantity: Expression, case: Case, printed: Expression) -> Check:
    """Check of a lemma d quantity / dx_{i1,j1} = printed."""
    return lemma(case, lambda t: derivative(quantity, t, 1), printed)


def by_x2(
    quantity: Expression, case: Case, printed: Expression, corrected: Expression | None = None
) -> Check:
    """Check of a lemma d quantity / dx_{i2,j2} = printed, or corrected."""
    return lemma(case, lambda t: derivative(quantity, t, 2), printed, corrected)


def same1(k: Index) -> bool:
    """i0 = i1."""
    return k.i0 == k.i1


def other1(k: Index) -> bool:
    """i0 != i1."""
    return k.i0 != k.i1


def all_same(k: Index) -> bool:
    """i0 = i1 = i2: case 1 of Definition E.2."""
    return k.i0 == k.i1 == k.i2


def same_then_other(k: Index) -> bool:
    """i0 = i1 != i2: case 2."""
    return k.i0 == k.i1 != k.i2


def both_other(k: Index) -> bool:
    """i0 != i1 and i0 != i2: case 4."""
    return k.i1 != k.i0 != k.i2


def both_other_equal(k: Index) -> bool:
    """i0 != i1 = i2."""
    return both_other(k) and k.i1 == k.i2


def all_different(k: Index) -> bool:
    """i0, i1, i2 with i1 != i2 and neither equal to i0."""
    return both_other(k) and k.i1 != k.i2
