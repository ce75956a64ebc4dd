"""The function that gives the network to diagnose, and the snapshots that it returns or yields."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from runner.contract import SettingError, described, did_you_mean, short
from runner.curvature.function.context import random_state
from runner.curvature.uses.checkpoints import checkpoint_files, load_state
from runner.files import sha256
from runner.run.guest import Stopped, call
from runner.store.identity import commit_of

T = TypeVar("T")
SHAPE = (
    "(module, loss, batch or loader), or yield (step, module, loss, batch or loader) during a "
    "training"
)
LOSSES = ("cross_entropy", "mse")


@dataclass(frozen=True)
class Target:
    """The user's function, and the commit of its file, else its checksum."""

    function: Callable[[], Any]
    name: str
    provenance: str


@dataclass(frozen=True)
class Snapshot:
    """A network at one step.

    loss: None where the module returns its loss. batches: (input, target) each, or what such a
    module takes; loader: whether they came from a loader; more: whether that had more batches than
    were used; state: the file that the weights were read from.
    """

    step: int
    module: nn.Module
    loss: Any
    batches: list[Any]
    loader: bool
    more: bool = False
    state: str = ""


def load(text: str) -> Target:
    """The target of "package.module:function" or "file.py:function". Raises SettingError."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        found = short(repr(text))
        raise SettingError(
            f"target: expected package.module:function or file.py:function, found {found}"
        )
    if place.endswith(".py") and not Path(place).is_file():
        raise SettingError(
            f"target: there is no file {place}; give its path from here, or package.module:function"
        )
    find = _from_file if place.endswith(".py") else _from_package
    module = run(lambda: find(place), f"target: {place} cannot be imported")
    function = getattr(module, name, None)
    if isinstance(function, nn.Module):
        raise SettingError(
            f"target: {place}:{name} is a network; give a function without parameters that "
            f"returns it: {SHAPE}"
        )
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        hint = did_you_mean(name, known)
        listed = f"; there are {short(', '.join(known))}" if known else ""
        raise SettingError(f"target: {place} has no function {name}{hint}{listed}")
    _require_no_arguments(function, f"{place}:{name}")
    name = f"{module.__name__.rpartition('.')[2]}-{name}"
    file = Path(module.__file__ or os.devnull).resolve()
    commit = commit_of(file)
    return Target(function, name, f"commit {commit}" if commit else f"SHA-256 {sha256(file)[:12]}")


def _require_no_arguments(function: Callable[..., Any], place: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # a callable that does not tell
        return
    try:
        signature.bind()
    except TypeError as error:
        raise SettingError(
            f"target: {place} must take no arguments ({error}); wrap it in a function without "
            "parameters"
        ) from error


def _from_file(place: str) -> ModuleType:
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # classes of the file can be looked up by name
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # it stays: for imports inside the function, and workers of a loader
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module


def _from_package(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def run(code: Callable[[], T], failed: str = "") -> T:
    """Run the user's code. Raises SettingError with the place of whatever it raises."""
    try:
        return call(code)
    except SettingError:
        raise
    except Stopped as error:
        raise SettingError(f"target: {error}") from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"target: the function failed at {Path(place.filename).name}:{place.lineno}"
        hint = "" if failed else " (HYDRA_FULL_ERROR=1 shows all)"
        raise SettingError(f"{failed or where}: {described(error)}{hint}") from error


