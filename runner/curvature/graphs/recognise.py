"""Recognising node functions whose derivatives are known in closed form (structure.py), by their
class or by a trace.

torch.fx records what a function does to its arguments, the code `relu(norm(linear(h)))` as stages;
a short list of operations is understood, and anything else means that the function is left to
automatic differentiation, which gives the same numbers: recognising saves time and must never cost
a result. A function is traced at every evaluation, since constants are computed while tracing, and
trusted only where it reproduces the function's outputs and gradients (derivatives.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

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

SMOOTH: dict[Any, Callable[..., Tensor]] = {
    **{f: f for f in (torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.exp)},
    **{f: f for f in (F.gelu, F.silu, F.softplus, F.elu, F.mish, F.tanh, F.sigmoid)},
    **{name: getattr(torch, name) for name in ("tanh", "sigmoid", "sin", "cos", "exp")},
}
PIECEWISE: dict[Any, Callable[..., Tensor]] = {
    **{f: f for f in (torch.relu, F.relu, F.leaky_relu, F.relu6, F.hardtanh)},
    "relu": torch.relu,
}


def as_written(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether `module` computes what `kind` computes: neither the class nor the object overrides
    forward or the call, and no hook changes it."""
    own = type(module)
    return (
        isinstance(module, kind)
        and own.forward is kind.forward
        and own.__call__ is nn.Module.__call__
        and not {"forward", "_call_impl"} & vars(module).keys()
        and not hooked(module)
    )


class NotRecognised(Exception):
    """The function does something that has no closed form here."""


