"""R, C, D and the Gauss-Newton gap between the layers, or groups of parameters, of an operator of a
user's network.

Exact from both dense matrices, 2 n products with vectors together, where n columns cost no more
than probes would or are few; else from probes on each node, in rounds until every error is as
asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from runner.curvature.basics.adapters import own_generator
from runner.curvature.basics.errors import MeasurementError, first_line
from runner.curvature.basics.removed import refuses_removed
from runner.curvature.basics.symmetric import Pair
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.pairs.by_products import WITHOUT_FACTORS, ProductMetrics
from runner.curvature.pairs.probes import SWEPT
from runner.curvature.pairs.ratios import (
    Asked,
    InterLayerMetrics,
    Measurement,
    metrics_of_blocks,
    require_error,
)

FEW_COLUMNS = 512
"""Columns that are always multiplied all: the answer is then exact."""
VECTORS = 16
"""Vectors for each direction that is multiplied: images of both matrices, also in float64."""
NOISE = 1e-2
"""Relative distance of a block from that across the diagonal, from which on it may be rounding."""
ASKED = 0.1
"""Relative error that estimates are made to, where none is asked for."""


@refuses_removed
def inter_layer_metrics(
    operator: FunctionOperator,
    pairs: Iterable[Pair] | None = None,
    *,
    relative_error: float | None = None,
    generator: torch.Generator | None = None,
    ranks: bool = True,
    progress: bool | None = None,
) -> InterLayerMetrics:
    """R, C, D and Gauss-Newton gap of each pair of nodes, each an Estimate with its error.

    R = ||H[v,w]||_F, C = R(v,w) / sqrt(R(v,v) R(w,w)), D = ||H[v,w]||_F^2 / sigma_1^2,
    gap = ||H[v,w] - GN[v,w]||_F / ||GN[v,w]||_F of the batch-mean blocks (DAG paper,
    Definition 23, Eqs. 4, 7).

    Parameters
    ----------
    operator
        A `LayerOperator` (between layers) or `ParameterOperator` (between groups of parameters)
        with part="hessian".
    pairs
        (v, w); default every pair, v at or before w.
    relative_error
        Asked of every value. Default: exact where all columns are few or cost no more than probes,
        else 0.1.
    generator
        Of the probes; default: a new one.
    ranks
        False leaves D out (NaN), which is more than half of the cost of smooth networks.
    progress
        True or False: a bar, or none. None: a bar after two seconds in a terminal or notebook.

    Returns
    -------
    InterLayerMetrics
        A dictionary from (v, w) to `PairMetrics`. An exact value has error 0, up to rounding;
        others a standard error, widened by Student's factor so that value ± 1.96 error covers 95 %.
        NaN with a reason where a block is zero; the gap also where there is no Gauss-Newton matrix
        (a loss with a penalty of the parameters). `phi`, `phi_gauss_newton`: the share of curvature
        between the nodes, Φ = 1 − Σ_v ‖H[v,v]‖_F² / ‖H‖_F².

    Raises
    ------
    ValueError
        For an operator of another part, unknown pairs, and a network that has changed since.
    KeyboardInterrupt
        At Ctrl-C, with the metrics so far as `.partial`, NaN where there are none.

    Examples
    --------
    >>> from torch import nn
    >>> from runner.curvature import LayerOperator
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 0])
    >>> found = inter_layer_metrics(LayerOperator(net, nn.CrossEntropyLoss(), (x, y)), [("0", "2")])
    >>> found["0", "2"].method, found["0", "2"].gap.value
    ('exact blocks', 0.0)
    """
    require_error(relative_error)
    if not isinstance(operator, FunctionOperator):
        raise MeasurementError(
            f"expected a LayerOperator or a ParameterOperator, found {type(operator).__name__}"
        )
    if operator.part != "hessian":
        raise MeasurementError(
            f"expected an operator with part='hessian', found part={operator.part!r}"
        )
    operator.refuse_changes()
    every = [(v, w) for i, v in enumerate(operator.nodes) for w in operator.nodes[i:]]
    pairs = every if pairs is None else operator.checked(pairs)
    error = ASKED if relative_error is None else relative_error
    room = operator.settings.memory_budget / (operator.shape[0] * operator.dtype.itemsize)
    together = 0
    if not ranks:
        together = max(1, int(room / VECTORS))
    smooth, no_gap = _gauss_newton(operator)
    asked = Asked(pairs, error, own_generator(generator), ranks, together, no_gap)
    used = list(dict.fromkeys(u for pair in pairs for u in pair))
    columns = sum(operator.sizes[u] for u in used)
    by_probes = len(used) * (WITHOUT_FACTORS + (SWEPT if ranks else 0))
    if columns <= max(by_probes, FEW_COLUMNS) and 6 * columns <= room:
        return ExactMetrics(operator, smooth, used, asked).run(progress)

    def tensor(w: str, directions: Tensor, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if smooth is None:
            return {v: torch.zeros_like(total) for v, total in images.items()}
        flat = smooth.apply({w: directions})
        return {v: (total - flat[v]).double() for v, total in images.items()}

    return ProductMetrics(operator, tensor, asked).run(progress)


def _gauss_newton(operator: FunctionOperator) -> tuple[FunctionOperator | None, str]:
    """The Gauss-Newton part; None and why where there is none."""
    try:
        return operator.with_part("gauss_newton"), ""
    except MeasurementError as error:
        return None, first_line(error)


class ExactMetrics(Measurement):
    """From the columns of the used nodes."""

    def __init__(
        self,
        operator: FunctionOperator,
        smooth: FunctionOperator | None,
        used: list[str],
        asked: Asked,
    ) -> None:
        super().__init__(asked)
        self.operators = [operator] if smooth is None else [operator, smooth]
        self.used = used
        self.eps = float(torch.finfo(operator.dtype).eps)
        self.planned = len(self.operators) * sum(operator.sizes[u] for u in used)

    def steps(self) -> Iterator[None]:
        matrices = []
        for operator in self.operators:
            blocks = {}
            for w in self.used:
                yield
                eye = torch.eye(operator.sizes[w], dtype=operator.dtype, device=operator.device)
                self.products += len(eye)
                for v, rows in operator.apply({w: eye}).items():
                    if v in self.used:
                        blocks[v, w] = rows.mT.double()
            matrices.append(_without_noise(blocks, self.eps))
        parts = partial(self._parts, matrices[0], matrices[-1])
        self.found = metrics_of_blocks(parts, self.asked, 1.0, self.eps, self.planned)

    def _parts(
        self, total: dict[Pair, Tensor], gauss_newton: dict[Pair, Tensor], pair: Pair
    ) -> list[Tensor]:
        # 64 places of half precision would be all of it
        rounded = max(4 * self.eps, min(64 * self.eps, 1e-3))
        whole = total[pair]
        smooth = gauss_newton[pair]
        rest = whole - smooth
        if float(rest.norm()) <= rounded * float(whole.norm() + smooth.norm()):
            rest = torch.zeros_like(rest)
        return [whole, smooth, rest]


def _without_noise(blocks: dict[Pair, Tensor], eps: float) -> dict[Pair, Tensor]:
    """Small blocks that are not those across the diagonal are zero: roundings of sums that cancel,
    as before a normalisation by the batch, which takes a shift of all examples away. So is a small
    block of a node with itself where those with all others are: its Jacobian's roundings enter it
    twice, alike on both sides."""
    small = math.sqrt(eps) * max(float(block.norm()) for block in blocks.values())
    unlike = max(NOISE, 16 * eps)
    noise: dict[Pair, bool] = {}
    for (v, w), block in blocks.items():
        size = float(block.norm())
        apart = float((block - blocks[w, v].mT).norm())
        noise[v, w] = size <= small and apart > unlike * size
    for v, w in noise:
        others = [noise[pair] for pair in noise if pair[0] == v and pair[1] != v]
        if v == w and others and all(others):
            noise[v, v] = float(blocks[v, v].norm()) <= small
    return {pair: torch.zeros_like(b) if noise[pair] else b for pair, b in blocks.items()}
