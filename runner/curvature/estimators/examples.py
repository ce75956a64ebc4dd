"""Standard errors over batches: how far numbers of a sample lie from those of its population."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runner.curvature.estimators.eigenpairs import Eigenpairs, top_eigenpairs
from runner.curvature.estimators.operator import TOGETHER, Symmetric, own_generator
from runner.curvature.estimators.samples import Samples, student
from runner.curvature.function.errors import MeasurementError, require_counts
from runner.curvature.function.precision import full_precision
from runner.curvature.result import Result

WHOLE = 512
"""Up to this size the matrix of every batch is computed, and every number is exact."""

Statistic = Callable[[Tensor], float]


class Measured(NamedTuple):
    """A number as a function of the shares of the batches, and its own error."""

    statistic: Statistic
    absolute: float = 0.0
    relative: float = 0.0


Found = dict[str, Measured]


@dataclass(frozen=True, repr=False)
class BatchEstimate(Result):
    """A number with its error over batches.

    Attributes
    ----------
    value, error, low, high
        The number of all batches, its standard error over batches (jackknife), and the 95 %
        interval, Student's with one degree of freedom less than there are batches.
    estimator_error
        Standard error or residual of the estimate itself; 0 where it is exact. The interval holds
        it, too.
    batches
    """

    value: float
    error: float
    estimator_error: float
    batches: int

    @property
    def low(self) -> float:
        return self.value - self._half

    @property
    def high(self) -> float:
        return self.value + self._half

    @property
    def _half(self) -> float:
        return math.hypot(student(self.batches - 1) * self.error, 1.96 * self.estimator_error)

    def summary(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g} over {self.batches} batches"


def batch_errors(
    operators: Iterable[Any],
    *,
    weights: Sequence[float] | None = None,
    gauss_newton: Iterable[Any] = (),
    eigenvalues: int = 1,
    products: int = 20,
    generator: torch.Generator | None = None,
) -> dict[str, BatchEstimate]:
    """Eigenvalues, trace, and R, C, D and gap between groups, with standard errors over batches.

    Parameters
    ----------
    operators
        One symmetric operator for each of at least two batches: a `ParameterOperator` or
        `LayerOperator` built with that batch alone, or matrices. Groups are those of the first one.
    weights
        What the batches weigh in the mean, default equally: their numbers of examples.
    gauss_newton
        The Gauss–Newton operators of the same batches, for the gap.
    eigenvalues
        How many of the largest eigenvalues.
    products
        For n > 512: random vectors for the trace and for each group. Up to that size all numbers
        are exact.
    generator
        As for `trace_estimate`.

    Returns
    -------
    dict
        "lambda_1", …, "trace", and with groups "R[a, b]", "C[a, b]"; for n ≤ 512 also "D[a, b]"
        and, with `gauss_newton`, "gap[a, b]".

    Raises
    ------
    ValueError
        For fewer than two batches, operators of different shapes, and weights that are not
        positive.

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
    shares = _shares(weights, len(of_batches))
    groups = dict(getattr(given[0], "groups", {}))
    with full_precision():
        if of_batches[0].size <= WHOLE:
            found = _exact(of_batches, smooth, groups, eigenvalues)
        else:
            sketch = _Sketch(of_batches, shares, products, own_generator(generator))
            found = sketch.statistics(groups, eigenvalues)
    return {name: _jackknife(measured, shares) for name, measured in found.items()}


def _check(of_batches: list[Symmetric], smooth: list[Symmetric]) -> None:
    sizes = sorted({s.size for s in (*of_batches, *smooth)})
    if len(of_batches) < 2 or len(sizes) != 1 or len(smooth) not in (0, len(of_batches)):
        raise MeasurementError(
            "expected operators of one size, one for each of at least two batches, found "
            f"{len(of_batches)} (Gauss-Newton: {len(smooth)}) of sizes {sizes}"
        )


def _shares(weights: Sequence[float] | None, count: int) -> Tensor:
    given = torch.ones(count, dtype=torch.float64, device="cpu")
    if weights is not None:
        given = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    if given.shape != (count,) or not bool((given > 0).all()):
        raise MeasurementError(
            f"expected {count} weights above 0, one for each batch, found {weights}"
        )
    return given / given.sum()


