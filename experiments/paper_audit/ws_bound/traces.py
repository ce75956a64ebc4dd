"""WS-bound paper, Theorems 1 to 4 and Appendix A: activations, gradient, Hessian, trace and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.paper_audit.checks import Entry, Outcome, Witness, relative_error
from experiments.paper_audit.tensors import real
from experiments.paper_audit.three_layer import (
    INCREASING,
    Instance,
    Sample,
    derivative,
    equality,
    inequality,
    kron,
)

GRID = torch.linspace(-6, 6, 97, dtype=torch.float64)
FINE = torch.linspace(-9, 9, 18001, dtype=torch.float64)


def density(y: Tensor) -> Tensor:
    return torch.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)


def cumulative(y: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(y / math.sqrt(2)))


def _sigmoid(y: Tensor) -> list[Tensor]:
    f = 1 / (1 + torch.exp(-y))
    root = math.sqrt(3)
    third = 6 * (f - (3 + root) / 6) * (f - (3 - root) / 6) * (1 - f) * f
    return [f, (1 - f) * f, (1 - 2 * f) * (1 - f) * f, third]


def _tanh(y: Tensor) -> list[Tensor]:
    f = torch.tanh(y)
    return [f, 1 - f**2, -2 * f * (1 - f**2), -2 * (1 - f**2) * (1 - 3 * f**2)]


def _softplus(y: Tensor) -> list[Tensor]:
    first = 1 / (1 + torch.exp(-y))
    return [torch.log(1 + torch.exp(y)), first, (1 - first) * first]


def _gelu(y: Tensor) -> list[Tensor]:
    g, root = density(y), math.sqrt(2)
    second, third = g * (root - y) * (root + y), -y * g * (2 - y) * (2 + y)
    return [y * cumulative(y), cumulative(y) + y * g, second, third]


def _linear(y: Tensor) -> list[Tensor]:
    return [y, torch.ones_like(y), torch.zeros_like(y)]


def _derivatives(name: str, printed: Callable[[Tensor], list[Tensor]]) -> Callable[[], Outcome]:
    def check() -> Outcome:
        values = printed(GRID)
        errors = [
            relative_error(value, derivative(name, order)(GRID))
            for order, value in enumerate(values)
        ]
        return Outcome(max(errors), instances=len(values) * len(GRID))

    return check


@dataclass(frozen=True)
class Extreme:
    """A printed extreme value of f^(order): `value` in closed form, `digits` as printed with its dots (None: exact)."""

    name: str
    order: int
    largest: bool
    value: float
    digits: str = ""

    def error(self) -> float:
        """Deviation of the closed form from the extreme on a fine grid, and of the digits from the closed form.

        The grid holds y = 0, ±2 exactly; elsewhere an extreme on it has an error of the square of the spacing, which is
        removed by a parabola through three points. An infimum at infinity is approached to e^-9.
        """
        f = derivative(self.name, self.order)(FINE)
        k = int(f.argmax() if self.largest else f.argmin())
        found = float(f[k])
        if 0 < k < len(f) - 1:
            left, middle, right = (float(v) for v in f[k - 1 : k + 2])
            curvature = left - 2 * middle + right
            found -= (right - left) ** 2 / (8 * curvature) if curvature else 0.0
            limit = 1e-9
        else:
            limit = 2e-4
        error = abs(found - self.value) / max(1.0, abs(self.value))
        error = 0.0 if error <= limit else error
        if self.digits and not f"{self.value:.12f}".startswith(self.digits):
            error = max(error, abs(self.value - float(self.digits)))
        return error


def _extremes(*cases: Extreme) -> Callable[[], Outcome]:
    return lambda: Outcome(max(case.error() for case in cases), instances=len(cases))


def gelu_slope() -> float:
    """max f' of GELU = G(√2) + √2 g(√2)."""
    root = real(math.sqrt(2))
    return float(cumulative(root) + root * density(root))


def _tanh_condition() -> Outcome:
    """f''(±1/√3 in f) is not zero, f''' is."""
    y = torch.atanh(real([1 / math.sqrt(3)]))
    second, third = (float(derivative("tanh", order)(y).abs()) for order in (2, 3))
    witness = Witness("y = artanh(1/√3)", f"f'' = −{second:.5g}", f"f''' = {third:.2g}", "0")
    return Outcome(second, third, 1, witness)


ROOT3 = math.sqrt(3)


PAIRED = ((1, 1, 2), (2, 3, 3))


def ww(instance: Instance) -> Tensor:
    return instance.hessian[: instance.count, : instance.count]


def vv(instance: Instance) -> Tensor:
    return instance.hessian[instance.count :, instance.count :]


def vw(instance: Instance) -> Tensor:
    return instance.hessian[instance.count :, : instance.count]


