"""The calls that a module makes to its submodules, seen and replaced while it runs; the module itself is not changed.

A call is (name of the submodule, how many times it has been called), so that a module used twice makes two of them.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as room

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.written import watches

Call = tuple[str, int]
Handler = Callable[[Call, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""handler(call, forward, args, kwargs) gives the output of the call; forward(*args, **kwargs) makes it."""

_WRAPPED = ("_orig_mod", "_checkpoint_wrapped_module")
RANDOM_IN_TRAINING = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)


def label(call: Call) -> str:
    """The node's name of a call: "act", "act#2" for the second one; "input" is taken by the graph."""
    name, count = call
    return name if count == 1 and name != "input" else f"{name}#{count}"


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside torch.compile and data-parallel wrappers."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(inner, nn.Module):
            module = inner
        elif isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
        else:
            return module


def submodules(root: nn.Module) -> dict[str, nn.Module]:
    """Submodules by name without the words of wrappers ("_orig_mod"); a module with two names has its first one."""
    found: dict[str, nn.Module] = {}
    for name, module in root.named_modules():
        plain = ".".join(part for part in name.split(".") if part not in _WRAPPED)
        if plain and hasattr(module, "_orig_mod"):
            continue
        if plain and not isinstance(module, torch.jit.ScriptModule):
            found.setdefault(plain, module)
    return found


def check_evaluation(root: nn.Module) -> None:
    """Raises ValueError for submodules whose training mode makes an example's loss random or dependent on others."""
    for name, module in root.named_modules():
        where = f"module {name!r} ({type(module).__name__})" if name else type(module).__name__
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise MeasurementError(f"{where} normalises by the batch: call .eval() (and keep running statistics)")
        if not module.training or not isinstance(module, RANDOM_IN_TRAINING):
            continue
        rate = getattr(module, "p", getattr(module, "dropout", 0.0))
        if rate > 0:
            raise MeasurementError(f"{where} draws at random in training mode (dropout {rate}): call .eval()")


@contextmanager
def intercepted(root: nn.Module, handler: Handler, counts: Counter[str] | None = None) -> Iterator[None]:
    """While inside, every call of a submodule goes through `handler`, its own hooks inside of it. counts: calls by
    name, which a handler that leaves calls out has to raise by those."""
    counts = Counter() if counts is None else counts
    changed: list[tuple[nn.Module, str, Any]] = []

    def wrap(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return handler((name, counts[name]), forward, args, kwargs)

        return call

    try:
        for name, module in submodules(root).items():
            entry = _entry(module)
            changed.append((module, entry, module.__dict__.get(entry)))
            module.__dict__[entry] = wrap(name, getattr(module, entry))
        yield
    finally:
        for module, entry, own in changed:
            if own is None:
                module.__dict__.pop(entry, None)
            else:
                module.__dict__[entry] = own


def _entry(module: nn.Module) -> str:
    """The method that gives a module's output: hooks may change what `forward` returns."""
    if not (module._forward_hooks or any(not watches(hook) for hook in room._global_forward_hooks.values())):
        return "forward"
    return "_call_impl" if getattr(module, "_compiled_call_impl", None) is None else "_compiled_call_impl"


@contextmanager
def measurable(root: nn.Module) -> Iterator[None]:
    """While inside, everything has a second derivative and runs once, in Python.

    Attention uses the math kernel, MultiheadAttention and TransformerEncoderLayer not their fast path, recurrent layers
    not their fused kernels, torch.compile is off, checkpoints keep what they would recompute, and weight norm is
    written out: the second derivative of torch's own takes |v| for a constant (2.13).
    """
    with ExitStack() as stack:
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        if any(isinstance(m, nn.RNNBase) for m in root.modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            with warnings.catch_warnings():  # about the TF32 setting of other devices, which is not touched
                warnings.simplefilter("ignore")
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_no_checkpoints())
        stack.enter_context(_written_out_weight_norm())
        yield


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """g v / |v|, the norm over all dimensions but `dim`."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


@contextmanager
def _written_out_weight_norm() -> Iterator[None]:
    room = sys.modules["torch.nn.utils.weight_norm"]
    kept = torch._weight_norm, room._weight_norm
    torch._weight_norm = room._weight_norm = _weight_norm  # type: ignore[assignment, attr-defined]
    try:
        yield
    finally:
        torch._weight_norm, room._weight_norm = kept  # type: ignore[attr-defined]


class _Plain:
    """Stands for torch's reentrant checkpoint: calls the function and keeps its graph."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        return function(*args)


def _keep(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Stands for the two halves of torch's checkpoint around a function: does nothing before and after."""
    yield


@contextmanager
def _no_checkpoints() -> Iterator[None]:
    """A checkpointed part would be run again while gradients are taken, when no call is intercepted any more."""
    from torch.utils import checkpoint as room

    kept = {name: getattr(room, name) for name in ("CheckpointFunction", "_checkpoint_without_reentrant_generator")}
    room.CheckpointFunction = _Plain  # type: ignore[misc, assignment]
    room._checkpoint_without_reentrant_generator = _keep
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(room, name, value)
