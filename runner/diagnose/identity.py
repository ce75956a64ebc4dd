"""What a part was measured on: the content of a snapshot, so that nothing is done twice and nothing stale is used."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from runner.diagnose.target import Snapshot

DEPTH = 6
"""Objects inside objects that are looked at."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def content(snapshot: Snapshot, behaviour: Sequence[float]) -> str:
    """SHA-256 over weights, buffers, attributes and sources of the module, the loss with all that it holds, the
    batches, and `behaviour`: numbers that code makes which neither of them shows, to five digits.

    Behaviour is the loss and the norm of its gradient in each batch: other code gives other numbers, also where it is
    called from the module's or the loss's source.
    """
    found = hashlib.sha256()
    for name, tensor in snapshot.module.state_dict(keep_vars=True).items():
        found.update(f"{name} {tensor.requires_grad if isinstance(tensor, Tensor) else ''}".encode())
        _add(found, tensor)
    for piece in _module(snapshot.module, 0, {id(snapshot.module)}):
        found.update(piece)
    for piece in _told(snapshot.loss, 0, {id(snapshot.module)}):
        found.update(piece)
    leaves, spec = tree_flatten(snapshot.batches)
    found.update(str(spec).encode())
    for leaf in leaves:
        _add(found, leaf)
    found.update(" ".join(f"{number:.4e}" for number in behaviour).encode())
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        found.update(_tensor(value))
    else:
        found.update(repr(value).encode())


def _tensor(value: Tensor) -> bytes:
    t = value.detach().cpu().contiguous()
    head = f"{tuple(t.shape)} {t.dtype}".encode()
    return head + (t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")


def _module(module: nn.Module, depth: int, seen: set[int]) -> Iterator[bytes]:
    """Classes, modes and attributes of a module and its submodules; parameters and buffers are told by their owner."""
    for name, part in module.named_modules():
        yield f"{name} {_name(type(part))} {part.extra_repr()}".encode()
        if not type(part).__module__.startswith("torch."):
            yield _source(type(part))
        own = {k: v for k, v in vars(part).items() if k not in _OF_MODULES}
        yield from _told(own, depth + 1, seen)


_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that every module has: parameters, buffers, hooks, submodules."""


def _told(value: Any, depth: int, seen: set[int]) -> Iterator[bytes]:
    """The pieces that tell a value from another one. Numbers, tensors, containers, functions with their source,
    defaults and closures, partials, modules, and the attributes of other objects; no addresses."""
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}".encode()
        return
    if isinstance(value, Tensor):
        yield _tensor(value)
        return
    yield _name(type(value)).encode()
    if depth > DEPTH or id(value) in seen:
        return
    seen = seen | {id(value)}
    for piece in _inside(value, depth + 1, seen):
        yield from [piece] if isinstance(piece, bytes) else _told(piece, depth + 1, seen)


def _inside(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """What a value that is no plain one consists of."""
    if isinstance(value, Mapping):
        for key, inside in sorted(value.items(), key=lambda item: _key(item[0])):
            yield from (_key(key).encode(), inside)
    elif isinstance(value, Set):
        yield from sorted(map(_key, value))
    elif isinstance(value, Sequence):
        yield from value
    elif isinstance(value, nn.Module):
        yield from dict(value.named_parameters()).values()
        yield from dict(value.named_buffers()).values()
        yield from _module(value, depth, seen)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif inspect.ismethod(value):
        yield from (value.__func__, value.__self__)
    elif inspect.isfunction(value):
        yield _source(value)
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from (cell.cell_contents for cell in value.__closure__ or () if _filled(cell))
    elif inspect.isclass(value) or inspect.isbuiltin(value) or not hasattr(value, "__dict__"):
        yield _source(value)
    elif not inspect.ismodule(value):
        yield _source(type(value))
        yield vars(value)


def _key(value: Any) -> str:
    """The words of a key; of an object its kind alone, since they may hold an address."""
    return repr(value) if isinstance(value, PLAIN) else _name(type(value))


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # nothing in it yet
        return False


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _source(thing: Any) -> bytes:
    """Its source, or its name where that cannot be read."""
    name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    if name.startswith("torch."):
        return name.encode()
    try:
        return inspect.getsource(thing).encode()
    except (OSError, TypeError):
        return name.encode()
