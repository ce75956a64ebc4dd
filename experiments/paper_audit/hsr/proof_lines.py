"""HSR paper, Appendix B: lines of the proofs, and facts that Sections II to VI state in passing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from experiments.paper_audit import three_layer, three_layer_pairs as t
from experiments.paper_audit.checks import Checks, Errors, matches, relative_error
from experiments.paper_audit.formulas import Formula
from experiments.paper_audit.hsr.derivatives import (
    Case,
    at_first,
    by_input,
    cases,
    first_trace_term,
    second_trace_term,
    third_trace_term,
)
from experiments.paper_audit.hsr.gradients import (
    TWO_SAMPLES,
    cases as networks,
    gradient_of,
    square,
    squared,
    trace,
)
from experiments.paper_audit.tensors import grid, total, unit, zeros
from experiments.paper_audit.three_layer import Instance, Sample
from experiments.paper_audit.three_layer_pairs import Pair
from experiments.paper_audit.three_layer_terms import V, bend, d2, delta, f, hidden_norm, s1, slope

CHECKS = Checks()


def rule(name: str, quantity: Formula, printed: Callable[[Case], Tensor]) -> None:
    """Registers the check of a product rule whose factors are differentiated automatically."""
    of_pair = at_first(quantity)
    CHECKS[name] = matches(cases, lambda case: case.jacobian(of_pair), printed)


def jacobian(case: Case, term: Formula) -> Tensor:
    """d term / dθ of the first sample, in denominator layout."""
    return case.jacobian(at_first(term))


def first_rule(case: Case) -> Tensor:
    """Eq. 72."""
    i, _ = case.samples
    return jacobian(case, s1) * hidden_norm(i) + 2 * i.s1 * jacobian(case, f) @ i.f


def second_rule(case: Case) -> Tensor:
    """Eq. 73."""
    i, _ = case.samples
    by_s = torch.outer(jacobian(case, s1), i.V @ i.F(1))
    return (by_s + 2 * i.s1 * jacobian(case, slope)) @ i.F(1) @ i.V


def third_rule(case: Case) -> Tensor:
    """Eq. 74."""
    i, _ = case.samples
    by_delta = jacobian(case, delta) * bend(i)
    by_weights = i.delta * jacobian(case, V) @ i.d(2)
    return by_delta + by_weights + i.delta * jacobian(case, d2) @ i.V


rule("hsr.eq72", third_trace_term, first_rule)
rule("hsr.eq73", first_trace_term, second_rule)
rule("hsr.eq74", second_trace_term, third_rule)


def constants(case: Case) -> Tensor:
    """dṼᵀ/dw, df/dv, df''/dv and dṼᵀ/dv, one below the other, by automatic differentiation."""
    by_weights = jacobian(case, V)
    w, v = case.instance.w, case.instance.v
    parts = (by_weights[w], jacobian(case, f)[v], jacobian(case, d2)[v], by_weights[v])
    return torch.cat(parts)


def printed_constants(case: Case) -> Tensor:
    """Eqs. 83 and 94 and the proof of Lemma 6: zeros, and [0ᵀ; E]."""
    units = case.instance.units
    empty = zeros(case.instance.count + 2 * (units + 1) + 1, units)
    return torch.cat([empty, unit(units)])


CHECKS["hsr.eq83"] = matches(cases, constants, printed_constants)


def of_trace(instance: Instance) -> Tensor:
    """Eq. 71, its three gradients by automatic differentiation."""
    found = []
    for i, sample in enumerate(instance.samples):
        of_layer = instance.jacobian(at_first(third_trace_term), i, i)
        both = first_trace_term + second_trace_term
        found.append(of_layer + sample.norm * instance.jacobian(at_first(both), i, i))
    return total(found)


CHECKS["hsr.eq71"] = matches(networks, lambda c: gradient_of(c, torch.trace), of_trace)


def of_square(instance: Instance) -> Tensor:
    """Eqs. 95 to 98: the gradients of φ, ψ and ω, and of the square next to ω, by automatic
    differentiation."""
    found = []
    samples = instance.samples
    indices = range(len(samples))
    for i in indices:
        for j in indices:
            first, second = samples[i], samples[j]
            kernel = t.inputs(first, second)
            hidden = t.hidden(first, second)
            by_phi = kernel**2 * instance.jacobian(t.phi, i, j)
            by_psi = 2 * kernel * instance.jacobian(t.psi, i, j)
            by_omega = hidden**2 * instance.jacobian(t.omega, i, j)
            by_hidden = instance.jacobian(t.hidden**2, i, j) * t.omega(first, second)
            found += [by_phi, by_psi, by_omega, by_hidden]
    return total(found)


CHECKS["hsr.eq95"] = matches(
    lambda: networks(TWO_SAMPLES), lambda c: gradient_of(c, squared), of_square
)


def entries(matrix: Formula) -> Pair:
    """The four entries of a 2 × 2 matrix of a pair, row by row."""
    return lambda i, j: matrix(i, j).flatten()


def terms_of(matrix: Formula, gradient: Formula) -> tuple[Callable[[Case], Tensor], ...]:
    """The three terms of d(o_iᵀ P_ij o_j)/dw by automatic differentiation of each factor (Eqs. 99
    to 102), and as printed: h(x_i) ⊗ G_ij (o_i ⊗ o_j) + h(x_j) ⊗ G_ji (o_j ⊗ o_i), and the two with
    s''/'."""

    def exact(case: Case) -> Tensor:
        i, j = case.samples
        w = case.instance.w
        by_matrix = case.jacobian(entries(matrix))[w] @ torch.kron(i.o, j.o)
        by_first = case.jacobian(lambda a, b: a.o)[w] @ matrix(i, j) @ j.o
        by_second = case.jacobian(lambda a, b: b.o)[w] @ matrix(j, i) @ i.o
        return torch.cat([by_matrix, by_first, by_second])

    def printed(case: Case) -> Tensor:
        i, j = case.samples
        of_matrix = at_pair(gradient, i, j) + at_pair(gradient, j, i)
        of_first = by_outputs(matrix, i, j)
        return torch.cat([of_matrix, of_first, by_outputs(matrix, j, i)])

    return exact, printed