class _Tracer(fx.Tracer):
    """Keeps torch's own modules whole and constants as they are; nothing is added to the traced
    module."""

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        if type(m).__module__.startswith("torch.nn") and not isinstance(m, nn.Sequential):
            return self.create_proxy("call_function", _named(m), args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            return self.create_node("call_function", _named(a), (), {})
        return super().create_arg(a)


def _named(value: nn.Module | Tensor) -> Callable[..., Any]:
    """A function that stands for a module or a constant in a trace."""

    def leaf(*args: Any) -> Any:
        return value(*args) if isinstance(value, nn.Module) else value

    leaf.value = value  # type: ignore[attr-defined]
    return leaf


@dataclass(frozen=True)
class _Form:
    """A value of the trace: sum_i weights[i] * argument i (concatenated when `joined`), then
    stages."""

    weights: tuple[float, ...]
    joined: bool = False
    stages: tuple[Stage, ...] = ()

    @property
    def is_sum(self) -> bool:
        """A weighted sum of several arguments and nothing more."""
        return len(self.weights) > 1 and not self.joined and not self.stages

    def then(self, *stages: Stage) -> _Form:
        return replace(self, stages=self.stages + stages)


def structure_from_trace(fn: Callable[..., Tensor], arguments: int) -> Structure | None:
    """The structure of a traced function of `arguments` arguments, None when it is not
    recognised."""
    values: dict[fx.Node, Any] = {}
    count = 0
    try:
        for node in _Tracer().trace(fn).nodes:
            if node.op == "placeholder":
                values[node] = _argument(count, arguments)
                count += 1
            elif node.op == "output" and count == arguments:
                form = _form(fx.node.map_arg(node.args[0], values.__getitem__))
                return Structure(None if form.joined else form.weights, Chain(form.stages))
            elif node.op == "output":
                return None
            else:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = _step(node, args, kwargs)
    except Exception:  # NotRecognised, unexpected arguments, any Python code on what is no tensor
        pass
    return None


def _argument(place: int, count: int) -> _Form:
    """The argument at this place of `count`, as it is."""
    return _Form(tuple(float(i == place) for i in range(count)))


def _step(node: fx.Node, args: tuple, kwargs: dict) -> Any:
    target = node.target
    value = getattr(target, "value", None)
    if isinstance(value, Tensor):
        return value.detach()
    if not args:
        raise NotRecognised
    if isinstance(value, nn.Module):
        stages = single_stage(value) if len(args) == 1 and not kwargs else None
        if stages is None:
            raise NotRecognised
        return _form(args[0]).then(*stages)
    for table, piecewise in ((SMOOTH, False), (PIECEWISE, True)):
        if target in table:
            return _form(args[0]).then(_elementwise(table[target], args[1:], kwargs, piecewise))
    if target in (torch.cat, torch.concat):
        return _concatenation(*args, **kwargs)
    if target in (F.linear, F.layer_norm):
        return _functional(target, args, kwargs)
    if kwargs and target is not torch.add:
        raise NotRecognised
    return _arithmetic(target, args, kwargs)


def _elementwise(fn: Callable[..., Tensor], args: tuple, kwargs: dict, piecewise: bool) -> Stage:
    values = (*args, *kwargs.values())
    if kwargs.get("inplace") or any(isinstance(a, _Form | Tensor) for a in values):
        raise NotRecognised
    # relu(x, False): the flag of the in-place variant
    positional = [a for a in args if a is not False]
    if positional and kwargs:
        raise NotRecognised
    return ElementwiseStage(lambda t: fn(t, *positional, **kwargs), piecewise)


def _functional(target: Any, args: tuple, kwargs: dict) -> _Form:
    """F.linear(x, weight, bias) and F.layer_norm(x, shape, weight, bias, eps)."""
    if target is F.linear:
        given = dict(zip(("weight", "bias"), args[1:], strict=False)) | kwargs
        weight, bias = given.get("weight"), given.get("bias")
        if not isinstance(weight, Tensor) or not isinstance(bias, Tensor | None):
            raise NotRecognised
        return _form(args[0]).then(LinearStage(weight, bias))
    names = ("normalized_shape", "weight", "bias", "eps")
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    weight, bias = given.get("weight"), given.get("bias")
    if len(given["normalized_shape"]) != 1 or isinstance(weight, _Form) or isinstance(bias, _Form):
        raise NotRecognised
    return _form(args[0]).then(LayerNormStage(weight, bias, given.get("eps", 1e-5)))


def _concatenation(tensors: Any, dim: int = 0, axis: int | None = None) -> _Form:
    """cat of all arguments in order along dimension 1."""
    dim = dim if axis is None else axis
    forms = [_form(t) for t in tensors]
    count = len(forms)
    plain = all(form == _argument(i, count) for i, form in enumerate(forms))
    if dim not in (1, -1) or not plain or count < 2:
        raise NotRecognised
    return _Form((1.0,) * count, joined=True)


def _arithmetic(target: Any, args: tuple, kwargs: dict) -> _Form:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if len(args) == 1 and name == "neg":
        return _scaled(_form(args[0]), -1.0)
    if len(args) != 2:
        raise NotRecognised
    left, right = args
    is_matrix = isinstance(right, Tensor) and right.dim() == 2
    if name in ("matmul", "mm") and isinstance(left, _Form) and is_matrix:
        return left.then(LinearStage(right.T, None))
    if name == "mul":
        if isinstance(right, _Form):
            left, right = right, left
        return _scaled(_form(left), right)
    if name in ("truediv", "div") and isinstance(right, int | float):
        return _scaled(_form(left), 1 / right)
    if name in ("add", "sub"):
        alpha = kwargs.get("alpha", 1) * (1 if name == "add" else -1)
        return _sum(left, right, alpha)
    raise NotRecognised


def _scaled(form: _Form, factor: Any) -> _Form:
    if isinstance(factor, int | float):
        if form.is_sum:
            return replace(form, weights=tuple(w * factor for w in form.weights))
        return form.then(ElementwiseStage(lambda t: t * factor, True))
    raise NotRecognised


def _sum(left: Any, right: Any, alpha: float) -> _Form:
    if isinstance(left, Tensor) and isinstance(right, _Form) and alpha == 1:
        left, right = right, left
    form = _form(left)
    if isinstance(right, Tensor):
        if right.dim() > 1:
            raise NotRecognised
        return form.then(ElementwiseStage(lambda t: torch.add(t, right, alpha=alpha), True))
    if isinstance(right, int | float):
        return form.then(ElementwiseStage(lambda t: t + alpha * right, True))
    other = _form(right)
    if form.is_sum and other.is_sum:
        return replace(
            form,
            weights=tuple(a + alpha * b for a, b in zip(form.weights, other.weights, strict=True)),
        )
    return _residual(form, other, alpha)


def _residual(form: _Form, other: _Form, alpha: float) -> _Form:
    """h + alpha * branch(h), in either order."""
    same = (form.weights, form.joined) == (other.weights, other.joined)
    if not same:
        raise NotRecognised
    if _begins(other.stages, form.stages):
        return form.then(ResidualStage(Chain(other.stages[len(form.stages) :]), alpha))
    if _begins(form.stages, other.stages) and alpha == 1:
        return other.then(ResidualStage(Chain(form.stages[len(other.stages) :]), 1.0))
    raise NotRecognised


def _begins(stages: tuple[Stage, ...], start: tuple[Stage, ...]) -> bool:
    """Whether `stages` begins with the very stages of `start`: the same values of the trace, not
    equal ones."""
    return len(start) <= len(stages) and all(a is b for a, b in zip(stages, start, strict=False))


def _form(value: Any) -> _Form:
    if not isinstance(value, _Form):
        raise NotRecognised
    return value


_SMOOTH_MODULES = (
    *(nn.GELU, nn.SiLU, nn.Softplus, nn.Tanh, nn.Sigmoid, nn.ELU),
    *(nn.SELU, nn.CELU, nn.Mish, nn.Softsign, nn.LogSigmoid),
)
_PIECEWISE_MODULES = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh)
_IDENTITIES = (nn.Identity, nn.Dropout)


