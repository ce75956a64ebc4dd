"""HSR paper, Sections III to V: traces, bounds, their gradients, and the two propositions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.func import grad

from experiments.paper_audit import three_layer as t
from experiments.paper_audit.checks import Check, Entry, Outcome, Witness, equality
from experiments.paper_audit.hsr.derivatives import outer
from experiments.paper_audit.tensors import gauss, real, seeded, unit
from experiments.paper_audit.three_layer import (
    NAMES,
    Instance,
    Sample,
    inequality,
    instances,
    loss,
    omega_range,
    opposed_gelu,
)

SMALL = ((1, 1, 1), (2, 3, 2))


def moments(hessian: Tensor) -> tuple[Tensor, Tensor, int]:
    """(μ, σ, D) from the eigenvalues themselves, their population mean and standard deviation."""
    eigenvalues = torch.linalg.eigvalsh(hessian)
    return eigenvalues.mean(), eigenvalues.std(correction=0), len(eigenvalues)


def gradient_of(instance: Instance, scalar: Callable[[Tensor], Tensor]) -> Tensor:
    """d scalar(H(θ)) / dθ by autodiff of the autodiff Hessian."""

    def function(theta: Tensor) -> Tensor:
        return scalar(torch.func.jacrev(grad(loss))(theta, instance.x, instance.q, instance.name))

    return grad(function)(instance.theta)


def squared(hessian: Tensor) -> Tensor:
    return (hessian @ hessian).trace()


def pairs(samples: list[Sample]) -> Iterator[tuple[Sample, Sample]]:
    return ((i, j) for i in samples for j in samples)


def _check(found: Callable[[Instance], Tensor], expected: Callable[[Instance], Tensor]) -> Check:
    """An equality on random instances of every activation."""
    return lambda: equality(instances(sizes=SMALL), expected, found)


def _upper(instance: Instance) -> float:
    """Violation of Eq. 1, relative to the largest eigenvalue in modulus."""
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    mean, std, dimension = moments(instance.hessian)
    return float(
        (eigenvalues[-1] - mean - math.sqrt(dimension - 1) * std) / eigenvalues.abs().max()
    )


def _lower(instance: Instance) -> float:
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    mean, std, dimension = moments(instance.hessian)
    return float((mean - math.sqrt(dimension - 1) * std - eigenvalues[0]) / eigenvalues.abs().max())


def _moments_from_traces(instance: Instance) -> Tensor:
    hessian = instance.hessian
    mean = hessian.trace() / len(hessian)
    return torch.stack([mean, squared(hessian) / len(hessian) - mean**2])


def _trace(instance: Instance) -> Tensor:
    """Eq. 3."""
    total = torch.zeros((), dtype=instance.x.dtype)
    for i in instance.samples:
        slope = (i.F(1) @ i.V).square().sum()
        total = total + i.s1 * (1 + i.f @ i.f) + i.norm * (i.s1 * slope + i.delta * (i.V @ i.d(2)))
    return total


def _square(instance: Instance) -> Tensor:
    """Eqs. 4–16."""
    total = torch.zeros((), dtype=instance.x.dtype)
    for i, j in pairs(instance.samples):
        kernel = t.inputs(i, j)
        total = (
            total
            + kernel**2 * t.phi(i, j)
            + 2 * kernel * t.psi(i, j)
            + t.hidden(i, j) ** 2 * t.omega(i, j)
        )
    return total


def _by_w(i: Sample) -> Tensor:
    """W^I + W^II + W^III (Eqs. 21–23), (N,)."""
    a = i.F(1) @ i.V
    first = (i.s2 * torch.outer(a, a) + 2 * i.s1 * torch.diag(i.V) @ i.F(2)) @ a
    second = i.s1 * a * (i.V @ i.d(2)) + i.delta * i.F(3) @ i.V
    third = i.s2 * (1 + i.f @ i.f) * a + 2 * i.s1 * (i.F(1) @ i.f)
    return i.norm * (first + second) + third


def _by_v(i: Sample) -> Tensor:
    """V^I + V^II + V^III (Eqs. 25–27), (N+1,)."""
    a = i.F(1) @ i.V
    first = (i.s2 * torch.outer(i.hr, a) + 2 * i.s1 * i.F0(1)) @ a
    second = i.s1 * i.hr * (i.V @ i.d(2)) + i.delta * i.f0(2)
    return i.norm * (first + second) + i.s2 * (1 + i.f @ i.f) * i.hr


def _summed(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)


def trace_gradient(instance: Instance) -> Tensor:
    """Theorems 2 and 3."""
    by_w = _summed(outer(i.hx, _by_w(i)) for i in instance.samples)
    return torch.cat([by_w, _summed(_by_v(i) for i in instance.samples)])


def square_gradient(instance: Instance) -> Tensor:
    """Theorems 4 and 5."""
    by_w = [
        outer(i.hx, t.w_phi(i, j) + t.w_psi(i, j) + t.w_omega(i, j))
        for i, j in pairs(instance.samples)
    ]
    by_v = [t.v_phi(i, j) + t.v_psi(i, j) + t.v_omega(i, j) for i, j in pairs(instance.samples)]
    return 2 * torch.cat([_summed(by_w), _summed(by_v)])


def _part(vector: Tensor, instance: Instance, part: str) -> Tensor:
    return vector[: instance.count] if part == "w" else vector[instance.count :]


def _gradient_of(
    scalar: Callable[[Tensor], Tensor], printed: Callable[[Instance], Tensor], part: str
) -> Check:
    """Theorems 2 to 5: every activation, and GELU where f' changes sign between the samples."""
    return lambda: equality(
        [*instances(sizes=SMALL), opposed_gelu()],
        lambda c: _part(gradient_of(c, scalar), c, part),
        lambda c: _part(printed(c), c, part),
    )


