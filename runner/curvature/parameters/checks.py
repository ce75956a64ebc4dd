"""What would make a parameter operator's numbers wrong: a loss that is no mean, randomness, hidden parameters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.state import refuse_draws
from runner.curvature.graph.tracing.criterion import refuse_broadcast
from runner.curvature.parameters.batches import Batch, Rows
from runner.curvature.parameters.model import Model, Named


def first_look(model: Model, parameters: Named, batch: Batch) -> None:
    """Raises MeasurementError for what no later check tells: a loss without a gradient, or with a sparse one, random
    draws, and a function that holds a parameter itself, so that replacing it in the module leaves it as it was."""
    known = dict(model.module.named_parameters())
    own = {k: known[k] for k in parameters if not known[k].is_inference()}
    frozen = [p for p in own.values() if not p.requires_grad]
    try:
        for p in frozen:
            p.requires_grad_()
        with model.differentiable():
            with refuse_draws("the module or the loss"):
                value = model.value(parameters, batch)
            tensors = [*parameters.values(), *own.values()]
            grads: tuple[Tensor | None, ...] = ()
            if value.requires_grad:
                grads = torch.autograd.grad(value, tensors, allow_unused=True)
    finally:
        for p in frozen:
            p.requires_grad_(False)
    if not any(g is not None for g in grads[: len(parameters)]):
        raise MeasurementError(
            "the loss does not depend on the parameters by operations that autograd records: expected a loss without "
            ".detach(), .item() and torch.no_grad, and groups of parameters that it uses"
        )
    for name, g in zip(parameters, grads, strict=False):
        if g is not None and g.layout != torch.strided:
            raise MeasurementError(f"parameter {name!r} has a sparse gradient: expected a dense one; set sparse=False")
    for name, g in zip(own, grads[len(parameters) :], strict=True):
        if g is not None:
            raise MeasurementError(
                f"the loss or the module holds parameter {name!r} itself, in a closure or an attribute, and would take "
                f"it for a constant: read it from the module at each call (module.get_parameter({name!r}))"
            )


def check_loss(
    model: Model, parameters: Named, rows: Rows, batch: Batch, chunk: int | None, needs_mean: str, rowwise: bool
) -> None:
    """Raises MeasurementError for a loss that is not finite, random, a sum, or, where the reason `needs_mean` is given,
    not the mean of the losses of the batch's halves, and of the pieces of `chunk` examples that it will be cut into.
    rowwise: the output must have its examples' rows in their order."""
    with model.differentiable(), torch.no_grad():
        whole, again = (float(model.value(parameters, batch)) for _ in range(2))
        if not math.isfinite(whole):
            raise MeasurementError(
                f"the loss of the first batch is not finite ({whole}): look at the weights and the data"
            )
        if abs(whole - again) > 1e-4 * abs(whole):
            raise MeasurementError("the loss is random: two evaluations differ. Call .eval() and remove the randomness")
        refuse_broadcast(model.loss, model.call(parameters, batch[0]), batch[1])
        count = rows.count(batch)
        for size in {max(1, (count + 1) // 2), min(chunk or count, count)} - {count}:
            try:
                pieces = rows.cut(batch, size)
                losses = [float(model.value(parameters, piece)) for piece in pieces]
            except (ValueError, RuntimeError, IndexError, TypeError) as error:
                if not needs_mean:
                    return
                line = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise MeasurementError(f"a part of a batch cannot be measured alone ({line}); {needs_mean}") from error
            mean = sum(rows.count(piece) * loss for piece, loss in zip(pieces, losses, strict=True)) / count
            first = next(iter(parameters.values()))
            allowed = (1e-8 if first.dtype == torch.float64 else 1e-4) * max(map(abs, [*losses, whole]))
            if abs(whole - sum(losses)) <= allowed < abs(mean - whole):
                raise MeasurementError("the loss is a sum over the examples: use reduction='mean'")
            if abs(mean - whole) > allowed and needs_mean:
                raise MeasurementError(
                    "the loss of the batch is not the mean of its parts' losses (weights, or examples that depend on "
                    f"each other, or lie along another dimension: batch_dim=...); {needs_mean}"
                )
            if rowwise:
                _check_rows(model, parameters, batch, pieces[0], min(size, count), count)


def _check_rows(model: Model, parameters: Named, batch: Batch, half: Batch, size: int, count: int) -> None:
    one, all_of_them = (model.call(parameters, b[0]) for b in (half, batch))
    if not isinstance(one, Tensor) or not isinstance(all_of_them, Tensor):
        return
    expected = all_of_them[: len(all_of_them) * size // count]
    if one.shape != expected.shape or not torch.allclose(one, expected, rtol=1e-3, atol=1e-5 * float(one.abs().max())):
        raise MeasurementError(
            f"the output {tuple(all_of_them.shape)} does not have the rows of its {count} examples in their order, so "
            "that the gradient of one example cannot be told: let the module return (B, ...)"
        )
