"""DAG paper, Appendices D and L: what automatic differentiation returns at and around kinks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, hessian
from torch.nn.functional import softplus

from experiments.paper_audit.checks import BothErrors, Checks, Errors, Outcome, worked
from experiments.paper_audit.tensors import gauss, norm_of, real, seeded

CHECKS = Checks()
Loss = Callable[[Tensor], Tensor]
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(40)


def fitted_unit(x: Tensor) -> Tensor:
    """(ReLU(x) − 1)²/2, a kink at 0."""
    return (torch.relu(x) - 1) ** 2 / 2


def sloped(seed: int) -> tuple[Loss, list[float]]:
    """Logistic loss of a network of one input and four ReLU units, and its kinks."""
    weight, bias, output = gauss(seeded(seed), 3, 4)

    def loss(x: Tensor) -> Tensor:
        return softplus(output @ torch.relu(weight * x + bias))

    return loss, sorted((-bias / weight).tolist())


def integral(loss: Loss, low: float, high: float) -> float:
    """Integral of the second derivative that automatic differentiation gives, of a piece without a
    kink between the ends."""
    second = grad(grad(loss))
    half = (high - low) / 2
    total = 0.0
    for point, weight in zip(POINTS, WEIGHTS, strict=True):
        x = real(low + half * (1 + point))
        total += half * float(weight) * float(second(x))
    return total


def change(loss: Loss, low: float, high: float) -> float:
    """ℓ'(high) − ℓ'(low)."""
    slope = grad(loss)
    return float(slope(real(high)) - slope(real(low)))


def over_pieces(loss: Loss, kinks: Iterable[float]) -> tuple[float, float]:
    """Integral of the second derivative against the change of the first: |difference| over a path
    across all kinks, and the largest over pieces between them."""
    ends = [-4.0, *(kink for kink in kinks if abs(kink) < 4), 4.0]
    whole = 0.0
    inside = []
    for low, high in itertools.pairwise(ends):
        whole += integral(loss, low, high)
        margin = 1e-3 * (high - low)
        piece = integral(loss, low + margin, high - margin)
        inside.append(abs(piece - change(loss, low + margin, high - margin)))
    across = abs(whole - change(loss, -4.0, 4.0))
    return across, max(inside)


@CHECKS.clause("dag.thm46.4")
def conservative_field() -> BothErrors:
    """Theorem 46.4, proof step 4, Appendix D: the second derivatives of automatic differentiation
    form a conservative field with potential ∇L, so that their integral along a path is the change
    of ∇L; corrected: along paths inside one linear region."""
    yield over_pieces(fitted_unit, [0.0])
    for seed in range(4):
        yield over_pieces(*sloped(seed))
    whole = integral(fitted_unit, -1.0, 0.0) + integral(fitted_unit, 0.0, 1.0)
    return worked(
        "L(x) = (ReLU(x) − 1)²/2 from x = −1 to 1: integral of the second derivative",
        "L′(1) − L′(−1) = 0",
        "1: L′ jumps by −1 at x = 0, which no field of second derivatives has",
        f"{whole:.6g}; L′(1) − L′(−1) = {abs(change(fitted_unit, -1.0, 1.0)):g}",
    )


def newton(loss: Loss, x: float, steps: int) -> list[float]:
    """Points of Newton's method with automatic differentiation."""
    slope = grad(loss)
    second = grad(slope)
    points = [x]
    for _ in range(steps):
        at = real(points[-1])
        points.append(float(at - slope(at) / second(at)))
    return points


def edge(x: Tensor) -> Tensor:
    """|f + (1, 1)|²/2 of f = (ReLU(x), ReLU(−x)): (|x| + 1)²/2 + 1/2, least at the kink x = 0."""
    return ((torch.relu(x) + 1) ** 2 + (torch.relu(-x) + 1) ** 2) / 2


def inside_a_region(x: Tensor) -> Tensor:
    """cosh(ReLU(x) − 1), least at x = 1."""
    return torch.cosh(torch.relu(x) - 1)


@CHECKS.clause("dag.def47.convergence")
def newton_at_a_kink() -> Outcome:
    """Definition 47, Theorem 46.4: the AD-Hessian guarantees convergence of second-order
    algorithms: Newton's method from 0.01 next to a minimum at a kink; corrected: near minima inside
    one linear region with a positive definite Hessian."""
    starts = (0.01, -0.3, 2.0)
    paths = [newton(edge, start, 50) for start in starts]
    farthest = max(abs(path[-1]) for path in paths)
    regular = [newton(inside_a_region, start, 8)[-1] for start in (0.4, 0.9, 1.5)]
    right = max(abs(x - 1) for x in regular)
    shown = ", ".join(f"{x:g}".replace("-", "−") for x in paths[0][:5])
    witness = worked(
        "f = (ReLU(x), ReLU(−x)), L = |f + (1, 1)|²/2, least at x = 0: Newton's method from 0.01",
        "→ 0",
        "converges near minima inside one linear region",
        f"{shown}, … for ever",
    )
    return Outcome(farthest, right, len(starts) + len(regular), witness)


