"""A module whose parameters and buffers are replaced for a while, with the random state put
back."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError, some

T = TypeVar("T")
ONE_AT_A_TIME = threading.RLock()
"""Held while a module's tensors are replaced: modules belong to all threads."""


def modules_of(roots: Iterable[object]) -> list[nn.Module]:
    """Every module below the roots, once."""
    found = {}
    for root in roots:
        if isinstance(root, nn.Module):
            found.update({id(module): module for module in root.modules()})
    return list(found.values())


@contextmanager
def placed(modules: Iterable[nn.Module], tensors: Mapping[int, Tensor]) -> Iterator[None]:
    """While inside, every place of a parameter or buffer t among the modules holds tensors[id(t)].

    Keyed by the identity of the tensor, so that tied weights and modules with two names stay what
    they are. `torch.func.functional_call` leaves the replaced tensor in a module that has two names
    (torch 2.13).
    """
    before: list[tuple[dict[str, Any], dict[str, Any]]] = []
    try:
        for module in modules:
            tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for table in tables:
                before.append((table, dict(table)))
                for name, tensor in table.items():
                    table[name] = tensors.get(id(tensor), tensor)
            if isinstance(module, nn.RNNBase):
                before.append((module.__dict__, dict(module.__dict__)))
                names: list[str] = module._flat_weights_names
                module.__dict__["_flat_weights"] = [getattr(module, name, None) for name in names]
        yield
    finally:
        for table, entries in before:
            if isinstance(table, dict):  # scripted modules have tables of another kind
                table.clear()
            for name, tensor in entries.items():
                table[name] = tensor


def _numpy() -> Any:
    """numpy's random numbers, None where it was not imported."""
    return getattr(sys.modules.get("numpy"), "random", None)


def reseed(seed: int) -> None:
    """Seeds the global generators of torch, numpy and Python."""
    random.seed(seed)
    # torch.manual_seed formats a stack trace for every device
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if (numpy := _numpy()) is not None:
        numpy.seed(seed)


@contextmanager
def unwritten(module: nn.Module) -> Iterator[None]:
    """Raises ValueError where parameters are written to inside; the module is then as before."""
    attributes = [(vars(m), dict(vars(m))) for m in module.modules()]
    before = {}
    for name, p in module.named_parameters():
        if type(p.data) is Tensor:
            before[name] = p, p.data, p.detach().clone()
    written = []
    try:
        yield
    finally:
        for name, (p, data, copy) in before.items():
            if not bool(((p == copy) | (copy != copy)).all()):
                written.append(name)
                data.copy_(copy)
                p.data = data
    if written:
        for names, values in attributes:
            names.clear()
            names.update(values)
        raise MeasurementError(
            f"the module writes to its parameters when it is called ({some(written, 3)}): expected "
            "a function of them. Call it once before, if it only initialises them, or take the "
            "write out of forward"
        )


def random_states() -> Callable[[], None]:
    """Keeps the states of the global generators of torch, numpy and Python; the result puts them
    back."""
    python = random.getstate()
    on_cpu = torch.get_rng_state()
    numpy = _numpy()
    on_devices = None
    if torch.cuda.is_initialized():
        on_devices = torch.cuda.get_rng_state_all()
    of_numpy = None if numpy is None else numpy.get_state()

    def put_back() -> None:
        random.setstate(python)
        torch.set_rng_state(on_cpu)
        if on_devices is not None:
            torch.cuda.set_rng_state_all(on_devices)
        if numpy is not None:
            numpy.set_state(of_numpy)

    return put_back


@contextmanager
def random_state() -> Iterator[None]:
    """The global generators of torch, numpy and Python are as before when the block ends."""
    put_back = random_states()
    try:
        yield
    finally:
        put_back()


def write_back(kept: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Gives tensors the values that they had before, where they have others now: torch's batch norm
    raises no version."""
    with torch.no_grad():
        for tensor, before in kept:
            if not torch.equal(tensor, before):
                tensor.copy_(before)


def changes_gradients(module: nn.Module) -> bool:
    """Whether hooks of a module, without its parts, may change gradients."""
    tensors = any(p is not None and p._backward_hooks for p in module._parameters.values())
    return bool(module._backward_hooks or module._backward_pre_hooks or tensors)


def counted(make: Callable[[], T], there: Iterable[Tensor]) -> tuple[T, float]:
    """What make() gives, and the bytes that its graphs save for their backward pass, some counted
    more than once, besides those of tensors that are `there`; NaN where torch does not tell."""
    held = {t.untyped_storage().data_ptr() for t in there}
    total = 0

    def pack(t: Tensor) -> tuple[Tensor]:
        nonlocal total
        if t.layout is torch.strided and t.untyped_storage().data_ptr() not in held:
            total += t.numel() * t.element_size()
        return (t,)

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, itemgetter(0)):
            return make(), total
    except (MeasurementError, RuntimeError):  # torch.func allows no such hooks
        return make(), math.nan


def runs_python(steps: Iterable[Any]) -> bool:
    """Whether steps of a graph run Python code of users when it is differentiated: autograd
    functions, hooks of tensors."""
    return any(_is_users(step) or getattr(step, "_input_metadata_hooks", None) for step in steps)


_FUNCTIONS: Any = torch.autograd.function.BackwardCFunction


def _is_users(step: Any) -> bool:
    """Whether it may read more than it saved: not so those of `Convolutions`, which say it."""
    return isinstance(step, _FUNCTIONS) and not getattr(step._forward_cls, "alone", False)


def steps_behind(tensors: Iterable[Tensor | None]) -> Iterator[Any]:
    """The steps of autograd's graph behind the tensors, each once."""
    waiting: list[Any] = [t.grad_fn for t in tensors if t is not None and t.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        step = waiting.pop()
        yield step
        for following, _ in step.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
