"""The loss of a module's output as a loss of one tensor with one row per example."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.losses import LossSpec
from runner.curvature.graph.tracing.batches import Examples
from runner.curvature.graph.tracing.points import Pick
from runner.curvature.graph.tracing.record import Leaf, Point, Shape
from runner.curvature.graph.tracing.segment import Replay
from runner.curvature.graph.written import as_written

TORCH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}
"""The named losses as functions of the module's own output and target."""


def criterion(
    loss: LossSpec, replay: Replay, targets: Examples, shape: Shape, target: Any, output: Pick
) -> tuple[Any, Pick]:
    """The loss as a name where it has a closed form, else loss(tensor, y) of one tensor of the output; and which."""
    simple = len(shape.leaves) == 1 or output is not None or not callable(loss) or hasattr(loss, "per_example")
    if simple:
        if callable(loss) and len(shape.leaves) == 1:
            with torch.no_grad():
                refuse_broadcast(loss, replay.run(replay.x.clone()), target)
        named = _named(loss, shape, targets)
        if _plain_target(targets):
            return named, output
        return _unpacked(
            F.cross_entropy if named == "cross_entropy" else F.mse_loss if named == "mse" else named, targets, None, 0
        ), output
    with torch.no_grad():
        leaves, spec = tree_flatten(replay.run(replay.x.clone()))
    tensors = [t.detach().requires_grad_() if _floating(t) else t for t in leaves]
    with torch.enable_grad():
        value = loss(tree_unflatten(tensors, spec), target).mean()  # type: ignore[operator]
        wanted = [i for i, t in enumerate(tensors) if _floating(t)]
        grads = torch.autograd.grad(value, [tensors[i] for i in wanted], allow_unused=True)
    used = [i for i, g in zip(wanted, grads, strict=True) if g is not None]
    if len(used) != 1:
        raise MeasurementError(
            f"the loss uses {len(used)} tensors of the module's output, expected one: pick it with output=..., or let "
            "the module return them as one"
        )
    return _unpacked(loss, targets, shape, used[0]), lambda out: tree_flatten(out)[0][used[0]]


def refuse_broadcast(loss: Callable[[Any, Any], Tensor], output: Any, target: Any) -> None:
    """Raises MeasurementError for a loss that compares every output with every target: (B, 1) and (B,) are broadcast to
    (B, B). Told by a loss that is the same for targets in another order, and another one for targets in the output's
    own shape."""
    if not (_floating(output) and _floating(target)) or output.shape == target.shape or len(output) != len(target):
        return
    if output.numel() != target.numel() or len(target) < 2 or torch.equal(target.roll(1, 0), target):
        return
    ramp = torch.linspace(0, 1, len(output)).to(output).view(-1, *(1,) * (output.dim() - 1))
    apart = output + ramp * (output.abs().max() + target.abs().max())  # outputs that differ, as a new head's do not
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of the shapes
            found, turned, alike = (
                loss(apart, t).detach() for t in (target, target.roll(1, 0), target.reshape(output.shape))
            )
    except (RuntimeError, ValueError, TypeError, IndexError):  # one of the shapes is refused by the loss itself
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


def _plain_target(targets: Examples) -> bool:
    """Whether the target is one tensor with its examples first."""
    part = targets.parts[0]
    return (
        len(targets.parts) == 1
        and part.dim == 0
        and part.rows == 1
        and not targets.constants
        and not targets.shared_names
    )


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


def _unpacked(loss: Any, targets: Examples, shape: Shape | None, place: int) -> Callable[[Tensor, Tensor], Tensor]:
    """loss(tensor, y) for a packed target, and for a loss of a whole output of which it uses the tensor at `place`."""

    def unpacked(output: Tensor, y: Tensor) -> Tensor:
        (target,), _ = targets.unpack(y)
        if shape is None:
            return loss(output, target)
        leaves = [None if isinstance(leaf, Leaf) else leaf for leaf in shape.leaves]
        leaves[place] = output
        return loss(tree_unflatten(leaves, shape.spec), target)

    return unpacked


def of_layout(loss: Any, point: Point) -> Any:
    """The loss of an output whose examples have been moved to the first dimension."""
    if point.layout.plain:
        return loss
    return lambda output, y: loss(point.layout.decode(output), y)
