"""Is it right? An operator, a stated graph, its blocks, or any matrix, next to differences of first
derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError
from runner.curvature.basics.precision import full_precision
from runner.curvature.basics.work import progress_bar
from runner.curvature.graphs.blocks import BlockPart, exact_blocks
from runner.curvature.graphs.checks import checked_evaluation
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.state import differentiable, require_dag
from runner.curvature.identities.comparison import Vectors
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.operators.users import LayerOperator
from runner.curvature.uses.certificate import Certificate, Product, certify
from runner.curvature.uses.differences import (
    FunctionDifferences,
    GraphDifferences,
    PlainDifferences,
)

SMALL = 36
"""Components of all nodes together up to which the exact blocks of a Dag are certified next to its
products."""

Blocks = Mapping[tuple[str, str], Tensor]


@torch.inference_mode(False)
@torch.enable_grad()
@full_precision()
def verify(  # noqa: PLR0913 (public: each is an option)
    target: Dag | Any,
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    nodes: Iterable[str] | None = None,
    blocks: Blocks | None = None,
    part: BlockPart = "total",
    at: Tensor | None = None,
    gradient: Callable[[Tensor], Tensor] | None = None,
    groups: Mapping[str, slice] | None = None,
    generator: torch.Generator | None = None,
    tolerance: float | None = None,
    gradients: float = 60.0,
    progress: bool | None = None,
) -> Certificate:
    """Compare a curvature matrix with finite differences of gradients.

    Parameters
    ----------
    target
        verify(operator): a `LayerOperator` or `ParameterOperator` of any part.
        verify(dag, x, y): a stated graph on a batch; its checks, its products and, where the nodes
        have at most 36 components together, its exact blocks; with `blocks` (and the `part` of the
        Hessian that they are) those blocks instead.
        verify(product, at=theta, gradient=g): a matrix (n, n), a function v -> H v or anything with
        `matvec`, that is said to be the derivative of g at theta (n,); for the Hessian of a loss, g
        is torch.func.grad(loss).
    groups
        Names of parts of theta, as slices that cover it.
    tolerance
        Relative; default 1e-6 for float64, 1e-3 for float32, 0.1 below.
    gradients
        The most that it may cost for an operator of a user's network, in gradients of all data.
    progress
        For such an operator: True shows a bar, False none, None one after two seconds in a terminal
        or notebook.

    Returns
    -------
    Certificate
        A wrong number is never raised: the certificate says so, with the node (or group of
        parameters) and the likely cause.

    Raises
    ------
    ValueError
        For what is none of these.
    KeyboardInterrupt
        At Ctrl-C, with the certificate so far as `partial`.

    Examples
    --------
    >>> dag = Dag.from_sequential([torch.sin, torch.tanh], loss="mse", names=["h", "out"])
    >>> verify(dag, torch.ones(2, 3), torch.zeros(2, 3)).ok
    True
    >>> theta = torch.tensor([1.0, 2.0], dtype=torch.float64)
    >>> verify(torch.diag(6 * theta), at=theta, gradient=torch.func.grad(lambda t: (t**3).sum())).ok
    True
    """
    if isinstance(target, FunctionOperator):
        return _of_function(target, generator, tolerance, gradients, progress)
    if at is not None and gradient is not None:
        return _of_product(target, PlainDifferences(at, gradient, groups, generator), tolerance)
    if isinstance(target, Tensor) or _is_function(target):
        raise MeasurementError(
            "verify of a matrix or a function needs the gradient that it is the derivative of, and "
            "where: verify(product, at=theta, gradient=torch.func.grad(loss))"
        )
    require_dag(target)
    if x is None or y is None:
        raise MeasurementError("verify of a Dag needs the batch: verify(dag, x, y)")
    names = target.select(nodes)
    try:
        if nodes is None and blocks is not None:
            names = target.select(dict.fromkeys(v for v, _ in blocks))
        x, y = differentiable(x=x, y=y)
        differences = GraphDifferences(target, x, y, names, part, generator)
        if blocks is not None:
            return _of_blocks(blocks, differences, tolerance)
        return _of_graph(target, x, y, differences, tolerance)
    except (ValueError, RuntimeError) as error:
        return _nothing(names, str(error))


def _is_function(target: Any) -> bool:
    return callable(target) and not isinstance(target, nn.Module | type)


def _nothing(nodes: Iterable[str], reason: str, noun: str = "node") -> Certificate:
    """Where nothing could be compared."""
    return Certificate(
        False, dict.fromkeys(nodes, math.nan), math.nan, reasons=(reason,), noun=noun
    )


# ------------------------------------------------------------------ operators and matrices


def _of_function(
    operator: FunctionOperator,
    generator: torch.Generator | None,
    tolerance: float | None,
    most: float,
    progress: bool | None,
) -> Certificate:
    seed = 11
    if generator is not None:
        seed = int(torch.randint(0, 2**31, (), generator=generator, device="cpu"))
    reason = ""
    with progress_bar("numerical check", most, progress, " gradients") as bar:
        for double in (True, False):
            try:
                differences = FunctionDifferences(operator, double, seed, bar)
                own = differences.product()
                product = Product("products", own, own)
                return certify(differences, [product], operator.dtype, tolerance, most)
            except (MeasurementError, RuntimeError) as error:
                reason = str(error)
            except KeyboardInterrupt as stop:
                if not hasattr(stop, "partial"):
                    reason = "it was stopped before anything was compared"
                    stop.partial = _nothing(operator.nodes, reason, operator.noun)  # type: ignore[attr-defined]
                raise
    return _nothing(operator.nodes, reason, operator.noun)


def _of_product(target: Any, differences: PlainDifferences, tolerance: float | None) -> Certificate:
    """Of a matrix (n, n), a function v -> H v, or anything with `matvec`."""
    n = len(differences.theta)
    shape = tuple(getattr(target, "shape", (n, n)))
    if shape != (n, n):
        raise MeasurementError(f"the operator has shape {shape}, and the point {n} numbers")
    product = getattr(target, "matvec", target)
    if isinstance(target, Tensor):
        product = target.__matmul__
    dtype = getattr(target, "dtype", differences.theta.dtype)
    if not isinstance(dtype, torch.dtype):
        dtype = differences.theta.dtype
    own = differences.cut(product(differences.whole_direction.to(dtype)).detach())
    return certify(differences, [Product("products", own, own)], dtype, tolerance)


# ------------------------------------------------------------------ stated graphs


def _of_blocks(
    blocks: Blocks, differences: GraphDifferences, tolerance: float | None
) -> Certificate:
    """Of blocks that were measured."""
    product = _blocks_times(blocks, differences.direction, "blocks")
    return certify(differences, [product], next(iter(blocks.values())).dtype, tolerance)


def _of_graph(
    dag: Dag, x: Tensor, y: Tensor, differences: GraphDifferences, tolerance: float | None
) -> Certificate:
    """Of its products and, where they are small, its exact blocks."""
    refused = []
    try:
        checked_evaluation(dag, x, y)
    except MeasurementError as error:
        refused.append(f"refused by a check: {error}")
    direction = differences.direction
    products = [_products_of(dag, x, y, differences.part, direction)]
    if differences.part == "total" and sum(r.numel() for r in direction.values()) <= SMALL:
        exact = exact_blocks(dag, x, y, tuple(direction), check=False)
        products.append(_blocks_times(exact, direction, "exact blocks"))
    dtype = next(iter(products[0].own.values())).dtype
    return certify(differences, products, dtype, tolerance, refused=refused)


def _products_of(dag: Dag, x: Tensor, y: Tensor, part: BlockPart, direction: Vectors) -> Product:
    """Those of the graph as a module. A difference rounds as its terms do."""
    whole = LayerOperator(dag.as_module(), dag.loss, (x, y), tuple(direction), check=False)
    rows = {v: r.unsqueeze(0).to(whole.dtype) for v, r in direction.items()}
    total = {v: images[0] for v, images in whole.apply(rows).items()}
    if part == "total":
        return Product("products", total, total)
    smooth = {v: images[0] for v, images in whole.with_part("gauss_newton").apply(rows).items()}
    if part == "gauss_newton":
        return Product("products", smooth, smooth)
    return Product("products", {v: total[v] - smooth[v] for v in total}, total)


def _blocks_times(blocks: Blocks, direction: Vectors, method: str) -> Product:
    """Each block in its own precision, and their sum in float64."""
    images = {}
    for v in direction:
        terms = []
        for w, r in direction.items():
            block = blocks[v, w] if (v, w) in blocks else blocks[w, v].mT
            terms.append(block.double() @ r.double())
        images[v] = torch.stack(terms).sum(0)
    return Product(method, images, images)