def _bound_of(hessian: Tensor) -> Tensor:
    mean, std, dimension = moments(hessian)
    return mean + math.sqrt(dimension - 1) * std


def theorem_one(instance: Instance) -> Tensor:
    """Eqs. 17–19 with the traces' gradients from autodiff."""
    mean, std, dimension = moments(instance.hessian)
    by_mean = gradient_of(instance, torch.trace) / dimension
    by_std = gradient_of(instance, squared) / (2 * std * dimension) - mean / std * by_mean
    return -by_mean - math.sqrt(dimension - 1) * by_std


def _theorem_one() -> Outcome:
    """Against autodiff of μ + √(D−1) σ of the eigenvalues."""
    return equality(
        instances(sizes=((2, 3, 2),)), lambda c: -gradient_of(c, _bound_of), theorem_one
    )


def _part_sum(quantity: t.Pair, printed: t.Pair, part: str) -> Check:
    """Σ_ij of printed_ij + printed_ji against autodiff of Σ_ij quantity_ij."""

    def expected(instance: Instance) -> Tensor:
        indices = range(len(instance.x))
        whole = _summed(instance.jacobian(quantity, i, j) for i in indices for j in indices)
        return _part(whole, instance, part)

    def found(instance: Instance) -> Tensor:
        samples = pairs(instance.samples)
        if part == "v":
            return _summed(printed(i, j) + printed(j, i) for i, j in samples)
        return _summed(outer(i.hx, printed(i, j)) + outer(j.hx, printed(j, i)) for i, j in samples)

    return lambda: equality([*instances(sizes=((2, 3, 2),)), opposed_gelu()], expected, found)


def weighted_phi(i: Sample, j: Sample) -> Tensor:
    return t.inputs(i, j) ** 2 * t.phi(i, j)


def weighted_psi(i: Sample, j: Sample) -> Tensor:
    return 2 * t.inputs(i, j) * t.psi(i, j)


