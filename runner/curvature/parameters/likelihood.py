"""Fisher matrices: the distribution of the targets that a loss belongs to, and the covariance of its score.

A loss is recognised by what it calls: one of torch's losses, on a tensor f computed from the module's output, whose
values enter the result with constant factors c_i >= 0 (a mean, a mean over the tokens that are not ignored, a sum over
a number). Then, with p the probabilities of row i of f,

categorical     cross_entropy, nll_loss of log-probabilities      A = c_i (diag p - p p^T)
bernoulli       binary_cross_entropy_with_logits                  A = c_i p (1 - p)
normal          mse_loss, variance 1/2                            A = 2 c_i

which is d2 L / df2 where targets have no weights of their own (Martens, "New insights", section 9.2).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.parameters.model import Model, Named
from runner.curvature.parameters.products import Output

Likelihood = Literal["categorical", "bernoulli", "normal"]

_KINDS: dict[Any, Likelihood] = {
    F.cross_entropy: "categorical",
    F.nll_loss: "categorical",
    F.binary_cross_entropy_with_logits: "bernoulli",
    F.mse_loss: "normal",
}
_PLAIN = {"weight": None, "pos_weight": None, "size_average": None, "reduce": None}
DRAWN_AT_ONCE = 1 << 22
"""Probabilities that are copied to the CPU together to draw from them."""


@dataclass
class _Call:
    """One call of a torch loss. plain: without weights of classes or examples."""

    kind: Likelihood
    function: Any
    arguments: dict[str, Any]

    @property
    def plain(self) -> bool:
        if any(self.arguments.get(key, value) is not value for key, value in _PLAIN.items()):
            return False
        if self.function is not F.nll_loss:
            return True
        logits = self.arguments["input"]
        return bool(torch.logsumexp(logits.detach(), min(1, logits.dim() - 1)).abs().max() < 1e-3)

    def valid(self) -> Tensor:
        """Which rows count, a boolean for each value of the loss."""
        target, given = self.arguments["target"], self.arguments["input"]
        if self.kind == "categorical" and not target.is_floating_point():
            return target != self.arguments["ignore_index"]
        rows = (
            given.shape
            if self.kind != "categorical"
            else given.detach().sum(min(1, given.dim() - 1)).shape
        )
        return torch.ones(rows, dtype=torch.bool, device=given.device)

    def apart(self) -> tuple[Tensor, Tensor]:
        """One value for each row, cut from the graph, and what the call returns of them."""
        values = self.function(**(self.arguments | {"reduction": "none"})).detach().requires_grad_()
        count = self.valid().sum() if self.arguments["reduction"] == "mean" else 1
        return values, values if self.arguments["reduction"] == "none" else values.sum() / count


class _Reached(Exception):
    def __init__(self, value: Tensor) -> None:
        self.value = value


class _Watch(TorchFunctionMode):
    """Sees the calls of torch's losses. do: "keep" files them and cuts their values from the graph, "stop" ends with
    the first one's input, "replace" puts another tensor in its place."""

    def __init__(
        self, do: Literal["keep", "stop", "replace"], tensor: Tensor | None = None
    ) -> None:
        super().__init__()
        self.do, self.tensor = do, tensor
        self.calls: list[_Call] = []
        self.values: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func not in _KINDS:
            return func(*args, **(kwargs or {}))
        bound = inspect.signature(func).bind(*args, **(kwargs or {}))
        bound.apply_defaults()
        call = _Call(_KINDS[func], func, dict(bound.arguments))
        if self.do == "stop":
            raise _Reached(call.arguments["input"])
        if self.do == "replace":
            function = F.cross_entropy if call.kind == "categorical" else func
            return function(**(call.arguments | {"input": self.tensor}))
        values, found = call.apart()
        self.calls.append(call)
        self.values.append(values)
        return found


class NaturalOutput(Output):
    """The tensor that a recognised loss is taken of: the natural parameters of the targets' distribution."""

    def __init__(
        self, model: Model, parameters: Named, whole: Any, target: Any, call: _Call, factors: Tensor
    ) -> None:
        self.model, self.parameters, self.whole, self.target = model, parameters, whole, target
        self.kind, self.factors, self.dim = (
            call.kind,
            factors,
            min(1, call.arguments["input"].dim() - 1),
        )

    def tensor(self, whole: Any) -> Tensor:
        try:
            with _Watch("stop"):
                self.model.loss_of(whole, self.target)
        except _Reached as reached:
            return reached.value
        raise MeasurementError(
            "the loss made another call than before: it is not a function of its arguments"
        )

    def value(self, tensor: Tensor, target: Any) -> Tensor:
        with _Watch("replace", tensor):
            return self.model.loss_of(self.whole, target)


