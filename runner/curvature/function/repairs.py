"""A module in a form that has a second derivative and runs once, in Python: repairs of torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils import checkpoint

from runner.curvature.basics.precision import full_precision


@contextmanager
def measurable(modules: Iterable[nn.Module]) -> Iterator[None]:
    """While inside, everything of these modules has a second derivative and runs once, in Python.

    Attention uses the math kernel, MultiheadAttention and TransformerEncoderLayer not their fast
    path, recurrent layers not their fused kernels, torch.compile is off, checkpoints keep what they
    would recompute, parametrizations are not cached. Weight norm, whose second derivative in torch
    takes |v| for a constant (2.13), hardsigmoid and the multi-margin loss are written out.
    """
    with full_precision(), ExitStack() as stack:
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        if any(isinstance(m, nn.RNNBase) for m in modules):
            for library in map(vars(torch.backends).__getitem__, ("cudnn", "mkldnn")):
                stack.callback(setattr, library, "enabled", library.enabled)
                library.enabled = False
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for owner, name, replacement in _REPLACED:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield


@contextmanager
def fused_cells() -> Iterator[None]:
    """oneDNN's recurrent layers, for first derivatives inside of `measurable`."""
    library: Any = torch.backends.mkldnn
    before = library.enabled
    library.enabled = True
    try:
        yield
    finally:
        library.enabled = before


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / |v|, the norm over all dimensions except `dim`."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _hardsigmoid(t: Tensor) -> Tensor:
    return F.hardtanh(t / 6 + 0.5, 0.0, 1.0)


def _multi_margin_loss(
    f: Tensor, y: Tensor, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: int = 1
) -> Tensor:
    """sum_k max(0, margin - f_y + f_k)^p w_y / K over the other classes k."""
    if f.dim() != 2:
        f = f.unsqueeze(0)
        y = y.unsqueeze(0)
    label = y.unsqueeze(1)
    lacking = (margin - f.gather(1, label) + f).relu()
    each = lacking.pow(p).scatter(1, label, 0).sum(1) / f.shape[1]
    if weight is not None:
        each = each * weight[y]
    if reduction == 0:
        return each
    if reduction == 1:
        return each.mean()
    return each.sum()


class _Plain:
    """Stands for torch's reentrant checkpoint: calls the function and keeps its graph."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        return function(*args)


def _keep(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Stands for the two halves of torch's checkpoint around a function: does nothing before and
    after."""
    yield


_REPLACED: list[tuple[Any, str, Any]] = [
    (torch, "_weight_norm", _weight_norm),
    (sys.modules["torch.nn.utils.weight_norm"], "_weight_norm", _weight_norm),
    (torch._C._nn, "hardsigmoid", _hardsigmoid),
    (torch._C._nn, "hardsigmoid_", lambda t: t.copy_(_hardsigmoid(t))),
    (torch._C._nn, "multi_margin_loss", _multi_margin_loss),
    (checkpoint, "CheckpointFunction", _Plain),
    (checkpoint, "_checkpoint_without_reentrant_generator", _keep),
    (parametrize, "_cache_enabled", 0),
]
"""torch's own operations without a second derivative, or with a wrong one, and what stands in for
them. A checkpointed part would be run again while gradients are taken, and a cached weight would be
a constant."""
