"""Standard errors over batches: how far numbers of a sample lie from those of its population."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runner.curvature.basics.adapters import TOGETHER, Symmetric, own_generator
from runner.curvature.basics.errors import MeasurementError, require_counts
from runner.curvature.basics.estimate import full, numbers
from runner.curvature.basics.removed import refuses_removed
from runner.curvature.basics.result import Estimated
from runner.curvature.basics.symmetric import Pair
from runner.curvature.basics.work import ENDED, Work
from runner.curvature.operators.weighing import ASK
from runner.curvature.spectra.eigenpairs import eigenpair_search
from runner.curvature.spectra.samples import Samples, student_quantile

WHOLE = 512
"""Up to this size the matrix of every batch is computed, and every number is exact."""

Statistic = Callable[[Tensor], float]


class OfShares(NamedTuple):
    """A number as a function of the shares of the batches, and its own error."""

    statistic: Statistic
    absolute: float = 0.0
    relative: float = 0.0


Found = dict[str, OfShares]


@dataclass(frozen=True, repr=False)
class BatchEstimate(Estimated):
    """A number with its error over batches.

    Attributes
    ----------
    value, error, low, high
        The number of all batches, its standard error over batches (jackknife), and the 95 %
        interval, Student's with one degree of freedom less than there are batches.
    estimator_error
        Standard error or residual of the estimate itself; 0 where it is exact. The interval holds
        it, too.
    batches, reason
        Their number; why the value is NaN, else "".
    """

    value: float
    error: float
    estimator_error: float
    batches: int
    reason: str = ""

    @property
    def half(self) -> float:
        return math.hypot(
            student_quantile(self.batches - 1) * self.error, 1.96 * self.estimator_error
        )

    def summary(self) -> str:
        if self.reason:
            return f"nan: {self.reason}"
        return f"{self.value:.4g} ± {self.error:.2g} over {self.batches} batches"


@refuses_removed
def batch_errors(
    operators: Iterable[Any],
    *,
    weights: Sequence[float] | None = None,
    gauss_newton: Iterable[Any] = (),
    eigenvalues: int = 1,
    products: int = 20,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> dict[str, BatchEstimate]:
    """Eigenvalues, trace, and R, C, D and gap between groups, with standard errors over batches.

    Parameters
    ----------
    operators
        One symmetric operator for each of at least two batches: a `ParameterOperator` or
        `LayerOperator` built with that batch alone, or matrices. Groups are those of the first one.
    weights
        What the batches weigh in the mean. Default: what the operators' own weights say, such as
        their numbers of examples; of matrices, equally.
    gauss_newton
        The Gauss–Newton operators of the same batches, for the gap.
    eigenvalues
        How many of the largest eigenvalues.
    products
        For n > 512: random vectors for the trace and for each group. Up to that size all numbers
        are exact.
    generator, progress
        As for `trace_estimate`.

    Returns
    -------
    dict
        "lambda_1", …, "trace", and with groups "R[a, b]", "C[a, b]"; for n ≤ 512 also "D[a, b]"
        and, with `gauss_newton`, "gap[a, b]".

    Raises
    ------
    ValueError
        For fewer than two batches, operators of different shapes, weights that are not positive,
        and batches that differ in labels for each example, without `weights`.
    KeyboardInterrupt
        At Ctrl-C, with what is known as `.partial`.

    Notes
    -----
    The delete-one-batch jackknife, for batches of unequal weight that of Busing, Meijer and van der
    Leeden (1999). It needs no further products: H without batch b is (H − w_b H_b) / (1 − w_b), so
    that products of every batch with the same vectors give all of them. Eigenvalues move in the
    space of the eigenvectors of all batches.

    Examples
    --------
    >>> import torch
    >>> from runner.curvature import batch_errors
    >>> batches = [torch.diag(torch.tensor([3.0 + shift, 1.0])) for shift in (-0.2, 0.0, 0.2)]
    >>> batch_errors(batches)["lambda_1"]
    BatchEstimate(3 ± 0.12 over 3 batches)
    """
    given = list(operators)
    of_batches = [Symmetric(operator) for operator in given]
    smooth = [Symmetric(operator) for operator in gauss_newton]
    _check(of_batches, smooth)
    require_counts(1, eigenvalues=eigenvalues)
    require_counts(2, products=products)
    shares = _shares(_own_weights(given) if weights is None else weights, len(of_batches))
    groups = dict(getattr(given[0], "groups", {}))
    request = (of_batches, shares, groups, min(eigenvalues, of_batches[0].size))
    work: _Batches
    if of_batches[0].size <= WHOLE:
        work = _Exact(*request, smooth)
    else:
        work = _Sketch(*request, products, own_generator(generator))
    return work.run(progress)


def _check(of_batches: list[Symmetric], smooth: list[Symmetric]) -> None:
    sizes = sorted({s.size for s in (*of_batches, *smooth)})
    if len(of_batches) < 2 or len(sizes) != 1 or len(smooth) not in (0, len(of_batches)):
        raise MeasurementError(
            "expected operators of one size, one for each of at least two batches, found "
            f"{len(of_batches)} (Gauss-Newton: {len(smooth)}) of sizes {sizes}"
        )


def _own_weights(operators: list[Any]) -> list[float]:
    """What the data of each operator weigh; 1 where one is a matrix without data."""
    totals = [getattr(operator, "totals", {}) for operator in operators]
    if not all(totals):
        return [1.0] * len(totals)
    choices = []
    for rule in totals[0]:
        choices.append(numbers([total.get(rule, math.nan) for total in totals]))
    shares = torch.stack([weights / weights.sum() for weights in choices])
    if not torch.allclose(shares, shares[0].expand_as(shares), 1e-9, 0.0):
        raise MeasurementError(ASK)
    return shares[0].tolist()


def _shares(weights: Sequence[float], count: int) -> Tensor:
    given = numbers(weights)
    if given.shape != (count,) or not bool((given > 0).all()):
        raise MeasurementError(
            f"expected {count} weights above 0, one for each batch, found {weights}"
        )
    return given / given.sum()


def _jackknife(measured: OfShares, shares: Tensor) -> BatchEstimate:
    """Delete-one-batch jackknife for batches of these shares."""
    value = measured.statistic(shares)
    count = len(shares)
    inverse = (1 / shares).tolist()
    without = []
    for b in range(count):
        rest = shares.clone()
        rest[b] = 0
        without.append(measured.statistic(rest / rest.sum()))
    batches = list(zip(inverse, without, strict=True))
    centre = count * value - math.fsum((1 - 1 / h) * t for h, t in batches)
    squares = [(h * value - (h - 1) * t - centre) ** 2 / (h - 1) for h, t in batches]
    error = math.sqrt(math.fsum(squares) / count)
    estimator_error = measured.absolute + measured.relative * abs(value)
    reason = "a block is zero" if math.isnan(value) else ""
    return BatchEstimate(value, error, estimator_error, count, reason)


@dataclass(eq=False)
class _Batches(Work[dict[str, BatchEstimate]]):
    """Numbers of the mean of the operators of all batches. k: of eigenvalues."""

    title = "errors over batches"
    of_batches: list[Symmetric]
    shares: Tensor
    groups: dict[str, slice]
    k: int

    def __post_init__(self) -> None:
        self.kinds = ["R", "C"]
        self.pairs = list(combinations_with_replacement(self.groups, 2))
        self.found: Found = {}

    @property
    def products(self) -> int:  # type: ignore[override]
        return sum(symmetric.products for symmetric in self.of_batches)

    def result(self) -> dict[str, BatchEstimate]:
        known = {name: _jackknife(number, self.shares) for name, number in self.found.items()}
        return {**self.undefined(ENDED), **known}

    def undefined(self, reason: str) -> dict[str, BatchEstimate]:
        names = [*(f"lambda_{i + 1}" for i in range(self.k)), "trace"]
        for kind in self.kinds:
            names += [f"{kind}[{v}, {w}]" for v, w in self.pairs if kind != "C" or v != w]
        nothing = BatchEstimate(math.nan, math.nan, math.nan, len(self.of_batches), reason)
        return dict.fromkeys(names, nothing)


@dataclass(eq=False)
class _Exact(_Batches):
    """From the matrices themselves. smooth: of Gauss-Newton, of every batch or of none."""

    smooth: list[Symmetric]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinds.append("D")
        if self.smooth:
            self.kinds.append("gap")
        self.planned = (len(self.of_batches) + len(self.smooth)) * self.of_batches[0].size

    @property
    def products(self) -> int:  # type: ignore[override]
        return sum(symmetric.products for symmetric in (*self.of_batches, *self.smooth))

    def steps(self) -> Iterator[None]:
        total = yield from _matrices(self.of_batches)
        self.found = _eigenvalues(total, [0.0] * self.k)
        self.found["trace"] = OfShares(partial(_mean, total.diagonal(dim1=1, dim2=2).sum(1)))
        blocks = {(v, w): total[:, self.groups[v], self.groups[w]] for v, w in self.pairs}
        self.found |= _between({pair: partial(_norm, block) for pair, block in blocks.items()}, {})
        for v, w in self.pairs:
            self.found[f"D[{v}, {w}]"] = OfShares(partial(_stable_rank, blocks[v, w]))
        if self.smooth:
            flat = yield from _matrices(self.smooth)
            for v, w in self.pairs:
                gauss_newton = flat[:, self.groups[v], self.groups[w]]
                self.found[f"gap[{v}, {w}]"] = OfShares(partial(_gap, blocks[v, w], gauss_newton))


def _matrices(operators: list[Symmetric]) -> Generator[None, None, Tensor]:
    dense = []
    for symmetric in operators:
        yield
        dense.append(symmetric.restored(symmetric.dense().cpu()))
    return torch.stack(dense)


def _weighted(of_batches: Tensor, shares: Tensor) -> Tensor:
    """The mean over the batches, along dimension 0."""
    return torch.tensordot(shares, of_batches, 1)


def _mean(numbers: Tensor, shares: Tensor) -> float:
    return float(shares @ numbers)


def _norm(blocks: Tensor, shares: Tensor) -> float:
    return float(_weighted(blocks, shares).norm())


def _stable_rank(blocks: Tensor, shares: Tensor) -> float:
    block = _weighted(blocks, shares)
    largest = float(torch.linalg.matrix_norm(block, 2))
    if largest > 0:
        return (float(block.norm()) / largest) ** 2
    return math.nan


def _gap(blocks: Tensor, gauss_newton: Tensor, shares: Tensor) -> float:
    smooth = _weighted(gauss_newton, shares)
    rest = _weighted(blocks, shares) - smooth
    if bool(smooth.any()):
        return float(rest.norm() / smooth.norm())
    return math.nan


def _eigenvalue(matrices: Tensor, i: int, shares: Tensor) -> float:
    matrix = _weighted(matrices, shares)
    return float(torch.linalg.eigvalsh((matrix + matrix.mT) / 2)[-1 - i])


def _eigenvalues(matrices: Tensor, errors: list[float]) -> Found:
    """The largest ones of the mean of the matrices, which are given with these errors."""
    found = {}
    for i, error in enumerate(errors):
        found[f"lambda_{i + 1}"] = OfShares(partial(_eigenvalue, matrices, i), error)
    return found


def _coupling(norm: Statistic, first: Statistic, second: Statistic, shares: Tensor) -> float:
    scale = math.sqrt(first(shares) * second(shares))
    return norm(shares) / scale if scale > 0 else math.nan


def _between(norms: dict[Pair, Statistic], relative: dict[Pair, float]) -> Found:
    """R and C of all pairs of groups; relative: errors of R."""
    found: Found = {}
    for v, w in norms:
        found[f"R[{v}, {w}]"] = OfShares(norms[v, w], relative=relative.get((v, w), 0.0))
        if v != w:
            ends = (v, w), (v, v), (w, w)
            off, first, second = (relative.get(pair, 0.0) for pair in ends)
            error = math.hypot(off, first / 2, second / 2)
            coupling = partial(_coupling, norms[v, w], norms[v, v], norms[w, w])
            found[f"C[{v}, {w}]"] = OfShares(coupling, relative=error)
    return found


def _images(of_batches: list[Symmetric], rows: Tensor) -> Iterator[Tensor]:
    """Products of every batch with the rows."""
    return (symmetric.restored(symmetric.rows(rows)) for symmetric in of_batches)


class _Mean:
    """The weighted mean of the operators of all batches."""

    def __init__(self, of_batches: list[Symmetric], shares: Tensor) -> None:
        self.of_batches = of_batches
        self.weights = shares.tolist()
        self.shape = (of_batches[0].size, of_batches[0].size)
        self.dtype = of_batches[0].dtype
        self.device = of_batches[0].device
        self.sizes = {"all": self.shape[0]}

    def __matmul__(self, v: Tensor) -> Tensor:
        rows = v.mT if v.dim() == 2 else v.unsqueeze(0)
        total = torch.zeros_like(rows)
        for weight, images in zip(self.weights, _images(self.of_batches, rows), strict=True):
            total = total + weight * images
        if v.dim() == 2:
            return total.mT
        return total[0]


@dataclass(eq=False)
class _Sketch(_Batches):
    """From products of every batch with the same `count` vectors."""

    count: int
    generator: torch.Generator

    def __post_init__(self) -> None:
        super().__post_init__()
        of_each = 20 + 6 * self.k + (1 + len(self.groups)) * self.count
        self.planned = len(self.of_batches) * of_each

    def steps(self) -> Iterator[None]:
        yield from self._of_eigenvectors()
        yield from self._trace()
        yield from self._norms()

    def _of_eigenvectors(self) -> Iterator[None]:
        mean = _Mean(self.of_batches, self.shares)
        search = eigenpair_search(Symmetric(mean), self.k, self.generator)
        yield from search.steps()
        pairs = search.so_far()
        vectors = pairs.vectors.mT.to(mean.device, torch.float64)
        yield
        inside = [(images @ vectors.mT).cpu() for images in _images(self.of_batches, vectors)]
        self.found = _eigenvalues(torch.stack(inside), pairs.error.tolist())

    def _trace(self) -> Iterator[None]:
        first = self.of_batches[0]
        traces = full(0.0, len(self.of_batches))
        samples = Samples(first.size)
        for start in range(0, self.count, TOGETHER):
            z = first.on_sphere(min(TOGETHER, self.count - start), self.generator)
            yield
            total = torch.zeros_like(z)
            for b, images in enumerate(_images(self.of_batches, z)):
                traces[b] += float((z * images).sum()) / self.count
                total = total + float(self.shares[b]) * images
            samples.add(z, total)
        self.found["trace"] = OfShares(partial(_mean, traces), samples.deviation)

    def _norms(self) -> Iterator[None]:
        """‖H[h, g]‖² = wᵀAw, A[b, c] = mean of (H_b z)[h]ᵀ(H_c z)[h] over vectors z on group g."""
        norms: dict[Pair, Statistic] = {}
        errors: dict[Pair, float] = {}
        names = list(self.groups)
        for i, w in enumerate(names):
            yield
            rows = self.of_batches[0].on_sphere_of(self.groups[w], self.count, self.generator)
            images = torch.stack(list(_images(self.of_batches, rows)))
            for v in names[: i + 1]:
                near = images[:, :, self.groups[v]]
                each = torch.einsum("bzi,czi->zbc", near, near).cpu()
                norms[v, w] = partial(_root_of_form, each.mean(0))
                squares = torch.einsum("b,zbc,c->z", self.shares, each, self.shares)
                square = float(squares.mean())
                spread = float(squares.std()) / math.sqrt(self.count)
                errors[v, w] = spread / (2 * square) if square > 0 else 0.0
        self.found |= _between(norms, errors)


def _root_of_form(gram: Tensor, shares: Tensor) -> float:
    return math.sqrt(max(float(shares @ gram @ shares), 0.0))
