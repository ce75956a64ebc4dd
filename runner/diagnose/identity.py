"""What a part was measured on: the content of a snapshot, so that nothing is done twice and nothing stale is used."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from runner.diagnose.target import Snapshot


def content(snapshot: Snapshot) -> str:
    """SHA-256 over weights, buffers, modes and sources of the module, the loss and its source, and the batches.

    Code that these call is not looked at: after a change there, `force=true` measures anew.
    """
    found = hashlib.sha256()
    for name, tensor in snapshot.module.state_dict(keep_vars=True).items():
        found.update(f"{name} {tensor.requires_grad if isinstance(tensor, Tensor) else ''}".encode())
        _add(found, tensor)
    for name, module in snapshot.module.named_modules():
        flags = {k: v for k, v in vars(module).items() if isinstance(v, bool | int | float | str)}
        found.update(f"{name} {type(module).__qualname__} {sorted(flags.items())} {module.extra_repr()}".encode())
    for kind in sorted({type(m) for m in snapshot.module.modules()}, key=lambda k: (k.__module__, k.__qualname__)):
        if not kind.__module__.startswith("torch."):
            found.update(_source(kind).encode())
    found.update(
        (str(snapshot.loss) if isinstance(snapshot.loss, str | nn.Module) else _source(snapshot.loss)).encode()
    )
    leaves, spec = tree_flatten(snapshot.batches)
    found.update(str(spec).encode())
    for leaf in leaves:
        _add(found, leaf)
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if not isinstance(value, Tensor):
        found.update(repr(value).encode())
        return
    t = value.detach().cpu().contiguous()
    found.update(f"{tuple(t.shape)} {t.dtype}".encode())
    found.update(t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return getattr(thing, "__qualname__", type(thing).__qualname__)
