"""Results in one file each: a numpy archive (.npz) of a description in JSON and every tensor."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runner.curvature.function.errors import MeasurementError, describe
from runner.curvature.graphs.blocks import BlockSplit
from runner.curvature.result import Result, field_names

FORMAT = "hess-run result"
VERSION = 1
RENAMED = {"Verification": "Certificate"}
DROPPED: dict[str, tuple[str, ...]] = {"Certificate": ("examples", "piece")}
"""Classes and fields of files that earlier versions wrote."""


def save(result: Any, path: str | Path) -> None:
    """Write a result to a file, from which `load` returns it bit for bit.

    Parameters
    ----------
    result
        What an estimator of `runner.curvature` returns, a tensor, a number, or dictionaries, tuples
        and lists of these; also the parts of blocks (`split_blocks`).
    path
        The file, ".npz" by convention. It is replaced as a whole.

    Raises
    ------
    ValueError
        For anything else inside the result.

    Notes
    -----
    The file is an uncompressed archive of `numpy.savez` with the entry "result", JSON with the
    version of the format, and an array for each tensor, so that numpy alone can read it. Tensors
    come back on the CPU. Nothing is pickled.

    Examples
    --------
    >>> import tempfile
    >>> from runner.curvature import load, save, top_eigenpairs
    >>> pairs = top_eigenpairs(torch.diag(torch.tensor([3.0, -5.0, 1.0])), 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(pairs, f"{folder}/pairs.npz")
    ...     load(f"{folder}/pairs.npz")
    Eigenpairs(3, 1; 2 of 2 converged, 3 products)
    """
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "content": _packed(result, arrays)}, allow_nan=False
    )
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            content = {"result": np.frombuffer(text.encode(), np.uint8), **arrays}
            np.savez(file, **content)  # type: ignore[arg-type]
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | Path) -> Any:
    """Return the result that `save` wrote to a file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ValueError
        For a file that `save` did not write, a damaged one, and one of a later version of the
        format.
    """
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                held = json.loads(arrays["result"].tobytes())
                if held["format"] == FORMAT and held["version"] == VERSION:
                    return _unpacked(held["content"], arrays)
                found = f"{held['format']}, version {held['version']}"
        except Exception:  # a damaged archive raises nearly anything
            found = "a damaged file or one of another kind"
    raise MeasurementError(
        f"expected {FORMAT}, version {VERSION}, as `save` writes it, found {found}: {path}"
    )


def _packed(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value for JSON; its tensors go to `arrays`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor):
        kind = "bfloat16" if value.dtype == torch.bfloat16 else "tensor"
        name = f"{kind}{len(arrays)}"
        try:
            t = value.detach().cpu().resolve_conj().resolve_neg()
            arrays[name] = (t.view(torch.int16) if kind == "bfloat16" else t).numpy()
        except (TypeError, RuntimeError) as error:
            raise MeasurementError(
                f"expected tensors that numpy has a type for, found {describe(value)}"
            ) from error
        return {kind: name}
    if type(value) in (tuple, list):
        return {type(value).__name__: [_packed(v, arrays) for v in value]}
    name = type(value).__name__
    if name not in _classes():
        name = ""
    if isinstance(value, Mapping):
        items = [[_packed(k, arrays), _packed(v, arrays)] for k, v in value.items()]
        return {"mapping": items, "class": name}
    if not name:
        raise MeasurementError(
            f"expected a result, a tensor or a number, found {type(value).__name__}"
        )
    fields = {k: _packed(getattr(value, k), arrays) for k in field_names(value)}
    return {"fields": fields, "class": name}


def _unpacked(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    kind, held = next(iter(value.items()))
    if kind == "float":
        return float(held)
    if kind in ("tensor", "bfloat16"):
        t = torch.from_numpy(arrays[held])
        return t.view(torch.bfloat16) if kind == "bfloat16" else t
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(_unpacked(v, arrays) for v in held)
    name: str = RENAMED.get(value["class"], value["class"]) or ""
    maker = _classes()[name] if name else dict
    if kind == "mapping":
        return maker((_unpacked(k, arrays), _unpacked(v, arrays)) for k, v in held)
    fields = {k: _unpacked(v, arrays) for k, v in held.items()}
    return maker(**{k: v for k, v in fields.items() if k not in DROPPED.get(name, ())})


def _classes() -> dict[str, Any]:
    """Results and parts of blocks, by name."""
    return {one.__name__: one for one in (*_below(Result), BlockSplit)}


def _below(base: Any) -> list[Any]:
    """All subclasses."""
    found: list[Any] = []
    for sub in base.__subclasses__():
        found += [sub, *_below(sub)]
    return found