class GivenOutput(Output):
    """The tensor that the loss reads, taken for the natural parameters of a distribution that the user names."""

    def __init__(
        self,
        model: Model,
        parameters: Named,
        whole: Any,
        target: Any,
        examples: int,
        kind: Likelihood,
    ) -> None:
        super().__init__(model, parameters, whole, target, examples)
        tensor = self.tensor(whole).detach()
        if not self.alone:
            raise MeasurementError(
                f"likelihood={kind!r} needs one tensor of the output: pick it with output=..."
            )
        self.kind, self.dim = kind, tensor.dim() - 1
        rows = tensor[..., 0] if kind == "categorical" else tensor
        self.factors = torch.full_like(rows, 1 / rows.numel())


def natural(
    model: Model,
    parameters: Named,
    whole: Any,
    target: Any,
    examples: int,
    given: Likelihood | None,
) -> NaturalOutput | GivenOutput:
    """The natural parameters of the targets' distribution. Raises MeasurementError for a loss that is not recognised.

    given: the kind that the user names; then weights of classes do not count, and a loss that calls none of torch's is
    taken of the one tensor it reads, with classes along the last dimension, as a mean over all its rows.
    """
    reached = [p for p in parameters.values() if p.requires_grad]
    with torch.enable_grad(), _Watch("keep") as watch:
        value = model.within(parameters, lambda: model.loss_of(whole, target))
    calls = [call for call in watch.calls if given in (None, call.kind)]
    if given is not None and len(calls) != 1:
        return GivenOutput(model, parameters, whole, target, examples, given)
    if len(calls) == 1 == len(watch.calls):
        call, valid = calls[0], calls[0].valid()
        if given is not None:
            factors = valid.to(call.arguments["input"].dtype) / valid.sum().clamp(min=1)
            return NaturalOutput(model, parameters, whole, target, call, factors)
        grads: Any = [None]
        if value.requires_grad:
            grads = torch.autograd.grad(
                value, [*watch.values, *reached], create_graph=True, allow_unused=True
            )
        if (
            call.plain
            and grads[0] is not None
            and all(g is None for g in grads[1:])
            and not grads[0].requires_grad
        ):
            return NaturalOutput(model, parameters, whole, target, call, grads[0].where(valid, 0))
    raise MeasurementError(
        "the Fisher matrix is known for losses that are one call of torch's cross_entropy, nll_loss, "
        "binary_cross_entropy_with_logits or mse_loss without weights (also inside a function of yours), not for "
        f"{getattr(model.loss, '__qualname__', type(model.loss).__name__)}: name the distribution with "
        "likelihood='categorical', 'bernoulli' or 'normal', or ask for gauss_newton or empirical_fisher"
    )


class ExactFisher:
    """The covariance of the score."""

    def __init__(self, output: NaturalOutput | GivenOutput, tensor: Tensor) -> None:
        self.kind, self.dim, self.factors = output.kind, output.dim, output.factors
        if self.kind == "categorical":
            self.p, self.factors = torch.softmax(tensor, self.dim), self.factors.unsqueeze(self.dim)
        elif self.kind == "bernoulli":
            self.p = torch.sigmoid(tensor)

    def apply(self, u: Tensor) -> Tensor:
        if self.kind == "categorical":
            weighed = self.p * u
            return self.factors * (weighed - self.p * weighed.sum(self.dim, keepdim=True))
        return self.factors * u * (self.p * (1 - self.p) if self.kind == "bernoulli" else 2)


class SampledFisher(ExactFisher):
    """The mean of g g^T over `samples` targets drawn for each row, on the CPU; its expectation is the exact one."""

    def __init__(
        self,
        output: NaturalOutput | GivenOutput,
        tensor: Tensor,
        samples: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__(output, tensor)
        if self.kind == "categorical":
            rows = self.p.movedim(self.dim, -1)
            flat = rows.reshape(-1, rows.shape[-1])
            drawn = [
                torch.multinomial(
                    piece.cpu().double(), samples, replacement=True, generator=generator
                )
                for piece in flat.split(max(1, DRAWN_AT_ONCE // flat.shape[1]))
            ]
            self.drawn = (
                torch.cat(drawn)
                .to(tensor.device)
                .view(*rows.shape[:-1], samples)
                .movedim(-1, self.dim)
            )
        else:
            shape, kind = (
                (samples, *tensor.shape),
                {"generator": generator, "dtype": torch.float64, "device": "cpu"},
            )
            if self.kind == "bernoulli":
                scores = self.p - (torch.rand(shape, **kind).to(tensor.device) < self.p).to(self.p)  # type: ignore[call-overload]
            else:  # exp(-|f - y|^2) is a normal distribution with variance 1 / 2
                scores = 2**0.5 * torch.randn(shape, **kind).to(tensor)  # type: ignore[call-overload]
            self.squares = scores.square().mean(0)

    def apply(self, u: Tensor) -> Tensor:
        if self.kind != "categorical":
            return self.factors * self.squares * u
        inner = (self.p * u).sum(self.dim, keepdim=True) - u.gather(self.dim, self.drawn)
        inner /= self.drawn.shape[self.dim]
        found = self.p * inner.sum(self.dim, keepdim=True)
        return self.factors * found.scatter_add_(self.dim, self.drawn, -inner)
