"""WS-bound paper, Appendix A and the constants of Theorem 4: derivatives and extreme values of the five activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.paper_audit.checks import relative_error
from experiments.paper_audit.formula import Entry, Outcome, Witness
from experiments.paper_audit.three_layer.oracle import derivative

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
        errors = [relative_error(value, derivative(name, order)(GRID)) for order, value in enumerate(values)]
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

        The grid holds y = 0, ±2 exactly; elsewhere an extreme on it is off by the square of the spacing, which is
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
    root = torch.tensor(math.sqrt(2), dtype=torch.float64)
    return float(cumulative(root) + root * density(root))


def _tanh_condition() -> Outcome:
    """f''(±1/√3 in f) is not zero, f''' is."""
    y = torch.atanh(torch.tensor([1 / math.sqrt(3)], dtype=torch.float64))
    second, third = (float(derivative("tanh", order)(y).abs()) for order in (2, 3))
    witness = Witness("y = artanh(1/√3)", f"f'' = −{second:.5g}", f"f''' = {third:.2g}", "0")
    return Outcome(second, third, 1, witness)


ROOT3, ROOT2 = math.sqrt(3), math.sqrt(2)

CHECKS: dict[str, Entry] = {
    "ws.eq36": _derivatives("linear", _linear),
    "ws.eq37": _extremes(*(Extreme("linear", k, top, 2.0 - k) for k in (1, 2) for top in (True, False))),
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
        Extreme("gelu", 1, True, gelu_slope(), "1.128"), Extreme("gelu", 1, False, 1 - gelu_slope(), "-0.128")
    ),
    "ws.eq50": _extremes(
        Extreme("gelu", 2, True, math.sqrt(2 / math.pi), "0.797"),
        Extreme("gelu", 2, False, -2 * math.exp(-2) / math.sqrt(2 * math.pi), "-0.107"),
    ),
}
