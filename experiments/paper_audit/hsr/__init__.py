"""Every formula of the HSR paper that was checked, in the order of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.func import grad

from experiments.paper_audit.formula import Formula, Outcome
from experiments.paper_audit.hsr import pair_terms as t
from experiments.paper_audit.hsr.derivatives import ROOT, outer
from experiments.paper_audit.hsr.lemmas import LEMMAS
from experiments.paper_audit.three_layer_oracle import (
    INCREASING,
    Instance,
    Sample,
    instances,
    loss,
    opposed_gelu,
    relative_error,
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


def _check(found: Callable[[Instance], Tensor], expected: Callable[[Instance], Tensor]) -> Callable[[], Outcome]:
    """An equality on random instances of every activation."""

    def check() -> Outcome:
        errors = [relative_error(found(instance), expected(instance)) for instance in instances(sizes=SMALL)]
        return Outcome(max(errors), instances=len(errors))

    return check


def _upper(instance: Instance) -> Tensor:
    """Violation of Eq. 1, relative to the largest eigenvalue in modulus."""
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    mean, std, dimension = moments(instance.hessian)
    return (eigenvalues[-1] - mean - math.sqrt(dimension - 1) * std) / eigenvalues.abs().max()


def _lower(instance: Instance) -> Tensor:
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    mean, std, dimension = moments(instance.hessian)
    return (mean - math.sqrt(dimension - 1) * std - eigenvalues[0]) / eigenvalues.abs().max()


def _violation(excess: Callable[[Instance], Tensor]) -> Callable[[], Outcome]:
    def check() -> Outcome:
        worst = [float(excess(instance)) for scale in (0.3, 3.0) for instance in instances(scale=scale)]
        return Outcome(max(worst), instances=len(worst))

    return check


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
        total = total + kernel**2 * t.phi(i, j) + 2 * kernel * t.psi(i, j) + t.hidden(i, j) ** 2 * t.omega(i, j)
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


def square_gradient(instance: Instance, root: t.Root) -> Tensor:
    """Theorems 4 and 5, with the printed or the signed reading of Φ_11^{1/2}."""
    by_w = [outer(i.hx, t.w_phi(i, j, root) + t.w_psi(i, j) + t.w_omega(i, j)) for i, j in pairs(instance.samples)]
    by_v = [t.v_phi(i, j, root) + t.v_psi(i, j) + t.v_omega(i, j) for i, j in pairs(instance.samples)]
    return 2 * torch.cat([_summed(by_w), _summed(by_v)])


def _theorems_two_three(part: str) -> Callable[[], Outcome]:
    def check() -> Outcome:
        errors = []
        for instance in instances(sizes=SMALL):
            expected, found = gradient_of(instance, torch.trace), trace_gradient(instance)
            errors.append(relative_error(*(_part(vector, instance, part) for vector in (found, expected))))
        return Outcome(max(errors), instances=len(errors))

    return check


def _part(vector: Tensor, instance: Instance, part: str) -> Tensor:
    return vector[: instance.count] if part == "w" else vector[instance.count :]


def _theorems_four_five(part: str, names: tuple[str, ...]) -> Callable[[], Outcome]:
    """Increasing activations as printed; GELU also where f' changes sign, with both readings of the root."""

    def check() -> Outcome:
        cases = list(instances(names, SMALL)) + ([opposed_gelu()] if "gelu" in names else [])
        expected = [_part(gradient_of(case, squared), case, part) for case in cases]
        readings = [
            [relative_error(_part(square_gradient(c, root), c, part), e) for c, e in zip(cases, expected, strict=True)]
            for root in (t.principal, t.signed)
        ]
        if "gelu" not in names:
            return Outcome(max(readings[0]), instances=len(cases))
        worst = max(range(len(cases)), key=readings[0].__getitem__)
        where = f"{cases[worst].sizes}: relative error {readings[0][worst]:.3g}"
        return Outcome(readings[0][worst], max(readings[1]), len(cases), where)

    return check


def _bound_of(hessian: Tensor) -> Tensor:
    mean, std, dimension = moments(hessian)
    return mean + math.sqrt(dimension - 1) * std


