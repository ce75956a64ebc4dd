"""The bound of the largest Hessian eigenvalue from random probes, for any differentiable loss.

λ_sup = μ + √(D−1) σ needs tr H and tr H² alone (WS bound, Eqs. 7-9). With Rademacher probes z, E
zᵀHz = tr H and E |Hz|² = tr H², and one Hessian-vector product serves both (Hutchinson). From K
probes

    tr H  ≈ t̄ = mean t_k,  t_k = z_kᵀ H z_k          unbiased tr H² ≈ mean |H z_k|²
    unbiased σ²    ≈ mean |H z_k|² / D − (K² t̄² − Σ t_k²) / (K (K−1) D²)   unbiased: (tr H)² from
    different probes only

Only the square root of σ² brings a bias. It is concave, so the estimate of λ_sup is too small on
average, by √(D−1) Var(σ̂²) / (8 σ³) to leading order, which falls as 1/K while the error of a
single estimate falls as 1/√K. (An estimate of σ² below 0 counts as 0, which pushes the other way
where σ is nearly 0.) The products keep their graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from runner.curvature import SymmetricOperator
from runner.curvature.estimators.estimate import rademacher


class BoundEstimate(NamedTuple):
    """bound:

    λ_sup, trace and variance (σ²): the unbiased estimates; of the leading shape given to `combine`.
    """

    bound: Tensor
    trace: Tensor
    variance: Tensor


def combine(forms: Tensor, squares: Tensor, dimension: int) -> BoundEstimate:
    """The estimate from zᵀHz and |Hz|² of every probe, each (..., K); leading dimensions are
    separate estimates.
    """
    count = forms.shape[-1]
    trace = forms.mean(-1)
    square_of_sum = forms.sum(-1).square()
    mixed_products = square_of_sum - forms.square().sum(-1)
    squared_trace = mixed_products / (count * (count - 1))
    mean_square = squares.mean(-1) / dimension
    variance = mean_square - squared_trace / dimension**2
    deviation = variance.clamp(min=0).sqrt()
    reach = math.sqrt(dimension - 1) * deviation
    bound = trace / dimension + reach
    return BoundEstimate(bound, trace, variance)


def signs(parameters: Sequence[Tensor], generator: torch.Generator | None = None) -> list[Tensor]:
    """One Rademacher probe, in the shapes of the parameters."""
    return [rademacher(p.shape, p.dtype, generator) for p in parameters]


def hessian_vector_product(
    gradients: Sequence[Tensor],
    parameters: Sequence[Tensor],
    vector: Sequence[Tensor],
    *,
    graph: bool,
) -> tuple[Tensor, ...]:
    """H z from gradients that keep their graph, in the shapes of the parameters; graph: whether H z
    keeps its own.
    """
    pairs = zip(gradients, vector, strict=True)
    used = [(g, v) for g, v in pairs if g.requires_grad]
    if not used:  # a loss linear in every parameter
        return tuple(torch.zeros_like(p) for p in parameters)
    outputs, directions = zip(*used, strict=True)
    how = {"create_graph": graph, "retain_graph": True, "materialize_grads": True}
    return torch.autograd.grad(outputs, parameters, directions, **how)


class ParameterHessian(SymmetricOperator):
    """The Hessian of a loss by its parameters, as an operator with one node, "parameters"."""

    nodes = ("parameters",)

    def __init__(self, loss: Tensor, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.gradients = torch.autograd.grad(
            loss, self.parameters, create_graph=True, materialize_grads=True
        )
        size = sum(p.numel() for p in self.parameters)
        self.sizes = {"parameters": size}
        self.dtype = self.parameters[0].dtype
        self.device = self.parameters[0].device

    def apply(self, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """H times every row of directions["parameters"], (K, D)."""
        sizes = [p.numel() for p in self.parameters]
        images = []
        for row in directions["parameters"]:
            parts = row.split(sizes)
            pieces = zip(parts, self.parameters, strict=True)
            vector = [piece.view_as(p) for piece, p in pieces]
            image = hessian_vector_product(self.gradients, self.parameters, vector, graph=False)
            flat = [h.reshape(-1) for h in image]
            images.append(torch.cat(flat))
        return {"parameters": torch.stack(images)}
