"""A snapshot with what its parts share (graph, operator, cost of a gradient), and the hash that identifies it."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from runner.contract.experiment import torch_generator
from runner.curvature.graph.from_module import TracedDag, trace_module
from runner.curvature.graph.tensors import tree_leaves
from runner.curvature.graph.tracing.batches import arguments_of, count_examples
from runner.curvature.graph.tracing.calls import picked
from runner.diagnose.command import Options
from runner.diagnose.target import Snapshot

NAMED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
}


@dataclass(frozen=True)
class Gradient:
    """Cost of one gradient of all batches: processor seconds, wall seconds, bytes kept for the backward pass."""

    seconds: float
    wall: float
    bytes: int


@dataclass(frozen=True)
class FirstGradients:
    """Mean loss over all examples, and the norm of its gradient; loss and norm of each batch."""

    value: float
    norm: float
    values: tuple[float, ...]
    norms: tuple[float, ...]


class Problem:
    """A snapshot and the options it is measured with."""

    def __init__(self, snapshot: Snapshot, options: Options) -> None:
        self.snapshot, self.options = snapshot, options
        self.module: nn.Module = snapshot.module
        self.batches = snapshot.batches
        self.timings: dict[str, Any] = {}
        """Results of trial runs that several predictions use (costs.py)."""
        self.building = 0.0
        """Seconds that building the operator over the parameters took."""
        self.started = self.clock()
        self.predicting = 0.0
        """Seconds of the checks and the predictions; they count as cost of the part `network`."""
        self.loss: Callable[[Any, Any], Tensor] = (
            NAMED[snapshot.loss] if isinstance(snapshot.loss, str) else snapshot.loss
        )

    def clock(self) -> float:
        """Processor seconds, which other processes do not change; wall seconds for other devices."""
        if self.options.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.process_time() if self.options.device == "cpu" else time.perf_counter()

    def seconds(self, code: Callable[[], Any], times: int = 3) -> float:
        """Seconds of the fastest of several runs."""
        runs = []
        for _ in range(times):
            started = self.clock()
            code()
            runs.append(self.clock() - started)
        return max(min(runs), 1e-6)

    def generator(self, role: str) -> torch.Generator:
        """The random stream of a part."""
        return torch_generator(self.options.seed, f"diagnose/{role}")

    @cached_property
    def dag(self) -> TracedDag:
        """The graph between the named outputs, of the first batch. Raises ValueError where a module mixes examples."""
        nodes = list(self.options.nodes) or None
        options = self.options
        return trace_module(
            self.module, self.snapshot.loss, self.batches[0], nodes,
            output=options.output or None, batch_dim=options.batch_dim, shared=options.shared,
        )  # fmt: skip

    @cached_property
    def sizes(self) -> dict[str, int]:
        """d_v of every node of the graph, and of the input."""
        with torch.no_grad():
            return {name: t[0].numel() for name, t in self.dag.forward(self.dag.x).items()}

    @cached_property
    def operator(self) -> Any:
        """The Hessian in the trained parameters, over all batches. Raises ValueError where it does not exist."""
        from runner.curvature.parameters.operator import ParameterOperator

        options, started = self.options, self.clock()
        operator = ParameterOperator(
            self.module, self.loss, self.batches, memory_budget=options.budget,
            output=options.output or None, batch_dim=options.batch_dim, shared=options.shared,
        )  # fmt: skip
        self.building = self.clock() - started
        return operator

    @cached_property
    def smooth(self) -> Any:
        """Its Gauss-Newton part. Raises ValueError where it does not exist."""
        return self.operator.with_part("gauss_newton")

    @cached_property
    def matrix(self) -> Tensor:
        """The whole Hessian in float64, (n, n), from n products."""
        dense = self.operator.dense().double()
        return (dense + dense.mT) / 2

    @cached_property
    def eigen(self) -> tuple[Tensor, Tensor]:
        """Its eigenvalues, ascending, and eigenvectors."""
        values, vectors = torch.linalg.eigh(self.matrix.cpu())
        return values, vectors

    @cached_property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Parameters that require a gradient."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    @cached_property
    def size(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for p in self.parameters.values())

    @cached_property
    def examples(self) -> list[int]:
        """Examples in each batch: rows of the first tensor of its input."""
        options = self.options
        return [
            count_examples(arguments_of(given), options.batch_dim, options.shared)
            for given, _ in self.batches
        ]

    @cached_property
    def first_gradients(self) -> FirstGradients:
        """Loss and gradient norm of all batches and of each."""
        total = sum(self.examples)
        values: list[float] = []
        norms: list[float] = []
        mean: Tensor | None = None
        for batch, count in zip(self.batches, self.examples, strict=True):
            value, gradient = self.batch_gradient(batch)
            values.append(float(value))
            norms.append(float(gradient.double().norm()))
            part = gradient.double() * (count / total)
            mean = part if mean is None else mean.add_(part)
        assert mean is not None
        loss = sum(n * v for n, v in zip(self.examples, values, strict=True)) / total
        return FirstGradients(loss, float(mean.norm()), tuple(values), tuple(norms))

    @cached_property
    def gradient(self) -> Gradient:
        """Cost of a gradient, measured after one warm-up run."""
        kept = 0

        def pack(t: Tensor) -> Tensor:
            nonlocal kept
            kept += t.numel() * t.element_size()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            self.batch_gradient(self.batches[0])
        kept += 2 * sum(p.numel() * p.element_size() for p in self.parameters.values())
        walls = []

        def all_of_them() -> None:
            started = time.perf_counter()
            for batch in self.batches:
                self.batch_gradient(batch)
            walls.append(time.perf_counter() - started)

        return Gradient(self.seconds(all_of_them, 5), min(walls), kept)

    def batch_gradient(self, batch: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
        """(loss, flat gradient) of one batch."""
        args, kwargs = arguments_of(batch[0])
        with torch.enable_grad():
            output = self.module(*args, **kwargs)
            if self.options.output:
                output = tree_leaves(output)[picked(output, self.options.output, "output")]
            value = self.loss(output, batch[1])
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"the loss returned a {type(value).__name__}, expected a scalar tensor (no .item())"
                )
            value = value.mean()
            grads = torch.autograd.grad(value, list(self.parameters.values()), allow_unused=True)
        flat = [
            torch.zeros_like(p).flatten() if g is None else g.flatten()
            for g, p in zip(grads, self.parameters.values(), strict=True)
        ]
        return value.detach(), torch.cat(flat)


# ------------------------------------------------------------------ the hash of a snapshot

DEPTH = 6
"""Levels of nested objects that enter the hash."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def content(snapshot: Snapshot, behaviour: Sequence[float]) -> str:
    """SHA-256 of a snapshot: weights, buffers and attributes of the module, the loss with its attributes, the source of
    both and of the user's code that they use, the batches, and `behaviour` to five digits.

    behaviour: loss and gradient norm of each batch. They change with most code that is reached in other ways.
    """
    digest = hashlib.sha256()
    for name, tensor in snapshot.module.state_dict(keep_vars=True).items():
        digest.update(
            f"{name} {tensor.requires_grad if isinstance(tensor, Tensor) else ''}".encode()
        )
        _add(digest, tensor)
    for piece in _module(snapshot.module, 0, {id(snapshot.module)}):
        digest.update(piece)
    for piece in _pieces(snapshot.loss, 0, {id(snapshot.module)}):
        digest.update(piece)
    for piece in _code([*map(type, snapshot.module.modules()), snapshot.loss, type(snapshot.loss)]):
        digest.update(piece)
    leaves, spec = tree_flatten(snapshot.batches)
    digest.update(str(spec).encode())
    for leaf in leaves:
        _add(digest, leaf)
    digest.update(" ".join(f"{number:.4e}" for number in behaviour).encode())
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(_tensor(value))
    else:
        digest.update(repr(value).encode())


