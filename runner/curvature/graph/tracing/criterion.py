"""The loss of a module's output as a loss of one tensor with one row per example."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from runner.curvature.graph.errors import COMPLEX, MeasurementError, first_line
from runner.curvature.graph.losses import LossSpec
from runner.curvature.graph.reachable import as_written
from runner.curvature.graph.tensors import alike, tree_flatten, tree_leaves, tree_unflatten
from runner.curvature.graph.tracing.batches import Examples
from runner.curvature.graph.tracing.calls import Pick, picked
from runner.curvature.graph.tracing.record import Leaf, Point, Shape
from runner.curvature.graph.tracing.segment import Replay

TORCH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
}
"""The named losses as functions of the module's own output and target."""


@dataclass(frozen=True)
class Criterion:
    """loss: a name where it has a closed form, else loss(tensor, y) of one tensor with one row per example. leaves: the
    tensors of the output that it reads, None where the user picked one. targets: of y. extra: what y holds besides:
    tensors of the output that the loss reads without differentiating them, at the places `fixed`, then divisors. value:
    the user's loss again at the traced output, None for torch's own, which reads nothing else."""

    loss: Any
    leaves: tuple[int, ...] | None
    targets: Examples
    extra: tuple[Tensor, ...] = ()
    fixed: tuple[int, ...] = ()
    value: Callable[[], Any] | None = None


def criterion(
    loss: LossSpec,
    replay: Replay,
    targets: Examples,
    shape: Shape,
    target: Any,
    output: Pick,
    batch_dim: int,
) -> Criterion:
    """The loss of a module's output. Raises MeasurementError for one that reads several tensors without rows."""
    function: Any = TORCH[loss] if isinstance(loss, str) and loss in TORCH else loss
    own = not callable(function) or hasattr(
        function, "per_example"
    )  # a Loss of this package, or a mistake
    with torch.no_grad():
        found, spec = tree_flatten(replay.run(replay.x.clone()))
    leaves = [t.detach().clone().requires_grad_() if _smooth(t) else t for t in found]
    place = None if output is None else picked(tree_unflatten(leaves, spec), output, "output")
    given = tree_unflatten(leaves, spec) if place is None else leaves[place]
    watch = FixedMeans()
    used: tuple[int, ...] | None = None if place is None else (place,)
    fixed: tuple[int, ...] = ()
    whole = place is None and not own and (len(leaves) > 1 or _accepts(function, given, target))
    if not own:
        if len(leaves) == 1 and not whole:
            refuse_broadcast(function, found[0], target)
        if whole:
            used, fixed = _read_by(function, given, leaves, target, watch)
        if used is None:
            with (
                contextlib.suppress(Exception),
                torch.no_grad(),
                watch,
            ):  # what fails is told when it is measured
                function(given, target)
    layouts = [shape.leaves[i].layout for i in fixed]
    held = [
        found[i] if layout is None else layout.encode(found[i])
        for i, layout in zip(fixed, layouts, strict=True)
    ]
    extra = (*held, *watch.divisors(targets.batch, replay.x.device))
    if extra:
        alone = [
            str(k) for k, layout in enumerate(layouts, 1) if layout is None
        ]  # belong to no example
        targets = Examples(((target, *extra), {}), targets.batch, batch_dim, alone, several=True)
    named = function if extra or whole else _named(loss, shape, targets)
    part = targets.parts[0]
    several = len(targets.parts) > 1 or targets.constants or targets.shared_names
    value = None if own or _of_torch(function) else lambda: function(given, target)
    if own or not (
        whole or several or part.dim or part.rows > 1
    ):  # the target is one tensor with its examples first
        return Criterion(named, used, targets, value=value)
    function = TORCH.get(named, named) if isinstance(named, str) else named
    read = _unpacked(function, targets, shape if whole else None, used or (0,), fixed)
    if whole and used and value is not None:
        _refuse_other_value(
            read,
            value,
            [found[i] for i in used],
            [shape.leaves[i].layout for i in used],
            targets.pack(((target, *extra), {})),
        )
    return Criterion(read, used, targets, extra, fixed, value)


def _accepts(loss: Any, given: Any, target: Any) -> bool:
    """Whether a loss takes the object or tuple in which a module returns its only tensor."""
    if isinstance(given, Tensor):
        return False
    try:
        with torch.no_grad():
            return isinstance(loss(given, target), Tensor)
    except Exception:  # it takes the tensor
        return False


