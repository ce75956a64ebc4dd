"""Standard errors over batches: how far numbers of a sample lie from those of its population."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor

from runner.curvature.basics.adapters import Matrix, Symmetric, own_generator
from runner.curvature.basics.errors import MeasurementError, require_counts
from runner.curvature.basics.estimate import numbers
from runner.curvature.basics.removed import refuses_removed
from runner.curvature.basics.result import Estimated
from runner.curvature.basics.symmetric import Pair
from runner.curvature.basics.work import ENDED, Work
from runner.curvature.operators.weighing import ASK
from runner.curvature.spectra.eigenpairs import eigenpair_search
from runner.curvature.spectra.samples import Samples, student_quantile

WHOLE = 512
"""Up to this size the matrix of every batch is computed, and every number is exact."""

Statistic = Callable[[Tensor], dict[str, float]]
"""Numbers by name as a function of what the batches weigh; the weights add up to 1."""


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
    operators: Iterable[Matrix],
    *,
    weights: Sequence[float] | None = None,
    gauss_newton: Iterable[Matrix] = (),
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
    work = _Batches(
        of_batches,
        smooth,
        _shares(_own_weights(given) if weights is None else weights, len(of_batches)),
        dict(getattr(given[0], "groups", {})),
        min(eigenvalues, of_batches[0].size),
        products,
        own_generator(generator),
    )
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


def jackknife(statistic: Statistic, shares: Tensor) -> dict[str, tuple[float, float]]:
    """Value and standard error of every number, from the mean without each batch."""
    found = {}
    values = statistic(shares)
    rests = shares * (1 - torch.eye(len(shares), device="cpu"))
    without = [statistic(rest / rest.sum()) for rest in rests]
    for name, value in values.items():
        others = numbers([one[name] for one in without])
        centre = len(shares) * value - (1 - shares) @ others
        apart = (value - (1 - shares) * others) / shares - centre
        found[name] = value, math.sqrt((apart.square() * shares / (1 - shares)).mean())
    return found


@dataclass(eq=False)
class _Batches(Work[dict[str, BatchEstimate]]):
    """Numbers of the mean of the operators of all batches: from the matrices themselves up to the
    size WHOLE, else from products of every batch with the same vectors.

    smooth: the Gauss-Newton operators, of every batch or none. k: of eigenvalues. count: vectors
    for the trace and for each group.
    """

    title = "errors over batches"
    of_batches: list[Symmetric]
    smooth: list[Symmetric]
    shares: Tensor
    groups: dict[str, slice]
    k: int
    count: int
    generator: torch.Generator

    def __post_init__(self) -> None:
        self.size = self.of_batches[0].size
        self.exact = self.size <= WHOLE
        self.pairs = list(combinations_with_replacement(self.groups, 2))
        self.known: list[tuple[Statistic, dict[str, float]]] = []
        of_each = 20 + 6 * self.k + (1 + len(self.groups)) * self.count
        self.planned = len(self.of_batches) * of_each
        if self.exact:
            self.planned = (len(self.of_batches) + len(self.smooth)) * self.size

    @property
    def products(self) -> int:  # type: ignore[override]
        return sum(symmetric.products for symmetric in (*self.of_batches, *self.smooth))

    def steps(self) -> Iterator[None]:
        if self.exact:
            yield from self._of_matrices()
            return
        yield from self._of_eigenvectors()
        yield
        self._of_trace()
        yield from self._of_columns()

    def result(self) -> dict[str, BatchEstimate]:
        found = self.undefined(ENDED)
        for statistic, errors in self.known:
            for name, (value, error) in jackknife(statistic, self.shares).items():
                reason = "a block is zero" if math.isnan(value) else ""
                own = errors.get(name, 0.0)
                found[name] = BatchEstimate(value, error, own, len(self.shares), reason)
        return found

    def undefined(self, reason: str) -> dict[str, BatchEstimate]:
        names = [*(f"lambda_{i + 1}" for i in range(self.k)), "trace"]
        kinds = ["R", "C"]
        if self.exact:
            kinds += ["D", "gap"] if self.smooth else ["D"]
        for kind in kinds:
            names += [f"{kind}[{v}, {w}]" for v, w in self.pairs if kind != "C" or v != w]
        nothing = BatchEstimate(math.nan, math.nan, math.nan, len(self.shares), reason)
        return dict.fromkeys(names, nothing)

    def _of_matrices(self) -> Iterator[None]:
        dense = []
        for symmetric in (*self.of_batches, *self.smooth):
            yield
            dense.append(symmetric.restored(symmetric.dense().cpu()))
        parts = torch.stack(dense).split(len(self.shares))

        def statistic(shares: Tensor) -> dict[str, float]:
            matrix, *smooth = (_weighted(part, shares) for part in parts)
            found = _eigenvalues(matrix, self.k) | {"trace": float(matrix.trace())}
            blocks = {(v, w): matrix[self.groups[v], self.groups[w]] for v, w in self.pairs}
            found |= _between({pair: float(block.norm()) for pair, block in blocks.items()})
            for (v, w), block in blocks.items():
                largest = float(torch.linalg.matrix_norm(block, 2))
                found[f"D[{v}, {w}]"] = _ratio(found[f"R[{v}, {w}]"], largest) ** 2
                for flat in smooth:
                    near = flat[self.groups[v], self.groups[w]]
                    gap = _ratio(float((block - near).norm()), float(near.norm()))
                    found[f"gap[{v}, {w}]"] = gap
            return found

        self.known.append((statistic, {}))

    def _images(self, rows: Tensor) -> Tensor:
        """Products of every batch with the rows, (batches, k, n)."""
        return torch.stack([one.restored(one.rows(rows)) for one in self.of_batches])

    def _of_eigenvectors(self) -> Iterator[None]:
        mean = Mean(self.of_batches, self.shares)
        search = eigenpair_search(Symmetric(mean), self.k, self.generator)
        yield from search.steps()
        pairs = search.so_far()
        vectors = pairs.vectors.mT.to(mean.device, torch.float64)
        yield
        inside = (self._images(vectors) @ vectors.mT).cpu()
        inside = (inside + inside.mT) / 2
        errors = {f"lambda_{i + 1}": error for i, error in enumerate(pairs.error.tolist())}
        self.known.append((lambda s: _eigenvalues(_weighted(inside, s), self.k), errors))

    def _of_trace(self) -> None:
        z = self.of_batches[0].on_sphere(self.count, self.generator)
        images = self._images(z)
        traces = ((z * images).sum((1, 2)) / self.count).cpu()
        samples = Samples(self.size)
        samples.add(z, _weighted(images, self.shares.to(z.device)))
        errors = {"trace": samples.deviation}
        self.known.append((lambda shares: {"trace": float(shares @ traces)}, errors))

    def _of_columns(self) -> Iterator[None]:
        """‖H[v, w]‖² = shares · A shares, A[b, c] = mean of (H_b z)[v] · (H_c z)[v] over vectors z
        on group w."""
        forms: dict[Pair, Tensor] = {}
        relative: dict[Pair, float] = {}
        for i, w in enumerate(self.groups):
            yield
            rows = self.of_batches[0].on_sphere_of(self.groups[w], self.count, self.generator)
            images = self._images(rows)
            for v in list(self.groups)[: i + 1]:
                near = images[:, :, self.groups[v]]
                each = torch.einsum("bzi,czi->zbc", near, near).cpu()
                forms[v, w] = each.mean(0)
                squares = each @ self.shares @ self.shares
                spread = float(squares.std()) / math.sqrt(self.count)
                square = 2 * float(squares.mean())
                relative[v, w] = spread / square if square > 0 else 0.0

        def statistic(shares: Tensor) -> dict[str, float]:
            squares = {pair: float(shares @ form @ shares) for pair, form in forms.items()}
            return _between({pair: math.sqrt(max(square, 0)) for pair, square in squares.items()})

        values = statistic(self.shares)
        errors = {}
        for v, w in forms:
            ends = relative[v, w], relative[v, v] / 2, relative[w, w] / 2
            errors[f"R[{v}, {w}]"] = ends[0] * values[f"R[{v}, {w}]"]
            if v != w:
                errors[f"C[{v}, {w}]"] = math.hypot(*ends) * values[f"C[{v}, {w}]"]
        self.known.append((statistic, errors))


def _weighted(of_batches: Tensor, shares: Tensor) -> Tensor:
    """The mean over the batches, along dimension 0."""
    return torch.tensordot(shares, of_batches, 1)


def _eigenvalues(matrix: Tensor, count: int) -> dict[str, float]:
    largest = torch.linalg.eigvalsh(matrix).flip(0)[:count].tolist()
    return {f"lambda_{i + 1}": value for i, value in enumerate(largest)}


def _ratio(value: float, size: float) -> float:
    return value / size if size > 0 else math.nan


def _between(norms: dict[Pair, float]) -> dict[str, float]:
    """R and C of all pairs of groups."""
    found = {f"R[{v}, {w}]": norm for (v, w), norm in norms.items()}
    for v, w in norms:
        if v != w:
            scale = math.sqrt(norms[v, v] * norms[w, w])
            found[f"C[{v}, {w}]"] = _ratio(norms[v, w], scale)
    return found


class Mean:
    """The weighted mean of operators."""

    def __init__(self, operators: list[Symmetric], shares: Tensor) -> None:
        self.operators = operators
        self.shares = shares.tolist()
        first = operators[0]
        self.shape = (first.size, first.size)
        self.dtype = first.dtype
        self.device = first.device
        self.sizes = {"all": first.size}

    def __matmul__(self, v: Tensor) -> Tensor:
        rows = v.reshape(len(v), -1).mT
        total = torch.zeros_like(rows)
        for share, one in zip(self.shares, self.operators, strict=True):
            total = total + share * one.restored(one.rows(rows))
        return total.mT.reshape(v.shape)
