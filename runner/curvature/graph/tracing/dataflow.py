"""Which values an output is computed from: the data flow of one run, operation by operation.

Every operation of the run is recorded with what it reads and writes, by storage, so that views and in-place operations
are followed. A measured output is a source of its own: what is computed from it does not depend on what came before.
Values that leave the tensors (item(), nonzero, tolist) may decide what is done next, so that everything after them
counts as computed from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Source = int | str
"""The index of an operation, or the name of a measured output or of the input."""

_LEAVES_TENSORS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)
_ATTENTION = (torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.multi_head_attention_forward)


@dataclass(frozen=True)
class Needs:
    """What an output is computed from: measured outputs (and "input"), operations, and the storages they read."""

    names: frozenset[str]
    operations: frozenset[int]
    storages: frozenset[int]


class Flow(TorchDispatchMode):
    """Records while it is active. `name` declares a tensor a source, `needs` asks what another was computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[frozenset[Source]] = []
        self.storages: list[frozenset[int]] = []
        self.control: set[Source] = set()
        self._writers: dict[int, frozenset[Source]] = {}
        self._alive: list[Any] = []  # a freed storage could give its number to another

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled while a flow is recorded; asking torch to see to that would import its compiler (5 s)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._record(func, args, kwargs or {}, out)
        return out

    def name(self, t: Tensor, name: str) -> None:
        """From now on, what is read from `t` comes from `name`."""
        self._writers[self.key(t)] = frozenset((name,))

    def key(self, t: Tensor) -> int:
        """A number of the memory of `t`, the same for its views."""
        storage = t.untyped_storage()
        self._alive.append(storage)
        return storage._cdata

    def sources(self, tensors: Iterable[Tensor]) -> frozenset[Source]:
        """What the tensors were written by."""
        return frozenset().union(*(self._writers.get(self.key(t), frozenset()) for t in tensors))

    def left(self, tensors: Iterable[Tensor]) -> None:
        """The values of the tensors have been seen outside."""
        self.control |= self.sources(tensors)

    def needs(self, t: Tensor) -> Needs:
        """Everything that `t` is computed from, back to the sources."""
        waiting, seen, names = list(self.sources([t]) | self.control), set(), set()
        storages = {self.key(t)}
        while waiting:
            source = waiting.pop()
            if isinstance(source, str):
                names.add(source)
            elif source not in seen:
                seen.add(source)
                storages |= self.storages[source]
                waiting += self.reads[source]
        return Needs(frozenset(names), frozenset(seen), frozenset(storages))

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        written = _written(func, args, kwargs)
        read = frozenset(self.key(t) for t in given)
        fresh = [t for t in made if self.key(t) not in read]
        seen_outside = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
        if not fresh and not written and not seen_outside:
            return  # a view
        index = len(self.reads)
        self.reads.append(self.sources(given))
        self.storages.append(read)
        for t in (*fresh, *written):
            self._writers[self.key(t)] = frozenset((index,))
        if seen_outside:
            self.control.add(index)


class Unfollowed(Flow):
    """Stands for the flow of operations that cannot be followed: nothing is known of where a value comes from."""

    def key(self, t: Tensor) -> int:
        return 0

    def sources(self, tensors: Iterable[Tensor]) -> frozenset[Source]:
        return frozenset()

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        pass


class Departures(TorchFunctionMode):
    """Reports to a `Flow` the values that leave the tensors unseen by it, and whether fused attention is asked for."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow
        self.attention = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _LEAVES_TENSORS:
            self.flow.left(t for t in tree_leaves(args) if isinstance(t, Tensor))
        if func in _ATTENTION:
            self.attention = True
        return func(*args, **(kwargs or {}))


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that an operation changes."""
    found: list[Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            found += [t for t in tree_leaves(value) if isinstance(t, Tensor)]
    return found
