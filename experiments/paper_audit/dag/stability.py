"""DAG paper, Theorem 69, Corollary 73, Proposition 75 and Remarks 70 and 81: stability by skips."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from experiments.paper_audit.checks import BothErrors, Checks, Errors, Outcome, worked, worst
from experiments.paper_audit.dag.instances import ScalarNode, copy, scalar_nodes
from experiments.paper_audit.dag.linear_graphs import WIDTH, Linear, line
from experiments.paper_audit.dag.oracle import (
    Blocks,
    Example,
    assembled,
    first_example,
    transmitted,
)
from experiments.paper_audit.dag.path_sums import path_cases, total_of_paths
from experiments.paper_audit.dag.skips import ratio
from experiments.paper_audit.tensors import gauss, norm_of, random_matrices, seeded, spectral_norm

CHECKS = Checks()
LEAST = 1e-3
"""What counts as away from zero."""


@CHECKS.clause("dag.cor73")
def stability_criterion() -> Outcome:
    """Corollary 73 both ways: in how many of two networks R and its largest path, each measured on
    the network and on that path alone, are not both away from zero. Corrected: with the sum S over
    the paths to the output, σ_min(∇²ℓ) ‖S‖₂ <= R(v,out) <= ‖∇²ℓ‖_F ‖S‖₂."""
    cancel = transmitted([lambda h: h - h])
    alone = transmitted([lambda h: h])
    many = transmitted([lambda h: h / 2 + h / 2] * 20)
    each = transmitted([lambda h: h / 2] * 20)
    of_first = (alone > LEAST) != (cancel > LEAST)
    of_second = (each > LEAST) != (many > LEAST)
    witness = worked(
        "out = v − v (two paths of norm 1); 20 layers of two edges 1/2",
        "R > 0; R → 0",
        "‖S‖₂, the sum over paths, decides, as ∇²ℓ = 1",
        f"R = {cancel:g}; R = {many:g} C, paths {each:.1e}",
    )
    wrong = float(of_first + of_second)
    right = max(total_of_paths().printed, *outside_of_bounds())
    return Outcome(wrong, right, 2, witness)


def outside_of_bounds() -> Errors:
    """By how much R(v,out) leaves the bounds of the corrected Corollary 73."""
    for case in path_cases():
        e = first_example(case)
        out = case.dag.output
        size = norm_of(e.base)
        values = torch.linalg.svdvals(e.base)
        for v in case.dag.order:
            paths = float(spectral_norm(e.total[out, v]))
            resonance = norm_of(e.blocks[v, out])
            yield float(values[-1]) * paths - resonance
            yield resonance - size * paths


def smallest_resonance(depth: int, skips: int, rho: float) -> float:
    """min R(v,w) / C of scalar layers with |D| = rho and uniform identity skips."""
    span = depth // skips
    nodes = [copy("v0", "input")]
    for k in range(1, depth + 1):
        before = f"v{k - 1}"
        start = f"v{k - span}"
        if k % span:
            nodes.append((f"v{k}", (before,), lambda h: rho * h))
        else:
            nodes.append((f"v{k}", (before, start), lambda h, skip: rho * h + skip))
    e = first_example(scalar_nodes(nodes, [1.0], square=True))
    size = e.base.norm()
    return min(float(block.norm() / size) for block in e.blocks.values())


@CHECKS.clause("dag.prop75")
def skip_placement() -> Outcome:
    """Proposition 75: min R >= C rho^(L/B) with B uniform skips: scalar layers with every |D| = rho
    = 1/2."""
    found = smallest_resonance(8, 2, 0.5)
    later = smallest_resonance(16, 2, 0.5)
    bound = 0.5**4
    further = 0.5**8
    witness = worked(
        "8 scalar layers with |D| = rho = 1/2, B = 2 identity skips over 4 each: min R(v,w)",
        f"at least C rho⁴ = {bound:g}",
        "",
        f"{found:.4g}; at L = 16 {later:.1e} for {further:.1e}",
    )
    shortfall = max(found / bound, later / further)
    return Outcome(1 - shortfall, None, 2, witness)


Skips = tuple[tuple[int, int], ...]


def uniform(layers: int, count: int) -> Skips:
    """Skips over layers / count layers each, one after the other."""
    span = layers // count
    return tuple((start, start + span) for start in range(0, span * count, span))


def farthest(layers: int, skips: Skips) -> int:
    """Largest distance of two nodes of a chain with skips, in the undirected graph."""
    neighbours: dict[int, set[int]] = {node: set() for node in range(layers + 1)}
    for a, b in (*itertools.pairwise(range(layers + 1)), *skips):
        neighbours[a].add(b)
        neighbours[b].add(a)
    largest = 0
    for start in neighbours:
        steps = {start: 0}
        queue = [start]
        for node in queue:
            for other in sorted(neighbours[node] - set(steps)):
                steps[other] = steps[node] + 1
                queue.append(other)
        largest = max(largest, *steps.values())
    return largest


def distance_of_uniform_skips(layers: int, count: int) -> int:
    """B − 2 + 2 ⌊(k + 1)/2⌋ for B >= 2 skips over k = L/B layers."""
    span = layers // count
    return count - 2 + 2 * ((span + 1) // 2)


BETTER: dict[tuple[int, int], Skips] = {
    (8, 2): ((0, 5), (2, 8)),
    (12, 3): ((0, 3), (1, 8), (4, 12)),
    (6, 3): ((0, 3), (1, 5), (3, 6)),
}
"""(L, B) and B skips with a smaller worst distance than uniform ones."""


@CHECKS.clause("dag.prop75.uniform")
def optimal_placement() -> Outcome:
    """Proposition 75: uniform skips over k = L/B layers are optimal, and no pair is further apart
    than k: largest share by which their worst distance exceeds that of other skips, and k;
    corrected: its value."""
    printed = []
    for (layers, count), skips in BETTER.items():
        found = farthest(layers, uniform(layers, count))
        printed += [found / farthest(layers, skips) - 1, found / (layers // count) - 1]
    errors = []
    sizes = (*BETTER, (100, 2), (100, 10), (100, 50), (10, 2), (9, 3))
    for layers, count in sizes:
        found = farthest(layers, uniform(layers, count))
        errors.append(abs(found - distance_of_uniform_skips(layers, count)))
    witness = worked(
        "L = 8, skips (0, 4), (4, 8), or (0, 5), (2, 8): largest distance",
        "4, not less",
        f"{distance_of_uniform_skips(8, 2)}, not the least",
        f"{farthest(8, uniform(8, 2))}, {farthest(8, BETTER[8, 2])}",
    )
    return Outcome(max(printed), float(max(errors)), len(sizes), witness)


NODES = ("v", "p", "m", "w", "out")


def inert_skip(eta: float, skip: bool) -> Example:
    """p = 10 v, m = p, w = m (with an identity skip m + p), out = p + eta (3 − 2 w)(p − 1)²/2, loss
    = out²/2, v = 0.1.

    At p = 1 the skip changes no first derivative of out; it turns the sign of the second one.
    """

    def out(p: Tensor, w: Tensor) -> Tensor:
        bend = eta * (3 - 2 * w) * (p - 1) ** 2
        return p + bend / 2

    w = copy("w", "m")
    if skip:
        w = ("w", ("m", "p"), torch.add)
    p: ScalarNode = ("p", ("v",), lambda v: 10 * v)
    nodes = [copy("v", "input"), p, copy("m", "p"), w, ("out", ("p", "w"), out)]
    return first_example(scalar_nodes(nodes, [0.1], square=True))


def check_hypotheses(eta: float, base: Example, skipped: Example) -> None:
    """B = 0 and |H^T| <= eta |H^GN| in every block. Raises ValueError otherwise."""
    before = base.gauss_newton
    after = skipped.gauss_newton
    moved = []
    for pair, block in before.items():
        moved.append(norm_of(after[pair] - block))
    excess = []
    for e in (base, skipped):
        gauss_newton = e.gauss_newton
        for pair, block in e.tensor.items():
            allowed = eta * gauss_newton[pair].norm()
            excess.append(float(block.norm() - allowed))
    if max(excess + moved) > 1e-9:
        raise ValueError(
            f"expected B = 0 and |H^T| <= eta |H^GN|, found another network at eta = {eta}"
        )


def norm_at_v(blocks: Blocks) -> float:
    return norm_of(blocks["v", "v"])


def norm_of_all(blocks: Blocks) -> float:
    return norm_of(assembled(blocks, NODES))


@CHECKS.clause("dag.thm69")
def stabilised() -> BothErrors:
    """Theorem 69 on networks that meet its hypotheses (loss convex, B = 0, |H^T| <= eta |H^GN| in
    every block): by how much (1 − eta) R_base exceeds R_res, for (v, v) and the whole matrix;
    corrected: (1 − eta)/(1 + eta) R_base."""
    shown = []
    for eta in (0.5, 0.1, 0.9):
        base = inert_skip(eta, False)
        skipped = inert_skip(eta, True)
        check_hypotheses(eta, base, skipped)
        for norm in (norm_at_v, norm_of_all):
            before = norm(base.blocks)
            after = norm(skipped.blocks)
            printed = (1 - eta) * before
            corrected = (1 - eta) / (1 + eta) * before
            yield printed / after - 1, corrected / after - 1
            shown.append((before, after))
    (one, one_after), (every, every_after) = shown[:2]
    return worked(
        "p = 10 v, m = p, w = m (with an identity skip: m + p), out = p + (3 − 2 w)(p − 1)²/4, "
        "loss = out²/2, at "
        f"v = 0.1, where B = 0 and η = 1/2; without the skip R(v,v) = {one:.4g}, ‖[H]‖_F = "
        f"{every:.4g}; with it",
        f"R(v,v) >= {one / 2:.4g}, ‖[H]‖_F >= {every / 2:.4g}",
        f">= {one / 3:.4g}, {every / 3:.4g}",
        f"{one_after:.4g}, {every_after:.4g}",
    )


@CHECKS.clause("dag.remark70")
def total_norm(semidefinite: bool = True) -> Outcome:
    """Remark 70: 1 − ‖G + B‖_F / ‖G‖_F for random G >= 0 and B >= 0, or B symmetric."""

    def loss(pair: Tensor) -> float:
        g, b = pair.view(2, 4, 4)
        positive = g @ g.T
        added = b @ b.T if semidefinite else b + b.T
        return 1 - float((positive + added).norm() / positive.norm())

    return worst(random_matrices(((8, 4),) * 20), loss)


CHECKS.without["dag.remark70", "B >= 0"] = lambda: total_norm(semidefinite=False)


def decayed() -> float:
    """For s = 1 and rho < 1, R(v0,vL) / C at 60 layers of norm 0.9, less 0.9^60."""
    start = Linear.start(line(6), 3)
    size = WIDTH**2
    layers = start.repeat(9)[: 60 * size]
    z = torch.cat([layers, start[-size:]])
    bound = 0.9**60 * (1 + 1e-9)
    return ratio(z, 60, 60, 0.9, False) - bound


@CHECKS.clause("dag.remark81")
def unstable() -> Outcome:
    """Remark 81: with largest norm rho above 1 (or s > 1) curvature explodes? one edge of norm 1.1,
    nineteen of 0.1."""
    size = transmitted([lambda h: 1.1 * h] + [lambda h: 0.1 * h] * 19)
    witness = worked(
        "a chain with one edge of norm 1.1 and 19 of 0.1: ‖Π‖",
        "explodes (rho = 1.1 > 1)",
        "only the upper bound grows",
        f"{size:.1e}",
    )
    printed = float(size < 1)
    return Outcome(printed, decayed(), 1, witness)


@CHECKS.clause("dag.remark81.he")
def norms_of_he_layers() -> Outcome:
    """Remark 81: He initialisation achieves rho = 1, to a fifth; corrected: the mean square gain is
    1, and the largest norm above 2."""
    generator = seeded(0)
    norms = []
    gains = []
    for _ in range(20):
        scale = (2 / 64) ** 0.5
        W = gauss(generator, 64, 64) * scale
        active = (gauss(generator, 32, 64) @ W.T > 0).double()
        D = active[:, :, None] * W
        squares = D.square().sum((1, 2))
        norms.append(float(spectral_norm(D).mean()))
        gains.append(float(squares.mean() / 64))
    witness = worked(
        "ReLU layer of width 64, He initialisation, 20 draws: largest norm, mean square gain",
        "1",
        "mean square gain 1",
        f"{min(norms):.1f} to {max(norms):.1f}, {sum(gains) / 20:.2f}",
    )
    farthest = max(abs(gain - 1) for gain in gains)
    right = max(farthest - 0.2, 2 - min(norms))
    return Outcome(min(norms) - 1.2, right, 20, witness)
