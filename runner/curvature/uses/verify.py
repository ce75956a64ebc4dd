"""Is it right? Products along one random direction next to differences of first derivatives.

The check knows a product and a gradient, nothing of how the product is made. One direction r gives
H r, and (g(t r) - g(-t r)) / 2t in a float64 copy of the network for a few steps t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError, some
from runner.curvature.basics.precision import full_precision
from runner.curvature.basics.result import Estimated
from runner.curvature.basics.vectors import norm
from runner.curvature.basics.work import progress_bar
from runner.curvature.graphs.blocks import BlockPart, exact_blocks
from runner.curvature.graphs.checks import checked_evaluation
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.state import differentiable, require_dag
from runner.curvature.identities.comparison import (
    NARROWED,
    Comparison,
    Difference,
    Differences,
    Vectors,
    nearby,
)
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.operators.users import LayerOperator
from runner.curvature.uses.differences import (
    FunctionDifferences,
    GraphDifferences,
    PlainDifferences,
)

MOST = 36.0
"""Components of all nodes together up to which the exact blocks of a Dag are certified next to its
products."""

Blocks = Mapping[tuple[str, str], Tensor]


@dataclass(frozen=True, repr=False)
class Certificate(Estimated):
    """What `verify` found.

    ok: every node is right. inconclusive: nodes of which nothing can be told, where none is wrong.
    nodes: relative error of the
    product at each node (or group of parameters). step: of the differences, relative to the size of
    the nodes' outputs. reasons: what is wrong, the node and the likely cause, and notes. noun: what
    nodes are. kinks: examples with a kink within every step (a ReLU so near 0 that rounding decides
    on which side it is, two equal entries under a maximum), whose slopes differ. gradients:
    what it cost, in gradients of all data. value: the largest of `nodes`; error: 0.
    """

    ok: bool
    nodes: dict[str, float]
    tolerance: float
    step: float = math.nan
    reasons: tuple[str, ...] = ()
    noun: str = "node"
    kinks: tuple[int, ...] = ()
    gradients: float = 0.0
    inconclusive: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        return _largest(self.nodes.values())

    @property
    def error(self) -> float:
        return 0.0

    @property
    def verdict(self) -> str:
        if self.inconclusive:
            return "inconclusive"
        return "certified" if self.ok else "NOT certified"

    def summary(self) -> str:
        error = f"largest relative error {self.value:.1e}, tolerance {self.tolerance:.0e}"
        return f"{self.verdict}, {error}"

    def __str__(self) -> str:
        first = f"{self.summary()}, cost {self.gradients:.0f} gradients"
        return "\n".join([first, *(f"  {reason}" for reason in self.reasons)])


def _largest(errors: Iterable[float]) -> float:
    """NaN before all, and of nothing."""
    values = list(errors) or [math.nan]
    return math.nan if any(map(math.isnan, values)) else max(values)


@dataclass
class Product:
    """What one method gives along the direction, (d,) by node. whole: of the matrix that it is a
    part of, whose roundings it has."""

    method: str
    own: Vectors
    whole: Vectors

    def compared(self, found: Difference, dtype: torch.dtype, tolerance: float) -> Comparison:
        """With differences of which `found` is the first. Where these are below the roundings of
        both sides, errors count against those."""
        largest = max(norm(value) for value in found.total.values())
        rounding = max(found.rounding.values())
        least = {}
        for v, image in self.whole.items():
            floor = 64 * torch.finfo(dtype).eps * norm(image.double())
            least[v] = (floor + 10 * rounding + 1e-10 * largest) / tolerance
        return Comparison(self.own, tolerance, least)


class _Check:
    """Products next to differences, step after step. most: gradients to spend, at least those of
    two steps."""

    def __init__(
        self,
        differences: Differences,
        products: Sequence[Product],
        dtype: torch.dtype,
        tolerance: float | None,
    ) -> None:
        self.differences = differences
        self.products = products
        self.dtype = dtype
        self.asked = tolerance
        self.compared: list[Comparison] = []
        self.gradients = 0.0
        self.step = math.nan
        self.wrong: list[str] = []
        self.untold: dict[str, None] = {}
        self.notes: list[str] = []
        self.kinks: tuple[int, ...] = ()

    @property
    def tolerance(self) -> float:
        """Of relative errors: as asked, by the precision, or by what rounding allows."""
        if self.compared:
            return self.compared[0].tolerance
        if self.asked is not None:
            return self.asked
        tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(self.dtype, 0.1)
        return tolerance if self.differences.double else max(tolerance, 1e-2)

    @property
    def right(self) -> bool:
        """Whether every product is right at every node."""
        return bool(self.compared) and not any(one.open for one in self.compared)

    def _difference(self, step: float, centre: float = 0.0) -> Difference:
        self.gradients += self.differences.cost
        return self.differences.at(step, centre)

    def run(self, most: float) -> None:
        """Takes steps until every node is right, or `most` gradients are spent."""
        tried = 0
        while tried < len(self.differences.steps):
            double = self.differences.double
            step = self.differences.steps[tried]
            found = self._difference(step)
            if self.differences.double != double:  # operations of lower precision: larger steps
                continue
            tried += 1
            self.step = step
            if not self.compared:
                first = found, self.dtype, self.tolerance
                self.compared = [product.compared(*first) for product in self.products]
            right = [one.add(found) for one in self.compared]
            if all(right) or (self.gradients > most and tried > 1):
                return

    def judge(self) -> None:
        """What is wrong, and of what nothing can be told."""
        if not self.right:
            self._allow()
        if not self.right:
            self._judge()
        if not self.differences.wide:
            self.notes.append(
                "no float64 copy could be made, differences are in the network's own precision"
            )
        elif not self.differences.double:
            names = some(sorted(self.differences.narrowed))
            self.notes.append(f"in a float64 copy these give less than float64: {names}")

    def _allow(self) -> None:
        allowed = self.differences.allowance()
        before = self.tolerance
        for one in self.compared:
            one.allow(allowed)
        if self.tolerance > before:
            self.notes.append(f"examples are fitted; their loss allows errors of {allowed:.0e}")

    def _judge(self) -> None:
        allowed = self.differences.allowance()
        if self.differences.wide and not self.differences.double:
            allowed = max(allowed, NARROWED)
        ends = nearby(self.differences, self.dtype)
        self.gradients += self.differences.cost * len(ends)
        kinks = set[int]()
        for one, product in zip(self.compared, self.products, strict=True):
            wrong = one.wrong(allowed)
            if ends:
                apart = one.moved(ends)
                wrong = {v: error for v, error in wrong.items() if apart[v] < error / 10}
            kinks |= one.kinks(ends)
            if wrong:
                self.wrong.append(self._wrong(product, [*wrong][-1], one))
            self.untold |= dict.fromkeys(v for v in one.open if v not in wrong)
        self.kinks = tuple(sorted(kinks))

    def _wrong(self, product: Product, node: str, compared: Comparison) -> str:
        cause = _cause(product.own, compared.tried[-1].total, self.tolerance)
        return (
            f"{product.method} are wrong: first at {self.differences.noun} {node!r} on the way "
            f"back from the output: {cause}"
        )

    def certificate(self) -> Certificate:
        """What the steps that were tried tell."""
        nodes = dict.fromkeys(self.products[0].own, math.inf)
        for v in nodes if self.compared else ():
            nodes[v] = _largest(one.errors[v] for one in self.compared)
        reasons = [*self.wrong, *self._inconclusive(), *(f"note: {note}" for note in self.notes)]
        return Certificate(
            not (self.wrong or self.untold),
            nodes,
            self.tolerance,
            self.step,
            tuple(reasons),
            self.differences.noun,
            self.kinks,
            self.gradients,
            () if self.wrong else tuple(self.untold),
        )

    def _inconclusive(self) -> list[str]:
        """One line for each reason."""
        if not self.untold:
            return []
        names = some(sorted(map(repr, self.untold)), 3)
        lines = [
            f"nothing can be told of {self.differences.noun} {names}: a kink within every step, or "
            "rounding"
        ]
        rows = len(next(iter(self.compared[0].tried[0].value.values())))
        if self.kinks and rows > 1:
            lines.append(self._of_kinks(rows))
        return lines

    def _of_kinks(self, rows: int) -> str:
        noun = self.differences.piece
        if len(self.kinks) > 1:
            noun += "s"
        which = f"{noun} {some(self.kinks, 12)} of {rows}"
        if len(self.kinks) == rows:
            which = f"all {rows} {noun}"
        return f"a kink lies within every usable step of {which}"


def _certificate(
    differences: Differences,
    products: Sequence[Product],
    dtype: torch.dtype,
    tolerance: float | None,
    most: float = math.inf,
    refused: Iterable[str] = (),
) -> Certificate:
    """The certificate of these products."""
    check = _Check(differences, products, dtype, tolerance)
    check.wrong += refused
    try:
        check.run(most)
    except KeyboardInterrupt as stop:
        if not check.right:
            check.wrong.append("it was stopped before every node agreed")
        stop.partial = check.certificate()  # type: ignore[attr-defined]
        raise
    check.judge()
    return check.certificate()


def _cause(own: Vectors, expected: Vectors, tolerance: float) -> str:
    """What the numbers tell."""
    found = torch.cat([own[v].double() for v in expected])
    mean = torch.cat(list(expected.values()))
    if not bool(found.isfinite().all()):
        return "they are not finite"
    if not bool(found.any()):
        return "they are zero. Gradients are off, or a backward has no second derivative"
    if not bool(mean.any()):
        return "the gradient does not change"
    factor = float(found @ mean) / float(mean @ mean)
    near = norm(found - factor * mean) <= 10 * tolerance * norm(found)
    if abs(factor - 1) > tolerance and near:
        whole = factor > 1.5 and abs(factor - round(factor)) < 10 * tolerance * factor
        hint = ". Is the loss a sum, not a mean?" if whole else ", at every node alike"
        return f"they are {factor:.4g} times the mean over the examples{hint}"
    return "the second derivative is not that of the gradient"


def _plain(target: Any, differences: PlainDifferences, tolerance: float | None) -> Certificate:
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
    return _certificate(differences, [Product("products", own, own)], dtype, tolerance)


def _products_of(
    dag: Dag, x: Tensor, y: Tensor, names: tuple[str, ...], part: BlockPart, direction: Vectors
) -> Product:
    """Those of the graph as a module. A difference rounds as its terms do."""
    whole = LayerOperator(dag.as_module(), dag.loss, (x, y), names, check=False)
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
                return _certificate(differences, [product], operator.dtype, tolerance, most)
            except (MeasurementError, RuntimeError) as error:
                reason = str(error)
            except KeyboardInterrupt as stop:
                if not hasattr(stop, "partial"):
                    reason = "it was stopped before anything was compared"
                    stop.partial = _nothing(operator, reason)  # type: ignore[attr-defined]
                raise
    return _nothing(operator, reason)


def _nothing(operator: FunctionOperator, reason: str) -> Certificate:
    nan = dict.fromkeys(operator.nodes, math.nan)
    return Certificate(False, nan, math.nan, reasons=(reason,), noun=operator.noun)


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
    components: float = MOST,
    gradients: float = 60.0,
    progress: bool | None = None,
) -> Certificate:
    """Compare a curvature matrix with finite differences of gradients.

    Parameters
    ----------
    target
        verify(operator): a `LayerOperator` or `ParameterOperator` of any part.
        verify(dag, x, y): a stated graph on a batch; its checks, its products
        and, where the nodes have at most `components` components together, its exact blocks; with
        `blocks` (and the `part` of the Hessian that they are) those blocks instead.
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
        return _plain(target, PlainDifferences(at, gradient, groups, generator), tolerance)
    if isinstance(target, Tensor) or _is_function(target):
        raise MeasurementError(
            "verify of a matrix or a function needs the gradient that it is the derivative of, and "
            "where: verify(product, at=theta, gradient=torch.func.grad(loss))"
        )
    require_dag(target)
    if x is None or y is None:
        raise MeasurementError("verify of a Dag needs the batch: verify(dag, x, y)")
    request = _Request(part, generator, tolerance, components)
    try:
        x, y = differentiable(x=x, y=y)
        if blocks is not None:
            names = target.select(dict.fromkeys(v for v, _ in blocks) if nodes is None else nodes)
            return request.of_blocks(target, x, y, names, blocks)
        return request.of_graph(target, x, y, target.select(nodes))
    except (ValueError, RuntimeError) as error:
        nothing = dict.fromkeys(target.select(nodes), math.nan)
        return Certificate(False, nothing, math.nan, reasons=(str(error),))


