"""Lanczos iterations on products alone: the quadrature of a spectrum, its ends, and restarts in little memory.

Vectors are kept in host memory, in float64 or in the precision of the operator, as memory_budget allows; sums over
their components are float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from runner.curvature.exact.checks import MEMORY_BUDGET
from runner.curvature.graph.errors import MeasurementError, require_counts
from runner.curvature.graph.precision import full_precision
from runner.curvature.matrix_free.base import (
    NOT_FINITE,
    Estimate,
    SymmetricOperator,
    exponent_of,
    require_operator,
)
from runner.curvature.spectra.symmetric import Symmetric

ROUNDINGS = 8
"""Rounding of a product H z, in units of the last place of ||H||: what the residual cannot see."""
COLUMNS = 1 << 16
"""Components of all vectors of a basis that are converted to float64 together."""


class Basis:
    """Orthonormal vectors of one length, at most `most`, in host memory.

    They are float64 where `most` of them fit `budget` bytes, else of the operator's dtype. fits: whether they fit then.
    """

    def __init__(self, symmetric: Symmetric, most: int, budget: int) -> None:
        self.size, self.vectors = symmetric.size, list[Tensor]()
        wide = 8 * most * symmetric.size <= budget
        self.dtype = torch.float64 if wide else symmetric.dtype
        self.fits = self.dtype.itemsize * most * symmetric.size <= budget

    def append(self, vector: Tensor) -> None:
        """Takes in a vector of length 1."""
        self.vectors.append(vector.to("cpu", self.dtype))

    def _pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """COLUMNS components of all vectors in float64, which the next piece overwrites."""
        rows = torch.empty(
            len(self.vectors), min(COLUMNS, self.size), dtype=torch.float64, device="cpu"
        )
        for i in range(0, self.size, COLUMNS):
            part = slice(i, min(i + COLUMNS, self.size))
            for row, vector in zip(rows, self.vectors, strict=True):
                row[: part.stop - i] = vector[part]
            yield part, rows[:, : part.stop - i]

    def remove(self, w: Tensor) -> None:
        """Makes w, float64 and on the host, orthogonal to all vectors, in place."""
        found = torch.zeros(len(self.vectors), dtype=torch.float64, device="cpu")
        for part, rows in self._pieces():
            found += rows @ w[part]
        for part, rows in self._pieces():
            w[part] -= found @ rows

    def combine(self, factors: Tensor) -> None:
        """Replaces the vectors by their combinations, one for each column of `factors`."""
        kept = factors.shape[1]
        for part, rows in self._pieces():
            for vector, row in zip(self.vectors, factors.mT @ rows, strict=False):
                vector[part] = row.to(self.dtype)
        del self.vectors[kept:]


@dataclass(frozen=True)
class Run:
    """Nodes ascending, weights that add up to 1, and the residual of each node as an eigenvalue; steps taken."""

    nodes: Tensor
    weights: Tensor
    residuals: Tensor
    steps: int

    @classmethod
    def of(cls, alphas: list[float], betas: list[float], scale: float) -> Run:
        values, vectors = eigh_tridiagonal(alphas, betas[:-1])
        last = torch.from_numpy(abs(vectors[-1])) * betas[-1]
        return cls(
            scale * torch.from_numpy(values),
            torch.from_numpy(vectors[0] ** 2),
            scale * last,
            len(alphas),
        )

    def without_ghosts(self, apart: float) -> Run:
        """Nodes closer than `apart` as one: without reorthogonalisation, eigenvalues that have converged come back as
        copies, among which their weight is divided (Greenbaum). The residual is the smallest of a group. A copy on its
        way to an eigenvalue has no weight, and is left out."""
        group = torch.cat([torch.zeros(1), (self.nodes.diff() > apart).double().cumsum(0)]).long()
        count = int(group[-1]) + 1
        weights = torch.zeros(count, dtype=torch.float64, device="cpu").index_add_(
            0, group, self.weights
        )
        first = torch.cat([torch.ones(1, dtype=torch.bool), group.diff() > 0]).nonzero().flatten()
        ends = [*first.tolist(), len(self.nodes)]
        spans = list(itertools.pairwise(ends))
        best = [i + int(self.weights[i:j].argmax()) for i, j in spans]
        residuals = torch.stack([self.residuals[i:j].min() for i, j in spans])
        kept = weights > torch.finfo(torch.float64).eps
        return Run(self.nodes[best][kept], weights[kept], residuals[kept], self.steps)


def lanczos(symmetric: Symmetric, start: Tensor, steps: int, budget: int) -> Run:
    """Gauss quadrature of the spectrum seen from `start`.

    With full reorthogonalisation where the vectors fit `budget` bytes. Otherwise three vectors are held, and copies of
    converged eigenvalues are taken together.
    """
    steps = min(steps, symmetric.size)
    basis = Basis(symmetric, steps, budget)
    current, before = (start / start.norm()).cpu(), torch.zeros(0)
    alphas: list[float] = []
    betas: list[float] = []
    exponent: int | None = None
    while len(alphas) < steps:
        if basis.fits:
            basis.append(current)
        w = symmetric.matvec(current.to(symmetric.device)).cpu()
        exponent = exponent_of(w) if exponent is None else exponent
        w = w * 2.0**-exponent  # a power of two: no digit changes, and no square leaves the range
        alphas.append(float(w @ current))
        if not math.isfinite(alphas[-1]):
            nothing = torch.full((1,), torch.nan, dtype=torch.float64, device="cpu")
            return Run(nothing, nothing, nothing, len(alphas))
        w -= alphas[-1] * current
        if betas:
            w -= betas[-1] * before
        if basis.fits:
            basis.remove(w)
        betas.append(float(w.norm()))
        if not betas[-1] > 10 * torch.finfo(torch.float64).eps * (
            max(map(abs, alphas)) + max(betas)
        ):
            break
        before, current = current, w.div_(betas[-1])
    run = Run.of(alphas, betas, 2.0 ** (exponent or 0))
    return (
        run
        if basis.fits
        else run.without_ghosts(
            100 * torch.finfo(symmetric.dtype).eps * float(run.nodes.abs().max())
        )
    )


def restarted(
    symmetric: Symmetric,
    start: Tensor,
    k: int,
    order: Callable[[Tensor], Tensor],
    tolerance: float,
    limit: int,
    most: int,
    budget: int,
    random: Callable[[], Tensor],
) -> tuple[Tensor, Basis]:
    """The k eigenpairs that come first in `order`, by Lanczos with thick restarts (Wu and Simon).

    Whenever the basis has `most` vectors, it is replaced by the best Ritz vectors, more than k, and the iteration goes
    on from there. When all k residuals are below the tolerance times the largest eigenvalue found, the search goes on
    from a random vector orthogonal to these k, since a Krylov space has one vector of an eigenvalue that repeats, until
    `second_search` products put no other among the first k. Stops after `limit` products in any case.
    """
    basis = Basis(symmetric, most + 1, budget)
    matrix = torch.zeros(most, most, dtype=torch.float64, device="cpu")
    basis.append(start / start.norm())
    arrow = torch.zeros(
        0, dtype=torch.float64, device="cpu"
    )  # couplings of the newest vector to all restarted ones
    found, since, again = None, 0, second_search(symmetric.size) if k > 1 else 0

    def fresh() -> Tensor:
        w = random().cpu()
        basis.remove(w)
        basis.remove(w)  # once is not enough in floating point
        return w

    while True:
        j = len(basis.vectors) - 1
        v = basis.vectors[j].double()
        w = symmetric.matvec(v.to(symmetric.device)).cpu()
        matrix[j, j] = float(w @ v)
        w = torch.sub(w, v, alpha=float(matrix[j, j]))
        if j == len(arrow):
            matrix[j, :j] = matrix[:j, j] = arrow
            basis.remove(w)  # once is not enough in floating point
        else:
            w.sub_(basis.vectors[j - 1], alpha=float(matrix[j, j - 1]))
        basis.remove(w)
        beta = float(w.norm())
        if not math.isfinite(beta):
            raise torch.linalg.LinAlgError(NOT_FINITE)
        if not beta > 10 * torch.finfo(basis.dtype).eps * (float(matrix.abs().max()) + beta):
            beta, w = 0.0, fresh()  # an invariant subspace: go on in another direction
        full, last = j + 1 == most, symmetric.products >= limit and j + 1 >= k
        anew = False
        if full or last or (j % 4 == 0 and j >= k and beta > 0):
            values, vectors = torch.linalg.eigh(matrix[: j + 1, : j + 1])
            best = order(values)
            values, vectors = values[best], vectors[:, best]
            residuals, allowed = beta * vectors[-1].abs(), tolerance * values.abs().max()
            converged = bool((residuals[:k] <= allowed).all())
            same = found is not None and bool(((values[:k] - found).abs() <= allowed).all())
            if last or (
                converged and (again == 0 or (same and symmetric.products - since >= again))
            ):
                basis.combine(vectors[:, :k])
                return values[:k], basis
            anew = converged and not same
        if anew or full:
            kept = k if anew else min(k + max(1, (most - k) // 2), most - 1)
            basis.combine(vectors[:, :kept])
            arrow = beta * vectors[-1, :kept]
            matrix = torch.zeros_like(matrix)
            matrix[:kept, :kept] = values[:kept].diag()
            if anew:
                found, since, arrow, w = values[:k], symmetric.products, 0 * arrow, fresh()
        else:
            matrix[j + 1, j] = matrix[j, j + 1] = beta
        basis.append(w / w.norm())


def second_search(size: int) -> int:
    """Products that find an eigenvalue, if there is one, a tenth of the spectrum's width e above those known, with 99 %
    probability: of t steps from a random vector, it is at least 1 - 1.648 sqrt(n) exp(-(2 t - 1) sqrt(e)) (Kuczyński
    and Woźniakowski, 1992)."""
    return math.ceil((math.log(164.8 * math.sqrt(size)) / math.sqrt(0.1) + 1) / 2)


@dataclass(frozen=True)
class Extremes:
    """Largest and smallest eigenvalue found by Lanczos, each with the bound on its distance to an eigenvalue."""

    largest: Estimate
    smallest: Estimate


@full_precision()
def lanczos_extremes(
    operator: SymmetricOperator,
    nodes: Sequence[str] | None = None,
    steps: int = 30,
    generator: torch.Generator | None = None,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> Extremes:
    """Extreme eigenvalues of the symmetric matrix [H[v,w]] over `nodes` by Lanczos.

    With full reorthogonalisation where `steps` vectors fit memory_budget bytes.

    error = beta_k |last component of the Ritz vector|, plus ROUNDINGS of the products: some eigenvalue lies within it.
    Ritz values never leave the spectrum's interval but by rounding, so that the largest is a lower bound of
    lambda_1 and the smallest an upper bound of lambda_n. Raises ValueError for unknown nodes and fewer than one step.

    >>> from runner.curvature import CurvatureOperator, Dag
    >>> dag = Dag.from_sequential([torch.sin, torch.square], loss="mse", names=["h", "out"])
    >>> operator = CurvatureOperator(dag, torch.ones(2, 3), torch.zeros(2, 3))
    >>> round(lanczos_extremes(operator, ["out"]).largest.value, 4)
    0.6667
    """
    require_operator(operator)
    names = (
        [nodes]
        if isinstance(nodes, str)
        else list(nodes)
        if nodes is not None
        else list(operator.nodes)
    )
    if not names or any(v not in operator.sizes for v in names):
        raise MeasurementError(
            f"expected nodes of the operator, {list(operator.nodes)}, found {names}"
        )
    require_counts(1, steps=steps)
    if operator.reason:
        return Extremes(*[Estimate.undefined(0, operator.reason)] * 2)
    whole = Symmetric(operator, names)
    run = lanczos(whole, operator.gaussian(whole.size, generator).double(), steps, memory_budget)
    if not bool(run.nodes.isfinite().all()):
        return Extremes(*[Estimate.undefined(run.steps, NOT_FINITE)] * 2)
    rounding = ROUNDINGS * torch.finfo(operator.dtype).eps * float(run.nodes.abs().max())
    return Extremes(
        *(
            Estimate(float(run.nodes[i]), float(run.residuals[i]) + rounding, run.steps)
            for i in (-1, 0)
        )
    )
