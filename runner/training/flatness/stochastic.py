"""The bound of the largest Hessian eigenvalue as a regulariser for any torch module and loss, from random probes.

λ_sup = μ + √(D−1) σ needs tr H and tr H² alone (WS bound, Eqs. 7-9). With Rademacher probes z, E zᵀHz = tr H and
E |Hz|² = tr H², and one Hessian-vector product serves both (Hutchinson). From K probes

    tr H  ≈ t̄ = mean t_k,  t_k = z_kᵀ H z_k          unbiased
    tr H² ≈ mean |H z_k|²                            unbiased
    σ²    ≈ mean |H z_k|² / D − (K² t̄² − Σ t_k²) / (K (K−1) D²)   unbiased: (tr H)² from different probes only

Only the square root of σ² brings a bias. It is concave, so the estimate of λ_sup is too small on average, by
√(D−1) Var(σ̂²) / (8 σ³) to leading order, which falls as 1/K while the error of a single estimate falls as 1/√K. (An
estimate of σ² below 0 counts as 0, which pushes the other way where σ is nearly 0.) Its gradient
∇μ̂ + √(D−1) ∇σ̂² / (2 σ̂) has a bias of the same order, since σ̂ appears in it with the same probes. Given `spread`, a
value of σ that does not depend on these probes (a running mean over earlier steps), the gradient divides by the larger
of the two: it is unbiased for that σ while σ̂ stays below, and no minibatch that is far sharper than the running mean
makes it explode.

All is differentiable: the products keep their graph. A step costs one gradient, K products and one gradient through
both, about 2 + 4 K gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class BoundEstimate(NamedTuple):
    """bound: λ_sup, with graph. trace, trace_of_square, variance: the unbiased estimates, with graph. std: σ̂, without.

    Scalars, or of the leading shape given to `combine`."""

    bound: Tensor
    trace: Tensor
    trace_of_square: Tensor
    variance: Tensor
    std: Tensor


def signs(parameters: Sequence[Tensor], generator: torch.Generator | None = None) -> list[Tensor]:
    """One Rademacher probe, in the shapes of the parameters."""
    return [torch.randint(0, 2, p.shape, generator=generator).to(p.dtype) * 2 - 1 for p in parameters]


def hessian_vector_product(
    gradients: Sequence[Tensor], parameters: Sequence[Tensor], vector: Sequence[Tensor], *, graph: bool
) -> tuple[Tensor, ...]:
    """H z from gradients that keep their graph, in the shapes of the parameters; graph: whether H z keeps its own."""
    used = [(g, v) for g, v in zip(gradients, vector, strict=True) if g.requires_grad]
    if not used:  # a loss linear in every parameter
        return tuple(torch.zeros_like(p) for p in parameters)
    return torch.autograd.grad(
        [g for g, _ in used],
        parameters,
        [v for _, v in used],
        create_graph=graph,
        retain_graph=True,
        materialize_grads=True,
    )


def stochastic_bound(
    loss: Tensor,
    parameters: Sequence[Tensor],
    probes: int | Sequence[Sequence[Tensor]] = 4,
    generator: torch.Generator | None = None,
    spread: float | None = None,
) -> BoundEstimate:
    """λ_sup of the Hessian of `loss` by `parameters`, estimated and differentiable; see the module's text.

    loss: a scalar with its graph, not yet differentiated. probes: how many, or the probes themselves. spread: σ for
    the gradient. Raises ValueError for a loss that is no scalar, or fewer than two probes.
    """
    parameters = list(parameters)
    if loss.ndim or not loss.requires_grad:
        raise ValueError(f"expected a scalar loss with a graph, found shape {tuple(loss.shape)}")
    given = [signs(parameters, generator) for _ in range(probes)] if isinstance(probes, int) else list(probes)
    if len(given) < 2:
        raise ValueError(f"expected at least 2 probes (σ² needs products of different ones), found {len(given)}")
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    forms, squares = [], []
    for probe in given:
        image = hessian_vector_product(gradients, parameters, probe, graph=True)
        forms.append(torch.stack([(z * h).sum() for z, h in zip(probe, image, strict=True)]).sum())
        squares.append(torch.stack([h.square().sum() for h in image]).sum())
    return combine(torch.stack(forms), torch.stack(squares), sum(p.numel() for p in parameters), spread)


def combine(forms: Tensor, squares: Tensor, dimension: int, spread: float | None = None) -> BoundEstimate:
    """The estimate from zᵀHz and |Hz|² of every probe, each (..., K); leading dimensions are separate estimates."""
    count = forms.shape[-1]
    trace, trace_of_square = forms.mean(-1), squares.mean(-1)
    squared_trace = (forms.sum(-1).square() - forms.square().sum(-1)) / (count * (count - 1))
    variance = trace_of_square / dimension - squared_trace / dimension**2
    std = variance.detach().clamp(min=0).sqrt()
    divisor = std.clamp(min=spread or 0.0)
    # Value σ̂, gradient ∇variance / (2 divisor); where both are 0 there is no gradient, and 0 is the least subgradient.
    rooted = std + (variance - variance.detach()) * (0.5 / torch.where(divisor > 0, divisor, torch.inf))
    return BoundEstimate(trace / dimension + math.sqrt(dimension - 1) * rooted, trace, trace_of_square, variance, std)


def sharpness_aware_gradients(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor], radius: float
) -> tuple[Tensor, ...]:
    """∇L(theta + ρ ∇L / ||∇L||), the gradient of sharpness-aware minimisation (SAM); theta is left as it was.

    loss: evaluates L at the present parameters. Raises ValueError for a negative radius.
    """
    if radius < 0:
        raise ValueError(f"expected a radius of at least 0, found {radius}")
    parameters = list(parameters)
    gradients = torch.autograd.grad(loss(), parameters)
    norm = torch.sqrt(sum((g.square().sum() for g in gradients), torch.zeros((), dtype=gradients[0].dtype)))
    before = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            p.add_(g * (radius / (norm + (norm == 0))))
    found = torch.autograd.grad(loss(), parameters)
    with torch.no_grad():
        for p, value in zip(parameters, before, strict=True):
            p.copy_(value)
    return found


class ParameterHessian:
    """The Hessian of a loss by its parameters, in the form that `lanczos_extremes` takes: one node, "parameters"."""

    nodes = ("parameters",)

    def __init__(self, loss: Tensor, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.gradients = torch.autograd.grad(loss, self.parameters, create_graph=True, materialize_grads=True)
        self.sizes = {"parameters": sum(p.numel() for p in self.parameters)}
        self.dtype, self.device = self.parameters[0].dtype, self.parameters[0].device

    def apply(self, directions: dict[str, Tensor]) -> dict[str, Tensor]:
        """H times every row of directions["parameters"], (K, D)."""
        shapes = [p.numel() for p in self.parameters]
        images = []
        for row in directions["parameters"]:
            pieces = [part.view_as(p) for part, p in zip(row.split(shapes), self.parameters, strict=True)]
            image = hessian_vector_product(self.gradients, self.parameters, pieces, graph=False)
            images.append(torch.cat([h.reshape(-1) for h in image]))
        return {"parameters": torch.stack(images)}
