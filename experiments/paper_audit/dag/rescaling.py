"""DAG paper, Appendix B: errors of the Jacobians, and rescaled weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    attack,
    outcome_of,
    worked,
)
from experiments.paper_audit.dag.coupling import couplings, of_example
from experiments.paper_audit.dag.instances import (
    Instance,
    chain,
    diamond,
)
from experiments.paper_audit.dag.linear_graphs import GRAPHS, Linear
from experiments.paper_audit.dag.oracle import Blocks, exact
from experiments.paper_audit.tensors import norm_of

CHECKS = Checks()


EPS = 1e-6
"""Relative error of a Jacobian."""


def changes(z: Tensor) -> tuple[float, float]:
    """Theorem 43, of a chain and its noise in one vector: by how much relative changes exceed
    dist(v,w) · 2 e_D, over e_D; and absolute changes over (l_v + l_w) e_D Π‖D‖₂ ‖∇²ℓ‖_F, less 1."""
    chain_z, noise_z = z.chunk(2)
    clean = Linear(GRAPHS[0], chain_z)
    noise = Linear(GRAPHS[0], noise_z)
    after = clean.disturbed(noise, EPS).blocks()
    printed = [-1.0]
    right = [-1.0]
    blocks = clean.blocks()
    for (v, w), block in blocks.items():
        change = norm_of(after[v, w] - block)
        first_order = 2 * EPS * clean.distance(v, w)
        allowed = first_order + 1e3 * EPS**2
        printed.append(change / norm_of(block) - allowed)
        size = (clean.path_norm(v) * clean.path_norm(w)) * norm_of(clean.base)
        edges = clean.depth(v) + clean.depth(w)
        bound = edges * EPS * size * (1 + 1e-4)
        right.append(change / (bound + 1e-12 * size) - 1 if bound else change)
    return max(printed) / EPS, max(right)


@CHECKS.clause("dag.thm43")
def theorem_43() -> Outcome:
    """Relative change of GN blocks of a chain under relative Jacobian errors e_D, over dist(v,w) ·
    2 e_D + O(e²).

    Corrected: absolute change over (l_v + l_w) e_D Π‖D‖₂ ‖∇²ℓ‖_F, l the number of edges to the
    output; attacked.
    """
    start = torch.cat([Linear.start(GRAPHS[0], k) for k in (0, 1)])
    printed, _ = changes(start)
    right = attack(lambda z: changes(z)[1], start, 60)
    witness = worked(
        "v → out, f_out = D f_v, D = 1 → 1 + e_D: relative change of H^GN[v,v] at dist(v,v) = 0",
        "O(e_D²)",
        "<= (l_v + l_w) e_D = 2 e_D",
        "2 e_D + e_D²",
    )
    return Outcome(printed, right, 61, witness)


@CHECKS.clause("dag.remark97.depth")
def float32_depth() -> Outcome:
    """Remark 97: L (2 e_D + e_T) <= 1 for L = 10^5 at float32's unit roundoff."""
    return Outcome(1e5 * 3 * 2.0**-24 - 1)


def rescaled(
    case: Instance, a: float, first: str, children: tuple[str, ...]
) -> tuple[Blocks, Blocks]:
    """Blocks before and after W_v → a W_v and W_w → W_w / a of the children, for homogeneous
    activations."""
    dag = case.dag.to(torch.float64)
    with torch.no_grad():
        parameters = dag.nodes[first].parameters()
        for parameter in parameters.values():
            parameter *= a
        for child in children:
            parameters_of_child = dag.nodes[child].parameters()
            for name, parameter in parameters_of_child.items():
                if name.endswith("weight"):
                    parameter /= a
    after = Instance("rescaled", dag, case.x, case.y)
    return exact(case), exact(after)


def change_of_couplings(before: Blocks, after: Blocks) -> float:
    of_before = couplings(of_example(before))
    of_after = couplings(of_example(after))
    return max(abs(x - y) for x, y in zip(of_before, of_after, strict=True))


@CHECKS.clause("dag.thm44", instances=6)
def theorem_44() -> Errors:
    powers = {("h1", "h1"): 2, ("h1", "h2"): 1, ("h2", "h2"): 0}
    activations = (nn.ReLU, nn.LeakyReLU, nn.Identity)
    for seed, act in enumerate(activations):
        for a in (0.1, 3.0):
            before, after = rescaled(chain(seed, act, widths=(3, 4, 3)), a, "h1", ("h2",))
            for pair, power in powers.items():
                change = after[pair] * a**power - before[pair]
                yield float(change.abs().max()) / float(before[pair].abs().max())
            yield change_of_couplings(before, after)


def branching(*children: str) -> Outcome:
    """A stem with children a and b, of which those named are compensated: change of C(v,w) of every
    pair."""
    errors = []
    for seed in range(3):
        before, after = rescaled(diamond(seed, nn.ReLU), 2.5, "stem", children)
        errors.append(change_of_couplings(before, after))
    return outcome_of(errors)


CHECKS["dag.thm44.branching"] = lambda: branching("a", "b")
CHECKS.without["dag.thm44.branching", "every child compensated"] = lambda: branching("a")