def _jackknife(measured: Measured, shares: Tensor) -> BatchEstimate:
    """Delete-one-batch jackknife for batches of these shares."""
    statistic = measured.statistic
    value, count = statistic(shares), len(shares)
    inverse = (1 / shares).tolist()
    without = []
    for b in range(count):
        rest = shares.clone()
        rest[b] = 0
        without.append(statistic(rest / rest.sum()))
    centre = count * value - math.fsum(
        (1 - 1 / h) * t for h, t in zip(inverse, without, strict=True)
    )
    pseudo = (h * value - (h - 1) * t for h, t in zip(inverse, without, strict=True))
    squares = [(p - centre) ** 2 / (h - 1) for h, p in zip(inverse, pseudo, strict=True)]
    error = math.sqrt(math.fsum(squares) / count)
    own = measured.absolute + measured.relative * abs(value)
    return BatchEstimate(value, error, own, count)


def _exact(
    of_batches: list[Symmetric], smooth: list[Symmetric], groups: dict[str, slice], k: int
) -> Found:
    """Statistics of the matrices themselves."""
    matrices = torch.stack([s.restored(s.dense().cpu()) for s in of_batches])
    flat = torch.stack([s.restored(s.dense().cpu()) for s in smooth]) if smooth else None

    def mean(shares: Tensor, of: Tensor = matrices) -> Tensor:
        return torch.tensordot(shares, of, 1)

    def eigenvalue(i: int) -> Statistic:
        return lambda shares: float(torch.linalg.eigvalsh(mean(shares))[-1 - i])

    def norm(rows: slice, columns: slice) -> Statistic:
        return lambda shares: float(mean(shares)[rows, columns].norm())

    def rank(rows: slice, columns: slice) -> Statistic:
        def value(shares: Tensor) -> float:
            block = mean(shares)[rows, columns]
            largest = float(torch.linalg.matrix_norm(block, 2))
            return (float(block.norm()) / largest) ** 2 if largest > 0 else math.nan

        return value

    def gap(rows: slice, columns: slice) -> Statistic:
        assert flat is not None

        def value(shares: Tensor) -> float:
            part = mean(shares, flat)[rows, columns]
            rest = mean(shares)[rows, columns] - part
            return float(rest.norm() / part.norm()) if bool(part.any()) else math.nan

        return value

    count = min(k, len(matrices[0]))
    found = {f"lambda_{i + 1}": Measured(eigenvalue(i)) for i in range(count)}
    found["trace"] = Measured(lambda shares: float(mean(shares).trace()))
    norms = {(v, w): norm(groups[v], groups[w]) for v, w in _pairs(groups)}
    found |= _between(norms, {})
    for v, w in _pairs(groups):
        found[f"D[{v}, {w}]"] = Measured(rank(groups[v], groups[w]))
        if flat is not None:
            found[f"gap[{v}, {w}]"] = Measured(gap(groups[v], groups[w]))
    return found


def _pairs(groups: dict[str, slice]) -> list[tuple[str, str]]:
    names = list(groups)
    return [(v, w) for i, v in enumerate(names) for w in names[i:]]


def _between(
    norms: dict[tuple[str, str], Statistic], relative: dict[tuple[str, str], float]
) -> Found:
    """R and C of all pairs of groups; relative: errors of R."""

    def coupling(v: str, w: str) -> Statistic:
        def value(shares: Tensor) -> float:
            scale = math.sqrt(norms[v, v](shares) * norms[w, w](shares))
            return norms[v, w](shares) / scale if scale > 0 else math.nan

        return value

    found: Found = {}
    for v, w in norms:
        found[f"R[{v}, {w}]"] = Measured(norms[v, w], relative=relative.get((v, w), 0.0))
        if v != w:
            off, first, second = (relative.get(p, 0.0) for p in ((v, w), (v, v), (w, w)))
            own = math.hypot(off, first / 2, second / 2)
            found[f"C[{v}, {w}]"] = Measured(coupling(v, w), relative=own)
    return found


