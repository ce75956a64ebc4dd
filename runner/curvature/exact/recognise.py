"""Recognising node functions whose derivatives are known in closed form (structure.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature.exact.structure import (
    Chain,
    ElementwiseStage,
    LayerNormStage,
    LinearStage,
    ResidualStage,
    Stage,
    Structure,
)
from runner.curvature.graph.composition import Composition, Concatenated, Residual, WeightedSum
from runner.curvature.graph.written import as_written, hooked

_SMOOTH = (
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
_PIECEWISE = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh)
_SMOOTH_FUNCTIONS = (
    torch.tanh,
    torch.sigmoid,
    torch.sin,
    torch.exp,
    F.gelu,
    F.silu,
    F.softplus,
    F.elu,
    F.mish,
    F.tanh,
    F.sigmoid,
)
_PIECEWISE_FUNCTIONS = (torch.relu, F.relu, F.leaky_relu, F.relu6)
_IDENTITIES = (nn.Identity, nn.Dropout)


def _owner(module: nn.Module, name: str) -> type | None:
    """The class that defines the method: a subclass that overrides forward alone no longer computes the stated
    structure."""
    return next((kind for kind in type(module).__mro__ if name in vars(kind)), None)


def _stages(fn: Callable[..., Tensor]) -> list[Stage] | None:
    """The stages of fn, or None when it is not recognised."""
    if not isinstance(fn, nn.Module):
        if any(fn is known for known in _SMOOTH_FUNCTIONS):
            return [ElementwiseStage(fn, False)]
        return [ElementwiseStage(fn, True)] if any(fn is known for known in _PIECEWISE_FUNCTIONS) else None
    if isinstance(fn, nn.Sequential) and as_written(fn, nn.Sequential):
        return _chain_of(list(fn))
    if isinstance(fn, Composition) and as_written(fn, Composition):
        return _chain_of(fn.parts)
    if isinstance(fn, Residual) and as_written(fn, Residual):
        branch = _stages(fn.branch)
        return None if branch is None else [ResidualStage(Chain(tuple(branch)), float(fn.scale))]
    return single_stage(fn)


def single_stage(fn: nn.Module) -> list[Stage] | None:
    """The stage of one of torch's own modules, [] for one that does nothing, None for one that is not known."""
    if isinstance(fn, nn.Linear) and as_written(fn, nn.Linear):
        return [LinearStage(fn.weight.detach(), None if fn.bias is None else fn.bias.detach())]
    if isinstance(fn, nn.LayerNorm) and as_written(fn, nn.LayerNorm) and len(fn.normalized_shape) == 1:
        weight = None if fn.weight is None else fn.weight.detach()
        return [LayerNormStage(weight, None if fn.bias is None else fn.bias.detach(), fn.eps)]
    if any(as_written(fn, kind) for kind in _IDENTITIES) and not (isinstance(fn, nn.Dropout) and fn.training):
        return []
    for kinds, piecewise in ((_SMOOTH, False), (_PIECEWISE, True)):
        if any(as_written(fn, kind) for kind in kinds):
            # In-place variants would overwrite what the next stage needs.
            return None if getattr(fn, "inplace", False) else [ElementwiseStage(fn, piecewise)]
    return None


def _chain_of(parts: Sequence[Callable[..., Tensor]]) -> list[Stage] | None:
    found: list[Stage] = []
    for part in parts:
        stages = _stages(part)
        if stages is None:
            return None
        found += stages
    return found


def traceable(inputs: Sequence[Tensor]) -> bool:
    """Whether closed forms exist for nodes with these inputs: (B, d), in float32 or float64.

    In half precision a closed form and the function itself differ by more than what tells a wrong one from a right one.
    """
    return all(t.dim() == 2 and t.dtype in (torch.float32, torch.float64) for t in inputs)


def structure_of(fn: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Structure | None:
    """The closed-form structure of fn on these inputs, or None: then automatic differentiation is used."""
    if not traceable(inputs):
        return None
    stated = getattr(fn, "curvature_structure", None)
    if stated is not None and isinstance(fn, nn.Module) and _owner(fn, "forward") is _owner(fn, "curvature_structure"):
        return stated(len(inputs)) if not hooked(fn) else None
    if isinstance(fn, WeightedSum) and as_written(fn, WeightedSum):
        same = len(inputs) == len(fn.weights) and len({t.shape for t in inputs}) == 1
        return Structure(fn.weights, Chain(())) if same else None
    if isinstance(fn, Concatenated) and as_written(fn, Concatenated):
        body = _stages(fn.body)
        return None if body is None else Structure(None, Chain(tuple(body)))
    if len(inputs) != 1:
        return None
    stages = _stages(fn)
    return None if stages is None else Structure((1.0,), Chain(tuple(stages)))