def weighted_omega(i: Sample, j: Sample) -> Tensor:
    return t.hidden(i, j) ** 2 * t.omega(i, j)


def _shares(instance: Instance, k: int) -> Tensor:
    """Sample k's share of the four gradients (Eqs. 20, 24; 28, 46 with every other sample), in one vector."""
    samples = instance.samples
    i = samples[k]
    by_w = _summed(t.w_phi(i, j) + t.w_psi(i, j) + t.w_omega(i, j) for j in samples)
    by_v = _summed(t.v_phi(i, j) + t.v_psi(i, j) + t.v_omega(i, j) for j in samples)
    return torch.cat([outer(i.hx, _by_w(i)), _by_v(i), 2 * outer(i.hx, by_w), 2 * by_v])


def polynomial(instance: Instance) -> float:
    """60 I N (1 + max |x|²)^{5/2} (1 + |Ṽ|)⁵ (1 + max |r_j|)⁵, which times |δ_i| bounds the share of sample i.

    With labels 0 and 1, s' and |s''| are at most |δ|, every entry of o_j is at most 1, and |f'|, |f''| and the third
    derivative are at most 2; each term of the four gradients has at most five factors |Ṽ| and five factors |r|.
    """
    samples = instance.samples
    inputs = max(float(i.norm) for i in samples)
    hidden = max(float(i.f.norm()) for i in samples)
    size = 60 * len(samples) * instance.units * inputs**2.5
    return size * (1 + float(samples[0].V.norm())) ** 5 * (1 + hidden) ** 5


def _excess_share(instance: Instance) -> float:
    """Share of the first sample over |δ_1| times the polynomial, less 1."""
    error = abs(float(instance.samples[0].delta))
    return (
        float(_shares(instance, 0).norm()) / (error * polynomial(instance)) - 1 if error else -1.0
    )


def _cancelling(name: str, k: float, grows: bool) -> Instance:
    """Two equal units whose weights ±V cancel in z, c = log K takes p_1 to q_1 = 1; grows: V = K, else b = K."""
    unit, weight = (0.3, k) if grows else (k, 1.0)
    theta = [unit, unit, 0.7, 0.7, math.log(k), weight, -weight]
    x, q = (
        real([[0.5], [-0.3]]),
        real([1.0, 0.0]),
    )
    return Instance(name, real(theta), x, q)


def _proposition_one() -> Outcome:
    """p_1 → q_1 while the share of sample 1 grows: output weights that cancel (all activations), and fixed output
    weights with a growing bias (unbounded activations). Corrected: |δ_i| times the polynomial."""
    steps = (1e2, 1e5, 1e8)
    paths = [(name, True) for name in NAMES] + [
        (name, False) for name in ("linear", "softplus", "gelu")
    ]
    walks = {path: [_cancelling(path[0], k, path[1]) for k in steps] for path in paths}
    shares = {
        path: [float(_shares(case, 0).norm()) for case in walk] for path, walk in walks.items()
    }
    random = [case for scale in (0.1, 1.0, 5.0) for case in instances(sizes=SMALL, scale=scale)]
    walked = [case for walk in walks.values() for case in walk]
    excess = [_excess_share(case) for case in (*random, *walked)]
    first, last = shares["tanh", True][0], shares["tanh", True][-1]
    errors = [abs(float(case.samples[0].delta)) for case in walks["tanh", True]]
    witness = Witness(
        "two equal tanh units (b = 0.3, W = 0.7), Ṽ = (K, −K), c = log K, x = (1/2, −0.3), q = (1, 0): p_1 = K/(1 + K)",
        "share of sample 1 → 0 as K → ∞",
        "at most |δ_1| times the polynomial",
        f"|δ_1| = {errors[0]:.2g}, {errors[-1]:.2g}; share {first:.3g}, {last:.3g} at K = 1e2, 1e8",
    )
    grown = min(walk[-1] / walk[0] for walk in shares.values())
    found = grown if grown > 1 else 0.0
    return Outcome(found, max(excess), len(excess), witness)


