"""DAG paper, Definition 23 and Appendix G: the coupling C(v,w) = R(v,w) / √(R(v,v) R(w,w))."""

from __future__ import annotations

import math

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    attack,
    exists,
    worked,
)
from experiments.paper_audit.dag.instances import smooth, smooth_and_piecewise_linear
from experiments.paper_audit.dag.linear_graphs import GRAPHS, Linear, of_numbers
from experiments.paper_audit.dag.oracle import Blocks, exact, gauss_newton, mean
from experiments.paper_audit.tensors import diagonal, norm_of, ones, real

CHECKS = Checks()


def couplings(blocks: Blocks) -> list[float]:
    """C(v,w) of every pair whose diagonal blocks are not zero (Definition 23)."""
    sizes = {pair: norm_of(block) for pair, block in blocks.items()}
    values = []
    for (v, w), size in sizes.items():
        scale = sizes[v, v] * sizes[w, w]
        if scale > 0:
            values.append(size / math.sqrt(scale))
    return values


def of_example(blocks: Blocks, k: int = 0) -> Blocks:
    """The blocks of one example."""
    return {pair: block[k] for pair, block in blocks.items()}


@CHECKS.clause("dag.psd")
def coupling_bound() -> Outcome:
    """C(v,w) − 1 over GN blocks of convex losses, networks and attacked linear graphs, batch means
    included."""
    values = []
    for case in smooth_and_piecewise_linear():
        blocks = gauss_newton(case)
        values.append(max(couplings(mean(blocks))))
        values += [max(couplings(of_example(blocks, k))) for k in range(len(case.x))]
    attacked = []
    for edges in GRAPHS:
        excess = of_numbers(lambda graph: max(couplings(graph.blocks())) - 1, edges)
        attacked.append(attack(excess, Linear.start(edges, 0), 60))
    largest = max(*(v - 1 for v in values), *attacked)
    return Outcome(largest, instances=len(values) + 60 * len(GRAPHS))


@CHECKS.clause("dag.def23.above")
def coupling_above_one() -> Outcome:
    """Definition 23: with H^T, C(v,w) > 1 does occur."""
    largest = max(max(couplings(of_example(exact(case)))) for case in smooth())
    return exists("single examples of smooth networks", largest - 1, "C − 1 > 0 is wanted", 1e-6)


@CHECKS.clause("dag.g2.zero")
def coupling_zero() -> Errors:
    """G.2 (i): C = R / √(R R) is zero where R is, and only there."""
    for case in smooth():
        blocks = of_example(exact(case))
        for (v, w), block in blocks.items():
            left = blocks[v, v].norm()
            right = blocks[w, w].norm()
            size = math.sqrt(float(left * right))
            if size:
                norm = norm_of(block)
                coupling = norm / size
                zero_apart = (coupling == 0) != (norm == 0)
                yield float(zero_apart or coupling < 0)


@CHECKS.clause("dag.def23.only")
def indefinite_loss() -> Outcome:
    """Definition 23: C − 1 without H^T for ∇²ℓ = diag(1, −1/2), J_v = (1, 1), J_w = (1, 0);
    corrected: for ∇²ℓ >= 0."""
    base = diagonal(1.0, -0.5)
    jacobians = {"v": ones(2, 1), "w": real([[1.0], [0.0]])}
    blocks = {(v, w): jacobians[v].T @ base @ jacobians[w] for v in jacobians for w in jacobians}
    value = max(couplings(blocks))
    witness = worked(
        "linear, ∇²ℓ = diag(1, −1/2), J_v = (1, 1), J_w = (1, 0): C(v,w)",
        "<= 1",
        "<= 1 for ∇²ℓ >= 0",
        f"{value:.4g}",
    )
    return Outcome(value - 1, coupling_bound().printed, 1, witness)
