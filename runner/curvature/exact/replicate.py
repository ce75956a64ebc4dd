"""Per-example Jacobians of any batched function by one backward pass over replicated examples.

To get all d rows of every example's Jacobian at once, the batch is repeated d times and copy i is pulled back with
the i-th unit vector. This needs nothing from the function except that it treats examples independently: no vmap rule,
no loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Elements that one replicated tensor may hold: 2^23 float64 numbers are 64 MiB.
MAX_ELEMENTS = 1 << 23

Replicated = Callable[[tuple[Tensor, ...], int], "Tensor | None"]


def replicated_jacobian(
    fn: Replicated, inputs: tuple[Tensor, ...], rows: int, limit: int | None = None
) -> list[Tensor | None]:
    """Jacobians of fn, shape (B, rows), with respect to each flattened input: shapes (B, rows, d_p).

    fn(inputs, repeats): the inputs repeated `repeats` times along dimension 0 and requiring gradients -> (B *
    repeats, rows), or None when it does not depend on them. An input that fn does not depend on has Jacobian None.
    limit: replicated examples at a time, over all rows (at least one row is taken).
    """
    if rows == 0:  # an output without components
        return [None] * len(inputs)
    batch = inputs[0].shape[0]
    widest = max(rows, *(t[0].numel() for t in inputs))
    step = max(1, min(rows, MAX_ELEMENTS // max(1, batch * widest)))
    if limit is not None:
        step = max(1, min(step, limit // batch))
    pieces: list[list[Tensor | None]] = []
    for start in range(0, rows, step):
        count = min(step, rows - start)
        pieces.append(_rows(fn, inputs, start, count, rows))
    out: list[Tensor | None] = []
    for found, source in zip(zip(*pieces, strict=True), inputs, strict=True):
        # A function may depend on an input in some rows only; the missing ones are zero.
        if all(piece is None for piece in found):
            out.append(None)
            continue
        shape = (batch, source[0].numel())
        filled = []
        for k, piece in enumerate(found):
            count = min(step, rows - k * step)
            filled.append(source.new_zeros(shape[0], count, shape[1]) if piece is None else piece)
        out.append(torch.cat(filled, 1) if len(filled) > 1 else filled[0])
    return out


def _rows(fn: Replicated, inputs: tuple[Tensor, ...], start: int, count: int, rows: int) -> list[Tensor | None]:
    batch = inputs[0].shape[0]
    with torch.enable_grad():
        copies = tuple(
            t.detach().unsqueeze(0).expand(count, *t.shape).reshape(count * batch, *t.shape[1:]).requires_grad_()
            for t in inputs
        )
        values = fn(copies, count)
        if values is None or not values.requires_grad:
            return [None] * len(inputs)
        unit = torch.zeros(count, batch, rows, dtype=values.dtype, device=values.device)
        copy = torch.arange(count, device=values.device)
        unit[copy, :, start + copy] = 1
        grads = torch.autograd.grad(values, copies, unit.view(count * batch, rows), allow_unused=True)
    return [None if g is None else g.detach().reshape(count, batch, -1).transpose(0, 1) for g in grads]
