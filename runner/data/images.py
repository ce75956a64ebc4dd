"""Data sets as experiments see them: `load` of the class of their settings, and `Split`, bytes and
labels with the normalisation that turns them into inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.contract.schema import SettingError, imported
from runner.kinds.dataset import ImageSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Transform = Callable[[Tensor], Tensor]
    Reader = Callable[[Tensor, Transform | None], tuple[Tensor, Tensor]]
    from runner.contract import Context


@cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers of a normalisation on a device, sent there once."""
    import torch

    return torch.tensor(values, dtype=torch.float32, device=device)


class DataError(SettingError):
    """Data that are missing or not what they should be; the text says expected, found, and what to
    do."""


@dataclass(frozen=True)
class Split:
    """Inputs and targets of one part of a data set, normalised batch by batch.

    inputs: uint8 pixels (N, 3, 32, 32), or floats of any shape (N, ...), used as they are. targets:
    (N,) class indices, or floats. mean, std: per channel, x = (pixel/255 - mean)/std. flat: batches
    as (B, 3072). Bytes are kept, not floats: a quarter of the memory, and gathering random rows
    moves a quarter of it.
    """

    inputs: Tensor
    targets: Tensor
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    flat: bool = True

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def to(self, device: str | torch.device) -> Split:
        """The same split on another device."""
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def normalised(self, pixels: Tensor, out: Tensor | None = None) -> Tensor:
        """float32 inputs from uint8 pixels (B, 3, H, W): (B, 3 H W) if flat. Floats pass through.

        out: memory for the result, of the pixels' shape; without it every call asks the system for
        fresh pages.
        """
        import torch

        if pixels.dtype != torch.uint8:
            return pixels
        x = pixels.to(torch.float32) if out is None else out.copy_(pixels)
        scale = [1 / (255 * s) for s in self.std]
        shift = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        if len(set(scale)) == len(set(shift)) == 1:  # one pass over the batch instead of two
            torch.add(_constant((shift[0],), x.device)[0], x, alpha=scale[0], out=x)
        else:
            by, plus = (
                _constant(tuple(values), x.device)[:, None, None] for values in (scale, shift)
            )
            x.mul_(by).add_(plus)
        return x.flatten(1) if self.flat else x

    def reader(self, batch: int) -> Reader:
        """read(index, transform) -> normalised inputs and targets of up to `batch` examples.

        transform: applied to the raw inputs first. The inputs lie in memory that the next call
        overwrites: a batch of 1.5 MB in fresh memory each time costs more in page faults than its
        arithmetic.
        """
        import torch

        shape = self.inputs.shape[1:]
        raw = self.inputs.new_empty((batch, *shape))
        floats = self.inputs.new_empty((batch, *shape), dtype=torch.float32)

        def read(index: Tensor, transform: Transform | None) -> tuple[Tensor, Tensor]:
            n = len(index)
            rows = torch.index_select(self.inputs, 0, index, out=raw[:n])
            if transform is not None:
                rows = transform(rows)
            return self.normalised(rows, floats[:n]), self.targets[index]

        return read

    def batch(self, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Normalised inputs and targets of the examples `index`."""
        return self.normalised(self.inputs[index]), self.targets[index]

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` examples, the papers' subsample."""
        if not 0 < count <= len(self):
            raise DataError(f"subsample: expected 1 to {len(self)} examples, found {count}")
        return self.batch(slice(count))

    def random(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`count` distinct examples drawn from `generator`."""
        import torch

        if not 0 < count <= len(self):
            raise DataError(f"subsample: expected 1 to {len(self)} examples, found {count}")
        return self.batch(torch.randperm(len(self), generator=generator)[:count])


class ImageData(NamedTuple):
    """Training and test split of images. source: which data set, for the record; fingerprint: hash
    of the content.

    train_order, test_order: in what order the records are, as far as a checksum tells ("" for
    made-up images).
    """

    train: Split
    test: Split
    classes: int
    source: str
    fingerprint: str
    train_order: str = ""
    test_order: str = ""


_HELD: dict[str, ImageData] = {}
"""The images read last, by their settings: every cell of a run asks for the same."""


def load(settings: Any, ctx: Context) -> Any:
    """The data that `settings` describe, by the function that `load` of their class names.

    A class that names none has it next to it, `load(settings, ctx)` in its module; a subclass
    inherits its parent's. Raises DataError for settings that nobody can load.
    """
    for cls in type(settings).__mro__:
        named = vars(cls).get("load") or getattr(sys.modules[cls.__module__], "load", None)
        if isinstance(named, str):
            named = imported(named, f"{cls.__module__}.{cls.__name__}.load")
        if named is not None:
            return named(settings, ctx)
    raise DataError(
        f"{type(settings).__module__}: expected a function load(settings, ctx) next to the settings"
    )


def load_images(settings: ImageSettings, ctx: Context, *, flat: bool = True) -> ImageData:
    """Images of any kind, read once per process. flat: batches as (B, 3072), else (B, 3, 32, 32).

    Raises DataError for missing or broken files, and where the data have another number of classes
    than the settings.
    """
    key = f"{settings!r} {ctx.seed if settings.seeded else ''}"
    if key not in _HELD:
        found: ImageData = load(settings, ctx)
        if found.classes != settings.classes:
            raise DataError(
                f"{settings.kind}: expected {settings.classes} classes as set, found "
                f"{found.classes}"
            )
        _HELD.clear()
        _HELD[key] = found
    data = _HELD[key]
    return data._replace(train=replace(data.train, flat=flat), test=replace(data.test, flat=flat))
