"""A network's loss as one scalar function of named variables: what everything in the engine
differentiates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from runner.curvature.basics.errors import (
    EvaluationError,
    MeasurementError,
    batch_failure,
    explained,
    first_derivatives,
    first_line,
    second_derivatives,
    some,
)
from runner.curvature.basics.interrupts import INTERRUPTS
from runner.curvature.basics.trees import tree_flatten_with_path, tree_leaves, tree_map
from runner.curvature.basics.vectors import Images, Values, joined
from runner.curvature.function.batch import Batch, arguments_of, fresh
from runner.curvature.function.context import (
    ONE_AT_A_TIME,
    modules_of,
    placed,
    random_state,
    reseed,
)
from runner.curvature.function.double import Record, double_precision, narrowing, widen
from runner.curvature.function.layers import Pick, picked
from runner.curvature.function.modes import Convolutions
from runner.curvature.function.repairs import fused_cells, measurable
from runner.curvature.function.variables import Parameters, Perturbations

LossFunction = Callable[[Any, Any], Tensor]
Tensors = list[Tensor]
SMALL_GRAPH = 4 << 20
"""Bytes that the graph of a gradient keeps of the few examples of identity 0."""
MANY = 1 << 18
"""Variables from which on a graph of convolutions is made for products with one vector."""


class Point(NamedTuple):
    """Where the function is evaluated. wide: in float64. seed: of the random draws of a function
    without a seed of its own; None: as they come. own: with the module's own parameters in place,
    which identity 0 compares with."""

    values: Values
    wide: bool = False
    seed: int | None = None
    own: bool = False


class Function:
    """L(values) = loss(module(input), target), with `variables` of the module at `values`.

    loss None: the module returns its loss. pick: which tensor of the output the loss gets. The
    module is not written to: parameters and buffers are replaced while it runs, the random state is
    put back, and hooks are removed.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: LossFunction | None,
        variables: Parameters | Perturbations,
        pick: Pick = None,
        seed: int | None = None,
    ) -> None:
        self.module = module
        self.loss = loss
        self.variables = variables
        self.pick = pick
        self.seed = seed
        self.rows_checked: set[tuple[int, ...]] = set()
        self.averages = False
        """Whether the mean of a loss of several values is taken whatever they are."""
        self.record = Record()
        """Of its float64 copy."""
        self.saved = math.nan
        """Bytes that the graph of identity 0's gradient keeps, NaN where they were not counted."""
        self.near: Values | None = None
        """The values displaced, while several points are prepared."""
        self._fuses = False
        self._modules: list[nn.Module] = []
        self._constants: dict[bool, dict[int, Tensor]] = {}

    def of_copies(self, copies: int) -> Function:
        """The function of perturbations of so many copies of a batch (`Layout.repeated`)."""
        assert isinstance(self.variables, Perturbations)
        twin = copy.copy(self)
        twin.variables = self.variables.of_copies(copies)
        twin._modules = []
        twin._constants = {}
        return twin

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Inside, torch is set as `at` needs it: several points are then evaluated quickly. The
        random state is as before when the block ends."""
        with ONE_AT_A_TIME, INTERRUPTS:
            if self._modules:
                INTERRUPTS.deliver()
                yield
                return
            self._modules = modules_of((self.module, self.loss))
            cells = any(isinstance(m, nn.RNNBase) for m in self._modules)
            # a fixed draw is that of products
            fixed = self.seed is not None
            self._fuses = cells and not fixed and bool(torch.backends.mkldnn.enabled)
            try:
                with torch.inference_mode(False), random_state(), measurable(self._modules):
                    yield
            finally:
                self._modules = []
                self._constants.clear()
                self.near = None

    @contextmanager
    def at(self, point: Point, derivatives: int = 2) -> Iterator[None]:
        """Inside, the module and the loss have the variables of `point`: run, differentiate and
        multiply there. derivatives: how many are taken."""
        seed = point.seed if self.seed is None else self.seed
        wide = double_precision(self.record) if point.wide else nullcontext()
        with self.prepared(), torch.set_grad_enabled(derivatives > 0), wide:
            modules = self._modules
            tensors = _buffers(modules, point.wide)
            if not point.own:
                tensors |= self._fixed(point.wide)
                tensors |= self.variables.replaced(point.values)
            if seed is not None:
                reseed(seed)
            cells = fused_cells() if self._fuses and derivatives < 2 else nullcontext()
            with cells, placed(modules, tensors), self.variables.attached(point.values):
                yield

    def _fixed(self, wide: bool) -> dict[int, Tensor]:
        """What stands in for the parameters that are no variables, the same for several points."""
        if wide not in self._constants:
            variable = {id(p) for p in self.variables.originals.values()}
            found = [p for m in self._modules for p in m._parameters.values() if p is not None]
            fixed = {id(p): p.detach() for p in found if id(p) not in variable}
            self._constants[wide] = {k: widen(p) for k, p in fixed.items()} if wide else fixed
        return self._constants[wide]

    # ------------------------------------------------------------------ inside of `at`

    def output(self, given: Any, wide: bool = False) -> Any:
        """What the loss reads of module(input)."""
        args, kwargs = arguments_of(tree_map(widen, fresh(given)) if wide else fresh(given))
        found = self.module(*args, **kwargs)
        if self.pick is None:
            return found
        return tree_leaves(found)[picked(found, self.pick, "output")]

    def loss_of(self, output: Any, target: Any, wide: bool = False) -> Tensor:
        """The loss of an output, a scalar, or the mean of one value for each row."""
        if self.loss is None:
            value = output
        else:
            value = self.loss(output, tree_map(widen, fresh(target)) if wide else fresh(target))
        if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
            kind = type(value).__name__
            if self.loss is None and (names := _names(value)):
                likely = next((name for name in names if "loss" in name), names[0])
                raise MeasurementError(
                    f"the module returned {kind}: with loss=None name its loss, as in output="
                    f"{likely}; there are {some(names)}"
                )
            raise MeasurementError(f"the loss returned {kind}: expected a scalar tensor")
        if value.is_complex():
            raise MeasurementError(
                "the loss is complex: expected a real number, such as (f - y).abs().square().mean()"
            )
        if self.loss is None and value.numel() > 1 < value.dim():
            raise MeasurementError(
                f"the module returned values of shape {tuple(value.shape)}: with loss=None "
                "expected its loss, a scalar, or one value for each example"
            )
        if value.numel() > 1 and not (self.averages or value.shape[1:] in self.rows_checked):
            raise NotScalar(tuple(value.shape))
        return value.mean()

    def evaluate(self, batch: Batch, wide: bool = False) -> tuple[Any, Tensor]:
        """What the loss reads, and the loss of a batch."""
        with explained(
            lambda error: batch_failure(
                tree_leaves(batch.input), tree_leaves(batch.target), error, self.loss is None
            )
        ):
            output = self.output(batch.input, wide)
            try:
                return output, self.loss_of(output, batch.target, wide)
            except (TypeError, AttributeError) as error:
                names = _names(output)
                if not names:
                    raise
                raise MeasurementError(
                    f"the loss failed on a {type(output).__name__} ({first_line(error)}): name the "
                    f"tensor that it takes, as in output={names[0]}; there are {some(names)}"
                ) from error

    def curved(self) -> AbstractContextManager[object]:
        """Convolutions whose second derivatives are as cheap as first ones: where no weight is a
        variable and the graph is large (Python takes longer than it saves in a small one), or where
        there are many variables (several vectors at once cost more in that graph than one after the
        other)."""
        if isinstance(self.variables, Perturbations):
            return nullcontext() if self.saved < SMALL_GRAPH else Convolutions("inputs")
        count = sum(t.numel() for t in self.variables.values.values())
        return Convolutions("all") if count >= MANY else nullcontext()

    # ------------------------------------------------------------------ whole evaluations

    def value(self, point: Point, batch: Batch) -> Tensor:
        """L of one batch, without a graph."""
        try:
            with self.at(point, 0):
                return self.evaluate(batch, point.wide)[1].detach()
        except EvaluationError:  # it may take gradients itself
            with self.at(point._replace(values=leaves_of(point.values))):
                return self.evaluate(batch, point.wide)[1].detach()

    def gradient(self, point: Point, batch: Batch, directions: Sequence[Values] = ()) -> Evaluated:
        """L, its gradient and products of its Hessian with directions, for one batch."""
        leaves = leaves_of(point.values)
        derivatives = 2 if directions else 1
        with self.at(point._replace(values=leaves), derivatives):
            with self.curved() if directions else nullcontext():
                loss = self.evaluate(batch, point.wide)[1]
            if point.wide and not self.record.whole:
                self.record.narrowed.update(narrowing([loss]))
            wrt = list(leaves.values())
            slopes = gradients([loss], wrt, graph=bool(directions))
            with second_derivatives(NETWORK):
                products = [_gradients(slopes, wrt, [*v.values()]) for v in directions]
        named = dict(zip(leaves, (slope.detach() for slope in slopes), strict=True))
        return Evaluated(
            loss.detach(), named, [dict(zip(leaves, hv, strict=True)) for hv in products]
        )


NETWORK = "the network or its loss"


def leaves_of(values: Values) -> Values:
    """The values, sharing memory, as what is differentiated by."""
    return {name: t.detach().requires_grad_() for name, t in values.items()}


class Evaluated(NamedTuple):
    """The loss, its slopes by the variables, and products with directions."""

    loss: Tensor
    slopes: Values
    products: list[Values]

    @property
    def gradient(self) -> Tensor:
        """The slopes as one vector."""
        return joined([*self.slopes.values()])


class NotScalar(MeasurementError):
    """A loss that is no scalar."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        super().__init__(
            f"the loss returned values of shape {shape}: expected a scalar, or one value for each "
            "example"
        )


