"""Saved states of a network."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from runner.curvature.basics.errors import MeasurementError

STATE_KEYS = ("state_dict", "model_state_dict", "model")
"""Where a checkpoint that is a dictionary of more holds the state of the module."""


def checkpoint_files(files: str | Path | Iterable[str | Path]) -> list[tuple[int, Path]]:
    """(step, file) of each file or pattern.

    The files of a pattern are ordered by the numbers in their names. A step is the last number in a
    name, or where these repeat or are missing the place in the list. Raises ValueError for a
    pattern without files.
    """
    paths: list[Path] = []
    for given in [files] if isinstance(files, str | Path) else files:
        matching = [Path(given)]
        if glob.has_magic(str(given)):
            matching = sorted(map(Path, glob.glob(str(given))), key=_numbers)
        if not matching:
            raise MeasurementError(f"expected files that match {str(given)!r}, found none")
        paths += matching
    if not paths:
        raise MeasurementError("expected files of saved states, found none")
    numbers = [_numbers(path)[-1:] for path in paths]
    if all(numbers) and len({number for (number,) in numbers}) == len(paths):
        return [(number, path) for (number,), path in zip(numbers, paths, strict=True)]
    return list(enumerate(paths))


def _numbers(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)]


def load_state(module: nn.Module, path: Path) -> None:
    """Read a saved state into the module.

    A state is a state_dict of torch.save, alone or under "state_dict", "model_state_dict" or
    "model". Raises ValueError for a file without one that fits.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        key = next((key for key in STATE_KEYS if key in state), None)
        module.load_state_dict(state if key is None else state[key])
    except Exception as error:  # a damaged file raises nearly anything
        lines = str(error).strip().splitlines()
        reason = lines[-1].strip() if lines else repr(error)
        raise MeasurementError(
            f"expected a state of {type(module).__name__} in {path}, found {reason}"
        ) from error
