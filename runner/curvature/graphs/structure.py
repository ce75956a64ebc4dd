"""Node functions whose derivatives are known in closed form, as stages (recognise.py finds them).

A recognised node is join(parents) -> stages, with join one of: a single parent, a weighted sum, a
concatenation; and stages `nn.Linear`, `nn.LayerNorm`, elementwise activations, residual branches,
and `nn.Sequential` of those, on (B, d) inputs. With A = d(stage input)/d(node input), a stage
pushes A forward and adds A^T (sum_i g_i T_stage[i]) A to the node's curvature, g being the loss
gradient at the stage's output. For Linear-LayerNorm-activation this costs O(d^2) per example
instead of O(d^3): A is the shared weight matrix up to LayerNorm, whose Jacobian and curvature are
low-rank corrections of shared matrices. Everything else goes through automatic differentiation
(derivatives.py), with the same results. A module of another kind joins by defining, in the same
class as its `forward`, curvature_structure(parents: int) -> Structure | None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from runner.curvature.graphs.dag import WeightedSum


class Stage(Protocol):
    """One step of a node. A: (d, n) shared by the examples, or (B, d, n), which the next stage may
    overwrite."""

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Output, and what the other methods need."""
        ...

    def pullback(self, saved: Any, g: Tensor) -> Tensor:
        """Gradient at the input from the gradient g at the output, both (B, d)."""
        ...

    def push(
        self, saved: Any, g: Tensor, q: Tensor, a: Tensor, owned: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Jacobian at the output, and A^T (sum_i g_i T[i]) A of shape (B, n, n), None when it is
        zero.

        q: pullback of g. owned: nobody else reads A, whose memory may be used again.
        """
        ...


def _weigh(row_weights: Tensor, a: Tensor) -> Tensor:
    return row_weights.unsqueeze(-1) * a


def _times(vectors: Tensor, a: Tensor) -> Tensor:
    """A^T vector of each example: (B, d), A -> (B, n)."""
    if a.dim() == 2:
        return vectors @ a
    return torch.bmm(vectors.unsqueeze(1), a).squeeze(1)


@dataclass(frozen=True)
class LinearStage:
    weight: Tensor
    bias: Tensor | None

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return F.linear(x, self.weight, self.bias), None

    def pullback(self, saved: None, g: Tensor) -> Tensor:
        return g @ self.weight

    def push(
        self, saved: None, g: Tensor, q: Tensor, a: Tensor, owned: bool
    ) -> tuple[Tensor, Tensor | None]:
        if a.dim() == 2:
            return self.weight @ a, None
        return torch.bmm(self.weight.expand(len(a), -1, -1), a), None


@dataclass(frozen=True)
class ElementwiseStage:
    """y_i = f(x_i): A -> f' A, curvature A^T diag(g f'') A."""

    fn: Callable[[Tensor], Tensor]
    piecewise_linear: bool

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor | None]]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = self.fn(leaf)
            (slope,) = torch.autograd.grad(
                y, leaf, torch.ones_like(y), create_graph=not self.piecewise_linear
            )
            bend = None
            if not self.piecewise_linear and slope.requires_grad:
                (bend,) = torch.autograd.grad(slope.sum(), leaf)
        return y.detach(), (slope.detach(), bend)

    def pullback(self, saved: tuple[Tensor, Tensor | None], g: Tensor) -> Tensor:
        return g * saved[0]

    def push(
        self, saved: Any, g: Tensor, q: Tensor, a: Tensor, owned: bool
    ) -> tuple[Tensor, Tensor | None]:
        slope, bend = saved
        curvature = None
        if bend is not None:
            curvature = torch.matmul(a.mT, _weigh(g * bend, a))
        if owned and a.dim() == 3:
            return a.mul_(slope.unsqueeze(-1)), curvature
        return _weigh(slope, a), curvature


