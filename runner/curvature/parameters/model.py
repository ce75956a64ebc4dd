"""The module as a function of its parameters: its output as one tensor, and the loss of that tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.tracing.batches import arguments_of
from runner.curvature.graph.tracing.calls import measurable
from runner.curvature.graph.tracing.points import Pick, picked

Named = dict[str, Tensor]
Loss = Callable[[Any, Any], Tensor]


class Model:
    """loss(module(input), target). pick: which tensor of a structured output the loss gets; None: all of it."""

    def __init__(self, module: nn.Module, loss: Loss, pick: Pick = None) -> None:
        self.module, self.loss, self.pick = module, loss, pick

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        """Gradients on, and every part of the module in a form that can be differentiated twice."""
        with torch.inference_mode(False), torch.enable_grad(), measurable(self.module):
            yield

    def call(self, parameters: Mapping[str, Tensor], given: Any) -> Any:
        """What the loss reads: module(*args, **kwargs), or the picked tensor of it."""
        args, kwargs = arguments_of(given)
        found = functional_call(self.module, dict(parameters), args, kwargs)
        return found if self.pick is None else tree_leaves(found)[picked(found, self.pick, "output")]

    def value(self, parameters: Mapping[str, Tensor], batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch."""
        return self.loss(self.call(parameters, batch[0]), batch[1])


class Output:
    """The tensors of an output that the loss depends on, as one tensor, and back. Of a single tensor: itself.

    Several are written side by side, one row for each example. Raises MeasurementError when the loss depends on none,
    or on several that have no row for each example.
    """

    def __init__(self, found: Any, loss: Loss, target: Any, examples: int) -> None:
        leaves, self.spec = tree_flatten(found)
        self.leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.loss, self.target, self.examples = loss, target, examples
        self.used = [0] if isinstance(found, Tensor) else self._used()
        self.alone = len(self.used) == 1
        if not self.alone and any(len(self.leaves[i]) % examples for i in self.used):
            shapes = [tuple(self.leaves[i].shape) for i in self.used]
            raise MeasurementError(
                f"the loss reads {len(shapes)} tensors of the output, {shapes}, which have no row for each of the "
                f"{examples} examples: let the module return one tensor, or pick one with output=..."
            )

    def _used(self) -> list[int]:
        floating = [i for i, t in enumerate(self.leaves) if isinstance(t, Tensor) and t.is_floating_point()]
        with torch.enable_grad():
            wanted = {i: self.leaves[i].clone().requires_grad_() for i in floating}
            value = self.loss(
                tree_unflatten([wanted.get(i, t) for i, t in enumerate(self.leaves)], self.spec), self.target
            )
            grads: Any = [None] * len(wanted)
            if value.requires_grad:
                grads = torch.autograd.grad(value, list(wanted.values()), allow_unused=True)
        used = [i for i, g in zip(wanted, grads, strict=True) if g is not None]
        if not used:
            raise MeasurementError("the loss depends on no tensor of the module's output")
        return used

    def tensor(self, found: Any) -> Tensor:
        """The tensor of an output of this structure."""
        leaves = tree_leaves(found)
        if self.alone:
            return leaves[self.used[0]]
        return torch.cat([leaves[i].reshape(self.examples, -1) for i in self.used], 1)

    def value(self, tensor: Tensor, target: Any) -> Tensor:
        """The loss as a function of the tensor."""
        leaves, start = list(self.leaves), 0
        for i in self.used:
            size = self.leaves[i].numel() // self.examples
            leaves[i] = tensor if self.alone else tensor[:, start : start + size].reshape(self.leaves[i].shape)
            start += size
        return self.loss(tree_unflatten(leaves, self.spec), target)