def deep_units(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights and biases of two layers of two ReLU units, two inputs."""
    generator = seeded(seed)
    return (
        gauss(generator, 2, 2),
        gauss(generator, 2),
        gauss(generator, 2, 2),
        gauss(generator, 2),
    )


def planes(seed: int) -> Tensor:
    """(a, c) of every set a · x + c = 0 on which a unit can have its kink: of the second layer for
    each pattern of the first."""
    first, shift, second, offset = deep_units(seed)
    found = [torch.cat([first, shift[:, None]], 1)]
    for pattern in itertools.product((0.0, 1.0), repeat=2):
        active = real(pattern)
        slopes = second @ (active[:, None] * first)
        level = second @ (active * shift) + offset
        found.append(torch.cat([slopes, level[:, None]], 1))
    return torch.cat(found)


def on_a_kink(seed: int, line: Tensor) -> list[Tensor]:
    """Points of a line through the plane where a unit of the two layers has its kink."""
    first, shift, second, offset = deep_units(seed)

    def units(t: float) -> Tensor:
        hidden = first @ (line[0] + t * line[1]) + shift
        return torch.cat([hidden, second @ torch.relu(hidden) + offset])

    found = []
    for low in np.linspace(-5, 5, 200):
        left, right = float(low), float(low) + 0.05
        for unit in range(4):
            a, b = left, right
            below = float(units(a)[unit])
            if below * float(units(b)[unit]) >= 0:
                continue
            for _ in range(60):
                middle = (a + b) / 2
                if below * float(units(middle)[unit]) > 0:
                    a = middle
                else:
                    b = middle
            found.append(line[0] + a * line[1])
    return found


@CHECKS.clause("dag.thm46.count")
def kinks_in_planes() -> Errors:
    """Theorem 46, proof step 2: kinks of N units lie in at most 2^N sets a · x + c = 0: their
    number over 2^N, less 1, and the distance of each kink from the nearest."""
    for seed in (0, 2, 3, 4):
        sets = planes(seed)
        yield len(sets) / 2**4 - 1
        normals = sets[:, :2].norm(dim=1).clamp_min(1e-300)
        for of_line in (20, 30):
            for point in on_a_kink(seed, gauss(seeded(of_line + seed), 2, 2)):
                distances = (sets[:, :2] @ point + sets[:, 2]).abs() / normals
                yield float(distances.min())


def on_two_kinks(seed: int) -> tuple[Loss, Tensor, Tensor]:
    """Cross-entropy of a network of two inputs and three ReLU units, the point where the first two
    have their kinks, and a direction into each of the four regions around it."""
    generator = seeded(seed)
    weight = gauss(generator, 3, 2)
    bias = gauss(generator, 3)
    output = gauss(generator, 3, 3)
    level = gauss(generator, 3)

    def loss(x: Tensor) -> Tensor:
        logits = output @ torch.relu(weight @ x + bias) + level
        return -torch.log_softmax(logits, 0)[0]

    both = torch.linalg.inv(weight[:2])
    directions = [both @ real(sign) for sign in itertools.product((-1.0, 1.0), repeat=2)]
    return loss, -both @ bias[:2], torch.stack(directions)


@CHECKS.clause("dag.thm99", tolerance=1e-5)
def upper_semicontinuous() -> Errors:
    """Theorem 99: second derivatives at points that tend to x are close to the limits at x, one for
    each adjacent region: distance of those at 1e-7 from x to the nearest limit."""
    for seed in range(4):
        loss, point, directions = on_two_kinks(seed)
        second = hessian(loss)
        limits = [second(point + 1e-11 * d / d.norm()) for d in directions]
        generator = seeded(20 + seed)
        for _ in range(10):
            step = gauss(generator, 2)
            near = second(point + 1e-7 * step / step.norm())
            yield min(norm_of(near - limit) for limit in limits)


def post_activation(x: Tensor) -> Tensor:
    """ReLU(x + f(x)), f(x) = ReLU(x/2)/2 − 2, |f′| <= 1/4: the block of ResNet-18."""
    return torch.relu(pre_activation(x))


def pre_activation(x: Tensor) -> Tensor:
    """x + f(x)."""
    return x + torch.relu(x / 2) / 2 - 2


def transmitted_share(block: Callable[[Tensor], Tensor], x: float) -> float:
    """|∂ block/∂x|, which is R(v0,v1) / ∇²ℓ."""
    return abs(float(grad(block)(real(x))))


@CHECKS.clause("dag.remark74")
def skips_of_resnet_18() -> Outcome:
    """Remark 74 (1): Exp. 6 verifies the stability of Theorem 71, R >= (1 − ρ^k)^(L/k) ‖∇²ℓ‖, for
    k = 2, ρ = 1/2 and one block ReLU(x + f(x)) like those of ResNet-18; corrected: it holds for
    x + f(x)."""
    bound = 1 - 0.5**2
    points = (1.0, 0.3, 1.9)
    reached = [transmitted_share(post_activation, x) for x in points]
    before = [transmitted_share(pre_activation, x) for x in (*points, -1.0, 5.0)]
    witness = worked(
        "ReLU(x + ReLU(x/2)/2 − 2) at x = 1, k = 2, ρ = 1/2: R(v0,v1) / |∇²ℓ|",
        ">= 1 − 1/4 = 0.75",
        ">= 0.75 for x + f(x)",
        f"{reached[0]:g}; without the outer ReLU {before[0]:g}",
    )
    printed = 1 - min(reached) / bound
    right = 1 - min(before) / bound
    return Outcome(printed, right, len(points) + len(before), witness)