def _theorem_one() -> Outcome:
    """Eqs. 17–19 with the traces' gradients from autodiff, against autodiff of μ + √(D−1) σ of the eigenvalues."""
    errors = []
    for instance in instances(sizes=((2, 3, 2),)):
        hessian = instance.hessian
        mean, std, dimension = moments(hessian)
        by_mean = gradient_of(instance, torch.trace) / dimension
        by_std = gradient_of(instance, squared) / (2 * std * dimension) - mean / std * by_mean
        found = by_mean + math.sqrt(dimension - 1) * by_std
        errors.append(relative_error(found, gradient_of(instance, _bound_of)))
    return Outcome(max(errors), instances=len(errors))


def _part_sum(quantity: t.Root, printed: Callable[[Sample, Sample], Tensor], part: str, lift: bool) -> Callable:
    """Σ_ij of printed_ij + printed_ji against autodiff of Σ_ij quantity_ij."""

    def check() -> Outcome:
        errors = []
        for instance in instances(sizes=((2, 3, 2),)):
            samples, indices = instance.samples, range(len(instance.x))
            expected = _summed(instance.jacobian(quantity, i, j) for i in indices for j in indices)
            found = _summed(
                (outer(i.hx, printed(i, j)) + outer(j.hx, printed(j, i))) if lift else printed(i, j) + printed(j, i)
                for i, j in pairs(samples)
            )
            errors.append(relative_error(found, _part(expected, instance, part)))
        return Outcome(max(errors), instances=len(errors))

    return check


def weighted_phi(i: Sample, j: Sample) -> Tensor:
    return t.inputs(i, j) ** 2 * t.phi(i, j)


def weighted_psi(i: Sample, j: Sample) -> Tensor:
    return 2 * t.inputs(i, j) * t.psi(i, j)


def weighted_omega(i: Sample, j: Sample) -> Tensor:
    return t.hidden(i, j) ** 2 * t.omega(i, j)


def _sums() -> tuple[Formula, ...]:
    cases = (
        ("109", "Lemma 14", "w", "Φ", weighted_phi, t.w_phi),
        ("124", "Lemma 18", "w", "Ψ", weighted_psi, t.w_psi),
        ("129", "Lemma 20", "w", "Ω", weighted_omega, t.w_omega),
        ("135", "Lemma 25", "v", "Φ", weighted_phi, t.v_phi),
        ("140", "Lemma 29", "v", "Ψ", weighted_psi, t.v_psi),
        ("141", "Lemma 30", "v", "Ω", weighted_omega, t.v_omega),
    )
    form = {"w": "Σ_ij h(x_i)⊗(A_ij + B_ij) + h(x_j)⊗(A_ji + B_ji)", "v": "Σ_ij C_ij + D_ij + C_ji + D_ji"}
    return tuple(
        Formula(
            f"hsr.eq{number}",
            f"{lemma}, Eq. {number}",
            f"[d tr H²/d{part}]_{letter} = {form[part]}, with the signed root",
            _part_sum(quantity, printed, part, part == "w"),
        )
        for number, lemma, part, letter, quantity, printed in cases
    )


def _gradient_share(theta: Tensor, x: Tensor, q: Tensor) -> float:
    """Largest entry of the first sample's share of the four gradients (Eqs. 20, 24; 28, 46 with the second), tanh."""
    i, j = Instance("tanh", theta, x, q).samples
    by_w = t.w_phi(i, j) + t.w_psi(i, j) + t.w_omega(i, j)
    by_v = t.v_phi(i, j) + t.v_psi(i, j) + t.v_omega(i, j)
    shares = (outer(i.hx, _by_w(i)), _by_v(i), outer(i.hx, by_w), by_v)
    return float(torch.cat(shares).abs().max())


def _proposition_one() -> Outcome:
    """p_1 → q_1 along two paths of parameters, both to |delta_1| about 1e-12.

    Bounded weights: the bias c alone grows, the share falls like delta. Weights that grow with it: Ṽ = (K, −K) on two
    equal units leaves z alone, and with c = log K the share grows like K.
    """
    x, q = torch.tensor([[0.5], [-0.3]], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)

    def theta(scale: float, bias: float) -> Tensor:
        return torch.tensor([0.3, 0.3, 0.7, 0.7, bias, scale, -scale], dtype=torch.float64)

    bounded = [_gradient_share(theta(1.0, bias), x, q) for bias in (5.0, 28.0)]
    growing = [_gradient_share(theta(scale, math.log(scale)), x, q) for scale in (1e2, 1e12)]
    text = (
        f"N = 2 equal tanh units, Ṽ = (K, −K), c = log K, q = 1: delta = −1/(1+K) → 0, but the share grows from "
        f"{growing[0]:.3g} at K = 1e2 to {growing[1]:.3g} at K = 1e12"
    )
    return Outcome(growing[1] / growing[0], bounded[1] / bounded[0], 2, text)


