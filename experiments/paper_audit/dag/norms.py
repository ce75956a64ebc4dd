"""DAG paper, Definition 23, Remark 38 and Appendix B: coupling, its invariance, and the accumulation of errors."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import attack, exists
from experiments.paper_audit.dag.graphs import GRAPHS, Linear
from experiments.paper_audit.dag.networks import Instance, chain, diamond, piecewise_linear, smooth
from experiments.paper_audit.dag.oracle import Blocks, exact, gauss_newton, mean
from experiments.paper_audit.formula import Entry, Outcome, Witness, needs
from runner.curvature import Dag


def couplings(blocks: Blocks) -> list[float]:
    """C(v,w) of every pair whose diagonal blocks are not zero (Definition 23)."""
    sizes = {pair: float(block.norm()) for pair, block in blocks.items()}
    return [
        size / math.sqrt(sizes[v, v] * sizes[w, w]) for (v, w), size in sizes.items() if sizes[v, v] * sizes[w, w] > 0
    ]


def coupling_bound() -> Outcome:
    """C(v,w) − 1 over GN blocks of convex losses, networks and attacked linear graphs, batch means included."""
    cases = (*smooth(), *piecewise_linear())
    values = [max(couplings(mean(gauss_newton(case)))) for case in cases]
    values += [
        max(couplings({p: b[k] for p, b in gauss_newton(case).items()})) for case in cases for k in range(len(case.x))
    ]
    found = [attack(partial(_coupling_excess, g), Linear.start(g, 0), 60)[0] for g in GRAPHS]
    return Outcome(max(*(v - 1 for v in values), *found), instances=len(values) + 60 * len(GRAPHS))


def coupling_above_one() -> Outcome:
    """Definition 23: with H^T, C(v,w) > 1 does occur."""
    values = [value for case in smooth() for value in couplings({p: b[0] for p, b in exact(case).items()})]
    return exists("single examples of smooth networks", max(values) - 1, "C − 1 > 0 is wanted", 1e-6)


def coupling_zero() -> Outcome:
    """G.2 (i): C = R / √(R R) is zero where R is, and only there."""
    errors = []
    for case in smooth():
        blocks = {p: b[0] for p, b in exact(case).items()}
        for (v, w), block in blocks.items():
            size = math.sqrt(float(blocks[v, v].norm() * blocks[w, w].norm()))
            if size:
                value = float(block.norm()) / size
                errors.append(0.0 if (value == 0) == (float(block.norm()) == 0) and value >= 0 else 1.0)
    return Outcome(max(errors), instances=len(errors))


def _coupling_excess(edges: Any, z: Tensor) -> float:
    return max(couplings(Linear(edges, z).blocks())) - 1


def theorem_43() -> Outcome:
    """Relative change of GN blocks of a chain under relative Jacobian errors e_D, over dist(v,w) · 2 e_D + O(e²).

    Corrected: absolute change over (l_v + l_w) e_D Π‖D‖₂ ‖∇²ℓ‖_F, l the number of edges to the output; attacked.
    """
    eps = 1e-6

    def errors(z: Tensor) -> tuple[float, float]:
        half = len(z) // 2
        clean, noise = Linear(GRAPHS[0], z[:half]), Linear(GRAPHS[0], z[half:])
        moved = clean.disturbed(noise, eps)
        before, after = clean.blocks(), moved.blocks()
        printed, right = -1.0, -1.0
        for (v, w), block in before.items():
            change = float((after[v, w] - block).norm())
            printed = max(printed, change / float(block.norm()) - 2 * eps * clean.distance(v, w) - 1e3 * eps**2)
            size = clean.path_norm(v) * clean.path_norm(w) * float(clean.base.norm())
            bound = (clean.depth(v) + clean.depth(w)) * eps * size * (1 + 1e-4)
            right = max(right, change / (bound + 1e-12 * size) - 1 if bound else change)
        return printed / eps, right

    start = torch.cat([Linear.start(GRAPHS[0], 0), Linear.start(GRAPHS[0], 1)])
    worst_case = attack(lambda z: errors(z)[1], start, 60)[0]
    witness = Witness(
        "v → out, f_out = D f_v, D = 1 → 1 + e_D: relative change of H^GN[v,v] at dist(v,v) = 0",
        "O(e_D²)",
        "<= (l_v + l_w) e_D = 2 e_D",
        "2 e_D + e_D²",
    )
    return Outcome(errors(start)[0], worst_case, 61, witness)


def float32_depth() -> Outcome:
    """Remark 97: L (2 e_D + e_T) <= 1 for L = 10^5 at float32's unit roundoff."""
    return Outcome(1e5 * 3 * 2.0**-24 - 1)