def _move(theta: Tensor, x: Tensor, q: Tensor, size: float = 0.0) -> tuple[float, float]:
    """(λ_sup, λ_inf) of a sigmoid network after a step against the gradient of λ_sup, of this length."""
    here = Instance("sigmoid", theta, x, q)
    return ends(Instance("sigmoid", theta - size * gradient_of(here, _bound_of), x, q).hessian)


def _descents(theta: Tensor, x: Tensor, q: Tensor) -> Iterator[tuple[Tensor, Tensor, float, float]]:
    """∇μ and √(D−1) ∇σ of sigmoid networks near theta, with the slopes of λ_sup and λ_inf along −∇λ_sup, measured."""
    generator, step = seeded(0), 1e-6
    for k in range(40):
        at = theta + (k > 0) * 2 * gauss(generator, 4)
        case = Instance("sigmoid", at, x, q)
        by_mean = gradient_of(case, torch.trace) / len(at)
        high, low = (
            (b - a) / step for a, b in zip(_move(at, x, q), _move(at, x, q, step), strict=True)
        )
        yield by_mean, gradient_of(case, _bound_of) - by_mean, high, low


def _lower_bound_rises() -> Outcome:
    """A step that lowers λ_sup, where λ_inf falls; corrected: it rises exactly where √(D−1) |∇σ| > |∇μ|."""
    theta = real([-0.447, 1.737, 2.01, 2.772])
    x, q = (
        real([[0.361], [0.295]]),
        torch.zeros(2, dtype=torch.float64),
    )
    (high, low), (new_high, new_low) = _move(theta, x, q), _move(theta, x, q, 0.01)
    wrong = 0
    for by_mean, by_std, _, slope in _descents(theta, x, q):
        expected = float(by_std @ by_std - by_mean @ by_mean)
        wrong += abs(slope - expected) > 1e-3 * float(by_std @ by_std + by_mean @ by_mean)
    witness = Witness(
        "sigmoid, M = N = 1, θ = (b, W, c, Ṽ) = (−0.447, 1.737, 2.01, 2.772), x = 0.361, 0.295, q = 0, 0, step 0.01",
        f"λ_sup {high:.4f} → {new_high:.4f}, so λ_inf rises",
        "rises where √(D−1) |∇σ| > |∇μ|",
        f"λ_inf {low:.4f} → {new_low:.4f}",
    )
    printed = (low - new_low) / abs(low) if new_high < high else 0.0
    return Outcome(printed, float(wrong), 41, witness)


def _both_fall() -> Outcome:
    """A step that lowers λ_sup, where μ rises; corrected: μ and √(D−1) σ change by −⟨∇μ, ∇λ_sup⟩, −√(D−1)⟨∇σ, ∇λ_sup⟩.

    The reference counts networks of the paper's size in which μ, or σ, rises.
    """
    theta = real([-0.7, -1.4, 1.2, 5.3])
    x, q = real([[0.6], [-2.5]]), torch.zeros(2, dtype=torch.float64)
    before, after = _move(theta, x, q), _move(theta, x, q, 0.01)
    mean, new_mean = sum(before) / 2, sum(after) / 2
    wrong = 0
    for by_mean, by_std, high, low in _descents(theta, x, q):
        whole = by_mean + by_std
        for slope, part in (((high + low) / 2, by_mean), ((high - low) / 2, by_std)):
            wrong += abs(slope + float(part @ whole)) > 1e-3 * float(whole @ whole + part @ part)
    rising, networks, generator = [0, 0], 40, seeded(0)
    for _ in range(networks):
        at = 20 * torch.rand(13, generator=generator, dtype=torch.float64) - 10
        points = 2**0.5 * gauss(generator, 50, 2)
        labels = torch.arange(50).double() % 2
        case = Instance("sigmoid", at, points + 1 - 2 * labels[:, None], labels)
        by_mean, whole = gradient_of(case, torch.trace) / len(at), gradient_of(case, _bound_of)
        rising[0] += float(by_mean @ whole) < 0
        rising[1] += float((whole - by_mean) @ whole) < 0
    witness = Witness(
        "sigmoid, M = N = 1, θ = (b, W, c, Ṽ) = (−0.7, −1.4, 1.2, 5.3), x = 0.6, −2.5, q = 0, 0, step 0.01",
        f"λ_sup {before[0]:.4f} → {after[0]:.4f}, so μ falls",
        "falls where ⟨∇μ, ∇λ_sup⟩ > 0",
        f"μ {mean:.4f} → {new_mean:.4f}; μ rises in {rising[0]} and σ in {rising[1]} of {networks} random networks "
        "with M = 2, N = 3, I = 50, θ uniform in ±10",
    )
    printed = (new_mean - mean) / abs(mean) if after[0] < before[0] else 0.0
    return Outcome(printed, float(wrong), 41 + networks, witness)


