"""Dense and matrix-free float64 oracles by torch alone: in shifts of outputs, and over the
parameters of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from runner.curvature.function.groups import parameter_groups

Blocks = dict[tuple[str, str], Tensor]


def placed(
    function: Callable[[dict[str, Tensor]], Any], shapes: Mapping[str, Sequence[int]]
) -> Any:
    """A function of shifts as one of a flat vector, and that vector at zero."""
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]

    def of_flat(flat: Tensor) -> Any:
        pieces = zip(shapes.items(), flat.split(sizes), strict=True)
        return function({v: e.view(*shape) for (v, shape), e in pieces})

    return of_flat, torch.zeros(sum(sizes), dtype=torch.float64)


def blocks_of(dense: Tensor, shapes: Mapping[str, Sequence[int]]) -> Blocks:
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    rows = zip(shapes, dense.split(sizes), strict=True)
    return {(v, w): b for v, row in rows for w, b in zip(shapes, row.split(sizes, 1), strict=True)}


def assembled(blocks: Mapping[tuple[str, str], Tensor], nodes: Sequence[str]) -> Tensor:
    """The symmetric matrix of the blocks of all ordered pairs."""
    rows = []
    for v in nodes:
        rows.append(torch.cat([blocks[v, w] for w in nodes], 1))
    return torch.cat(rows)


def hessian_blocks(
    value: Callable[[dict[str, Tensor]], Tensor], shapes: Mapping[str, Sequence[int]]
) -> Blocks:
    """Blocks of the dense Hessian of value(shifts) at zero shifts of these shapes."""
    return blocks_of(hessian(*placed(value, shapes)), shapes)


def gauss_newton_matrix(
    output: Callable[[Tensor], Tensor], at: Tensor, loss: Callable[[Tensor], Tensor]
) -> Tensor:
    """J^T (d2 loss / df2) J of loss(output(at))."""
    rows, f = jacobian(output, at).flatten(0, -2), output(at).detach()
    return rows.mT @ hessian(loss, f).reshape(f.numel(), f.numel()) @ rows


def arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of an input: a dictionary, a tuple, (tuple, dictionary) or one object."""
    if isinstance(given, dict):
        return (), given
    if isinstance(given, tuple) and isinstance(given[-1], dict):
        return given  # type: ignore[return-value]
    return given if isinstance(given, tuple) else (given,), {}


def flat_function(
    module: nn.Module, given: Any, names: Iterable[str] | None = None
) -> tuple[Callable[[Tensor], Any], Tensor]:
    """Output as a function of the flat vector of the named parameters, by default those of an
    operator, and that vector."""
    known = dict(module.named_parameters())
    chosen = parameter_groups(module, None).parameters if names is None else names
    named = {name: known[name] for name in chosen}
    args, kwargs = arguments(given)

    def output(flat: Tensor) -> Any:
        pieces = flat.split([p.numel() for p in named.values()])
        moved = {}
        for (name, p), piece in zip(named.items(), pieces, strict=True):
            moved[name] = piece.view_as(p)
        with sdpa_kernel(SDPBackend.MATH):
            return functional_call(module, moved, args, kwargs)

    return output, torch.cat([p.detach().flatten() for p in named.values()])


PARTS = ("hessian", "gauss_newton")


def parameter_matrix(
    part: str,
    module: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    given: Any,
    y: Any,
    names: Any = None,
) -> Tensor:
    """The dense matrix over the parameters."""
    output, theta = flat_function(module, given, names)
    if part == "hessian":
        return hessian(lambda t: loss(output(t), y), theta)
    return gauss_newton_matrix(output, theta, lambda o: loss(o, y))


def flat_gradient(value: Tensor, at: Iterable[Tensor], create: bool = False) -> Tensor:
    """The gradient of a scalar as one vector."""
    slopes = torch.autograd.grad(value, list(at), retain_graph=True, create_graph=create)
    return torch.cat([slope.flatten() for slope in slopes])


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


# ------------------------------------------------------------------ products by double backward


def pulled(
    value: Any, at: Sequence[Tensor], weights: Any = None, create: bool = True
) -> list[Tensor]:
    """J^T weights at `at`, zero where the value does not depend on it."""
    found = torch.autograd.grad(
        value, at, weights, create_graph=create, retain_graph=True, allow_unused=True
    )
    return [torch.zeros_like(p) if g is None else g for p, g in zip(at, found, strict=True)]


def dotted(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    return torch.stack([(a * b).sum() for a, b in zip(left, right, strict=True)]).sum()


def twice(value: Tensor, at: Sequence[Tensor], direction: Sequence[Tensor]) -> list[Tensor]:
    """The second derivative of a scalar along a direction."""
    slope = dotted(pulled(value, at), direction)
    if not slope.requires_grad:
        return [torch.zeros_like(p) for p in at]
    return pulled(slope, at, create=False)


def factored(
    outputs: Sequence[Tensor],
    at: Sequence[Tensor],
    direction: Sequence[Tensor],
    curvature: Callable[[list[Tensor], list[Tensor]], list[Tensor]],
) -> list[Tensor]:
    """J^T A J v: J v by two backward passes, curvature(outputs, tangents) the product with A."""
    weights = [torch.zeros_like(t, requires_grad=True) for t in outputs]
    tangents = pulled(dotted(pulled(outputs, at, weights), direction), weights, create=False)
    leaves = [t.detach().requires_grad_() for t in outputs]
    return pulled(outputs, at, curvature(leaves, tangents), create=False)


def shifted(output: Any, shift: Callable[[Tensor], Tensor]) -> Any:
    """An output whose first floating-point tensor t is t + shift(t)."""
    leaves, spec = tree_flatten(output)
    k = next(k for k, t in enumerate(leaves) if isinstance(t, Tensor) and t.is_floating_point())
    leaves[k] = leaves[k] + shift(leaves[k])
    return tree_unflatten(leaves, spec)
