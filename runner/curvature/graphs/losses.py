"""Losses of one example with their gradient and Hessian with respect to the network's output.

The Hessian is a per-example Jacobian, as any batched function has it by one backward pass over
replicated examples: to get all d rows at once, the batch is repeated d times and copy i is pulled
back with the i-th unit vector. This needs nothing from the function except that it treats examples
independently: no vmap rule, no loop over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature.basics.errors import (
    LOSS,
    EvaluationError,
    MeasurementError,
    describe,
    explained,
    first_line,
    second_derivatives,
)
from runner.curvature.function.batch import IGNORED

# Elements that one replicated tensor may hold: 2^23 float64 numbers are 64 MiB.
MAX_ELEMENTS = 1 << 23

Replicated = Callable[[tuple[Tensor, ...], int], "Tensor | None"]


def repeated(t: Tensor, count: int) -> Tensor:
    """`count` copies of the batch, one after the other."""
    return t.repeat(count, *(1,) * (t.dim() - 1))


def replicated_jacobian(
    fn: Replicated, inputs: tuple[Tensor, ...], rows: int, limit: int | None = None
) -> list[Tensor]:
    """Jacobians of fn, shape (B, rows), with respect to each flattened input: shapes (B, rows,
    d_p).

    fn(inputs, repeats): the inputs repeated `repeats` times along dimension 0 and requiring
    gradients -> (B * repeats, rows), or None when it does not depend on them. limit: replicated
    examples at a time, over all rows (at least one row is taken)."""
    if rows == 0:  # an output without components
        return [t.new_zeros(len(t), 0, t[0].numel()) for t in inputs]
    batch = inputs[0].shape[0]
    widest = max(rows, *(t[0].numel() for t in inputs))
    step = max(1, min(rows, MAX_ELEMENTS // max(1, batch * widest)))
    if limit is not None:
        step = max(1, min(step, limit // batch))
    pieces = []
    for start in range(0, rows, step):
        pieces.append(_rows(fn, inputs, start, min(step, rows - start), rows))
    if len(pieces) == 1:
        return pieces[0]
    return [torch.cat(found, 1) for found in zip(*pieces, strict=True)]


def _rows(
    fn: Replicated, inputs: tuple[Tensor, ...], start: int, count: int, rows: int
) -> list[Tensor]:
    batch = inputs[0].shape[0]
    with torch.enable_grad():
        copies = tuple(repeated(t.detach(), count).requires_grad_() for t in inputs)
        values = fn(copies, count)
        if values is None or not values.requires_grad:
            return [t.new_zeros(batch, count, t[0].numel()) for t in inputs]
        unit = torch.zeros(count, batch, rows, dtype=values.dtype, device=values.device)
        copy = torch.arange(count, device=values.device)
        unit[copy, :, start + copy] = 1
        grads = torch.autograd.grad(
            values, copies, unit.view(count * batch, rows), materialize_grads=True
        )
    return [g.detach().reshape(count, batch, -1).transpose(0, 1) for g in grads]


LossSpec = Union[Literal["cross_entropy", "mse"], Callable[[Tensor, Tensor], Tensor], "Loss"]


class Loss(nn.Module):
    """A loss given by a callable loss(output, target): one value per example, shape (B,), or their
    mean, shape (). Called, it gives the mean.

    Every derivative is with respect to the flattened output, shape (B, d), of one example's loss.
    """

    name = "callable"

    def __init__(self, fn: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the examples."""
        return self.summed(output, target) / output.shape[0]

    def targets(self, output: Tensor, target: Tensor) -> Tensor:
        """The target in the form that the derivatives need. Raises ValueError when it does not fit
        the output."""
        return target

    def per_example(self, output: Tensor, target: Tensor) -> Tensor:
        """Loss of each example, shape (B,). A callable that returns the mean is evaluated one
        example at a time."""
        target = self.targets(output, target)
        value = self.value(output, target)
        if value.dim() == 1:
            return value
        if output.shape[0] == 1:
            return value.reshape(1)
        examples = range(output.shape[0])
        return torch.stack([self.fn(output[b : b + 1], target[b : b + 1]) for b in examples])

    def value(self, output: Tensor, target: Tensor) -> Tensor:
        """What the callable returns. Raises ValueError when it fails or returns something else than
        it should."""

        def failure(error: Exception) -> EvaluationError:
            return EvaluationError(
                f"the loss failed on output {describe(output)} and target {describe(target)}: "
                f"{type(error).__name__}: {first_line(error)}. It is called as loss(output, target)"
            )

        with explained(failure):
            value = self.fn(output, target)
        if not isinstance(value, Tensor):
            raise MeasurementError(
                f"the loss returned a {type(value).__name__}: expected a tensor that autograd can "
                "differentiate (no .item(), no float())"
            )
        rows = output.shape[0]
        each = (
            value.dim()
            and rows
            and value.shape[0] % rows == 0
            and value.shape not in ((rows,), output.shape)
        )
        if each:
            return value.reshape(rows, -1).mean(1)  # one value for each position of each example
        if value.shape not in ((), (rows,)):
            raise ValueError(
                f"the loss returned shape {tuple(value.shape)} for {output.shape[0]} examples: "
                f"return one value per example, shape ({output.shape[0]},), or their mean, shape ()"
            )
        return value

    def summed(self, output: Tensor, target: Tensor) -> Tensor:
        """Sum over the examples, without a loop when the callable returns the mean (used for
        derivatives)."""
        target = self.targets(output, target)
        value = self.value(output, target)
        if output.requires_grad and torch.is_grad_enabled() and not value.requires_grad:
            raise MeasurementError(
                "the loss does not depend on the output through operations that autograd records: "
                "remove .detach(), .item() and torch.no_grad from it"
            )
        return value.sum() if value.dim() else value * output.shape[0]

    def gradient(self, output: Tensor, target: Tensor) -> Tensor:
        """delta_out = dL/df_out of each example, shape (B, d)."""
        with torch.enable_grad():
            leaf = output.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.summed(leaf, target), leaf)
        return gradient.flatten(1)

    def hessian(self, output: Tensor, target: Tensor) -> Tensor:
        """Second derivative of each example's loss, shape (B, d, d)."""

        def gradient(outputs: tuple[Tensor, ...], repeats: int) -> Tensor:
            total = self.summed(outputs[0], repeated(target, repeats))
            (out,) = torch.autograd.grad(total, outputs[0], create_graph=True)
            return out.flatten(1)

        with second_derivatives(LOSS):
            return replicated_jacobian(gradient, (output,), output[0].numel())[0]


