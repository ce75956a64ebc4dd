"""The ends of a spectrum by block Lanczos with thick restarts, with a residual for every pair."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from runner.curvature.basics.adapters import Matrix, Symmetric, own_generator
from runner.curvature.basics.errors import MeasurementError, require_counts
from runner.curvature.basics.estimate import full
from runner.curvature.basics.plots import plot_values
from runner.curvature.basics.removed import refuses_removed
from runner.curvature.basics.result import Estimated, TensorResult, short
from runner.curvature.basics.symmetric import columns_of
from runner.curvature.basics.work import Method
from runner.curvature.spectra.krylov import MEMORY_BUDGET, Krylov

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Which = Literal["largest", "smallest", "magnitude"]
DENSE = 64
"""Up to this size, n products and a dense decomposition cost less than Lanczos."""
WHOLE = 512
"""Up to this size the basis may grow to the whole space: orthogonalisation costs little."""
LEAST_STEPS = 8
"""Products with each vector of a search for copies, at least."""
SHARE = 0.5
"""And of the products that the search before took: a copy shows after so many of those with which
its value has converged."""
ROUNDINGS = 8
"""Rounding of a product Hv, in last places of the largest eigenvalue: no residual sees it."""
RANDOM = 1.0
"""Norm of the random vector that is added to one to start from, of norm 1: an eigenvalue that has
overtaken the earlier ones has no other share in the search (100,000 rows in float32, ten percent
ahead: missed 1 time of 6; 3 of 6 with a norm of 0.3, at a product less)."""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Default tolerances; two roundings for other precisions."""