def _owner(module: nn.Module, name: str) -> type | None:
    """The class that defines the method: a subclass that overrides forward alone no longer computes
    the stated structure."""
    return next((kind for kind in type(module).__mro__ if name in vars(kind)), None)


def _stages(fn: Callable[..., Tensor]) -> list[Stage] | None:
    """The stages of fn, or None when it is not recognised."""
    if not isinstance(fn, nn.Module):
        for table, piecewise in ((SMOOTH, False), (PIECEWISE, True)):
            if any(fn is known for known in table):
                return [ElementwiseStage(fn, piecewise)]
        return None
    if isinstance(fn, nn.Sequential) and as_written(fn, nn.Sequential):
        return _chain_of(list(fn))
    if isinstance(fn, Residual) and as_written(fn, Residual):
        branch = _stages(fn.branch)
        return None if branch is None else [ResidualStage(Chain(tuple(branch)), float(fn.scale))]
    return single_stage(fn)


def single_stage(fn: nn.Module) -> list[Stage] | None:
    """The stage of one of torch's own modules, [] for one that does nothing, None for one that is
    not known."""
    if isinstance(fn, nn.Linear) and as_written(fn, nn.Linear):
        return [LinearStage(fn.weight.detach(), None if fn.bias is None else fn.bias.detach())]
    if (
        isinstance(fn, nn.LayerNorm)
        and as_written(fn, nn.LayerNorm)
        and len(fn.normalized_shape) == 1
    ):
        weight = None if fn.weight is None else fn.weight.detach()
        return [LayerNormStage(weight, None if fn.bias is None else fn.bias.detach(), fn.eps)]
    if any(as_written(fn, kind) for kind in _IDENTITIES) and not (
        isinstance(fn, nn.Dropout) and fn.training
    ):
        return []
    for kinds, piecewise in ((_SMOOTH_MODULES, False), (_PIECEWISE_MODULES, True)):
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

    In half precision a closed form and the function itself differ by more than what tells a wrong
    one from a right one."""
    return all(t.dim() == 2 and t.dtype in (torch.float32, torch.float64) for t in inputs)


def structure_of(fn: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Structure | None:
    """The closed-form structure of fn on these inputs, or None: then automatic differentiation is
    used."""
    if not traceable(inputs):
        return None
    stated = getattr(fn, "curvature_structure", None)
    if (
        stated is not None
        and isinstance(fn, nn.Module)
        and _owner(fn, "forward") is _owner(fn, "curvature_structure")
    ):
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
