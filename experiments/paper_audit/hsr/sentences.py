"""HSR paper, abstract and Sections IV to VI: sentences that argue from a formula or name a
method."""

from __future__ import annotations

from experiments.paper_audit.checks import (
    BothErrors,
    Checks,
    Outcome,
    apart,
    relative_error,
    worked,
)
from experiments.paper_audit.hsr.gradients import gradients_of_moments
from experiments.paper_audit.hsr.propositions import papers_network
from experiments.paper_audit.scalar.cases import several
from experiments.paper_audit.scalar.linear import spectrum
from experiments.paper_audit.scalar.networks import Linear
from experiments.paper_audit.tensors import norm_of, real, seeded
from experiments.paper_audit.three_layer import Instance

CHECKS = Checks()
NETWORKS = 20
RADIUS = 0.1


@CHECKS.clause("hsr.abstract.sam")
def perturbations() -> Outcome:
    """Abstract, Section I: solutions as flat as those of SAM; run is A-SAM. Length of A-SAM's
    perturbation at the printed radius over SAM's, less 1; corrected: A-SAM's has the radius in the
    coordinates θ / |θ|."""
    ratios = []
    errors = []
    for seed in range(NETWORKS):
        network = papers_network(seeded(seed))
        scale = network.theta.abs()
        step = RADIUS * scale**2 * network.gradient / (scale * network.gradient).norm()
        ratios.append(norm_of(step) / RADIUS)
        errors.append(apart(norm_of(step / scale), RADIUS))
    shortest = RADIUS * min(ratios)
    longest = RADIUS * max(ratios)
    witness = worked(
        "M = 2, N = 3, I = 50, θ uniform in ±10, radius 0.1: length of the perturbation",
        "0.1 (SAM)",
        "0.1 in the coordinates θ/|θ| (A-SAM)",
        f"{shortest:.2f} to {longest:.2f} (A-SAM) in {NETWORKS} networks",
    )
    return Outcome(max(ratios) - 1, max(errors), NETWORKS, witness)


def ratio_of_gradients(network: Instance) -> float:
    """√(D−1) ‖∇σ‖ / ‖∇μ‖."""
    by_mean, by_std = gradients_of_moments(network)
    factor = (len(network.theta) - 1) ** 0.5
    return float(factor * by_std.norm() / by_mean.norm())


@CHECKS.clause("hsr.section5c")
def double_sum() -> BothErrors:
    """Section V-C: ∂σ outweighs ∂μ because it is a double sum over the I samples; with every sample
    three times the ratio of the norms would be three times as large; corrected: it stays, σ and μ
    are of degree one in H."""
    for seed in range(3):
        network = papers_network(seeded(seed))
        x = network.x[:6]
        q = network.q[:6]
        once = ratio_of_gradients(Instance("sigmoid", network.theta, x, q))
        thrice = ratio_of_gradients(Instance("sigmoid", network.theta, x.repeat(3, 1), q.repeat(3)))
        printed = apart(thrice, 3 * once)
        yield printed, apart(thrice, once)
    return worked(
        "M = 2, N = 3, six samples, then each of them three times: √(D−1)‖∇σ‖ / ‖∇μ‖",
        "grows with I",
        "stays",
        f"{once:.4g}, {thrice:.4g}",
    )


@CHECKS.clause("hsr.section2b")
def eigenvalues_in_closed_form() -> Outcome:
    """Section II-B: from D = 5 on no eigenvalue of a Hessian can be obtained analytically: share of
    linear networks of one input with D >= 6 whose closed form (scalar spectrum, Theorem 1) is
    right; corrected: its error."""
    cases = [case for case in several() if case.m > 2]
    errors = [relative_error(spectrum(case), case.eigenvalues) for case in cases]
    witness = worked(
        "f = ⟨w, v⟩ x, w = (1, 0, 0), v = (0, 1, 0), x = 1, y = 1, L = (f − 1)²/2, D = 6: "
        "eigenvalues",
        "not to be obtained",
        "±mean xδ = ±1, each twice, and 1 ± √2",
        listed_eigenvalues(),
    )
    share = sum(error < 1e-9 for error in errors) / len(errors)
    return Outcome(share, max(errors), len(errors), witness)


def listed_eigenvalues() -> str:
    """Of the instance in words, by automatic differentiation."""
    w, v = real([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    case = Linear(w, v, real([1.0]), real([1.0]))
    return ", ".join(f"{value:.4g}" for value in case.eigenvalues.tolist())
