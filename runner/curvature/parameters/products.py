"""Curvature products of one batch with respect to the parameters, by automatic differentiation.

In gradients (one forward and one backward pass, 3 F for F operations of the forward pass): a Hessian product from the
kept graph of the gradient costs 6 F, two gradients; without it, forward mode over reverse 9 F. A Gauss-Newton product
is a tangent pass (2 F, and F for the values under it) and a backward pass from the kept graph of the outputs (2 F).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import jvp

from runner.curvature.exact.derivatives import refuse_cut_backwards, second_derivatives
from runner.curvature.parameters.model import Model, Named
from runner.curvature.parameters.output import Output, OutputCurvature

Mode = Literal["kept graph", "forward over reverse", "double backward"]


class BatchHessian:
    """Products with the Hessian of the mean loss of one batch. `keep`: whether the gradient's graph is kept."""

    def __init__(self, model: Model, batch: tuple[Any, Any], parameters: Named, keep: bool) -> None:
        self.model, self.batch, self.keep = model, batch, keep
        self.parameters = parameters
        self.mode: Mode = "kept graph" if keep else "forward over reverse"
        self._gradients: dict[str, GradientEdge] | None = None

    def value(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return self.model.value(parameters, self.batch)

    def graph(self) -> dict[str, GradientEdge]:
        """Where the gradient leaves the graph that makes it, for the parameters it depends on: its numbers, as many as
        there are parameters, are not kept. Raises MeasurementError for a backward that has no second derivative."""
        if self._gradients is not None:
            return self._gradients
        with self.model.differentiable(), second_derivatives("the module"):
            grads = torch.autograd.grad(
                self.value(self.parameters), list(self.parameters.values()), create_graph=True, allow_unused=True
            )
        refuse_cut_backwards(grads, "the module")
        pairs = zip(self.parameters, grads, strict=True)
        found = {k: get_gradient_edge(g) for k, g in pairs if g is not None and g.requires_grad}
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
        with torch.inference_mode(False), second_derivatives("the module"):
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
        with self.model.differentiable():
            found = jvp(gradient, (values,), (tangents,))[1]
        return {k: found[k] for k in wanted}


class BatchFactored:
    """Products J^T A J v of one batch: A of Gauss-Newton or Fisher kind (output.py), J the outputs' Jacobian."""

    def __init__(
        self,
        model: Model,
        batch: tuple[Any, Any],
        parameters: Named,
        keep: bool,
        read: Callable[[Any], Output],
        curvature: Callable[[Output, Tensor], OutputCurvature],
    ) -> None:
        self.model, self.batch, self.parameters, self.keep = model, batch, parameters, keep
        self.read, self.curvature = read, curvature
        self.mode: Mode = "kept graph" if keep else "forward over reverse"
        self._kept: tuple[Output, Tensor, OutputCurvature] | None = None

    def graph(self) -> tuple[Output, Tensor, OutputCurvature]:
        """What the loss reads of the output, as a function of the parameters, and A there."""
        if self._kept is not None:
            return self._kept
        with self.model.differentiable():
            whole = self.model.call(self.parameters, self.batch[0])
            output = self.read(whole)
            tensor = output.tensor(whole)
            found = (output, tensor, self.curvature(output, tensor.detach()))
        if self.keep:
            self._kept = found
        return found

    def product(self, directions: Named, wanted: Sequence[str]) -> Named:
        """J^T A J v at the parameters `wanted`; directions that are absent are zero."""
        output, tensor, curvature = self.graph()
        curved = curvature.apply(self._tangent(output, tensor, directions))
        if not tensor.requires_grad:
            return {k: torch.zeros_like(self.parameters[k]) for k in wanted}
        with torch.inference_mode(False):
            found = torch.autograd.grad(
                tensor, [self.parameters[k] for k in wanted], curved, retain_graph=self.keep, allow_unused=True
            )
        return _filled(found, wanted, self.parameters)

    def _tangent(self, output: Output, tensor: Tensor, directions: Named) -> Tensor:
        """J v by forward differentiation, or by differentiating J^T u in u where an operation has no forward rule."""
        if self.mode != "double backward":
            fixed = {k: p.detach() for k, p in self.parameters.items() if k not in directions}
            values = {k: self.parameters[k].detach() for k in directions}

            def outputs(p: Named) -> Tensor:
                return output.tensor(self.model.call({**fixed, **p}, self.batch[0]))

            try:
                with self.model.differentiable(), torch.no_grad():
                    tangent: Tensor = jvp(outputs, (values,), (dict(directions),))[1]
                return tangent
            except (RuntimeError, NotImplementedError):
                self.mode = "double backward"
        names = list(directions)
        with self.model.differentiable(), second_derivatives("the module"):
            u = torch.zeros_like(tensor, requires_grad=True)
            pulled = torch.autograd.grad(
                tensor, [self.parameters[k] for k in names], u, create_graph=True, retain_graph=True, allow_unused=True
            )
            refuse_cut_backwards(pulled, "the module")
            terms = [(g, directions[k]) for k, g in zip(names, pulled, strict=True) if g is not None]
            if not terms:
                return torch.zeros_like(tensor)
            (tangent,) = torch.autograd.grad([g for g, _ in terms], u, [d for _, d in terms])
        return tangent


def _filled(found: Sequence[Tensor | None], names: Sequence[str], parameters: Named) -> Named:
    pairs = zip(names, found, strict=True)
    return {k: torch.zeros_like(parameters[k]) if g is None else g.detach() for k, g in pairs}
