"""The state in which a stated graph is measured: gradients, full precision, unchanged modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as room
from torch.nn.modules.module import register_module_forward_pre_hook

from runner.curvature.basics.errors import MeasurementError, describe
from runner.curvature.basics.precision import full_precision
from runner.curvature.function.context import (
    ONE_AT_A_TIME,
    changes_gradients,
    random_state,
    write_back,
)
from runner.curvature.graphs.dag import Dag
from runner.curvature.operators.building import require_weights

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def model_as_before() -> Iterator[None]:
    """Restores buffers of the modules that are called, and the random state, when the block ends.

    What a call keeps in Python attributes is the user's.
    """
    kept: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def watch(module: nn.Module, _: Any) -> None:
        if module._buffers and module not in kept:
            buffers = [b for b in module._buffers.values() if b is not None]
            kept[module] = [(b, b.detach().clone()) for b in buffers]

    watch.watches = True  # type: ignore[attr-defined]
    with ONE_AT_A_TIME, random_state():
        handle = register_module_forward_pre_hook(watch)
        try:
            yield
        finally:
            handle.remove()
            write_back(pair for pairs in kept.values() for pair in pairs)


def hooked(module: nn.Module) -> bool:
    """Whether a hook may change what the module or a part of it computes."""
    everywhere = (room._global_forward_hooks, room._global_forward_pre_hooks)
    hooks = [hook for table in everywhere for hook in table.values()]
    if not all(getattr(hook, "watches", False) for hook in hooks):
        return True
    return any(
        m._forward_hooks or m._forward_pre_hooks or changes_gradients(m) for m in module.modules()
    )


def named_modules_of(dag: Dag) -> dict[str, nn.Module]:
    """The modules of the nodes and the loss, by name."""
    owners = {name: dag.nodes[name].fn for name in dag.order} | {"loss": dag.loss.fn}
    found: dict[str, nn.Module] = {}
    for name, owner in owners.items():
        if isinstance(owner, nn.Module):
            found |= {f"{name}.{k}" if k else name: m for k, m in owner.named_modules()}
    return found


@contextmanager
def measuring(dag: Dag) -> Iterator[None]:
    """Gradients on, inference mode off, full precision, the model restored at the end.

    Raises MeasurementError when `dag` is no Dag, weights are not there, or autocast is on.
    """
    require_dag(dag)
    require_weights(named_modules_of(dag))
    with torch.inference_mode(False), torch.enable_grad(), full_precision(), model_as_before():
        yield


def undisturbed(measure: Callable[Concatenate[Dag, P], R]) -> Callable[Concatenate[Dag, P], R]:
    """A function of a graph that runs in `measuring`."""

    @functools.wraps(measure)
    def measured(dag: Dag, *args: P.args, **kwargs: P.kwargs) -> R:
        with measuring(dag):
            return measure(dag, *args, **kwargs)

    return measured


def require_dag(dag: object) -> None:
    """Raises MeasurementError, with the way in, for anything that is no Dag."""
    if not isinstance(dag, Dag):
        raise MeasurementError(
            f"expected a Dag, found {type(dag).__name__}: "
            "use Dag.from_sequential(model) for an nn.Sequential, "
            "LayerOperator(model, loss, (x, y)) for another module, or Dag([Node(...), ...])"
        )


def differentiable(**given: Tensor) -> Iterator[Tensor]:
    """Each tensor, or, of an inference tensor, a copy that autograd can use.

    Raises MeasurementError, with the name, for what is no tensor: a list of labels, an array.
    """
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise MeasurementError(
                f"expected a tensor for {name}, found {describe(value)}: torch.as_tensor({name})"
            )
        yield value.clone() if value.is_inference() else value