def total(part: Callable[[Sample], Tensor]) -> Callable[[Instance], Tensor]:
    """Σ_i of a term of one sample."""
    return lambda instance: torch.stack([part(i) for i in instance.samples]).sum(0)


def stacked(instance: Instance, part: Callable[[Sample], Tensor]) -> Tensor:
    return torch.stack([part(i) for i in instance.samples])


def block_ww(i: Sample) -> Tensor:
    """Eq. 15."""
    a = i.F(1) @ i.V
    return kron(
        torch.outer(i.hx, i.hx), i.s1 * torch.outer(a, a) + i.delta * torch.diag(i.V) @ i.F(2)
    )


def block_vv(i: Sample) -> Tensor:
    """Eq. 16."""
    return i.s1 * torch.outer(i.hr, i.hr)


def block_vw(i: Sample) -> Tensor:
    """Eq. 17."""
    return kron(i.hx[None], i.s1 * torch.outer(i.hr, i.V @ i.F(1)) + i.delta * i.F0(1))


def block_wv(i: Sample) -> Tensor:
    """Eq. 18."""
    return kron(i.hx[:, None], i.s1 * torch.outer(i.F(1) @ i.V, i.hr) + i.delta * i.F0(1).T)


SLOPE = {"linear": 1.0, "sigmoid": 1 / 16, "tanh": 1.0, "softplus": 1.0, "gelu": gelu_slope() ** 2}


BEND = {
    "linear": 0.0,
    "sigmoid": math.sqrt(3) / 18,
    "tanh": 4 * math.sqrt(3) / 9,
    "softplus": 0.25,
    "gelu": math.sqrt(2 / math.pi),
}


def _forward(instance: Instance) -> Tensor:
    """Eq. 1 written with four parameters W̃, b, Ṽ, c."""
    columns = instance.theta[: instance.count].reshape(-1, instance.units).T
    y = columns[:, 1:] @ instance.x.T + columns[:, :1]
    i = instance.samples[0]
    r = type(i)(i.hx, y.T.flatten(), i.V, i.full, i.z, i.q, i.name).f.reshape(len(instance.x), -1)
    return r @ i.V + i.full[0]


def _by_entropy(instance: Instance) -> Tensor:
    """Eq. 4 with p itself."""
    return torch.stack(
        [-i.q * torch.log(i.p) - (1 - i.q) * torch.log(1 - i.p) for i in instance.samples]
    ).sum()


def _whole(instance: Instance) -> Tensor:
    """Eq. 14 with the blocks of Eqs. 15–18."""
    blocks = [total(part)(instance) for part in (block_ww, block_wv, block_vw, block_vv)]
    return torch.cat([torch.cat(blocks[:2], 1), torch.cat(blocks[2:], 1)])


def _trace_ww(instance: Instance) -> Tensor:
    """Eq. 20 in matrix form."""
    slopes, bends = stacked(instance, lambda i: i.d(1)), stacked(instance, lambda i: i.d(2))
    s, delta = stacked(instance, lambda i: i.s1), stacked(instance, lambda i: i.delta)
    V, X, ones = instance.samples[0].V, instance.x.T, torch.ones(len(instance.x)).double()
    eye = torch.eye(len(instance.x)).double()
    return (s * (slopes**2 @ V**2) + delta * (bends @ V)) @ ((eye + X.T @ X * eye) @ ones)


def _trace_vv(instance: Instance) -> Tensor:
    """Eq. 21 in matrix form."""
    R, eye = stacked(instance, lambda i: i.f).T, torch.eye(len(instance.x)).double()
    return stacked(instance, lambda i: i.s1) @ (
        (eye + R.T @ R * eye) @ torch.ones(len(instance.x)).double()
    )


def _excess_upper(instance: Instance) -> float:
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    bound = eigenvalues.mean() + math.sqrt(len(eigenvalues) - 1) * eigenvalues.std(correction=0)
    return float((eigenvalues[-1] - bound) / eigenvalues.abs().max())


def _excess_vv(instance: Instance) -> float:
    bound = len(instance.x) * (instance.units + 1) / 4
    return (float(vv(instance).trace()) - bound) / bound


def bound_ww(instance: Instance, size: float) -> float:
    """Right-hand side of Eq. 23; size: what ζ_2 multiplies."""
    V, norms = instance.samples[0].V, float(sum(i.norm for i in instance.samples))
    return (SLOPE[instance.name] / 4 * float(V @ V) + BEND[instance.name] * size) * norms


def excess_ww(instance: Instance) -> float:
    """Theorem 4 with ζ_2 ||Ṽ||_1."""
    bound = bound_ww(instance, float(instance.samples[0].V.abs().sum()))
    return (float(ww(instance).trace()) - bound) / bound