def snapshots(target: Target, limit: int, device: str) -> Iterator[Snapshot]:
    """The snapshots that the function returns or yields, one at a time.

    A training may change the module in between. limit: batches used of a loader. Raises
    SettingError for anything else than SHAPE.
    """
    returned = run(target.function)
    if isinstance(returned, tuple) and len(returned) == 3:
        yield _snapshot((0, *returned), limit, device)
        return
    if _is_step(returned):
        yield _snapshot(returned, limit, device)
        return
    if not hasattr(returned, "__iter__") or isinstance(returned, tuple | dict):
        raise SettingError(
            f"target: the function must return {SHAPE}; it returned {_shape(returned)}"
        )
    items = iter(returned)
    seen = set()
    while (item := run(lambda: next(items, None))) is not None:
        if not _is_step(item):
            raise SettingError(
                f"target: the function must return {SHAPE}; it yielded {_shape(item)}"
            )
        if item[0] in seen:
            raise SettingError(
                f"target: step {item[0]} was yielded twice: every snapshot needs a step of its own"
            )
        seen.add(item[0])
        yield _snapshot(item, limit, device)
    if not seen:
        raise SettingError("target: the function yielded nothing")


def at_checkpoints(given: Iterator[Snapshot], files: Sequence[str]) -> Iterator[Snapshot]:
    """The first snapshot at each of some saved states. Raises SettingError."""
    snapshot = next(given)
    try:
        for step, path in checkpoint_files(files):
            load_state(snapshot.module, path)
            yield replace(snapshot, step=step, state=str(path))
    except ValueError as error:
        raise SettingError(f"checkpoints: {error}") from error


def _is_step(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 4 and isinstance(value[0], Integral)


def _shape(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(item).__name__ for item in value)})"
    return type(value).__name__


def _remedy(batch: Any) -> str:
    """How to give the parts of another kind of batch."""
    if isinstance(batch, dict):
        return (
            ": give ({name: input, ...}, target), whose names become keyword arguments of the "
            "module"
        )
    if isinstance(batch, tuple | list) and len(batch) > 2:
        return (
            ": give ((input, input, ...), target), whose inputs become the arguments of the module"
        )
    return ""


def _snapshot(item: tuple[int, Any, Any, Any], limit: int, device: str) -> Snapshot:
    step, module, loss, data = item
    if not isinstance(module, nn.Module):
        found = type(module).__name__
        raise SettingError(f"target: expected a torch.nn.Module, found {found}; return {SHAPE}")
    if isinstance(loss, type):
        found = loss.__name__
        raise SettingError(f"target: expected a loss, found the class {found}; return {found}()")
    alone = loss is None
    if not alone and not callable(loss) and loss not in LOSSES:
        found = type(loss).__name__
        raise SettingError(f"target: expected loss(output, target), found {found}; return {SHAPE}")
    single = (isinstance(data, tuple) and len(data) == 2) or (alone and isinstance(data, Mapping))
    source = [data] if single else data
    if not hasattr(source, "__iter__"):
        found = type(data).__name__
        raise SettingError(f"target: expected a batch (input, target) or a loader, found {found}")
    with own_randomness(source):
        batches = run(lambda: list(islice(iter(source), limit + 1)))
    if not batches:
        raise SettingError("target: expected batches (input, target), found nothing")
    for batch in batches:
        if not alone and (not isinstance(batch, tuple | list) or len(batch) != 2):
            found = _shape(batch) + _remedy(batch)
            raise SettingError(f"target: expected batches (input, target), found {found}")
    tuples = [tuple(b) if isinstance(b, list) else b for b in batches[:limit]]  # not several
    placed = tree_map(lambda t: t.to(device) if isinstance(t, Tensor) else t, tuples)
    return Snapshot(int(step), module.to(device), loss, placed, not single, len(batches) > limit)


@contextmanager
def own_randomness(loader: Any = None) -> Iterator[None]:
    """A training draws the same random numbers with and without a diagnosis, whatever is stored.

    loader: one that is read meanwhile; its own generators, and workers that stay, are put back too.
    """
    parts = [loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler"))]
    parts += [getattr(part, "sampler", None) for part in parts]
    generators = [getattr(part, "generator", None) for part in parts]
    own = [(g, g.get_state()) for g in generators if isinstance(g, torch.Generator)]
    fresh = loader is not None and getattr(loader, "_iterator", loader) is None
    with random_state():
        try:
            yield
        finally:
            for generator, state in own:
                generator.set_state(state)
            if fresh:
                loader._iterator = None
