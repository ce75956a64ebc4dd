"""What the corrections of the attention paper change, which has no experiment: at sizes of the audit's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from experiments.paper_audit import stored
from experiments.paper_audit.attention import case_two
from experiments.paper_audit.attention.case_two import df01, ds
from experiments.paper_audit.attention.terms import (
    Case,
    Expression,
    Terms,
    all_same,
    both_other,
    both_other_equal,
    indices,
    instance,
    same_then_other,
    second_derivative,
)
from runner.curvature.closed_form import attention as att

N, D, DRAWS = 4, 3, 4


def share(case: Case, error: Expression) -> float:
    """‖what the print adds to ∂²c‖ / ‖∂²c‖ over index tuples of a case at n = 4, d = 3, Gaussian X, W, V."""
    off = whole = 0.0
    for seed in range(DRAWS):
        for k in indices(N, D, case, seed):
            terms = Terms(*instance(N, D, seed), k)
            off += float(error(terms)) ** 2
            whole += float(second_derivative(terms)) ** 2
    return float((off / whole) ** 0.5)


def recovery() -> Mapping[str, float]:
    """Theorem J.1 and the certified balls, as attention_newton measures them: largest |X*|/|X_true| and radii."""
    theorem = [row for row in stored.rows("attention_newton", "theorem") if row["status"] == "ok"]
    balls = stored.rows("attention_newton", "balls")
    return {
        "problems": len(theorem),
        "norm": max((float(row["norm_share"]) for row in theorem), default=float("nan")),
        "admitted": stored.middle(theorem, "admitted_share"),
        "ball": stored.middle(balls, "radius_share"),
    }


def factor() -> Mapping[str, float]:
    """‖∇L‖ by automatic differentiation over ‖Σ c ∇c‖."""
    x, w, v, b = (m.unsqueeze(0) for m in instance(N, D))
    point = x[0].clone().requires_grad_()
    residual = att.outputs(point.unsqueeze(0), w, v)[0] - b[0]
    exact = torch.autograd.grad(residual.square().sum(), point, retain_graph=True)[0]
    printed = torch.autograd.grad(residual, point, residual.detach())[0]
    return {"ratio": float(exact.norm() / printed.norm())}


def _entry(case: Case, error: Expression) -> Callable[[], Mapping[str, float]]:
    return lambda: {"share": share(case, error)}


def z_error(t: Terms) -> torch.Tensor:
    """Lemma C.5, Part 2, as printed less d z1/dx_{i2,j2}."""
    return t.f00 * (t.w2 * (t.y10 - t.z1) + t.w21) - t.f02 * (t.w2 * (t.y12 - t.z1) + t.w21)


def f_error(t: Terms) -> torch.Tensor:
    """Lemma D.1 as printed less d f_{i0,i1}/dx_{i2,j2}."""
    return t.f01 * (1 - t.f02) * t.w2 - df01(t)


def product_error(t: Terms) -> torch.Tensor:
    """Lemma D.5, Part 1, as printed less d (f_{i0,i1} h_{j0,i1})/dx_{i2,j2}."""
    return (1 - t.f02 + t.v2) * t.f01 * t.w2 * t.h1 - df01(t) * t.h1 - t.f01 * t.v2


NUMBERS: dict[str, Callable[[], Mapping[str, float]]] = {
    "attention.j.1": recovery,
    "attention.b.17": factor,
    "attention.d.1": _entry(both_other, lambda t: f_error(t) * (t.w1 * (t.h1 - t.s) + t.v1)),
    "attention.c.5.2": _entry(same_then_other, lambda t: -t.s * z_error(t)),
    "attention.c.10.1": _entry(all_same, lambda t: t.s * t.z1 * t.z2 * (t.f00 - 1)),
    "attention.d.5.1": _entry(both_other_equal, lambda t: product_error(t) * t.w1),
    "attention.d.6": _entry(both_other, lambda t: case_two._d6(t) + (ds(t) * t.f01 + t.s * df01(t)) * t.w1),
}
