"""In which order a training sees its examples: permutations from a named stream, or as torch's
DataLoader has them."""

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
    """torch.randperm from one generator: the project's own order, from the stream "order" of a
    seed."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)

    def get_state(self) -> Tensor:
        return self.generator.get_state()

    def set_state(self, state: Tensor) -> None:
        self.generator.set_state(state)


class StreamAugment:
    """Crops (zero padding) and flips of whole batches from one generator: the project's own order,
    from the stream of a seed."""

    def __init__(self, generator: torch.Generator, padding: int = 4) -> None:
        self.generator = generator
        self.padding = padding

    def draws(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """top, left (count,) and flip (count,) of the next `count` images, half of which are
        flipped."""
        top, left = torch.randint(2 * self.padding + 1, (2, count), generator=self.generator)
        flip = torch.randint(2, (count, 1, 1, 1), generator=self.generator).flatten() == 1
        return top, left, flip

    def __call__(self, pixels: Tensor) -> Tensor:
        """Cropped and flipped images (B, C, H, W), on the device of `pixels`."""
        return shift_and_flip(pixels, *self.draws(len(pixels)), self.padding)


class LoaderAugment(StreamAugment):
    """Random crop (zero padding) and horizontal flip, drawn image by image as torchvision's
    transforms draw them.

    RandomCrop takes torch.randint(2 padding + 1, (1,)) for the top, then for the left edge;
    RandomHorizontalFlip flips where torch.rand(1) < 1/2. In a loader without workers all come from
    the global stream, which `generator` stands for: give it the generator of the training's
    `LoaderOrder`.
    """

    def __init__(self, generator: torch.Generator, padding: int = 4) -> None:
        if not 0 <= padding <= 7:  # torch.randint takes two words of the generator for more
            raise ValueError(f"padding: expected 0 to 7, found {padding}")
        super().__init__(generator, padding)

    def draws(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """top, left (count,) and flip (count,) of the next `count` images.

        Each of the three takes one word of 32 bits from the generator: randint its remainder, rand
        its last 24 bits as a fraction. A remainder by a common multiple has both.
        """
        span = 2 * self.padding + 1
        words = torch.randint(span << 24, (count, 3), generator=self.generator)
        top = words[:, 0] % span
        return top, words[:, 1] % span, words[:, 2] % (1 << 24) < 1 << 23


def shift_and_flip(pixels: Tensor, top: Tensor, left: Tensor, flip: Tensor, padding: int) -> Tensor:
    """The window of the zero-padded images (B, C, H, W) at (top, left), mirrored where flip; (B,)
    each."""
    count, _, height, width = pixels.shape
    padded = torch.nn.functional.pad(pixels, [padding] * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: (B, C, 2p+1, 2p+1, H, W)
    device = pixels.device
    crops = windows[torch.arange(count, device=device), :, top.to(device), left.to(device)]
    return torch.where(flip.to(device)[:, None, None, None], crops.flip(-1), crops)


class LoaderOrder(StreamOrder):
    """The order of `DataLoader(shuffle=True)` without workers, whose global stream `generator`
    stands for.

    Each pass over a loader draws two 64-bit integers from the global stream: the base seed of the
    workers, which nothing uses here, and the seed of the generator that `RandomSampler` permutes
    with. Transforms that draw from the global stream do so between the passes, from the same
    `generator`.

    >>> order = LoaderOrder(torch.Generator().manual_seed(42))
    >>> order.permutation(5).tolist() == order.permutation(5).tolist()  # every epoch draws again
    False
    """

    def permutation(self, count: int) -> Tensor:
        _, seed = (
            int(torch.empty((), dtype=torch.int64).random_(generator=self.generator))
            for _ in range(2)
        )
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
