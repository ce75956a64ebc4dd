"""A certificate of the numbers themselves: products against finite differences of gradients.

Guards look for known causes of wrong numbers; this compares the numbers. One random direction r on
all measured nodes gives H r from the engine and, from first derivatives of a float64 copy, (g(t r)
- g(-t r)) / 2t for each example, all examples and steps in one batch. The step t balances the two
errors of a difference, the cut-off t^2 and the rounding 1/t: of a ladder of steps, each example
takes the one whose neighbour agrees best (compare.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from runner.curvature.certificate.certify import Comparison, certify
from runner.curvature.certificate.reference import FiniteDifferences, Vectors
from runner.curvature.certificate.result import Certificate
from runner.curvature.function.errors import MeasurementError
from runner.curvature.function.precision import full_precision
from runner.curvature.graphs.blocks import exact_blocks
from runner.curvature.graphs.checks import check_before_measuring
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.products import CurvatureOperator, Part
from runner.curvature.graphs.state import require_dag
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.operators.verifying import Verification, verified

Products = dict[str, Tensor]


class PlainOperator:
    """H as products, and the gradient g of which it is said to be the derivative, at the point
    `at`.

    product: v (n,) -> H v (n,), the matrix itself (n, n), or anything with `matvec`. gradient:
    theta (n,) -> g (n,), by first derivatives alone (torch.func.grad of the loss). groups: names of
    parts of theta as slices, for the report; default one, "all". Raises MeasurementError for a
    point that is no vector, or a matrix of another size."""

    noun = "group"
    examples = 1

    def __init__(
        self,
        product: Any,
        at: Tensor,
        gradient: Callable[[Tensor], Tensor],
        groups: Mapping[str, slice] | None = None,
    ) -> None:
        if not isinstance(at, Tensor) or at.dim() != 1 or not at.is_floating_point():
            raise MeasurementError(
                "verify(product, at=theta, gradient=...): expected theta as a floating vector (n,)"
            )
        n = len(at)
        shape = getattr(product, "shape", (n, n))
        if tuple(shape) != (n, n):
            raise MeasurementError(
                f"the operator has shape {tuple(shape)}, and the point {n} numbers"
            )
        if groups and sorted(i for s in groups.values() for i in range(n)[s]) != list(range(n)):
            raise MeasurementError(
                f"expected groups as slices that cover the {n} numbers of the point once: {groups}"
            )
        self.at, self.field, self.spans = (
            at.detach(),
            gradient,
            dict(groups or {"all": slice(0, n)}),
        )
        self.product: Callable[[Tensor], Tensor] = (
            product.__matmul__
            if isinstance(product, Tensor)
            else getattr(product, "matvec", product)
        )
        self.nodes = tuple(self.spans)
        self.sizes = {g: len(range(n)[s]) for g, s in self.spans.items()}
        self.dtype = (
            product.dtype if isinstance(product, Tensor) else getattr(product, "dtype", at.dtype)
        )
        self.double = at.dtype == torch.float64
        rms = {g: float(at[s].double().square().mean().sqrt()) for g, s in self.spans.items()}
        self.scales = {g: r if r > 0 else 1.0 for g, r in rms.items()}

    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """The products with k directions, (k, d_g) each."""
        count = len(next(iter(directions.values())))
        rows = torch.zeros(count, len(self.at), dtype=self.dtype, device=self.at.device)
        for g, r in directions.items():
            rows[:, self.spans[g]] = r.to(rows)
        images = torch.stack([self.product(row).detach() for row in rows])
        return {g: images[:, s] for g, s in self.spans.items()}

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Products:
        """The gradient at the displaced point."""
        moved = self.at.clone()
        for g, e in shift.items():
            moved[self.spans[g]] += e.to(moved)
        found = self.field(moved).detach()
        return {g: found[s] for g, s in self.spans.items()}


MOST = 36.0
"""Components of all nodes together up to which the exact blocks of a Dag are certified next to its
products."""

Blocks = Mapping[tuple[str, str], Tensor]


class Certifiable(Protocol):
    """An operator that `verify` can certify: the mean over `examples` pieces, each with a gradient
    of its own.

    gradient(shift, example): float64 gradient of piece `example` (an example, or a batch) at the
    point displaced by
    `shift`, (d_v,) for every node, by first derivatives alone. Optional: scales[v], the natural
    size of a step; weights, the shares of the pieces (default equal); difference(direction,
    example, step) in place of the central difference of `gradient`, for a matrix that is no
    Hessian; double, whether gradients are in float64. These may also belong to what the operator's
    `reference()` returns. Of the operator itself: single(example), the operator of one piece;
    in_float64(), a copy; noun, what a node is called."""

    nodes: tuple[str, ...]
    sizes: dict[str, int]
    dtype: torch.dtype
    examples: int

    def apply(self, directions: Mapping[str, Tensor]) -> Vectors: ...

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors: ...


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
    part: Part = "total",
    at: Tensor | None = None,
    gradient: Callable[[Tensor], Tensor] | None = None,
    groups: Mapping[str, slice] | None = None,
    generator: torch.Generator | None = None,
    tolerance: float | None = None,
    components: float = MOST,
    gradients: float = 60.0,
    progress: bool | None = None,
) -> Certificate | Verification:
    """Certifies the curvature of a Dag on a batch, blocks that were measured, an operator, or a
    matrix.

    verify(dag, x, y) checks the guards, the matrix-free products and, where the nodes have at most
    `components` components together, the exact blocks; with `blocks` (and the `part` of the Hessian
    that they are) those blocks instead of all these. verify(operator) a CurvatureOperator or
    ParameterOperator of any part, or any `Certifiable`. verify(product, at=theta, gradient=g) a
    matrix (n, n), a function v -> H v or anything with `matvec`, that is said to be the derivative
    of g at theta (n,); for the Hessian of a loss, g is torch.func.grad(loss). groups: names of
    parts of theta, as slices that cover it. tolerance: relative, default 1e-6 for float64, 1e-3 for
    float32, 0.1 below. Never raises for a wrong number: the certificate says so, with the node (or
    group of parameters) and the likely cause. gradients: the most that it may cost for an operator
    of a user's network, for which progress=True shows a bar, False none, and None one after two
    seconds in a terminal or notebook. Raises ValueError for what is none of these.

    >>> dag = Dag.from_sequential([torch.sin, torch.tanh], loss="mse", names=["h", "out"])
    >>> verify(dag, torch.ones(2, 3), torch.zeros(2, 3)).ok
    True
    >>> theta = torch.tensor([1.0, 2.0], dtype=torch.float64)
    >>> verify(torch.diag(6 * theta), at=theta, gradient=torch.func.grad(lambda t: (t**3).sum())).ok
    True
    """
    if isinstance(target, FunctionOperator):
        return verified(target, generator, tolerance, gradients, progress)
    if not isinstance(target, Dag):
        operator = (
            target
            if at is None or gradient is None
            else PlainOperator(target, at, gradient, groups)
        )
        _require_operator(operator)
        return certify(Comparison(operator, generator, tolerance), [("products", operator)])
    if x is None or y is None:
        raise MeasurementError("verify of a Dag needs the batch: verify(dag, x, y)")
    try:
        if blocks is not None:
            measured = _Measured(target, x, y, blocks, nodes, part)
            comparison = Comparison(measured, generator, tolerance)
            return certify(comparison, [("blocks", measured.blocks)], singles=False)
        refused = _refused(target, x, y)
        operator = CurvatureOperator(target, x, y, nodes, part=part, check=False)
    except (ValueError, RuntimeError) as error:
        nothing = dict.fromkeys(target.select(nodes), math.nan)
        return Certificate(False, {}, nothing, math.nan, math.nan, (str(error),))
    methods: list[tuple[str, Any]] = [("products", operator)]
    if part == "total" and sum(operator.sizes.values()) <= components:
        exact = exact_blocks(target, operator.x, operator.y, operator.nodes, check=False)
        methods.append(("exact blocks", _Blocks(exact, operator.nodes)))
    return certify(Comparison(operator, generator, tolerance), methods, refused)


def _refused(dag: Dag, x: Tensor, y: Tensor) -> list[str]:
    """What the guards say."""
    try:
        check_before_measuring(dag, x, y)
    except MeasurementError as error:
        return [f"refused by a guard: {error}"]
    return []


def _require_operator(target: Any) -> None:
    """Raises MeasurementError for what cannot be certified."""
    if hasattr(target, "apply") and (hasattr(target, "reference") or hasattr(target, "examples")):
        return
    if isinstance(target, Tensor) or (
        callable(target) and not isinstance(target, nn.Module | type)
    ):
        raise MeasurementError(
            "verify of a matrix or a function needs the gradient that it is the derivative "
            "of, and where: "
            "verify(product, at=theta, gradient=torch.func.grad(loss))"
        )
    require_dag(target)


class _Blocks:
    """Blocks as an operator, for the comparison; a pair that is missing is the transpose of the
    other."""

    def __init__(self, blocks: Blocks, nodes: Iterable[str]) -> None:
        self.blocks, self.nodes = blocks, tuple(nodes)
        self.dtype = next(iter(blocks.values())).dtype

    def apply(self, directions: Mapping[str, Tensor]) -> Vectors:
        """Each block in its own precision, and their sum in float64: nothing is lost next to larger
        blocks."""
        images: Vectors = {}
        for v in self.nodes:
            rows = [r.double() @ self._block(v, w).double().mT for w, r in directions.items()]
            images[v] = torch.stack(rows).sum(0)
        return images

    def _block(self, v: str, w: str) -> Tensor:
        return self.blocks[v, w] if (v, w) in self.blocks else self.blocks[w, v].mT


class _Measured:
    """What blocks were measured of: a graph and its batch. The engine's own products are made where
    they are asked for, after a disagreement."""

    def __init__(
        self,
        dag: Dag,
        x: Tensor,
        y: Tensor,
        blocks: Blocks,
        nodes: Iterable[str] | None,
        part: Part,
    ) -> None:
        self.dag, self.x, self.y, self.part = dag, x, y, part
        self.nodes = dag.select(dict.fromkeys(v for v, _ in blocks) if nodes is None else nodes)
        self.blocks = _Blocks(blocks, self.nodes)
        self.dtype = self.blocks.dtype
        self.sizes = {v: len(blocks[v, v]) for v in self.nodes}
        self.device = next(iter(blocks.values())).device

    def reference(self) -> FiniteDifferences:
        return FiniteDifferences(self.dag, self.x, self.y, self.nodes, self.part)

    @cached_property
    def operator(self) -> CurvatureOperator:
        return CurvatureOperator(
            self.dag, self.x, self.y, self.nodes, part=self.part, memory_budget=0, check=False
        )

    def apply(self, directions: Mapping[str, Tensor]) -> Vectors:
        return self.operator.apply(directions)

    def single(self, example: int) -> CurvatureOperator:
        return self.operator.single(example)

    def in_float64(self) -> CurvatureOperator:
        return self.operator.in_float64()