class _Reads(TorchFunctionMode):
    """Sees which of some tensors operations take. places: where those tensors are, by their id: one may be an item and
    an attribute."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        super().__init__()
        self.places: dict[int, set[int]] = {}
        for i, t in enumerate(leaves):
            if isinstance(t, Tensor):
                self.places.setdefault(id(t), set()).add(i)
        self.seen: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        self.seen.update(*(self.places.get(id(t), ()) for t in tree_leaves((args, kwargs or {}))))
        return func(*args, **(kwargs or {}))


def _read_by(
    loss: Any, given: Any, leaves: list[Any], target: Any, watch: TorchFunctionMode
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which tensors of the output the loss depends on, and which others it reads: masks, weights that it detaches."""
    wanted, reads = [i for i, t in enumerate(leaves) if _smooth(t)], _Reads(leaves)
    with torch.enable_grad():
        with watch, reads:
            value = loss(given, target).mean()
        tensors = [leaves[i] for i in wanted]
        grads = (
            torch.autograd.grad(value, tensors, allow_unused=True) if value.requires_grad else ()
        )
    used = tuple(i for i, g in zip(wanted, grads, strict=False) if g is not None)
    if not used:
        raise MeasurementError(
            "the loss depends on no tensor of the module's output: leave the loss to loss(output, target) where the "
            "module returns its loss, or pick a tensor with output=..."
        )
    fixed = tuple(sorted(reads.seen - set(used)))
    if any(leaves[i].is_complex() for i in (*used, *fixed)):
        raise MeasurementError(COMPLEX)
    return used, fixed


def _of_torch(loss: Any) -> bool:
    """Whether a loss is torch's own, which reads nothing but its arguments."""
    own = type(loss).__module__ == "torch.nn.modules.loss"
    return own or getattr(loss, "__module__", "") == "torch.nn.functional"


def _refuse_other_value(
    read: Any,
    value: Callable[[], Any],
    tensors: Sequence[Tensor],
    layouts: Sequence[Any],
    y: Tensor,
) -> None:
    """Raises MeasurementError where the loss of the tensors that it was seen to read is not the loss of the output."""
    rows = [
        layout.encode(t).flatten(1)
        for t, layout in zip(tensors, layouts, strict=True)
        if layout is not None
    ]
    if len(rows) < len(tensors):
        return
    with torch.no_grad():
        whole, again = value().mean(), value().mean()
        try:
            mine = read(tensors[0] if len(tensors) == 1 else torch.cat(rows, 1), y).mean()
        except Exception as error:
            raise MeasurementError(
                f"the loss cannot be evaluated from the tensors that it was seen to read ({type(error).__name__}: "
                f"{first_line(error)}): let it take a tensor, with output=..."
            ) from error
    if alike(whole, again) and not alike(mine, whole):
        raise MeasurementError(
            f"the loss of the output, {float(whole):.6g}, is not that of the tensors that it computes with, "
            f"{float(mine):.6g} (it asks whether another one is there?): let it take a tensor, with output=..."
        )


class FixedMeans(TorchFunctionMode):
    """Sees torch's means over labels that have weights or are ignored, which divide by a number of the whole batch.

    divisors: those of each example, where a part of a batch is measured as its share of the whole. classes: whether
    weights of classes count.
    """

    def __init__(
        self, divisors: Sequence[Tensor] = (), examples: int = 1, classes: bool = True
    ) -> None:
        super().__init__()
        self.given, self.examples, self.classes = list(divisors), examples, classes
        self.totals: list[float] = []
        self.counts = True

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func not in (F.cross_entropy, F.nll_loss):
            return func(*args, **(kwargs or {}))
        bound = inspect.signature(func).bind(*args, **(kwargs or {}))
        bound.apply_defaults()
        known = bound.arguments
        target, plain = known["target"], known["size_average"] is None is known["reduce"]
        weight = known["weight"] if self.classes else None
        if known["reduction"] != "mean" or not plain or target.is_floating_point():
            return func(*args, **(kwargs or {}))
        valid = target[target != known["ignore_index"]]
        self.totals.append(float(len(valid) if weight is None else weight[valid].sum()))
        self.counts = self.counts and weight is None and len(valid) == target.numel()
        if len(self.totals) > len(self.given):
            return func(*args, **(kwargs or {}))
        found = func(**(known | {"reduction": "sum"}))
        return found / (self.given[len(self.totals) - 1].mean().to(found) * self.examples)

    def divisors(self, examples: int, device: torch.device) -> tuple[Tensor, ...]:
        """For each call the number that it divides by, an equal share for each example; none where all are counts of
        the labels."""
        if self.counts:
            return ()
        place: Any = {"dtype": torch.float64, "device": device}
        return tuple(torch.full((examples,), total / examples, **place) for total in self.totals)