@dataclass(frozen=True, repr=False, eq=False)
class Eigenpairs(Estimated, TensorResult):
    """Eigenvalues with vectors and residuals.

    Attributes
    ----------
    values, vectors
        (k,) in float64, from the end that was asked for inwards; (n, k).
    residuals, converged
        (k,): |Hv − value v|, and whether it is below the tolerance. `error` is the residual, twice
        as much where products are rounded to less than float64; value ± error contains an
        eigenvalue (`low`, `high`).
    certain
        Whether all copies of repeated eigenvalues are among the values: the search had more vectors
        than any of these values has copies. True where the whole matrix was decomposed; False for a
        search with one vector from `start`, which an eigenvalue that is new may escape.
    products, reason
        Products used; why all values are NaN, else "".
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: Tensor
    products: int
    certain: bool = True
    reason: str = ""
    rounded: bool = False

    @property
    def value(self) -> Tensor:
        return self.values

    @property
    def error(self) -> Tensor:
        return 2 * self.residuals if self.rounded else self.residuals

    @property
    def half(self) -> Tensor:
        return self.error

    def summary(self) -> str:
        if self.reason:
            return f"nan: {self.reason}"
        count = f"{int(self.converged.sum())} of {len(self.values)} converged"
        missed = "" if self.certain else "; values, or copies of these, may be missing"
        return f"{short(tuple(self.values.tolist()))}; {count}, {self.products} products{missed}"

    def plot(self, ax: Axes | None = None) -> Figure:
        """The eigenvalues in order, each with its residual. ax: default a new figure."""
        return plot_values(self.values, self.residuals, "eigenvalue", ax)


@refuses_removed
def top_eigenpairs(  # noqa: PLR0913 (public: each is an option)
    operator: Matrix,
    k: int,
    which: Which = "largest",
    *,
    start: Tensor | None = None,
    tolerance: float | None = None,
    block: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Eigenpairs:
    """The k largest or smallest eigenvalues, or those of largest modulus, with vectors and
    residuals.

    Parameters
    ----------
    operator, generator, progress
        As for `trace_estimate`.
    k, which
        How many pairs, and of which end: "largest", "smallest" or "magnitude".
    start
        Vectors (n,) or (n, j) near those sought, as `vectors` of an earlier call a few steps of a
        training before. A random vector as long as each is added.
    tolerance
        Of a residual, relative to the largest modulus found (default 1e-9 in float64, 1e-4 in
        float32, two roundings in half precision).
    block
        Vectors of the search that are multiplied together; default 1 for k = 1, else 2. An
        eigenvalue may repeat, as each does once per output in a linear layer under squared error. A
        search with one vector sees one copy; with two, and with more where a value repeats, all
        copies are found. block=1 needs a fifth fewer products for k > 1, and the result is marked
        as not `certain`.
    memory_budget
        Bytes for vectors of length n, of which at least k + 2 blocks are held; more of them save
        products. They have the device and dtype (at least float32) of the operator. A
        RuntimeWarning tells when the least number does not fit.

    Returns
    -------
    Eigenpairs

    Raises
    ------
    ValueError
        For k outside 1..n, an unknown `which`, a negative tolerance, a `start` of another length,
        not finite or zero, and products that are not those of a symmetric matrix.

    Notes
    -----
    Block Lanczos with full reorthogonalisation and thick restarts (Wu and Simon, 2000). With n ≤ 64
    or k > n / 5 the whole matrix is decomposed from n products; the search ends after n products in
    any case.

    Examples
    --------
    >>> import torch
    >>> from runner.curvature import top_eigenpairs
    >>> top_eigenpairs(torch.diag(torch.tensor([3.0, -5.0, 1.0])), 1, "magnitude")
    Eigenpairs(-5; 1 of 1 converged, 3 products)
    """
    symmetric = Symmetric(operator)
    generator = own_generator(generator)
    return eigenpair_search(
        symmetric, k, generator, which, start, tolerance, block, memory_budget
    ).run(progress)


def eigenpair_search(  # noqa: PLR0913 (those of `top_eigenpairs`)
    symmetric: Symmetric,
    k: int,
    generator: torch.Generator,
    which: Which = "largest",
    start: Tensor | None = None,
    tolerance: float | None = None,
    block: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Method[Eigenpairs]:
    """Of the arguments of `top_eigenpairs`, whose errors it raises."""
    if which not in get_args(Which):
        raise ValueError(f"which must be one of {', '.join(get_args(Which))}, got {which!r}")
    require_counts(1, k=k)
    if k > symmetric.size:
        raise ValueError(
            f"expected k of at most {symmetric.size}, the size of the operator, got {k}"
        )
    if block is not None:
        require_counts(1, block=block)
    if tolerance is None:
        rounding = torch.finfo(symmetric.dtype).eps
        tolerance = TOLERANCE.get(symmetric.dtype, 2 * rounding)
    if not tolerance >= 0:
        raise ValueError(f"expected a tolerance of at least 0, got {tolerance}")
    search = _Search(symmetric, k, which, tolerance, generator)
    if start is not None:
        search.start = _unit_columns(start, symmetric.size)
    if not search.exact:
        search.prepare(block or min(k, 2), memory_budget)
    return search


def _unit_columns(start: Tensor, size: int) -> Tensor:
    """The vectors to start from with norm 1. Raises MeasurementError for what is none."""
    columns = columns_of(start, size).double()
    norms = columns.norm(dim=0)
    if not bool((norms.isfinite() & (norms > 0)).all()):
        raise MeasurementError(
            "expected vectors to start from that are finite and not zero, found norms "
            f"{norms.tolist()}"
        )
    return columns / norms


class _Search(Method[Eigenpairs]):
    """A Krylov space that grows until its first k pairs have converged."""

    title = "eigenpairs"
    space: Krylov
    start: Tensor | None = None

    def __init__(
        self,
        symmetric: Symmetric,
        k: int,
        which: Which,
        tolerance: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__(symmetric, 20 + 5 * k)
        self.exact = symmetric.size <= DENSE or 5 * k > symmetric.size
        self.k = k
        self.which = which
        self.tolerance = tolerance
        self.generator = generator
        self.finished = False
        self.scale = 0.0  # largest modulus seen

    def prepare(self, block: int, budget: int) -> None:
        """The basis, as large as the budget allows."""
        n = self.symmetric.size
        itemsize = self.symmetric.wide.itemsize
        k = self.k
        least = min(n, k + 3 * block)
        wanted = n if n <= WHOLE else max(4 * k, 64)
        if least * itemsize * n > budget:
            warnings.warn(
                f"memory_budget is {budget / 2**30:.3g} GiB, and {k} eigenpairs need {least} "
                f"vectors, {least * itemsize * n / 2**30:.3g} GiB: it is exceeded",
                RuntimeWarning,
                stacklevel=5,
            )
        most = max(least - block, min(wanted, budget // (itemsize * n) - block))
        self.space = Krylov(self.symmetric, block, most, self._fresh, self._first(block))
        self.searched = block  # copies of an eigenvalue that this round can see
        self.known = full(0.0, 0)
        self.round_start = self.look_again = 0
        self.least = LEAST_STEPS
        self.looked = 0, 0.0  # products at the last look at the residuals, and decades to go

    def _first(self, block: int) -> Tensor:
        """The first block: each vector the sum of a share of those to start from and of a random
        one."""
        rows = self._fresh(block)
        if self.start is not None:
            rows *= RANDOM / rows.norm(dim=1, keepdim=True)
            known = self.start.to(rows)
            for i in range(block):
                rows[i] += known[:, i::block].sum(1)
        return rows

    def _fresh(self, count: int) -> Tensor:
        return self.symmetric.gaussian(count, self.generator)

    def of_matrix(self, matrix: Tensor) -> Eigenpairs:
        values, vectors = torch.linalg.eigh(matrix)
        self.scale = float(values.abs().max())
        best = self._order(values)[: self.k]
        return self._pairs(values[best].cpu(), vectors[:, best], full(0.0, self.k), True)

    def search(self) -> Iterator[None]:
        space = self.space
        while self.symmetric.size - self.symmetric.products >= space.block:
            yield
            space.expand()
            whole = space.block == 0
            if not (whole or space.full or self._due()):
                continue
            values, vectors, residuals = space.ritz(self._order)
            self.scale = max(self.scale, float(values.abs().max()))
            self._wait(residuals)
            if whole:
                self.finished = True
                return
            if self._converged(values, residuals):
                if self.searched == 1 or self._gained(values) < self.searched:
                    self.finished = True
                    return
                self._look_for_copies(values, vectors)
            elif space.full:
                kept = self.k + (space.most - self.k) // 2
                space.restart(values, vectors, max(1, min(kept, space.most - space.block)))

    def _look_for_copies(self, values: Tensor, vectors: Tensor) -> None:
        """Begins a round with twice as many vectors: all of these have found copies of values."""
        self.known = values[: self.k]
        self.least = max(self.least, int(SHARE * self._steps()))
        self.searched = 2 * self.searched
        if self.space.most < self.symmetric.size:
            self.space.anew(values, vectors, self.k, self.searched)
        else:
            self.space.widen(self.searched)
        self.round_start = self.symmetric.products
        self.look_again = 0
        self.planned = min(self.symmetric.size, self.planned + self.least * self.searched)

    def _due(self) -> bool:
        """Whether to look at the Ritz values: a decade of a residual takes more than two steps."""
        return self.space.ready > self.k and self.symmetric.products >= self.look_again

    def _wait(self, residuals: Tensor) -> None:
        """Until most of the products that the last two looks predict, but soon: residuals fall
        ever faster, and a decade takes more than two steps."""
        now = self.symmetric.products
        worst = float(residuals[: self.k].max())
        allowed = self.tolerance * self.scale
        decades = 0.5
        if worst > allowed > 0:
            decades = math.log10(worst / allowed)
        before, then = self.looked
        fallen = then - decades
        predicted = 0.0
        if fallen > 0:
            predicted = 0.7 * decades / fallen * (now - before)
        least = self.space.block * max(1, int(2 * decades))
        self.look_again = now + max(least, int(min(predicted, now / 4)))
        self.looked = now, decades

    def _converged(self, values: Tensor, residuals: Tensor) -> bool:
        """The first k; and the next one, or so far away that no copy is on its way in between."""
        k = self.k
        allowed = self.tolerance * self.scale
        if self.searched > 1:  # residuals of several rounds add up
            allowed = math.hypot(allowed / 2, self.space.dropped)
        if not bool((residuals[:k] <= allowed).all()):
            return False
        if self.searched == 1:
            return True
        if len(values) <= k or self._steps() < self.least:
            return False
        end = values[k - 1]
        following = values[k]
        if self.which == "magnitude":
            end = end.abs()
            following = following.abs()
        return float(residuals[k]) <= max(allowed, float((end - following).abs()) / 2)

    def _steps(self) -> int:
        """Of this round: products with each vector."""
        return (self.symmetric.products - self.round_start) // self.space.block

    def _gained(self, values: Tensor) -> int:
        """The most copies of one value that this round has found."""
        found = values[: self.k]
        apart = 10 * self.tolerance * self.scale
        copies = ((found[:, None] - found).abs() <= apart).sum(1)
        known = ((found[:, None] - self.known).abs() <= apart).sum(1)
        return int((copies - known).max())

    def _order(self, values: Tensor) -> Tensor:
        key = {"largest": -values, "smallest": values, "magnitude": -values.abs()}[self.which]
        return key.argsort()

    def result(self) -> Eigenpairs | None:
        if self.space.ready < self.k:
            return None
        values, mixing, residuals = self.space.ritz(self._order)
        vectors = self.space.vectors(mixing[:, : self.k])
        certain = self.finished and (self.searched > 1 or (self.k == 1 and self.start is None))
        return self._pairs(values[: self.k], vectors, residuals[: self.k], certain)

    def _pairs(
        self, values: Tensor, vectors: Tensor, residuals: Tensor, certain: bool
    ) -> Eigenpairs:
        """Unscaled, with the rounding of products in the residuals."""
        size = max(self.scale, float(values.abs().max()))
        rounding = ROUNDINGS * torch.finfo(self.symmetric.dtype).eps * size
        if not self.exact:
            rounding = max(rounding, 3 * self.space.skew)
        converged = residuals <= max(self.tolerance * size, rounding)
        residuals = (residuals.square() + rounding**2).sqrt()
        return Eigenpairs(
            self.symmetric.restored(values),
            vectors.cpu(),
            self.symmetric.restored(residuals),
            converged,
            self.symmetric.products,
            certain,
            rounded=self.symmetric.dtype != torch.float64,
        )

    def undefined(self, reason: str) -> Eigenpairs:
        nothing = full(math.nan, self.symmetric.size, self.k)
        false = torch.zeros(self.k, dtype=torch.bool, device="cpu")
        return Eigenpairs(
            nothing[0], nothing, nothing[0], false, self.symmetric.products, False, reason
        )
