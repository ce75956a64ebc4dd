"""DAG paper: ranks and dimensions of blocks, low-rank approximation."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn

from experiments.paper_audit.dag.networks import Instance, diamond, layer, smooth
from experiments.paper_audit.formula import Formula, Outcome
from runner.curvature import (
    Dag,
    Node,
    block_jacobians,
    effective_dimension,
    exact_blocks,
    gauss_newton_blocks,
    path_decomposition,
    pull_back,
    stable_rank,
    truncate,
    truncation_bound,
)


def dimensions() -> Outcome:
    """Largest violation of 1 <= D <= d_eff <= rank and d_eff <= sqrt(rank D), over blocks and random matrices."""
    torch.manual_seed(0)
    sizes = ((1, 1, 1), (3, 5, 2), (6, 6, 6), (4, 7, 1))
    matrices = [torch.randn(m, r).double() @ torch.randn(r, n).double() for m, n, r in sizes]
    matrices += [torch.diag(torch.tensor([1.0, 1.0, 0.0]).double()), torch.diag(torch.tensor([1.0, 1e-8]).double())]
    for case in smooth():
        matrices += [b for b in exact_blocks(case.dag, case.x, case.y).values() if float(b.norm()) > 1e-9]
    worst = -1.0
    for matrix in matrices:
        d, d_eff = stable_rank(matrix), effective_dimension(matrix)
        rank = float((torch.linalg.svdvals(matrix) > 1e-12 * torch.linalg.matrix_norm(matrix, 2)).sum())
        worst = max(worst, 1 - d, d / d_eff - 1, d_eff / rank - 1, d_eff / math.sqrt(rank * d) - 1)
    return Outcome(worst, instances=len(matrices))


def _bottleneck(seed: int, width: int, batch: int) -> Instance:
    torch.manual_seed(seed)
    middle = layer(6, 6, nn.Tanh)
    with torch.no_grad():
        middle.get_parameter("0.weight").mul_(4)  # far from linear, or all examples have nearly the same Jacobian
    nodes = [
        Node("v", ("input",), layer(4, 6, nn.Tanh)),
        Node("m", ("v",), middle),
        Node("u", ("m",), layer(6, width, nn.Tanh)),
        Node("w", ("u",), layer(width, 6, nn.Tanh)),
        Node("out", ("w",), nn.Linear(6, 5).double()),
    ]
    x = torch.randn(batch, 4, dtype=torch.float64)
    return Instance("bottleneck", Dag(nodes), x, torch.randint(0, 5, (batch,)))


def proposition_31() -> Outcome:
    """Largest (d_u + 1)-th singular value of GN[v,v] relative to the first; one example, then batch means of 8."""
    single = mean = 0.0
    for seed, width in enumerate((1, 2, 3)):
        case = _bottleneck(seed, width, 8)
        blocks = gauss_newton_blocks(case.dag, case.x, case.y, ["v", "w"], per_example=True)["v", "v"]
        s = torch.linalg.svdvals(blocks)
        single = max(single, float((s[:, width] / s[:, 0]).max()))
        s = torch.linalg.svdvals(blocks.mean(0))
        mean = max(mean, float(s[width] / s[0]))
    return Outcome(
        mean,
        single,
        6,
        "v -> m -> u -> w -> out with d_u = 1 and two examples: each block has rank 1, their mean rank 2 (not "
        "without m: then J_uv is a multiple of the same row for every example)",
    )


def remark_60() -> Outcome:
    """D(v,w) - min(d_u, K - 1) of batch-averaged GN blocks; corrected: of single examples."""
    mean = single = -1.0
    counterexample = ""
    for seed in range(6):
        case = _bottleneck(seed, 1, 8)
        blocks = gauss_newton_blocks(case.dag, case.x, case.y, ["v", "w"], per_example=True)
        for pair, block in blocks.items():
            d = stable_rank(block.mean(0))
            if pair[0] == "v" and d - 1 > mean:
                mean, counterexample = d - 1, f"d_u = 1, K = 5, mean of 8 examples, block {pair}: D = {d:.3f}"
            if pair[0] == "v":
                single = max(single, *(stable_rank(b) - 1 for b in block))
    return Outcome(mean, single, 6, counterexample)


def softmax_rank() -> Outcome:
    """Smallest singular value of the cross-entropy Hessian relative to the largest."""
    worst = 0.0
    for classes in (2, 3, 10):
        torch.manual_seed(classes)
        p = torch.softmax(torch.randn(classes, dtype=torch.float64), 0)
        s = torch.linalg.svdvals(torch.diag(p) - torch.outer(p, p))
        worst = max(worst, float(s[-1] / s[0]))
    return Outcome(worst, instances=3)


def proposition_55() -> Outcome:
    """rank(Gamma(p_v,p_w)) minus the smallest rank of a Jacobian along its paths."""
    worst = -1.0
    cases = [_bottleneck(seed, 2, 1) for seed in range(2)]
    for case in cases:
        router = case.router()
        for term in path_decomposition(case.dag, case.x, case.y, "v", "w"):
            steps = [
                router.local[b].jacobians[a][0]
                for path in (term.path_v, term.path_w)
                for a, b in itertools.pairwise(path)
            ]
            if term.from_loss and steps:
                bound = min(int(torch.linalg.matrix_rank(d, rtol=1e-10)) for d in steps)
                worst = max(worst, float(int(torch.linalg.matrix_rank(term.block, rtol=1e-10)) - bound))
    return Outcome(worst, instances=len(cases))


def hutchinson() -> Outcome:
    """E |A z|^2 = ||A||_F^2 over all sign vectors z, exactly."""
    worst = 0.0
    for n in (1, 3, 6):
        torch.manual_seed(n)
        a = torch.randn(4, n, dtype=torch.float64)
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=n)), dtype=torch.float64)
        mean = (signs @ a.mT).square().sum(1).mean()
        worst = max(worst, float((mean / a.square().sum() - 1).abs()))
    return Outcome(worst, instances=3)


def proposition_92() -> Outcome:
    """Stacked and pulled back factors against the sum over pairs of children of D^T H D."""
    worst = 0.0
    for seed in range(3):
        case = diamond(seed)
        blocks = gauss_newton_blocks(case.dag, case.x, case.y, per_example=True)
        jacobians = block_jacobians(case.dag, case.x)
        down = {u: jacobians[u, "stem"][0] for u in ("a", "b")}
        factors = {(u, w): truncate(blocks[u, w][0], 3)[0] for u in down for w in down}
        exact = blocks["stem", "stem"][0]
        error = float((pull_back(factors, down, down, 4).dense() - exact).abs().max() / exact.abs().max())
        worst = max(worst, error)
    return Outcome(worst, instances=3)


def theorem_93() -> Outcome:
    """||H - H_r||_F against the root of the dropped sum of squares, and its excess over the bound."""
    worst, count = 0.0, 0
    for case in smooth():
        for block in exact_blocks(case.dag, case.x, case.y).values():
            values = torch.linalg.svdvals(block)
            for rank in range(len(values)):
                low, error = truncate(block, rank)
                size = float(values[0]) or 1.0
                worst = max(worst, abs(float((low.dense() - block).norm()) - error) / size)
                worst = max(worst, (error - truncation_bound(values, rank)) / size)
                count += 1
    return Outcome(worst, instances=count)


FORMULAS: tuple[Formula, ...] = (
    Formula(
        "dag.prop62",
        "Eq. 7, Propositions 58 and 62",
        "1 <= D <= d_eff <= rank and d_eff <= sqrt(rank D)",
        dimensions,
    ),
    Formula(
        "dag.prop31",
        "Proposition 31, Corollary 56",
        "rank H^GN[v,w] <= d_u when all paths to the output pass through u (for the blocks as they are measured)",
        proposition_31,
        "holds after correction",
        "missing assumption",
        "for each example; the mean over B examples, which the experiments measure, has rank up to B d_u",
    ),
    Formula(
        "dag.remark60",
        "Remark 60",
        "D(v,w) <= min(d_u, K - 1) (for batch-averaged Gauss-Newton blocks)",
        remark_60,
        "holds after correction",
        "missing assumption",
        "for each example and without the tensor part; the batch mean can exceed it",
    ),
    Formula(
        "dag.remark60.rank", "Remark 60", "rank of the softmax cross-entropy Hessian is at most K - 1", softmax_rank
    ),
    Formula(
        "dag.prop55",
        "Proposition 55",
        "rank of a path contribution <= smallest rank of a Jacobian along its two paths",
        proposition_55,
    ),
    Formula("dag.remark54", "Remarks 54 and 63", "||A||_F^2 = E |A z|^2 over Rademacher z", hutchinson),
    Formula("dag.prop92", "Proposition 92, Eq. K.2", "GN factors of v from those of its children", proposition_92),
    Formula(
        "dag.thm93",
        "Theorem 93, Eq. K.3",
        "||H - H_r||_F = sqrt(sum_{i>r} sigma_i^2) <= sqrt(d_min - r) sigma_{r+1}",
        theorem_93,
    ),
)