def refuse_broadcast(loss: Callable[[Any, Any], Tensor], output: Any, target: Any) -> None:
    """Raises MeasurementError for a loss that compares every output with every target: (B, 1) and (B,) are broadcast to
    (B, B). Told by a loss that is the same for targets in another order, and another one for targets in the output's
    own shape."""
    if (
        not (_floating(output) and _floating(target))
        or output.shape == target.shape
        or not output.dim()
    ):
        return
    if not target.dim() or len(output) != len(target):
        return
    if (
        output.numel() != target.numel()
        or len(target) < 2
        or torch.equal(target.roll(1, 0), target)
    ):
        return
    ramp = torch.linspace(0, 1, len(output)).to(output).view(-1, *(1,) * (output.dim() - 1))
    apart = output + ramp * (
        output.abs().max() + target.abs().max()
    )  # outputs that differ, as a new head's do not
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of the shapes
            found, turned, alike = (
                loss(apart, t).detach()
                for t in (target, target.roll(1, 0), target.reshape(output.shape))
            )
    except (
        RuntimeError,
        ValueError,
        TypeError,
        IndexError,
    ):  # one of the shapes is refused by the loss itself
        return
    if found.dim() or turned.dim() or alike.dim():
        return
    near = 1e-4 * abs(float(found))
    if abs(float(turned - found)) <= near < abs(float(alike - found)):
        raise MeasurementError(
            f"the loss broadcasts the output {tuple(output.shape)} and the target {tuple(target.shape)} against each "
            f"other, every output with every target: give the target the shape {tuple(output.shape)}"
        )


def _floating(t: Any) -> bool:
    return isinstance(t, Tensor) and t.is_floating_point()


def _smooth(t: Any) -> bool:
    return isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex())


def _named(loss: LossSpec, shape: Shape, targets: Examples) -> LossSpec:
    """The name of torch's plain cross-entropy of (B, K) or mean squared error, else the loss itself: one that is
    derived from torch's, has a hook, or spreads targets of another shape over the outputs."""
    first = shape.first_tensor()
    layout = None if first is None else shape.leaves[first].layout
    if first is None or layout is None or not layout.plain:
        return TORCH[loss] if isinstance(loss, str) else loss
    two = layout.ndim == 2
    fits = tuple(shape.leaves[first].shape[1:]) == targets.parts[0].shape
    if isinstance(loss, nn.CrossEntropyLoss):
        plain = loss.weight is None and loss.label_smoothing == 0 and loss.ignore_index == -100
        plain = plain and as_written(loss, nn.CrossEntropyLoss)
        return "cross_entropy" if plain and two and loss.reduction == "mean" else loss
    if isinstance(loss, nn.MSELoss):
        return "mse" if loss.reduction == "mean" and fits and as_written(loss, nn.MSELoss) else loss
    if loss is F.cross_entropy and two:
        return "cross_entropy"
    return "mse" if loss is F.mse_loss and fits else loss


def _unpacked(
    loss: Any,
    targets: Examples,
    shape: Shape | None,
    places: tuple[int, ...],
    fixed: tuple[int, ...],
) -> Any:
    """loss(tensor, y) for a packed target, and for a loss of a whole output of which it reads the tensors at `places`,
    next to each other in one row where they are several, and those at `fixed`, which the packed target holds."""

    def whole(output: Tensor, held: Sequence[Tensor]) -> Any:
        if shape is None:
            return output
        leaves = [None if isinstance(leaf, Leaf) else leaf for leaf in shape.leaves]
        for place, tensor in zip(fixed, held, strict=True):
            layout = shape.leaves[place].layout
            leaves[place] = tensor if layout is None else layout.decode(tensor)
        start = 0
        for place in places:
            leaf = shape.leaves[place]
            if len(places) == 1:
                leaves[place] = output
                continue
            row = leaf.layout.encode(torch.empty(leaf.shape, device="meta")).shape[1:]
            part = output[:, start : start + row.numel()].unflatten(1, row)
            leaves[place], start = leaf.layout.decode(part), start + row.numel()
        return tree_unflatten(leaves, shape.spec)

    def unpacked(output: Tensor, y: Tensor) -> Tensor:
        (target, *extra), _ = targets.unpack(y)
        held, divisors = extra[: len(fixed)], extra[len(fixed) :]
        with FixedMeans(divisors, len(y)) if divisors else contextlib.nullcontext():
            return loss(whole(output, held), target)

    return unpacked


def of_layout(loss: Any, point: Point) -> Any:
    """The loss of an output whose examples have been moved to the first dimension."""
    if point.layout.plain:
        return loss
    return lambda output, y: loss(point.layout.decode(output), y)