class CrossEntropy(Loss):
    """-log softmax(f)[y] for class indices y, shape (B,). H = diag(p) - p p^T. Class probabilities
    are allowed too.

    Indices may have any integer type or be boolean. Raises ValueError for an index outside 0 ..
    K-1, torch's ignore_index (-100) included: an example without a loss has no place in a mean over
    examples."""

    name = "cross_entropy"

    def __init__(self) -> None:
        super().__init__(_cross_entropy)

    def targets(self, output: Tensor, target: Tensor) -> Tensor:
        classes = (output.shape[0], *output.shape[2:])
        if target.is_floating_point():
            if target.shape != output.shape:
                raise MeasurementError(
                    f"cross_entropy: expected class indices of shape {classes} and an integer "
                    "type, or probabilities "
                    f"of shape {tuple(output.shape)}, found a target {describe(target)}"
                )
            return target
        if target.shape != classes:
            raise MeasurementError(
                f"cross_entropy: expected class indices of shape {classes} for the output "
                f"{describe(output)}, found a target {describe(target)}"
            )
        target = target.long()
        outside = (target < 0) | (target >= output.shape[1])
        if bool(outside.any()):
            place = outside.nonzero()[0]
            found = int(target[tuple(place)])
            advice = (
                "it is torch's ignore_index: drop these examples, or pass a loss with "
                "reduction='none'"
                if found == IGNORED
                else "number the classes from 0, and look at the output's width"
            )
            raise MeasurementError(
                f"cross_entropy: expected classes 0 to {output.shape[1] - 1}, found {found} for "
                f"example {int(place[0])}; {advice}"
            )
        return target

    def gradient(self, output: Tensor, target: Tensor) -> Tensor:
        target = self.targets(output, target)
        if not _class_indices(output, target):
            return super().gradient(output, target)
        gradient = torch.softmax(output, 1)
        gradient[torch.arange(len(target), device=target.device), target] -= 1
        return gradient

    def hessian(self, output: Tensor, target: Tensor) -> Tensor:
        target = self.targets(output, target)
        if not _class_indices(output, target):
            return super().hessian(output, target)
        p = torch.softmax(output, 1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]


class MeanSquaredError(Loss):
    """|f - y|^2 / d for an example with d output components, as torch's mse_loss. H = (2/d) I."""

    name = "mse"

    def __init__(self) -> None:
        super().__init__(_mean_squared_error)

    def targets(self, output: Tensor, target: Tensor) -> Tensor:
        flat = (
            min(target.dim(), output.dim()) <= 2 or target.squeeze().shape == output.squeeze().shape
        )
        if target.shape[:1] != output.shape[:1] or target.numel() != output.numel() or not flat:
            raise MeasurementError(
                f"mse: target shape {tuple(target.shape)} does not match the output's "
                f"{tuple(output.shape)}; reshape it to one row per example"
            )
        if target.is_floating_point():
            return target
        return target.to(output.dtype)

    def gradient(self, output: Tensor, target: Tensor) -> Tensor:
        target = self.targets(output, target)
        error = output.flatten(1) - target.reshape(output.shape).flatten(1)
        return 2 * error / error.shape[1]

    def hessian(self, output: Tensor, target: Tensor) -> Tensor:
        self.targets(output, target)
        d = output[0].numel()
        unit = torch.eye(d, dtype=output.dtype, device=output.device)
        return unit.expand(output.shape[0], d, d) * (2 / d)


NAMED = {kind.name: kind for kind in (CrossEntropy, MeanSquaredError)}


def resolve_loss(loss: LossSpec) -> Loss:
    """The Loss of a name or a callable. Raises ValueError for anything else, the class of a loss
    module included."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in NAMED:
        return NAMED[loss]()
    if isinstance(loss, type):
        raise ValueError(
            f"loss: expected a loss, found the class {loss.__name__}: pass an instance, "
            f"{loss.__name__}()"
        )
    if callable(loss):
        return Loss(loss)
    raise ValueError(
        f'loss must be "cross_entropy", "mse" or a callable loss(output, target), got {loss!r}'
    )


def _class_indices(output: Tensor, target: Tensor) -> bool:
    return output.dim() == 2 and target.dim() == 1 and not target.is_floating_point()


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none").reshape(output.shape[0], -1).mean(1)


def _mean_squared_error(output: Tensor, target: Tensor) -> Tensor:
    return (output - target.reshape(output.shape)).square().flatten(1).mean(1)
