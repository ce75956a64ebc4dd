"""The user's model around a measurement: it is left as it was.

While `untouched` is active, every module that is called is watched, also one that `reachable` cannot find.
"""

from __future__ import annotations

import functools
import pickle
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from runner.curvature.graph.dag import Dag
from runner.curvature.graph.errors import MeasurementError, describe
from runner.curvature.graph.precision import full_precision
from runner.curvature.graph.reachable import Reachable, reachable, watching

P = ParamSpec("P")
R = TypeVar("R")

_ENTRIES = {
    "forward",
    "_call_impl",
    "_compiled_call_impl",
}  # replaced while calls are intercepted, and put back there


CONTAINERS = (list, dict, set, deque)


@dataclass
class _Kept:
    """Buffers (place, value), attributes and what containers among them hold, flags, of one module before it was
    called."""

    module: nn.Module
    buffers: dict[str, tuple[Tensor, Tensor]]
    rescaled: list[tuple[nn.Parameter, Tensor]]
    """Weights that a call rescales in place: embeddings with a largest norm."""
    attributes: dict[str, Any]
    containers: list[tuple[Any, Any]]
    generators: list[tuple[Any, Any]]
    requires_grad: list[tuple[nn.Parameter, bool]]

    @classmethod
    def of(cls, module: nn.Module) -> _Kept:
        buffers = {k: (b, b.detach().clone()) for k, b in module._buffers.items() if b is not None}
        attributes = {k: v for k, v in vars(module).items() if k not in _ENTRIES}
        own = [
            v for k, v in attributes.items() if isinstance(v, CONTAINERS) and not k.startswith("_")
        ]
        own += [
            v
            for outer in own
            if isinstance(outer, dict)
            for v in outer.values()
            if isinstance(v, CONTAINERS)
        ]
        parameters = [(p, p.requires_grad) for p in module._parameters.values() if p is not None]
        rescales = attributes.get("max_norm") is not None
        rescaled = [(p, p.detach().clone()) for p, _ in parameters if rescales]
        held = (part for v in own for part in (v.values() if isinstance(v, dict) else v))
        drawing = [
            (v, state) for v in (*attributes.values(), *held) if (state := _state_of(v)) is not None
        ]
        return cls(
            module, buffers, rescaled, attributes, [(v, v.copy()) for v in own], drawing, parameters
        )

    def restore(self) -> bool:
        """Puts everything back; whether a generator of the module's own had moved."""
        for key, (buffer, value) in self.buffers.items():
            self.module._buffers[key] = buffer
            _copy_back(buffer, value)
        for weight, value in self.rescaled:
            _copy_back(weight, value)
        now = vars(self.module)
        for key in now.keys() - self.attributes.keys() - _ENTRIES:
            del now[key]
        for key, attribute in self.attributes.items():
            if now.get(key) is not attribute:
                now[key] = attribute
        for container, content in self.containers:
            _refill(container, content)
        for parameter, flag in self.requires_grad:
            if parameter.requires_grad != flag:
                parameter.requires_grad_(flag)
        moved = [(g, state) for g, state in self.generators if _state_of(g) != state]
        for generator, state in moved:
            _put_state(generator, state)
        return bool(moved)


def _state_of(generator: Any) -> Any:
    """The state of a generator of Python, numpy or torch, to be compared; None for anything else."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, torch.Generator):
        return tuple(generator.get_state().tolist())
    kind = type(generator)  # numpy need not be there
    if kind.__module__.startswith("numpy.random") and kind.__name__ in ("Generator", "RandomState"):
        return pickle.dumps(generator)
    return None


def _put_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, torch.Generator):
        generator.set_state(torch.tensor(state, dtype=torch.uint8, device="cpu"))
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = pickle.loads(state).bit_generator.state
    else:
        generator.set_state(pickle.loads(state).get_state())


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, dict | set):
        container.update(content)
    else:
        container.extend(content)


def _copy_back(tensor: Tensor, value: Tensor) -> None:
    if tensor.shape != value.shape or not (tensor.is_meta or torch.equal(tensor, value)):
        with torch.no_grad():
            tensor.copy_(value)


class _OwnGenerators(TorchFunctionMode):
    """Sees draws from generators that are not torch's global one."""

    drawn = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        self.drawn = self.drawn or (kwargs or {}).get("generator") is not None
        return func(*args, **(kwargs or {}))


