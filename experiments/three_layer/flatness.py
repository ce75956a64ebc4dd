"""Full-batch training toward flat minima of the three-layer network, all starts at once (HSR,
Section VI).

Methods as directions of `descend`, whose rate is the weight γ₁ of the loss:

    gd     ∇L                                       plain gradient descent
    trace  ∇L + (γ₂/γ₁) ∇ tr H                      Hessian-trace regularisation
    hsr    ∇L + (γ₂/γ₁) ∇λ_sup                      HSR regularisation, λ_sup = μ + √(D−1) σ
    asam   ∇L(theta + ε), ε = ρ T² ∇L / ||T ∇L||    adaptive SAM

and three that take HSR's bound apart, with its weight:

    mean   ∇L + (γ₂/γ₁) ∇μ                          HSR without tr H²
    spread ∇L + (γ₂/γ₁) ∇√(D−1) σ                   σ alone
    square ∇L + (γ₂/γ₁) ∇√((D−1)/D tr H²)           tr H² alone: λ_sup as if tr H were 0

T is diagonal: |theta_k| + η for a weight and 1 for a bias, with η = 0.01, as in the implementation
of the authors of adaptive SAM. Where T ∇L = 0 there is no ε. The HSR paper prints the radius ρ =
0.1 alone.

What the stop rule watches is ∇L at theta for every method. The rule is that of the search ("as
before"), judged at every step; since the paper describes it together with the second half of the
steps, `stop_from` of `descend` can put it off until then.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.three_layer.penalties import (
    CONTRACTIONS,
    contraction_gradient,
    data_of,
    loss_gradient,
    state_of,
)
from runner.closed_form.three_layer.model import check_data, hidden_width
from runner.training.descent.directions import Direction, LossGradient, Step, Switch

PENALTIES = {
    "trace": "trace",
    "hsr": "bound",
    "mean": "mean",
    "spread": "spread",
    "square": "square",
}
"""Method -> its penalty."""
METHODS = ("gd", "asam", *PENALTIES)
SAM_CONSTANT = 0.01  # η of adaptive SAM's normalisation operator


@dataclass(frozen=True)
class Regularised:
    """loss_weight · ∇L + strength · ∇penalty, watched: ∇L.

    penalty: "trace" for tr H, "bound" for λ_sup; "mean", "spread" and "square" for its parts μ,
    √(D−1) σ and √((D−1)/D tr H²). strength: γ₂/γ₁ where the rate of `descend` is γ₁;
    for training on the penalty alone (γ₁ = 0), loss_weight = 0, strength = 1 and rate = γ₂. Where σ
    = 0 the gradient of λ_sup is that of μ (see `three_layer_gradient`). Raises ValueError for an
    unknown penalty; the first step raises the closed forms' ValueErrors.
    """

    x: Tensor
    q: Tensor
    penalty: str
    activation: str = "sigmoid"
    strength: float = 1.0
    loss_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.penalty not in CONTRACTIONS:
            known = ", ".join(CONTRACTIONS)
            raise ValueError(f"expected a penalty out of {known}, found {self.penalty!r}")

    def bind(self, width: int) -> Step:
        data = data_of(self.x, self.q)
        contract = CONTRACTIONS[self.penalty]
        checked = False

        def step(theta: Tensor, number: int) -> tuple[Tensor, Tensor]:
            nonlocal checked
            if not checked:
                check_data(theta.t(), self.x, self.q)
                checked = True
            state = state_of(theta, data, self.activation)
            loss = loss_gradient(data, state)
            penalty = contraction_gradient(data, state, contract(data, state))
            return penalty.mul_(self.strength).add_(loss, alpha=self.loss_weight), loss

        return step


@dataclass(frozen=True)
class AdaptiveSam:
    """∇L at theta + ρ T² ∇L / ||T ∇L|| (adaptive SAM; T as in the module's text), watched:

    ∇L at theta.

    radius: ρ >= 0. Raises ValueError where it is negative.
    """

    x: Tensor
    q: Tensor
    activation: str = "sigmoid"
    radius: float = 0.1

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise ValueError(f"expected a radius >= 0, found {self.radius}")

    def bind(self, width: int) -> Step:
        loss = LossGradient(self.x, self.q, self.activation)
        here = loss.bind(width)
        there = loss.bind(width)  # two sets of buffers

        def step(theta: Tensor, number: int) -> tuple[Tensor, Tensor]:
            gradient = here(theta, number)[0]
            scale = theta.abs().add_(SAM_CONSTANT)
            units = hidden_width(theta.shape[0], self.x.shape[1])
            scale[:units] = 1  # b, the first column of W
            scale[units * (self.x.shape[1] + 1)] = 1  # c
            scaled = scale * gradient
            norm = torch.linalg.vector_norm(scaled, dim=0)
            safe_norm = norm + (norm == 0)
            moved = torch.addcmul(theta, scale * scaled, self.radius / safe_norm)
            return there(moved, number)[0], gradient

        return step


def training_direction(
    method: str,
    x: Tensor,
    q: Tensor,
    activation: str = "sigmoid",
    *,
    strength: float = 1.0,
    radius: float = 0.1,
    until: int | None = None,
) -> Direction:
    """The direction of one of `METHODS`, turning to plain ∇L at step `until` (HSR, Section VI-B;
    None: never).

    strength: γ₂/γ₁ of the methods with a penalty. radius: ρ of asam. Raises ValueError for an
    unknown method.
    """
    plain = LossGradient(x, q, activation)
    if method not in METHODS:
        raise ValueError(f"expected a method out of {', '.join(METHODS)}, found {method!r}")
    if method == "gd":
        return plain
    early: Direction
    if method == "asam":
        early = AdaptiveSam(x, q, activation, radius)
    else:
        early = Regularised(x, q, PENALTIES[method], activation, strength)
    if until is None:
        return early
    return Switch(early, plain, until)
