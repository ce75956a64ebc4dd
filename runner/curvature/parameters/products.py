"""Curvature products of one batch with respect to the parameters, by automatic differentiation.

In gradients (one forward and one backward pass, 3 F for F operations of the forward pass): a Hessian product from the
kept graph of the gradient costs 6 F, two gradients; without it, forward mode over reverse 9 F. A Gauss-Newton product
is a tangent pass (2 F, and F for the values under it) and a backward pass from the kept graph of the outputs (2 F).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from runner.curvature.exact.derivatives import second_derivatives
from runner.curvature.parameters.output import OutputCurvature

Named = dict[str, Tensor]
Loss = Callable[[Any, Any], Tensor]
Mode = Literal["kept graph", "forward over reverse", "double backward"]


@contextmanager
def differentiable() -> Iterator[None]:
    """Gradients on, and attention by a kernel that can be differentiated twice."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        yield


def call(module: nn.Module, parameters: Mapping[str, Tensor], given: Any) -> Any:
    """module(input): a tuple becomes positional arguments, a dict keyword arguments."""
    if isinstance(given, tuple | list):
        return functional_call(module, dict(parameters), tuple(given))
    if isinstance(given, dict):
        return functional_call(module, dict(parameters), (), given)
    return functional_call(module, dict(parameters), (given,))


class BatchHessian:
    """Products with the Hessian of the mean loss of one batch. `keep`: whether the gradient's graph is kept."""

    def __init__(self, module: nn.Module, loss: Loss, batch: tuple[Any, Any], parameters: Named, keep: bool) -> None:
        self.module, self.loss, self.batch, self.keep = module, loss, batch, keep
        self.parameters = parameters
        self.mode: Mode = "kept graph" if keep else "forward over reverse"
        self._gradients: Named | None = None

    def value(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return self.loss(call(self.module, parameters, self.batch[0]), self.batch[1])

    def graph(self) -> Named:
        """The gradient as a differentiable function of the parameters it depends on."""
        if self._gradients is not None:
            return self._gradients
        with differentiable():
            grads = torch.autograd.grad(
                self.value(self.parameters), list(self.parameters.values()), create_graph=True, allow_unused=True
            )
        found = {k: g for k, g in zip(self.parameters, grads, strict=True) if g is not None and g.requires_grad}
        if self.keep:
            self._gradients = found
        return found

    def product(self, directions: Named, wanted: Sequence[str]) -> Named:
        """H v at the parameters `wanted`; directions that are absent are zero."""
        if self.mode == "forward over reverse":
            try:
                return self._forward_over_reverse(directions, wanted)
            except (RuntimeError, NotImplementedError):  # no forward derivative of some operation
                self.mode = "double backward"
        gradients = self.graph()
        names = [k for k in directions if k in gradients]
        if not names:
            return {k: torch.zeros_like(self.parameters[k]) for k in wanted}
        with second_derivatives("the module"):
            found = torch.autograd.grad(
                [gradients[k] for k in names],
                [self.parameters[k] for k in wanted],
                [directions[k] for k in names],
                retain_graph=self.keep,
                allow_unused=True,
            )
        return _filled(found, wanted, self.parameters)

    def _forward_over_reverse(self, directions: Named, wanted: Sequence[str]) -> Named:
        names = list(dict.fromkeys([*directions, *wanted]))
        fixed = {k: p.detach() for k, p in self.parameters.items() if k not in names}

        def gradient(values: Named) -> Named:
            return torch.func.grad(lambda p: self.value({**fixed, **p}))(values)

        values = {k: self.parameters[k].detach() for k in names}
        tangents = {k: directions.get(k, torch.zeros_like(values[k])) for k in names}
        with differentiable():
            found = jvp(gradient, (values,), (tangents,))[1]
        return {k: found[k] for k in wanted}


class BatchFactored:
    """Products J^T A J v of one batch: A of Gauss-Newton or Fisher kind (output.py), J the outputs' Jacobian."""

    def __init__(
        self,
        module: nn.Module,
        batch: tuple[Any, Any],
        parameters: Named,
        keep: bool,
        curvature: Callable[[Tensor, Any], OutputCurvature],
    ) -> None:
        self.module, self.batch, self.parameters, self.keep, self.curvature = module, batch, parameters, keep, curvature
        self.mode: Mode = "kept graph" if keep else "forward over reverse"
        self._kept: tuple[Tensor, OutputCurvature] | None = None

    def graph(self) -> tuple[Tensor, OutputCurvature]:
        """The output as a function of the parameters, and A there."""
        if self._kept is not None:
            return self._kept
        with differentiable():
            output = call(self.module, self.parameters, self.batch[0])
        if not isinstance(output, Tensor):
            raise ValueError(
                f"Gauss-Newton and Fisher products need one tensor as output, found {type(output).__name__}: "
                "wrap the module so that it returns the tensor that the loss reads"
            )
        found = (output, self.curvature(output.detach(), self.batch[1]))
        if self.keep:
            self._kept = found
        return found

    def product(self, directions: Named, wanted: Sequence[str]) -> Named:
        """J^T A J v at the parameters `wanted`; directions that are absent are zero."""
        output, curvature = self.graph()
        curved = curvature.apply(self._tangent(output, directions))
        if not output.requires_grad:
            return {k: torch.zeros_like(self.parameters[k]) for k in wanted}
        found = torch.autograd.grad(
            output, [self.parameters[k] for k in wanted], curved, retain_graph=self.keep, allow_unused=True
        )
        return _filled(found, wanted, self.parameters)

    def _tangent(self, output: Tensor, directions: Named) -> Tensor:
        """J v by forward differentiation, or by differentiating J^T u in u where an operation has no forward rule."""
        if self.mode != "double backward":
            fixed = {k: p.detach() for k, p in self.parameters.items() if k not in directions}
            values = {k: self.parameters[k].detach() for k in directions}
            try:
                with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                    tangent: Tensor = jvp(
                        lambda p: call(self.module, {**fixed, **p}, self.batch[0]), (values,), (dict(directions),)
                    )[1]
                return tangent
            except (RuntimeError, NotImplementedError):
                self.mode = "double backward"
        names = list(directions)
        u = torch.zeros_like(output, requires_grad=True)
        with differentiable():
            pulled = torch.autograd.grad(
                output, [self.parameters[k] for k in names], u, create_graph=True, retain_graph=True, allow_unused=True
            )
            terms = [(g, directions[k]) for k, g in zip(names, pulled, strict=True) if g is not None]
            if not terms:
                return torch.zeros_like(output)
            (tangent,) = torch.autograd.grad([g for g, _ in terms], u, [d for _, d in terms])
        return tangent


def _filled(found: Sequence[Tensor | None], names: Sequence[str], parameters: Named) -> Named:
    pairs = zip(names, found, strict=True)
    return {k: torch.zeros_like(parameters[k]) if g is None else g.detach() for k, g in pairs}