def _is_function(target: Any) -> bool:
    return callable(target) and not isinstance(target, nn.Module | type)


@dataclass(frozen=True)
class _Request:
    """What is asked of a stated graph."""

    part: BlockPart
    generator: torch.Generator | None
    tolerance: float | None
    components: float

    def of_blocks(
        self, dag: Dag, x: Tensor, y: Tensor, names: tuple[str, ...], blocks: Blocks
    ) -> Certificate:
        """Of blocks that were measured."""
        differences = GraphDifferences(dag, x, y, names, self.part, self.generator)
        product = _blocks_times(blocks, differences.direction, "blocks")
        dtype = next(iter(blocks.values())).dtype
        return _certificate(differences, [product], dtype, self.tolerance)

    def of_graph(self, dag: Dag, x: Tensor, y: Tensor, names: tuple[str, ...]) -> Certificate:
        """Of its products and, where they are small, its exact blocks."""
        refused = []
        try:
            checked_evaluation(dag, x, y)
        except MeasurementError as error:
            refused.append(f"refused by a check: {error}")
        differences = GraphDifferences(dag, x, y, names, self.part, self.generator)
        direction = differences.direction
        products = [_products_of(dag, x, y, names, self.part, direction)]
        components = sum(r.numel() for r in direction.values())
        if self.part == "total" and components <= self.components:
            exact = exact_blocks(dag, x, y, names, check=False)
            products.append(_blocks_times(exact, direction, "exact blocks"))
        dtype = products[0].own[names[0]].dtype
        return _certificate(differences, products, dtype, self.tolerance, refused=refused)