def rescaled(case: Instance, a: float, first: str, children: tuple[str, ...]) -> tuple[Blocks, Blocks]:
    """Blocks before and after W_v → a W_v and W_w → W_w / a of the children, for homogeneous activations."""
    dag: Dag = case.dag.to(torch.float64)
    with torch.no_grad():
        for parameter in dag.nodes[first].parameters().values():
            parameter *= a
        for child in children:
            for name, parameter in dag.nodes[child].parameters().items():
                if name.endswith("weight"):
                    parameter /= a
    return exact(case), exact(Instance("rescaled", dag, case.x, case.y))


def theorem_44() -> Outcome:
    errors, count = [], 0
    for seed, act in enumerate((nn.ReLU, nn.LeakyReLU, nn.Identity)):
        for a in (0.1, 3.0):
            before, after = rescaled(chain(seed, act, widths=(3, 4, 3)), a, "h1", ("h2",))
            for pair, power in ((("h1", "h1"), 2), (("h1", "h2"), 1), (("h2", "h2"), 0)):
                scale = float(before[pair].abs().max())
                errors.append(float((after[pair] * a**power - before[pair]).abs().max()) / scale)
            one, two = (couplings({p: b[0] for p, b in blocks.items()}) for blocks in (before, after))
            errors.append(max(abs(x - y) for x, y in zip(one, two, strict=True)))
            count += 1
    return Outcome(max(errors), instances=count)


def theorem_44_branching() -> Outcome:
    """A stem with two children, both compensated: C(v,w) of every pair stays."""
    errors = []
    for seed in range(3):
        before, after = rescaled(diamond(seed, nn.ReLU), 2.5, "stem", ("a", "b"))
        one, two = (couplings({p: b[0] for p, b in blocks.items()}) for blocks in (before, after))
        errors.append(max(abs(x - y) for x, y in zip(one, two, strict=True)))
    return Outcome(max(errors), instances=3)


def half_compensated() -> Outcome:
    """The same with one child left as it is: f_b is not preserved."""
    errors = []
    for seed in range(3):
        before, after = rescaled(diamond(seed, nn.ReLU), 2.5, "stem", ("a",))
        one, two = (couplings({p: b[0] for p, b in blocks.items()}) for blocks in (before, after))
        errors.append(max(abs(x - y) for x, y in zip(one, two, strict=True)))
    return Outcome(max(errors), instances=3)


def mean_of_norms() -> Outcome:
    """Remark 38: R(d) as the mean of norms cannot fall by cancellation; the norm of the mean can (and is measured)."""
    case = chain(0, batch=8)
    blocks = exact(case)["h1", "h2"]
    means = float(blocks.flatten(1).norm(dim=1).mean()), float(blocks.mean(0).norm())
    witness = Witness(
        f"{case}, 8 examples, block (h1, h2)",
        f"mean of norms {means[0]:.4g}",
        f"norm of the mean {means[1]:.4g}",
        "cancellation lowers the second only",
    )
    return Outcome(means[0] / means[1] - 1, max(0.0, means[1] / means[0] - 1), 1, witness)


CHECKS: dict[str, Entry] = {
    "dag.psd": coupling_bound,
    "dag.def23.above": coupling_above_one,
    "dag.g2.zero": coupling_zero,
    "dag.thm43": theorem_43,
    "dag.remark97.depth": float32_depth,
    "dag.thm44": theorem_44,
    "dag.thm44.branching": needs(theorem_44_branching, ("every child compensated", half_compensated)),
    "dag.remark38": mean_of_norms,
}