def _excess_bar(instance: Instance) -> float:
    """Theorem 4 with ζ_2 |Ṽ 1_N|, the bars around the product as in our text."""
    bound = bound_ww(instance, abs(float(instance.samples[0].V.sum())))
    return (float(ww(instance).trace()) - bound) / bound if bound else -1.0


STEEPEST = {"linear": 0.0, "sigmoid": 0.0, "tanh": 0.0, "softplus": 40.0, "gelu": math.sqrt(2)}
BENT = {
    "linear": 0.0,
    "sigmoid": -math.log(2 + math.sqrt(3)),
    "tanh": -math.atanh(3**-0.5),
    "softplus": 0.0,
    "gelu": 0.0,
}
"""Where f' and f'' are largest."""


def near_ww(name: str) -> Iterator[Instance]:
    """One unit, x = 0: large Ṽ at the steepest point with z = 0 (the term of ζ_1), small Ṽ at the most bent one with
    a saturated output (that of ζ_2)."""
    zero = torch.zeros(1, dtype=torch.float64)
    for y, weight, z in ((STEEPEST[name], 4000.0, 0.0), (BENT[name], 0.001, 12.0)):
        offset = z - weight * float(derivative(name, 0)(zero + y))
        yield Instance(name, torch.tensor([y, 0.0, offset, weight]).double(), zero[None], zero)


def opposite(name: str) -> Instance:
    """Two units, the first where f'' is largest, the second where it is least or 0, Ṽ = (0.1, −0.1), x = z = q = 0."""
    zero = torch.zeros(1, dtype=torch.float64)
    y = (BENT[name], -BENT[name] or 8.0)
    outputs = [float(derivative(name, 0)(zero + value)) for value in y]
    theta = [*y, 0.0, 0.0, -0.1 * (outputs[0] - outputs[1]), 0.1, -0.1]
    return Instance(name, real(theta), zero[None], zero)


def _theorem_four() -> Outcome:
    """|Ṽ 1_N| as the modulus of the sum, for each nonlinear activation, and as the sum of the moduli."""
    printed = min(_excess_bar(opposite(name)) for name in SLOPE if name != "linear")
    corrected = inequality(excess_ww, names=INCREASING, starts=near_ww)()
    case = opposite("sigmoid")
    sizes = (abs(float(case.samples[0].V.sum())), float(case.samples[0].V.abs().sum()))
    limits = [f"{bound_ww(case, size):.3g}" for size in sizes]
    witness = Witness(
        "sigmoid, N = 2, x = 0, Ṽ = (0.1, −0.1), y at the extremes of f'', z = 0, q = 0: bound of tr H(w, w)",
        f"{limits[0]} with |Ṽ 1_N| = |Σ v_n|",
        f"{limits[1]} with ||Ṽ||_1",
        f"tr H(w, w) = {float(ww(case).trace()):.3g}",
    )
    return Outcome(printed, corrected.printed, corrected.instances + len(SLOPE) - 1, witness)


def _supremum() -> Outcome:
    """sup of δ Ṽ f''(y) over |δ| < 1 and y, over ζ_2 ||Ṽ||_1: gap to either reading of the print, the smaller of the
    two largest; corrected: ζ_2 ||Ṽ||_1 as an upper bound."""
    gaps, excess = [], []
    for name in INCREASING[1:]:
        bends = derivative(name, 2)(torch.linspace(-8, 8, 3201, dtype=torch.float64))
        for v in ((1.0, 1.0), (1.0, -1.0), (0.3, -2.0)):
            size = sum(abs(x) for x in v)
            reached = max(sum(float((s * x * bends).max()) for x in v) for s in (1, -1)) / (
                BEND[name] * size
            )
            gaps.append((abs(reached - 1), abs(reached - abs(sum(v)) / size)))
            excess.append(reached - 1)
    witness = Witness(
        "SmoothReLU, Ṽ = (1, −1): sup of δ Ṽ f''(y)",
        "1/2 read as ζ_2 ||Ṽ||_1, 0 read as ζ_2 |Σ v_n|",
        "<= 1/2",
        "1/4, since 0 < f'' <= 1/4",
    )
    return Outcome(
        min(max(gap) for gap in zip(*gaps, strict=True)), max(excess), len(gaps), witness, 1e-4
    )


def _eigen(instance: Instance) -> Tensor:
    """U diag(λ) Uᵀ with real λ_1 >= ... >= λ_D (Eq. 6 and the display after it)."""
    values, vectors = torch.linalg.eigh(instance.hessian)
    values, vectors = values.flip(0), vectors.flip(1)
    assert not values.is_complex() and bool((values.diff() <= 0).all())
    return vectors @ torch.diag(values) @ vectors.T


