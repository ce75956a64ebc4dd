"""The function that gives the network to diagnose: where it is, and the snapshots that it returns or yields."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runner.contract import SettingError, short

if TYPE_CHECKING:
    from torch import nn

SHAPE = "(module, loss, batch or loader), or yield (step, module, loss, batch or loader) during a training"


@dataclass(frozen=True)
class Snapshot:
    """A network at one step. batches: (input, target) each; loader: whether they came from a loader."""

    step: int
    module: nn.Module
    loss: Any
    batches: list[tuple[Any, Any]]
    loader: bool
    more: bool = False
    """Whether the loader had more batches than were used."""


def load(text: str) -> tuple[str, Callable[[], Any]]:
    """(name, function) of "package.module:function" or "file.py:function". Raises SettingError."""
    place, colon, function = text.rpartition(":")
    if not colon or not place or not function:
        raise SettingError(
            f"target: expected package.module:function or file.py:function, found {short(repr(text))}"
        )
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise SettingError(
                f"target: there is no file {place}; give its path from here, or package.module:function"
            )
        module = _import(place, lambda: _from_file(path))
    else:
        module = _import(place, lambda: _from_package(place))
    target = getattr(module, function, None)
    if not callable(target):
        known = [
            name
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        ]
        near = get_close_matches(function, known, n=1) or known[:1]
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingError(f"target: {place} has no function {function}{hint}")
    try:
        inspect.signature(target).bind()
    except TypeError as error:
        text = f"target: {place}:{function} must take no arguments ({error}); wrap it in a function without parameters"
        raise SettingError(text) from error
    except ValueError:  # a callable that does not tell
        pass
    return f"{module.__name__.rpartition('.')[2]}-{function}", target


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # classes of the file can be looked up by name
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.insert(
            0, folder
        )  # and it stays: for imports inside the function, and for the workers of a loader
    spec.loader.exec_module(module)
    return module


def _from_package(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _import(place: str, load_it: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load_it()
    except SettingError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise SettingError(
            f"target: {place} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def snapshots(function: Callable[[], Any], limit: int, device: str) -> Iterator[Snapshot]:
    """The snapshots that the function returns or yields, one at a time: a training may change the module in between.

    limit: batches used of a loader. Raises SettingError for anything else than SHAPE.
    """
    returned = _run(function)
    if isinstance(returned, tuple) and len(returned) == 3:
        yield _snapshot((0, *returned), limit, device)
        return
    if isinstance(returned, tuple) and len(returned) == 4 and isinstance(returned[0], Integral):
        yield _snapshot(returned, limit, device)
        return
    if not hasattr(returned, "__iter__") or isinstance(returned, tuple | dict):
        raise SettingError(
            f"target: the function must return {SHAPE}; it returned {_shape(returned)}"
        )
    items, seen = iter(returned), set()
    while (item := _run(lambda: next(items, None))) is not None:
        if not (isinstance(item, tuple) and len(item) == 4 and isinstance(item[0], Integral)):
            raise SettingError(
                f"target: the function must return {SHAPE}; it yielded {_shape(item)}"
            )
        if item[0] in seen:
            raise SettingError(
                f"target: step {item[0]} was yielded twice: every snapshot needs a step of its own"
            )
        seen.add(item[0])
        yield _snapshot(item, limit, device)


def _run(code: Callable[[], Any]) -> Any:
    """Run the user's code. Raises SettingError with the place of whatever it raises."""
    try:
        return code()
    except SettingError:
        raise
    except SystemExit as error:
        raise SettingError(f"target: {exit_text(error, 'the function')}") from error
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)
        where = f"{Path(places[-1].filename).name}:{places[-1].lineno}"
        raise SettingError(
            f"target: the function failed at {where}: {type(error).__name__}: {error} (HYDRA_FULL_ERROR=1 shows all)"
        ) from error


def exit_text(error: SystemExit, file: str) -> str:
    """Where a target called sys.exit, and why where argparse did."""
    frames = traceback.extract_tb(error.__traceback__)
    parses = any(Path(frame.filename).name == "argparse.py" for frame in frames)
    own = [
        frame
        for frame in frames
        if Path(frame.filename).name not in ("argparse.py", "_sitebuiltins.py")
    ]
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else file
    if parses:
        return f"{place} reads command-line arguments (argparse), and there are none; give each of them a default"
    return f"{place} called sys.exit({error.code!r}); remove that call"


def _shape(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(item).__name__ for item in value)})"
    return type(value).__name__


def _remedy(batch: Any) -> str:
    """How to give the parts of another kind of batch."""
    if isinstance(batch, dict):
        return ": give ({name: input, ...}, target), whose names become keyword arguments of the module"
    if isinstance(batch, tuple | list) and len(batch) > 2:
        return (
            ": give ((input, input, ...), target), whose inputs become the arguments of the module"
        )
    return ""


def _snapshot(item: tuple[int, Any, Any, Any], limit: int, device: str) -> Snapshot:
    from torch import nn

    step, module, loss, data = item
    if not isinstance(module, nn.Module):
        raise SettingError(
            f"target: expected a torch.nn.Module, found {type(module).__name__}; return {SHAPE}"
        )
    if not callable(loss) and loss not in ("cross_entropy", "mse"):
        raise SettingError(
            f"target: expected loss(output, target), found {type(loss).__name__}; return {SHAPE}"
        )
    if isinstance(loss, type):
        raise SettingError(
            f"target: expected a loss, found the class {loss.__name__}; return {loss.__name__}()"
        )
    single = isinstance(data, tuple) and len(data) == 2
    source = [data] if single else data
    if not hasattr(source, "__iter__"):
        raise SettingError(
            f"target: expected a batch (input, target) or a loader, found {type(data).__name__}"
        )
    with own_randomness(source):
        batches = _run(lambda: list(islice(iter(source), limit + 1)))
    wrong = next((b for b in batches if not (isinstance(b, tuple | list) and len(b) == 2)), None)
    if not batches or wrong is not None:
        found = "nothing" if wrong is None else _shape(wrong) + _remedy(wrong)
        raise SettingError(f"target: expected batches (input, target), found {found}")
    placed = [(_to(x, device), _to(y, device)) for x, y in batches[:limit]]
    return Snapshot(int(step), module.to(device), loss, placed, not single, len(batches) > limit)


@contextmanager
def own_randomness(loader: Any = None) -> Iterator[None]:
    """A training draws the same random numbers with and without a diagnosis, whatever is stored. loader: one that is
    read meanwhile, whose own generators, and workers that stay, are put back too."""
    import numpy
    import torch

    parts = [loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler"))]
    parts += [getattr(part, "sampler", None) for part in parts]
    found = [getattr(part, "generator", None) for part in parts if part is not None]
    own = [(g, g.get_state()) for g in found if isinstance(g, torch.Generator)]
    states = random.getstate(), numpy.random.get_state()  # noqa: NPY002
    fresh = loader is not None and getattr(loader, "_iterator", loader) is None
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(states[0])
            numpy.random.set_state(states[1])  # noqa: NPY002
            for generator, state in own:
                generator.set_state(state)
            if fresh:
                loader._iterator = None


def _to(value: Any, device: str) -> Any:
    from torch import Tensor
    from torch.utils._pytree import tree_map

    return tree_map(lambda t: t.to(device) if isinstance(t, Tensor) else t, value)
