"""Recognising node functions whose derivatives are known in closed form (structure.py), by their
class.

Anything else is left to automatic differentiation, which gives the same numbers: recognising saves
time and must never cost a result. A module of the user's joins by `curvature_structure`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature.graphs.dag import Concatenated, Residual, WeightedSum
from runner.curvature.graphs.state import hooked
from runner.curvature.graphs.structure import (
    Chain,
    ElementwiseStage,
    LayerNormStage,
    LinearStage,
    ResidualStage,
    Stage,
    Structure,
)

SMOOTH = (
    torch.tanh,
    torch.sigmoid,
    torch.sin,
    torch.cos,
    torch.exp,
    F.tanh,
    F.sigmoid,
    F.gelu,
    F.silu,
    F.softplus,
    F.elu,
    F.mish,
)
PIECEWISE_LINEAR = (torch.relu, F.relu, F.leaky_relu, F.relu6, F.hardtanh)
SMOOTH_MODULES = (
    nn.GELU,
    nn.SiLU,
    nn.Softplus,
    nn.Tanh,
    nn.Sigmoid,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.Mish,
    nn.Softsign,
    nn.LogSigmoid,
)
PIECEWISE_LINEAR_MODULES = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh)

M = TypeVar("M", bound=nn.Module)


def as_written(module: object, kind: type[M]) -> TypeGuard[M]:
    """Whether `module` computes what `kind` computes: neither the class nor the object overrides
    forward or the call, and no hook changes it."""
    if not isinstance(module, kind) or {"forward", "_call_impl"} & vars(module).keys():
        return False
    of_class = type(module)
    if of_class.forward is not kind.forward or of_class.__call__ is not nn.Module.__call__:
        return False
    return not hooked(module)


def _stated(module: nn.Module) -> Callable[[int], Structure | None] | None:
    """Its `curvature_structure`, where the class of its forward defines it: a subclass that
    overrides forward alone no longer computes the stated structure."""
    for kind in type(module).__mro__:
        if "forward" in vars(kind):
            defines = "curvature_structure" in vars(kind)
            return getattr(module, "curvature_structure", None) if defines else None
    return None


def _stages(fn: Callable[..., Tensor]) -> list[Stage] | None:
    """The stages of fn, [] where it does nothing, or None when it is not recognised."""
    if as_written(fn, nn.Sequential):
        return _chain_of(fn)
    if as_written(fn, Residual):
        branch = _stages(fn.branch)
        if branch is None:
            return None
        return [ResidualStage(Chain(tuple(branch)), float(fn.scale))]
    if as_written(fn, nn.Linear):
        return [LinearStage(fn.weight.detach(), _constant(fn.bias))]
    if as_written(fn, nn.LayerNorm):
        if len(fn.normalized_shape) != 1:
            return None
        return [LayerNormStage(_constant(fn.weight), _constant(fn.bias), fn.eps)]
    if as_written(fn, nn.Identity):
        return []
    if as_written(fn, nn.Dropout):
        return None if fn.training else []
    return _elementwise(fn)


def _constant(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.detach()


def _elementwise(fn: Callable[..., Tensor]) -> list[Stage] | None:
    if not isinstance(fn, nn.Module):
        smooth = fn in SMOOTH
        piecewise = fn in PIECEWISE_LINEAR
    else:
        smooth = any(as_written(fn, kind) for kind in SMOOTH_MODULES)
        piecewise = any(as_written(fn, kind) for kind in PIECEWISE_LINEAR_MODULES)
    # In-place variants would overwrite what the next stage needs.
    if getattr(fn, "inplace", False) or not (smooth or piecewise):
        return None
    return [ElementwiseStage(fn, piecewise)]


def _chain_of(parts: Iterable[Callable[..., Tensor]]) -> list[Stage] | None:
    chain: list[Stage] = []
    for part in parts:
        stages = _stages(part)
        if stages is None:
            return None
        chain += stages
    return chain


def _fits(inputs: Sequence[Tensor]) -> bool:
    """Whether closed forms exist for nodes with these inputs: (B, d), in float32 or float64."""
    return all(t.dim() == 2 and t.dtype in (torch.float32, torch.float64) for t in inputs)


def structure_of(fn: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Structure | None:
    """The closed-form structure of fn on these inputs, or None: then automatic differentiation is
    used."""
    if not _fits(inputs):
        return None
    if isinstance(fn, nn.Module):
        stated = _stated(fn)
        if stated is not None:
            return None if hooked(fn) else stated(len(inputs))
    if as_written(fn, WeightedSum):
        same = len(inputs) == len(fn.weights) and len({t.shape for t in inputs}) == 1
        return Structure(fn.weights, Chain(())) if same else None
    if as_written(fn, Concatenated):
        body = _stages(fn.body)
        if body is None:
            return None
        return Structure(None, Chain(tuple(body)))
    if len(inputs) != 1:
        return None
    stages = _stages(fn)
    if stages is None:
        return None
    return Structure((1.0,), Chain(tuple(stages)))