def ends(hessian: Tensor) -> tuple[float, float]:
    """(λ_sup, λ_inf) of Eqs. 1, 2 and 61, from the traces of H and H²."""
    dimension = len(hessian)
    mean = float(hessian.trace()) / dimension
    reach = math.sqrt(
        (dimension - 1) * max(float(hessian.square().sum()) / dimension - mean**2, 0.0)
    )
    return mean + reach, mean - reach


def _proposition_two() -> Outcome:
    """The move of λ_sup and λ_inf between random symmetric matrices of equal mean, the one with smaller σ second."""
    generator = seeded(0)
    moves = []
    for dimension in (2, 5, 13):
        for _ in range(60):
            pair = gauss(generator, 2, dimension, dimension)
            pair = pair + pair.mT
            level = gauss(generator, ())
            centre = pair.diagonal(dim1=-2, dim2=-1).mean(-1) - level
            pair = pair - centre[:, None, None] * unit(dimension)
            wide, narrow = sorted(pair, key=lambda m: -float(torch.linalg.eigvalsh(m).std()))
            (high, low), (new_high, new_low) = ends(wide), ends(narrow)
            moves.append(max(new_high - high, low - new_low))
    return Outcome(max(moves), instances=len(moves))


CHECKS: dict[str, Entry] = {
    "hsr.eq1": inequality(_upper),
    "hsr.eq2": _check(
        _moments_from_traces,
        lambda c: torch.stack([moments(c.hessian)[0], moments(c.hessian)[1] ** 2]),
    ),
    "hsr.eq3": _check(_trace, lambda c: c.hessian.trace()),
    "hsr.eq4": _check(_square, lambda c: squared(c.hessian)),
    "hsr.theorem1": _theorem_one,
    "hsr.theorem2": _gradient_of(torch.trace, trace_gradient, "w"),
    "hsr.theorem3": _gradient_of(torch.trace, trace_gradient, "v"),
    "hsr.theorem4": _gradient_of(squared, square_gradient, "w"),
    "hsr.theorem5": _gradient_of(squared, square_gradient, "v"),
    "hsr.omega": omega_range,
    "hsr.proposition1": _proposition_one,
    "hsr.section4a": _both_fall,
    "hsr.section5e": _lower_bound_rises,
    "hsr.eq61": inequality(_lower),
    "hsr.proposition2": _proposition_two,
    "hsr.eq109": _part_sum(weighted_phi, t.w_phi, "w"),
    "hsr.eq124": _part_sum(weighted_psi, t.w_psi, "w"),
    "hsr.eq129": _part_sum(weighted_omega, t.w_omega, "w"),
    "hsr.eq135": _part_sum(weighted_phi, t.v_phi, "v"),
    "hsr.eq140": _part_sum(weighted_psi, t.v_psi, "v"),
    "hsr.eq141": _part_sum(weighted_omega, t.v_omega, "v"),
}