class _RandomState:
    """The states of the global generators of torch, on every device in use, of numpy where it is, and of Python."""

    def __init__(self) -> None:
        self.drawing: Any = getattr(sys.modules.get("numpy"), "random", None)
        self.numpy = self.drawing.get_state() if self.drawing is not None else None
        self.python = random.getstate()
        self.torch = [
            torch.get_rng_state(),
            *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()),
        ]

    def restore(self) -> bool:
        """Puts the states back; whether any had moved."""
        now = _RandomState()
        moved = [not torch.equal(a, b) for a, b in zip(self.torch, now.torch, strict=False)]
        if moved[0]:
            torch.set_rng_state(self.torch[0])
        if any(moved[1:]):
            torch.cuda.set_rng_state_all(self.torch[1:])
        moved += [now.python != self.python, _comparable(now.numpy) != _comparable(self.numpy)]
        random.setstate(self.python)
        if self.numpy is not None:
            self.drawing.set_state(self.numpy)
        return any(moved)


def _comparable(state: Any) -> Any:
    """A state of numpy's global generator with its array of words as bytes."""
    return state and (state[0], state[1].tobytes(), *state[2:])


@contextmanager
def refuse_draws(where: str, own: bool = True) -> Iterator[None]:
    """Raises MeasurementError when what runs inside draws at random, and puts the generators back. own: also from
    generators that are not global."""
    before, watch = _RandomState(), _OwnGenerators()
    try:
        with watch if own else nullcontext():
            yield
    finally:
        moved = before.restore()
    if watch.drawn or moved:
        raise MeasurementError(
            f"{where} draws at random in a forward pass, so that the numbers would be those of one draw: call .eval(), "
            "or make what is drawn an input"
        )


@contextmanager
def untouched(*owners: Any, found: Reachable | None = None) -> Iterator[None]:
    """The model as it was when the block ends, however it ends: buffers, attributes, flags, and the random state.

    owners: graphs, modules, losses. Tensors that functions hold in closures are watched like buffers when they need no
    gradient. found: what is reachable from the owners, where that is known.
    """
    kept: dict[int, _Kept] = {}
    found = reachable(*owners) if found is None else found
    loose = [
        (t, t.detach().clone())
        for _, t in found.tensors.values()
        if not t.requires_grad and t.numel() < 1 << 16
    ]
    kept |= {key: _Kept.of(module) for key, (_, module) in found.modules.items()}

    @watching
    def watch(module: nn.Module, _: Any) -> None:
        if id(module) not in kept:
            kept[id(module)] = _Kept.of(module)

    generators = _RandomState()
    handle = register_module_forward_pre_hook(watch)
    try:
        yield
    finally:
        handle.remove()
        moved = [saved.module for saved in kept.values() if saved.restore()]
        for tensor, value in loose:
            _copy_back(tensor, value)
        generators.restore()
    if moved:
        raise MeasurementError(
            f"{type(moved[0]).__name__} draws at random from its own generator, so that the numbers would be those "
            "of one draw: remove the randomness, or make what is drawn an input"
        )


# ------------------------------------------------------------------ the state that derivatives need


def measuring(dag: Dag) -> AbstractContextManager[None]:
    """Gradients on, inference mode off, autocast refused, the model untouched: whatever the caller's state is.

    Raises MeasurementError when `dag` is no Dag or autocast is on (the numbers would be those of another precision).
    """
    require_dag(dag)
    return measuring_module(dag)


