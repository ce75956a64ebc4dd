"""From settings to data: `load` of the module that a kind's class is in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from runner.contract.names import imported
from runner.data.images import DataError, ImageData
from runner.kinds.dataset import ImageSettings

if TYPE_CHECKING:
    from runner.contract import Context

_HELD: dict[str, ImageData] = {}
"""The images read last, by their settings: every cell of a run asks for the same."""


def load(settings: Any, ctx: Context) -> Any:
    """The data that `settings` describe, by the function that `load` of their class names.

    A class that names none has it next to it, `load(settings, ctx)` in its module; a subclass inherits its parent's.
    Raises DataError for settings that nobody can load.
    """
    for cls in type(settings).__mro__:
        named = vars(cls).get("load") or getattr(sys.modules[cls.__module__], "load", None)
        if isinstance(named, str):
            named = imported(named, f"{cls.__module__}.{cls.__name__}.load")
        if named is not None:
            return named(settings, ctx)
    raise DataError(f"{type(settings).__module__}: expected a function load(settings, ctx) next to the settings")


def load_images(settings: ImageSettings, ctx: Context, *, flat: bool = True) -> ImageData:
    """Images of any kind, read once per process. flat: batches as (B, 3072), else (B, 3, 32, 32).

    Raises DataError for missing or broken files, and where the data have another number of classes than the settings.
    """
    key = f"{settings!r} {ctx.seed if settings.seeded else ''}"
    if key not in _HELD:
        found: ImageData = load(settings, ctx)
        if found.classes != settings.classes:
            raise DataError(f"{settings.kind}: expected {settings.classes} classes as set, found {found.classes}")
        _HELD.clear()
        _HELD[key] = found
    data = _HELD[key]
    parts = [part.as_images(part.mean, part.std, flat) for part in (data.train, data.test)]
    return data._replace(train=parts[0], test=parts[1])