def _names(output: Any) -> list[str]:
    """The names of the tensors of a structured output."""
    if isinstance(output, Tensor):
        return []
    leaves, _ = tree_flatten_with_path(output)
    tensors = [path for path, t in leaves if isinstance(t, Tensor) and t.is_floating_point()]
    return [".".join(map(_key, path)) for path in tensors]


def _key(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def backward(values: Any, wrt: Tensors, weights: Tensors, graph: bool = False) -> Images:
    """As torch.autograd.grad, without its checks of shapes, which take long next to a small
    network; None where there is no dependence. The graph is kept."""
    return _engine_run_backward(
        tuple(values), tuple(weights), True, graph, tuple(wrt), True, accumulate_grad=False
    )


def gradients(
    values: Tensors, wrt: Tensors, weights: Tensors | None = None, graph: bool = False
) -> Tensors:
    """Of the sum of the values, or of sum_i weights_i . values_i; zero where there is no
    dependence."""
    with first_derivatives(NETWORK):
        return _gradients(values, wrt, weights, graph)


def _gradients(
    values: Tensors, wrt: Tensors, weights: Tensors | None = None, graph: bool = False
) -> Tensors:
    linked = [i for i, value in enumerate(values) if value.requires_grad]
    if not linked:
        return [torch.zeros_like(t) for t in wrt]
    given = [torch.ones_like(value) for value in values] if weights is None else weights
    found = backward([values[i] for i in linked], wrt, [given[i] for i in linked], graph)
    filled = []
    for t, g in zip(wrt, found, strict=True):
        if g is not None and g.layout is not torch.strided:
            raise MeasurementError("a parameter has a sparse gradient: set sparse=False")
        filled.append(torch.zeros_like(t) if g is None else g)
    return filled


def moved(values: Values, steps: Values, size: float = 1.0) -> Values:
    """values + size * steps, of the same types."""
    found = torch._foreach_add([*values.values()], [*steps.values()], alpha=size)
    return dict(zip(values, found, strict=True))


def _buffers(modules: Iterable[nn.Module], wide: bool) -> dict[int, Tensor]:
    """Copies of the buffers, which a call may change."""
    buffers = [b for m in modules for b in m._buffers.values() if b is not None]
    copies = {}
    for b in buffers:
        value = widen(b.detach()) if wide else b.detach()
        copies[id(b)] = value.clone()
    return copies