def at_pair(gradient: Formula, i: Sample, j: Sample) -> Tensor:
    """h(x_i) ⊗ G_ij (o_i ⊗ o_j)."""
    return torch.kron(i.hx, gradient(i, j) @ torch.kron(i.o, j.o))


def by_outputs(matrix: Formula, i: Sample, j: Sample) -> Tensor:
    """h(x_i) ⊗ (F'(y_i) Ṽᵀ s''/'(z_i)ᵀ P_ij o_j)."""
    return torch.kron(i.hx, i.F(1) @ i.V * (i.s21 @ matrix(i, j) @ j.o))


CHECKS["hsr.eq112"] = matches(cases, *terms_of(t.phi_matrix, t.G_phi))
CHECKS["hsr.eq125"] = matches(cases, *terms_of(t.psi_matrix, t.G_psi))


def psi_entry(column: int) -> Formula:
    return t.psi_matrix[0, column]


def eq116(case: Case) -> Tensor:
    """Its factors by automatic differentiation."""
    i, j = case.samples
    inner = case.jacobian(lambda a, b: a.f) @ j.f + case.jacobian(lambda a, b: b.f) @ i.f
    slopes = case.jacobian(lambda a, b: slope(b)) @ i.F(1)
    both = slopes + case.jacobian(lambda a, b: slope(a)) @ j.F(1)
    return inner * t.signed(i, j) + t.hidden(i, j) * both @ i.V


def eq119(case: Case) -> Tensor:
    """Its factors by automatic differentiation."""
    i, j = case.samples
    by_hidden = case.jacobian(lambda a, b: b.F(1) @ a.f) @ i.F(1) @ i.V
    return by_hidden + case.jacobian(lambda a, b: slope(a)) @ j.F(1) @ i.f


def eq121(case: Case) -> Tensor:
    """Before b_ij and c_ji are inserted."""
    return first_of_121(*case.samples)


of_i = (t.F1i @ t.F1i + t.F2i @ t.F0i) @ t.F1j @ t.V
of_j = t.F2j @ t.F0i @ t.F1i @ t.V
first_of_121 = by_input(t.hxi, of_i) + by_input(t.hxj, of_j)
CHECKS["hsr.eq116"] = matches(cases, lambda c: c.jacobian(psi_entry(0)), eq116)
CHECKS["hsr.eq119"] = matches(cases, lambda c: c.jacobian(psi_entry(1)), eq119)
CHECKS["hsr.eq121"] = matches(cases, lambda c: c.jacobian(psi_entry(1))[c.instance.w], eq121)


def smooth_cases() -> list[Instance]:
    """Networks with activations that neither paper names."""
    return list(three_layer.instances(tuple(three_layer.FURTHER), TWO_SAMPLES))


def printed_traces(instance: Instance) -> Tensor:
    return torch.stack([trace(instance), square(instance)])


def dense_traces(instance: Instance) -> Tensor:
    return torch.stack([instance.hessian.trace(), squared(instance.hessian)])


CHECKS["hsr.section2c"] = matches(smooth_cases, dense_traces, printed_traces)


@CHECKS.clause("hsr.section3a")
def parameters() -> Errors:
    """Section III-A: D = M N + 2 N + 1, counted in two layers with biases; 13 and 21 as in Figs. 2
    and 6."""
    sizes = ((2, 3, 13), (2, 5, 21), (1, 1, 4), (7, 4, 37))
    for inputs, units, count in sizes:
        layers = torch.nn.Sequential(torch.nn.Linear(inputs, units), torch.nn.Linear(units, 1))
        counted = sum(weights.numel() for weights in layers.parameters())
        yield abs(counted - (inputs * units + 2 * units + 1))
        yield abs(counted - count)


@CHECKS.clause("hsr.section4b")
def second_sigmoid() -> Errors:
    """Section IV-B: s'' = (1 − 2p)(1 − p) p."""
    z = grid(-6, 6, 49)
    p = three_layer.derivative("sigmoid", 0)(z)
    yield relative_error((1 - 2 * p) * (1 - p) * p, three_layer.derivative("sigmoid", 2)(z))


@CHECKS.clause("hsr.section6b.top")
def lower_top() -> Errors:
    """Section VI-B: a lower λ_1, still the largest with the others unchanged, lowers mean and
    standard deviation."""
    for instance in networks(TWO_SAMPLES):
        before = torch.linalg.eigvalsh(instance.hessian)
        for share in (0.1, 0.5, 1.0):
            after = before.clone()
            after[-1] = before[-1] - share * (before[-1] - before[-2])
            scale = float(before.abs().max())
            yield float(after.mean() - before.mean()) / scale
            yield float(after.std(correction=0) - before.std(correction=0)) / scale