@dataclass(frozen=True)
class LayerNormStage:
    """y = gamma * (x - mean) / sigma + beta, sigma^2 = |x - mean|^2 / d + eps; xhat = (x - mean) /
    sigma, C = I - 11^T/d.

    Jacobian diag(gamma) (C - xhat xhat^T / d) / sigma. With c = gamma * g, s = c.xhat and q the
    pulled back gradient, sum_i g_i T[i] = -(s / (d sigma^2)) (C - xhat xhat^T / d) - (q xhat^T +
    xhat q^T) / (d sigma)."""

    weight: Tensor | None
    bias: Tensor | None
    eps: float

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        centred = x - x.mean(1, keepdim=True)
        inverse = (centred.square().mean(1, keepdim=True) + self.eps).rsqrt()
        xhat = centred * inverse
        y = xhat if self.weight is None else xhat * self.weight
        return y if self.bias is None else y + self.bias, (xhat, inverse)

    def pullback(self, saved: tuple[Tensor, Tensor], g: Tensor) -> Tensor:
        xhat, inverse = saved
        c = g if self.weight is None else g * self.weight
        along = (c * xhat).mean(1, keepdim=True)
        return (c - c.mean(1, keepdim=True) - xhat * along) * inverse

    def push(
        self, saved: Any, g: Tensor, q: Tensor, a: Tensor, owned: bool
    ) -> tuple[Tensor, Tensor | None]:
        xhat, inverse = saved
        d = xhat.shape[1]
        centred = a - a.mean(-2, keepdim=True)
        r = _times(xhat, a)
        scale = inverse if self.weight is None else inverse * self.weight
        tangential = torch.addcmul(centred, xhat.unsqueeze(2), (r / d).unsqueeze(1), value=-1)
        jacobian = tangential.mul_(scale.unsqueeze(2))
        c = g if self.weight is None else g * self.weight
        s = (c * xhat).sum(1, keepdim=True)
        t = _times(q, a)
        kappa = -s * inverse.square() / d
        left = torch.stack((r, t), 2)
        first = -(kappa / d) * r - (inverse / d) * t
        right = torch.stack((first, -(inverse / d) * r), 1)
        gram = torch.matmul(centred.mT, centred)
        return jacobian, (kappa.unsqueeze(2) * gram).baddbmm_(left, right)


@dataclass(frozen=True)
class Chain:
    """Stages one after the other."""

    stages: tuple[Stage, ...]

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        saved = []
        for stage in self.stages:
            x, kept = stage.forward(x)
            saved.append(kept)
        return x, saved

    def _gradients(self, saved: list[Any], g: Tensor) -> list[Tensor]:
        """Gradients at the input of the first stage, then at the output of every stage."""
        gradients = [g]
        for stage, kept in zip(reversed(self.stages), reversed(saved), strict=True):
            gradients.append(stage.pullback(kept, gradients[-1]))
        return gradients[::-1]

    def pullback(self, saved: list[Any], g: Tensor) -> Tensor:
        return self._gradients(saved, g)[0]

    def push(self, saved: list[Any], g: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        total: Tensor | None = None
        gradients = self._gradients(saved, g)
        for i, (stage, kept) in enumerate(zip(self.stages, saved, strict=True)):
            a, curvature = stage.push(kept, gradients[i + 1], gradients[i], a, i > 0)
            if curvature is not None:
                total = curvature if total is None else total + curvature
        return a, total


@dataclass(frozen=True)
class ResidualStage:
    branch: Chain
    scale: float

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        y, saved = self.branch.forward(x)
        return x + self.scale * y, saved

    def pullback(self, saved: list[Any], g: Tensor) -> Tensor:
        return g + self.scale * self.branch.pullback(saved, g)

    def push(
        self, saved: list[Any], g: Tensor, q: Tensor, a: Tensor, owned: bool
    ) -> tuple[Tensor, Tensor | None]:
        jacobian, curvature = self.branch.push(saved, self.scale * g, a)
        return a + self.scale * jacobian, curvature


@dataclass(frozen=True)
class Structure:
    """A recognised node: join the parents, then the chain. weights: of a sum; None means
    concatenation."""

    weights: tuple[float, ...] | None
    chain: Chain

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, tuple[int, list[Any]]]:
        if self.weights is None:
            joined = torch.cat(tuple(inputs), 1)
        elif self.weights == (1.0,):
            joined = inputs[0]
        else:
            joined = WeightedSum(*self.weights)(*inputs)
        y, saved = self.chain.forward(joined)
        return y, (joined.shape[1], saved)

    def derivatives(
        self, saved: tuple[int, list[Any]], g: Tensor, like: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Jacobian (B, d_out, d_joined) and contracted curvature (B, d_joined, d_joined) for the
        loss gradient g."""
        width, kept = saved
        eye = torch.eye(width, dtype=like.dtype, device=like.device)
        if not self.chain.stages:
            return eye.expand(len(g), width, width), None
        first = self.chain.stages[0]
        if isinstance(first, LinearStage):
            # The first Jacobian is the shared weight matrix itself: no product with the identity.
            rest = Chain(self.chain.stages[1:])
            jacobian, curvature = rest.push(kept[1:], g, first.weight)
        else:
            jacobian, curvature = self.chain.push(kept, g, eye)
        return jacobian.expand(len(g), *jacobian.shape[-2:]), curvature