def _jacobians(instance: Instance) -> Tensor:
    """F' = diag(f') and F'' = diag(f'') (Eq. 35) of the first sample."""
    i = instance.samples[0]
    return torch.stack([torch.diag(i.d(1)), torch.diag(i.d(2))])


def _true_jacobians(instance: Instance) -> Tensor:
    """df/dy and df'/dy by automatic differentiation."""
    i = instance.samples[0]
    return torch.stack([torch.func.jacrev(derivative(i.name, k))(i.y) for k in (0, 1)])


def _gradient(instance: Instance) -> Tensor:
    """Eqs. 11–13."""
    by_w = total(lambda i: i.delta * kron(i.hx, i.F(1) @ i.V))(instance)
    return torch.cat([by_w, total(lambda i: i.delta * i.hr)(instance)])


CHECKS: dict[str, Entry] = {
    "ws.eq36": _derivatives("linear", _linear),
    "ws.eq37": _extremes(
        *(Extreme("linear", k, top, 2.0 - k) for k in (1, 2) for top in (True, False))
    ),
    "ws.eq39": _derivatives("sigmoid", _sigmoid),
    "ws.eq40": _extremes(
        Extreme("sigmoid", 1, False, 0.0),
        Extreme("sigmoid", 1, True, 0.25),
        Extreme("sigmoid", 2, True, ROOT3 / 18, "0.096"),
        Extreme("sigmoid", 2, False, -ROOT3 / 18, "-0.096"),
    ),
    "ws.eq42": _derivatives("tanh", _tanh),
    "ws.eq43": _extremes(
        Extreme("tanh", 1, False, 0.0),
        Extreme("tanh", 1, True, 1.0),
        Extreme("tanh", 2, True, 4 * ROOT3 / 9, "0.769"),
        Extreme("tanh", 2, False, -4 * ROOT3 / 9, "-0.769"),
    ),
    "ws.eq44.condition": _tanh_condition,
    "ws.eq45": _derivatives("softplus", _softplus),
    "ws.eq46": _extremes(
        Extreme("softplus", 1, False, 0.0),
        Extreme("softplus", 1, True, 1.0),
        Extreme("softplus", 2, False, 0.0),
        Extreme("softplus", 2, True, 0.25),
    ),
    "ws.eq48": _derivatives("gelu", _gelu),
    "ws.eq49": _extremes(
        Extreme("gelu", 1, True, gelu_slope(), "1.128"),
        Extreme("gelu", 1, False, 1 - gelu_slope(), "-0.128"),
    ),
    "ws.eq50": _extremes(
        Extreme("gelu", 2, True, math.sqrt(2 / math.pi), "0.797"),
        Extreme("gelu", 2, False, -2 * math.exp(-2) / math.sqrt(2 * math.pi), "-0.107"),
    ),
    "ws.eq1": equality(_forward, lambda c: stacked(c, lambda i: i.z)),
    "ws.eq4": equality(
        _by_entropy,
        lambda c: torch.nn.functional.binary_cross_entropy_with_logits(
            stacked(c, lambda i: i.z), c.q, reduction="sum"
        ),
    ),
    "ws.eq6": equality(_eigen, lambda c: c.hessian),
    "ws.theorem1": inequality(_excess_upper),
    "ws.proposition2": equality(_gradient, lambda c: c.gradient),
    "ws.proposition3": equality(_whole, lambda c: c.hessian),
    "ws.eq15": equality(total(block_ww), ww),
    "ws.eq16": equality(total(block_vv), vv),
    "ws.eq17": equality(total(block_vw), vw),
    "ws.eq18": equality(total(block_wv), lambda c: vw(c).T),
    "ws.eq19": equality(lambda c: _trace_ww(c) + _trace_vv(c), lambda c: c.hessian.trace()),
    "ws.eq35": equality(_jacobians, _true_jacobians),
    "ws.eq20": equality(_trace_ww, lambda c: ww(c).trace()),
    "ws.eq21": equality(_trace_vv, lambda c: vv(c).trace()),
    "ws.theorem3": inequality(_excess_vv, names=("sigmoid", "tanh")),
    "ws.theorem4": _theorem_four,
    "ws.theorem4.proof": _supremum,
    "ws.eq57": equality(total(block_wv), lambda c: total(block_vw)(c).T),
    "ws.eq64": equality(
        lambda c: torch.stack(
            [
                stacked(c, lambda i: i.s1 * (1 + i.f @ i.f)),
                stacked(
                    c,
                    lambda i: (
                        i.norm * (i.s1 * (i.F(1) @ i.V).square().sum() + i.delta * (i.V @ i.d(2)))
                    ),
                ),
            ]
        ),
        lambda c: torch.stack(
            [stacked(c, lambda i: block_vv(i).trace()), stacked(c, lambda i: block_ww(i).trace())]
        ),
    ),
}