def undisturbed(measure: Callable[Concatenate[Dag, P], R]) -> Callable[Concatenate[Dag, P], R]:
    """A function of a graph that runs in `measuring`."""

    @functools.wraps(measure)
    def measured(dag: Dag, *args: P.args, **kwargs: P.kwargs) -> R:
        with measuring(dag):
            return measure(dag, *args, **kwargs)

    return measured


ONE_AT_A_TIME = threading.RLock()
"""Held while something is measured: graphs, hooks, modules and the levels of forward differentiation belong to all
threads."""
_MEASURED: ContextVar[Mapping[tuple[int, ...], Reachable]] = ContextVar("measured", default={})  # noqa: B039
"""Owners of the measurements that are under way in this context, and what they are made of."""


def parts_of(dag: Dag) -> Reachable:
    """What the graph is made of; inside its measurement, as it was found there."""
    return _MEASURED.get().get((id(dag),)) or reachable(dag)


@contextmanager
def measuring_module(*owners: Any) -> Iterator[None]:
    """The same of a module and a loss that are no graph yet. Inside another one of the same owners, that one keeps and
    puts back the model's state: a fifth of the time of small exact blocks went into doing it again."""
    known = tuple(map(id, owners))
    if known in _MEASURED.get():
        with torch.inference_mode(False), torch.enable_grad():
            yield
        return
    with ONE_AT_A_TIME:
        found = reachable(*owners)
        refuse_autocast(devices_of(found))
        token = _MEASURED.set({**_MEASURED.get(), known: found})
        try:
            with (
                torch.inference_mode(False),
                torch.enable_grad(),
                full_precision(),
                untouched(found=found),
            ):
                yield
        finally:
            _MEASURED.reset(token)


def devices_of(found: Reachable) -> list[str]:
    """Types of the devices that parameters lie on, the processor's always. Raises MeasurementError for weights that are
    not there."""
    held = {"cpu": ""}
    for where, module in found.modules.values():
        for p in (p for p in module._parameters.values() if p is not None):
            held[p.device.type] = where
            if isinstance(p, nn.parameter.UninitializedParameter):
                raise MeasurementError(
                    f"module {where!r} has no weights yet (a lazy module): call the network once on data"
                )
            if type(p).__name__ == "DTensor":
                raise MeasurementError(
                    f"module {where!r} has parameters that are spread over processes (DTensor, as of FSDP2): expected "
                    "plain tensors; load get_model_state_dict(module, options=StateDictOptions(full_state_dict=True)) "
                    "of torch.distributed.checkpoint.state_dict into a module that is not wrapped"
                )
    if "meta" in held:
        raise MeasurementError(
            f"module {held['meta']!r} has weights on the meta device, which have no values: load them (to_empty and "
            "load_state_dict) before measuring"
        )
    return sorted(held)


def refuse_autocast(devices: Iterable[str]) -> None:
    """Raises MeasurementError when autocast is on for one of the device types."""
    for device in devices:
        if torch.is_autocast_enabled(device):
            raise MeasurementError(
                f"autocast is on ({device}): half-precision products have errors of about 1e-2. Measure outside of "
                "torch.autocast, or inside torch.autocast(..., enabled=False)"
            )


def require_dag(dag: object) -> None:
    """Raises MeasurementError, with the way in, for anything that is no Dag."""
    if not isinstance(dag, Dag):
        raise MeasurementError(
            f"expected a Dag, found {type(dag).__name__}: use Dag.from_sequential(model) for an nn.Sequential, "
            "trace_module(model, loss, (x, y)) for another module, or Dag([Node(...), ...])"
        )


def require_tensors(**given: object) -> None:
    """Raises MeasurementError, with the name, for what is no tensor: a list of labels, an array."""
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise MeasurementError(
                f"expected a tensor for {name}, found {describe(value)}: torch.as_tensor({name})"
            )


def differentiable_copy(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy that autograd can use when it was made under torch.inference_mode."""
    return tensor.clone() if tensor.is_inference() else tensor
