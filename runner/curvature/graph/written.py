"""Whether a module computes what its class is known to compute, so that a closed form may stand for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as room

Hook = Callable[..., Any]


def watching(hook: Hook) -> Hook:
    """Marks a hook for all modules that looks on and changes nothing."""
    hook.watches = True  # type: ignore[attr-defined]
    return hook


def watches(hook: Hook) -> bool:
    return getattr(hook, "watches", False)


def hooked(module: nn.Module) -> bool:
    """Whether a hook may change what the module or a part of it computes."""
    everywhere = (room._global_forward_hooks, room._global_forward_pre_hooks)
    if any(not watches(hook) for hooks in everywhere for hook in hooks.values()):
        return True
    return any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks for m in module.modules()
    )


def as_written(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether `module` computes what `kind` computes: neither the class nor the object overrides forward or the call,
    and no hook changes it."""
    own = type(module)
    return (
        isinstance(module, kind)
        and own.forward is kind.forward
        and own.__call__ is nn.Module.__call__
        and not {"forward", "_call_impl"} & vars(module).keys()
        and not hooked(module)
    )
