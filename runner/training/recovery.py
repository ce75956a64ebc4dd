"""Recovery of the input X of softmax attention from its output B, as an objective for Newton's method (Theorem J.1)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from runner.curvature.closed_form import attention as att
from runner.training.newton import Objective


def recovery_objective(w: Tensor, v: Tensor, b: Tensor, gamma: float) -> Objective:
    """|attention(X) - B|_F^2 + gamma |vec X|^2 as a function of vec X; W, V (d, d) and B (n, d) of one instance."""
    d = w.shape[-1]

    def at(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda flat: function(att.unvec(flat, d), w, v, b, gamma)

    def product(flat: Tensor, direction: Tensor) -> Tensor:
        return att.vec(att.hessian_vector_product(att.unvec(flat, d), w, v, b, att.unvec(direction, d), gamma))

    return Objective(at(att.loss), lambda flat: att.vec(at(att.gradient)(flat)), at(att.hessian), product)