def _proposition_two() -> Outcome:
    """Smaller σ at equal μ: the bounds move inwards; the printed implication on random spectra."""
    generator = torch.Generator().manual_seed(0)
    worst = -math.inf
    for dimension in (2, 5, 13):
        first, second = torch.randn(2, 200, dimension, generator=generator, dtype=torch.float64)
        spectra = [s - s.mean(-1, keepdim=True) for s in (first, second)]
        std = [s.std(-1, correction=0) for s in spectra]
        root = math.sqrt(dimension - 1)
        # λ_sup and λ_inf at the common mean 0; what is to be negative where σ has fallen.
        moved = torch.where(std[1] < std[0], root * (std[1] - std[0]), -torch.ones(200, dtype=torch.float64))
        worst = max(worst, float(moved.max()))
    return Outcome(worst, instances=600)


MONOTONE = "linear, sigmoid, tanh, softplus"

FORMULAS: tuple[Formula, ...] = (
    Formula("hsr.eq1", "Eq. 1", "λ_1 <= μ + √(D−1) σ", _violation(_upper)),
    Formula(
        "hsr.eq2",
        "Eq. 2",
        "μ = tr H / D and σ² = tr H² / D − μ² are mean and variance of the eigenvalues",
        _check(_moments_from_traces, lambda c: torch.stack([moments(c.hessian)[0], moments(c.hessian)[1] ** 2])),
    ),
    Formula("hsr.eq3", "Eq. 3", "tr H as a sum over samples", _check(_trace, lambda c: c.hessian.trace())),
    Formula("hsr.eq4", "Eqs. 4-16", "tr H² as a double sum of φ, ψ, ω", _check(_square, lambda c: squared(c.hessian))),
    Formula("hsr.theorem1", "Theorem 1, Eqs. 17-19", "∇λ_sup = ∇μ + √(D−1) ∇σ, where σ > 0", _theorem_one),
    Formula(
        "hsr.theorem2",
        "Theorem 2, Eqs. 20-23",
        "d tr H/dw = Σ_i h(x_i) ⊗ (W^I + W^II + W^III)",
        _theorems_two_three("w"),
    ),
    Formula("hsr.theorem3", "Theorem 3, Eqs. 24-27", "d tr H/dv = Σ_i V^I + V^II + V^III", _theorems_two_three("v")),
    Formula(
        "hsr.theorem4",
        "Theorem 4, Eqs. 28-45",
        f"d tr H²/dw = 2 Σ_ij h(x_i) ⊗ (A_ij + B_ij) for {MONOTONE}",
        _theorems_four_five("w", INCREASING),
    ),
    Formula(
        "hsr.theorem4.gelu",
        "Theorem 4, Eq. 37",
        "d tr H²/dw = 2 Σ_ij h(x_i) ⊗ (A_ij + B_ij) for GELU",
        _theorems_four_five("w", ("gelu",)),
        "holds after correction",
        "missing assumption",
        ROOT,
    ),
    Formula(
        "hsr.theorem5",
        "Theorem 5, Eqs. 46-59",
        f"d tr H²/dv = 2 Σ_ij (C_ij + D_ij) for {MONOTONE}",
        _theorems_four_five("v", INCREASING),
    ),
    Formula(
        "hsr.theorem5.gelu",
        "Theorem 5, Eq. 54",
        "d tr H²/dv = 2 Σ_ij (C_ij + D_ij) for GELU",
        _theorems_four_five("v", ("gelu",)),
        "holds after correction",
        "missing assumption",
        ROOT,
    ),
    Formula(
        "hsr.proposition1",
        "Proposition 1, Eq. 60",
        "p_i → q_i makes the share of sample i in the four gradients vanish",
        _proposition_one,
        "holds after correction",
        "missing assumption",
        "the other factors must stay bounded, or grow slower than 1/|delta_i|: true for theta bounded apart from c, "
        "and along every ray theta = a θ_0, where |delta_i| falls exponentially and the factors grow polynomially",
    ),
    Formula("hsr.eq61", "Eq. 61", "λ_D >= μ − √(D−1) σ", _violation(_lower)),
    Formula(
        "hsr.proposition2",
        "Proposition 2, Eq. 62",
        "σ falls at equal μ ⇒ λ_sup falls and λ_inf rises",
        _proposition_two,
    ),
    *LEMMAS,
    *_sums(),
)