class _Mean:
    """The weighted mean of the operators of all batches."""

    def __init__(self, of_batches: list[Symmetric], shares: Tensor) -> None:
        self.of_batches, self.weights = of_batches, shares.tolist()
        self.shape = (of_batches[0].size, of_batches[0].size)
        self.dtype, self.device = of_batches[0].dtype, of_batches[0].device
        self.sizes = {"all": self.shape[0]}

    def __matmul__(self, v: Tensor) -> Tensor:
        rows = v.mT if v.dim() == 2 else v.unsqueeze(0)
        total = torch.zeros_like(rows)
        for weight, one in zip(self.weights, self.of_batches, strict=True):
            total = total + weight * one.restored(one.rows(rows))
        return total.mT if v.dim() == 2 else total[0]


class _Sketch:
    """Products of every batch with the same vectors."""

    def __init__(
        self, of_batches: list[Symmetric], shares: Tensor, products: int, generator: torch.Generator
    ) -> None:
        self.of_batches, self.shares, self.products = of_batches, shares, products
        self.generator = generator

    def statistics(self, groups: dict[str, slice], k: int) -> Found:
        mean = _Mean(self.of_batches, self.shares)
        pairs = top_eigenpairs(mean, k, generator=self.generator, progress=False)
        return {**self._eigenvalues(pairs), **self._trace(), **self._norms(groups)}

    def _eigenvalues(self, pairs: Eigenpairs) -> Found:
        vectors = pairs.vectors.mT.to(self.of_batches[0].device, torch.float64)
        inside = torch.stack(
            [(s.restored(s.rows(vectors)) @ vectors.mT).cpu() for s in self.of_batches]
        )

        def value(i: int) -> Statistic:
            def of(shares: Tensor) -> float:
                matrix = torch.tensordot(shares, inside, 1)
                return float(torch.linalg.eigvalsh((matrix + matrix.mT) / 2)[-1 - i])

            return of

        errors = pairs.error.tolist()
        return {f"lambda_{i + 1}": Measured(value(i), errors[i]) for i in range(len(errors))}

    def _trace(self) -> Found:
        first = self.of_batches[0]
        traces = torch.zeros(len(self.of_batches), dtype=torch.float64, device="cpu")
        samples = Samples(first.size)
        for start in range(0, self.products, TOGETHER):
            count = min(TOGETHER, self.products - start)
            z = first.on_sphere(count, self.generator)
            total = torch.zeros_like(z)
            for b, symmetric in enumerate(self.of_batches):
                images = symmetric.restored(symmetric.rows(z))
                traces[b] += float((z * images).sum()) / self.products
                total = total + float(self.shares[b]) * images
            samples.add(z, total)
        return {"trace": Measured(lambda shares: float(shares @ traces), samples.deviation)}

    def _norms(self, groups: dict[str, slice]) -> Found:
        """‖H[h, g]‖² = wᵀAw, A[b, c] = mean of (H_b z)[h]ᵀ(H_c z)[h] over vectors z on group g."""
        grams: dict[tuple[str, str], Tensor] = {}
        errors: dict[tuple[str, str], float] = {}
        first = self.of_batches[0]
        names = list(groups)
        for w, span in groups.items():
            size = len(range(*span.indices(first.size)))
            z = torch.randn(
                self.products, size, generator=self.generator, dtype=torch.float64, device="cpu"
            )
            z *= math.sqrt(size) / z.norm(dim=1, keepdim=True)
            rows = torch.zeros(self.products, first.size, dtype=torch.float64, device=first.device)
            rows[:, span] = z.to(rows.device)
            rows = first.first(rows)
            images = torch.stack([s.restored(s.rows(rows)) for s in self.of_batches])
            for v in names[: names.index(w) + 1]:
                near = images[:, :, groups[v]]
                each = torch.einsum("bzi,czi->zbc", near, near).cpu()
                grams[v, w] = each.mean(0)
                squares = torch.einsum("b,zbc,c->z", self.shares, each, self.shares)
                square = float(squares.mean())
                spread = float(squares.std()) / math.sqrt(self.products)
                errors[v, w] = spread / (2 * square) if square > 0 else 0.0

        def norm_of(gram: Tensor) -> Statistic:
            return lambda shares: math.sqrt(max(float(shares @ gram @ shares), 0.0))

        return _between({pair: norm_of(gram) for pair, gram in grams.items()}, errors)