def _tensor(value: Tensor) -> bytes:
    head = f"{tuple(value.shape)} {value.dtype}".encode()
    if value.layout != torch.strided or value.is_meta or not value.numel():
        return head + (str(value).encode() if value.layout != torch.strided else b"")
    t = value.detach().cpu().resolve_conj().contiguous()
    return head + t.reshape(-1).view(torch.uint8).numpy().tobytes()


def _module(module: nn.Module, depth: int, seen: set[int]) -> Iterator[bytes]:
    """Classes, modes and attributes of a module and its submodules, without parameters and buffers."""
    for name, part in module.named_modules():
        yield f"{name} {_name(type(part))} {part.extra_repr()}".encode()
        if not type(part).__module__.startswith("torch."):
            yield _source(type(part))
        attributes = {k: v for k, v in vars(part).items() if k not in _OF_MODULES}
        yield from _pieces(attributes, depth + 1, seen)


_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that every module has: parameters, buffers, hooks, submodules."""


def _pieces(value: Any, depth: int, seen: set[int]) -> Iterator[bytes]:
    """The bytes that distinguish a value: of numbers, tensors, containers, functions with their source, defaults and
    closures, partials, modules, and the attributes of other objects; no memory addresses."""
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
        yield from [piece] if isinstance(piece, bytes) else _pieces(piece, depth + 1, seen)


def _inside(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """The parts of a value that is not of a plain type."""
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


def _code(waiting: list[Any]) -> Iterator[bytes]:
    """The user's classes and functions among `waiting` and all that these name: sources, numbers and tensors, and the
    text of modules of which they take something."""
    found: dict[str, list[bytes]] = {}
    while waiting:
        thing = waiting.pop()
        kind = type(thing)
        if issubclass(kind, functools.partial):
            waiting += [thing.func, *thing.args, *thing.keywords.values()]
        elif issubclass(kind, property):
            waiting += [thing.fget]
        elif issubclass(kind, staticmethod | classmethod) or inspect.ismethod(thing):
            waiting += [thing.__func__]
        elif inspect.ismodule(thing):
            if _of_the_user(thing.__name__):
                found[thing.__name__] = [Path(str(thing.__file__)).read_bytes()]
        elif inspect.isclass(thing):
            if _of_the_user(thing.__module__) and _name(thing) not in found:
                found[_name(thing)] = [_source(thing)]
                waiting += [*thing.__mro__[1:], *vars(thing).values()]
        elif not inspect.isfunction(thing):
            if kind not in PLAIN and _of_the_user(
                kind.__module__
            ):  # an object that a function takes from its module
                found.setdefault(f"object of {_name(kind)}", []).extend(
                    _pieces(thing, DEPTH - 2, set())
                )
                waiting += [kind]
        elif _of_the_user(thing.__module__ or ""):
            place = f"{thing.__module__}.{thing.__qualname__}:{thing.__code__.co_firstlineno}"
            if place in found:
                continue
            used = {
                n: thing.__globals__[n]
                for n in sorted(_names(thing.__code__) & set(thing.__globals__))
            }
            plain = {
                n: v for n, v in used.items() if isinstance(v, (*PLAIN, Tensor, tuple, list, dict))
            }
            found[place] = [
                _source(thing.__code__),
                *_pieces(plain, DEPTH - 2, set()),
            ]  # not of what it wraps
            waiting += [v for n, v in used.items() if n not in plain]
            waiting += [cell.cell_contents for cell in thing.__closure__ or () if _filled(cell)]
            waiting += [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
            waiting += [vars(thing)["__wrapped__"]] if "__wrapped__" in vars(thing) else []
    for _, pieces in sorted(found.items()):
        yield from pieces


def _names(code: CodeType) -> set[str]:
    """What a function and those inside it take from their module, or as an attribute."""
    inside = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inside)


_PLACES = (
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)
_LIBRARIES = tuple(f"{Path(place).resolve()}{os.sep}" for place in _PLACES)


def _of_the_user(module: str) -> bool:
    """Whether a module is neither Python's, nor installed, nor ours."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return bool(file) and not str(Path(str(file)).resolve()).startswith(_LIBRARIES)


def _key(value: Any) -> str:
    """Text of a key; of an object its class alone, since its repr may contain an address."""
    return repr(value) if isinstance(value, PLAIN) else _name(type(value))


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # empty
        return False


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _source(thing: Any) -> bytes:
    """Its source code, or its name where that cannot be read."""
    name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    if name.startswith("torch."):
        return name.encode()
    try:
        return inspect.getsource(thing).encode()
    except (OSError, TypeError):
        return name.encode()
