"""WS-bound paper, Appendix A: activations, their derivatives and the extremes of these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.paper_audit.checks import (
    Check,
    Checks,
    Outcome,
    outcome_of,
    relative_error,
    worked,
)
from experiments.paper_audit.tensors import grid, real
from experiments.paper_audit.three_layer import derivative

CHECKS = Checks()
GRID = grid(-6, 6, 97)
FINE = grid(-9, 9, 18001)
ROOT2 = math.sqrt(2)
ROOT3 = math.sqrt(3)


def density(y: Tensor) -> Tensor:
    return torch.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)


def cumulative(y: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(y / ROOT2))


def linear(y: Tensor) -> list[Tensor]:
    return [y, torch.ones_like(y), torch.zeros_like(y)]


def sigmoid(y: Tensor) -> list[Tensor]:
    f = 1 / (1 + torch.exp(-y))
    first = (1 - f) * f
    second = (1 - 2 * f) * (1 - f) * f
    high = (3 + ROOT3) / 6
    low = (3 - ROOT3) / 6
    third = 6 * (f - high) * (f - low) * (1 - f) * f
    return [f, first, second, third]


def tanh(y: Tensor) -> list[Tensor]:
    f = torch.tanh(y)
    first = 1 - f**2
    third = -2 * first * (1 - 3 * f**2)
    return [f, first, -2 * f * first, third]


def softplus(y: Tensor) -> list[Tensor]:
    f = torch.log(1 + torch.exp(y))
    first = 1 / (1 + torch.exp(-y))
    return [f, first, (1 - first) * first]


def gelu(y: Tensor) -> list[Tensor]:
    g = density(y)
    G = cumulative(y)
    second = g * (ROOT2 - y) * (ROOT2 + y)
    third = -y * g * (2 - y) * (2 + y)
    return [y * G, G + y * g, second, third]


def derivatives(name: str, printed: Callable[[Tensor], list[Tensor]]) -> Check:
    """Check of printed f, f', f'', ... on a grid."""

    def check() -> Outcome:
        errors = []
        for order, value in enumerate(printed(GRID)):
            errors.append(relative_error(value, derivative(name, order)(GRID)))
        return outcome_of(errors, instances=len(errors) * len(GRID))

    return check


CHECKS["ws.eq36"] = derivatives("linear", linear)
CHECKS["ws.eq39"] = derivatives("sigmoid", sigmoid)
CHECKS["ws.eq42"] = derivatives("tanh", tanh)
CHECKS["ws.eq45"] = derivatives("softplus", softplus)
CHECKS["ws.eq48"] = derivatives("gelu", gelu)


def parabola_extreme(left: float, middle: float, right: float) -> float:
    """Extreme of the parabola through three equidistant points."""
    curvature = left - 2 * middle + right
    if not curvature:
        return middle
    return middle - (right - left) ** 2 / (8 * curvature)


@dataclass(frozen=True)
class Extreme:
    """A printed extreme value of f^(order): `value` in closed form, `digits` as printed with its
    dots ("": exact)."""

    name: str
    order: int
    largest: bool
    value: float
    digits: str = ""

    def error(self) -> float:
        """Deviation of the closed form from the extreme on a fine grid, and of the digits from the
        closed form.

        The grid holds y = 0, ±2 exactly; elsewhere an extreme on it has an error of the square of
        the spacing, which is removed by a parabola through three points. An infimum at infinity is
        approached to e^-9.
        """
        f = derivative(self.name, self.order)(FINE)
        k = int(f.argmax() if self.largest else f.argmin())
        found = float(f[k])
        limit = 2e-4
        if 0 < k < len(f) - 1:
            found = parabola_extreme(*f[k - 1 : k + 2].tolist())
            limit = 1e-9
        error = abs(found - self.value) / max(1.0, abs(self.value))
        if error <= limit:
            error = 0.0
        if self.digits and not f"{self.value:.12f}".startswith(self.digits):
            error = max(error, abs(self.value - float(self.digits)))
        return error


def extremes(*cases: Extreme) -> Check:
    return lambda: Outcome(max(case.error() for case in cases), instances=len(cases))


def gelu_slope() -> float:
    """max f' of GELU = G(√2) + √2 g(√2)."""
    root = real(ROOT2)
    return float(cumulative(root) + root * density(root))


CHECKS["ws.eq37"] = extremes(
    Extreme("linear", 1, True, 1.0),
    Extreme("linear", 1, False, 1.0),
    Extreme("linear", 2, True, 0.0),
    Extreme("linear", 2, False, 0.0),
)
CHECKS["ws.eq40"] = extremes(
    Extreme("sigmoid", 1, False, 0.0),
    Extreme("sigmoid", 1, True, 0.25),
    Extreme("sigmoid", 2, True, ROOT3 / 18, "0.096"),
    Extreme("sigmoid", 2, False, -ROOT3 / 18, "-0.096"),
)
CHECKS["ws.eq43"] = extremes(
    Extreme("tanh", 1, False, 0.0),
    Extreme("tanh", 1, True, 1.0),
    Extreme("tanh", 2, True, 4 * ROOT3 / 9, "0.769"),
    Extreme("tanh", 2, False, -4 * ROOT3 / 9, "-0.769"),
)
CHECKS["ws.eq46"] = extremes(
    Extreme("softplus", 1, False, 0.0),
    Extreme("softplus", 1, True, 1.0),
    Extreme("softplus", 2, False, 0.0),
    Extreme("softplus", 2, True, 0.25),
)
CHECKS["ws.eq49"] = extremes(
    Extreme("gelu", 1, True, gelu_slope(), "1.128"),
    Extreme("gelu", 1, False, 1 - gelu_slope(), "-0.128"),
)
CHECKS["ws.eq50"] = extremes(
    Extreme("gelu", 2, True, math.sqrt(2 / math.pi), "0.797"),
    Extreme("gelu", 2, False, -2 * math.exp(-2) / math.sqrt(2 * math.pi), "-0.107"),
)


@CHECKS.clause("ws.eq44.condition")
def tanh_condition() -> Outcome:
    """f''(±1/√3 in f) is not zero, f''' is."""
    y = torch.atanh(real([1 / ROOT3]))
    second = float(derivative("tanh", 2)(y).abs())
    third = float(derivative("tanh", 3)(y).abs())
    witness = worked("y = artanh(1/√3)", f"f'' = −{second:.5g}", f"f''' = {third:.2g}", "0")
    return Outcome(second, third, 1, witness)


SLOPE = {"linear": 1.0, "sigmoid": 1 / 16, "tanh": 1.0, "softplus": 1.0, "gelu": gelu_slope() ** 2}
"""ζ_1, the largest f'²."""
BEND = {
    "linear": 0.0,
    "sigmoid": ROOT3 / 18,
    "tanh": 4 * ROOT3 / 9,
    "softplus": 0.25,
    "gelu": math.sqrt(2 / math.pi),
}
"""ζ_2, the largest |f''|."""
STEEPEST = {"linear": 0.0, "sigmoid": 0.0, "tanh": 0.0, "softplus": 40.0, "gelu": ROOT2}
"""Where f' is largest."""
BENT = {
    "linear": 0.0,
    "sigmoid": -math.log(2 + ROOT3),
    "tanh": -math.atanh(3**-0.5),
    "softplus": 0.0,
    "gelu": 0.0,
}
"""Where f'' is largest."""
