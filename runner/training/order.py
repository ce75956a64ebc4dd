"""In which order a training sees its examples: permutations from a named stream, or as torch's DataLoader has them."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Order(Protocol):
    """Permutations of the examples, one an epoch, and the state that the next one depends on."""

    def permutation(self, count: int) -> Tensor:
        """The next epoch's order of `count` examples, (count,) on the CPU."""

    def get_state(self) -> Any:
        """Plain values and tensors from which `set_state` goes on."""

    def set_state(self, state: Any) -> None:
        """Go on from get_state()."""


class StreamOrder:
    """torch.randperm from one generator: the project's own order, from the stream "order" of a seed."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)

    def get_state(self) -> Tensor:
        return self.generator.get_state()

    def set_state(self, state: Tensor) -> None:
        self.generator.set_state(state)


class LoaderOrder(StreamOrder):
    """The order of `DataLoader(shuffle=True)` without workers, whose global stream `generator` stands for.

    Each pass over a loader draws two 64-bit integers from the global stream: the base seed of the workers, which
    nothing uses here, and the seed of the generator that `RandomSampler` permutes with. Transforms that draw from the
    global stream do so between the passes, from the same `generator`.

    >>> order = LoaderOrder(torch.Generator().manual_seed(42))
    >>> order.permutation(5).tolist() == order.permutation(5).tolist()  # every epoch draws anew
    False
    """

    def permutation(self, count: int) -> Tensor:
        _, seed = (int(torch.empty((), dtype=torch.int64).random_(generator=self.generator)) for _ in range(2))
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
