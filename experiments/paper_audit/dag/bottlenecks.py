"""DAG paper, Section 5.2 and Appendices C and D: ranks of blocks behind a narrow node."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, diag, nn, outer

from experiments.paper_audit.checks import (
    BothErrors,
    Checks,
    Errors,
    Outcome,
    digits,
    exists,
    worked,
)
from experiments.paper_audit.dag.instances import Instance, diamond, identity, layer, skip
from experiments.paper_audit.dag.oracle import Example, examples, first_example, gauss_newton
from experiments.paper_audit.dag.paths import Path, path_jacobian, paths
from experiments.paper_audit.dag.ranks import rank, singular, stable
from experiments.paper_audit.tensors import gauss, real, seeded, total
from runner.curvature import Dag, Node

CHECKS = Checks()


def bottleneck(seed: int, width: int, batch: int = 8, bypass: bool = False) -> Instance:
    """v → m → u (narrow) → w → out; bypass: a skip from v to the output as well."""
    torch.manual_seed(seed)
    middle = layer(6, 6, nn.Tanh)
    with torch.no_grad():  # far from linear, or all examples have nearly the same Jacobian
        middle.get_parameter("0.weight").mul_(4)
    head = nn.Linear(6, 5).double()
    nodes = [
        Node("v", ("input",), layer(4, 6, nn.Tanh)),
        Node("m", ("v",), middle),
        Node("u", ("m",), layer(6, width, nn.Tanh)),
        Node("w", ("u",), layer(width, 6, nn.Tanh)),
    ]
    if bypass:
        nodes.append(Node("out", ("w", "v"), lambda a, b: head(a + b)))
    else:
        nodes.append(Node("out", ("w",), head))
    x = torch.randn(batch, 4, dtype=torch.float64)
    y = torch.randint(0, 5, (batch,))
    return Instance(f"bottleneck of width {width}", Dag(nodes), x, y)


def beyond(blocks: Tensor, width: int) -> float:
    """σ_{width+1} / σ_1 of a batch of blocks, the largest."""
    values = singular(blocks)
    return float((values[..., width] / values[..., 0]).max())


def gauss_newton_block(case: Instance, v: str, w: str) -> Tensor:
    """H^GN[v,w] of every example."""
    return gauss_newton(case)[v, w]


@CHECKS.clause("dag.prop31", instances=36)
def proposition_31(bypass: bool = False) -> Errors:
    for seed, width in enumerate((1, 2, 3)):
        case = bottleneck(seed, width, 4, bypass)
        pairs = (("v", "v"), ("v", "m"), ("m", "m"))
        for v, w in pairs:
            yield beyond(gauss_newton_block(case, v, w), width)


CHECKS.without["dag.prop31", "all paths pass through u"] = lambda: proposition_31(bypass=True)


@CHECKS.clause("dag.exp2.rank")
def measured_rank() -> Outcome:
    """Section 5.2: batch means, as Exp. 2 measures, against d_u; corrected: at most B d_u (here B =
    2, d_u = 1)."""
    printed = []
    right = []
    for seed in range(3):
        block = gauss_newton_block(bottleneck(seed, 1, 2), "v", "v").mean(0)
        printed.append(beyond(block, 1))
        right.append(beyond(block, 2))
    witness = worked(
        "d_u = 1, mean of two examples, block (v, v): σ_2/σ_1",
        "0 (rank <= d_u)",
        "rank <= B d_u",
        f"{max(printed):.3g}",
    )
    return Outcome(max(printed), max(right), 3, witness)


@CHECKS.clause("dag.prop31.text")
def text_before_31() -> Outcome:
    """'If all paths between v and w pass through a bottleneck': v → u → w → out with a skip v →
    out; corrected: all paths to the output."""
    wrong = beyond(gauss_newton_block(bottleneck(0, 1, 2, bypass=True), "v", "w"), 1)
    witness = worked(
        "v → m → u → w → out, d_u = 1, and a skip v → out: σ_2/σ_1 of H^GN[v,w]",
        "0",
        "0 without the skip",
        f"{wrong:.3g}",
    )
    return Outcome(wrong, proposition_31().printed, 3, witness)


@CHECKS.clause("dag.remark32")
def full_rank_again() -> Outcome:
    ratio = beyond(gauss_newton_block(bottleneck(1, 1, 2, bypass=True), "v", "v"), 1)
    return exists("a skip around a bottleneck of width 1", ratio, "σ_2/σ_1 > 0 is wanted")


@CHECKS.clause("dag.remark59")
def large_norm() -> Outcome:
    block = gauss_newton_block(bottleneck(0, 1, 2), "v", "v")[0]
    size = 100 * float(block.norm())
    return exists(
        "‖H^GN[v,v]‖_F behind a bottleneck of width 1, logits times 10",
        size,
        "a norm away from zero is wanted",
    )


@CHECKS.errors("dag.remark60.rank", lambda: (2, 3, 10))
def softmax_rank(classes: int) -> float:
    p = torch.softmax(gauss(seeded(classes), classes), 0)
    values = singular(diag(p) - outer(p, p))
    return float(values[-1] / values[0])


def half_square(v: Tensor) -> Tensor:
    """|v|²/2, a node of width 1."""
    return v.square().sum(1, keepdim=True) / 2


def then_zero(parent: Tensor) -> Tensor:
    """Logits: the parent's values and one zero."""
    return torch.nn.functional.pad(parent, (0, 1))


def curved_bottleneck() -> Instance:
    """v = (1, 0), u = |v|²/2, logits (u, 0), second class."""
    nodes = [
        Node("v", ("input",), identity),
        Node("u", ("v",), half_square),
        Node("out", ("u",), then_zero),
    ]
    name = "v = (1, 0), u = |v|²/2, logits (u, 0), second class"
    return Instance(name, Dag(nodes), real([[1.0, 0.0]]), torch.tensor([1]))


@CHECKS.clause("dag.remark60")
def remark_60() -> BothErrors:
    """D(v,w) − min(d_u, K − 1) of H[v,v] itself (D is defined for H, Eq. 7); corrected: of H^GN,
    single examples."""
    cases = [curved_bottleneck()]
    cases += [bottleneck(seed, 1, 2) for seed in range(4)]
    for case in cases:
        for e in examples(case):
            of_gauss_newton = stable(e.gauss_newton["v", "v"])
            yield stable(e.blocks["v", "v"]) - 1, of_gauss_newton - 1
    block = first_example(cases[0]).blocks["v", "v"]
    return worked(
        f"{cases[0]}: H[v,v] = {digits(block)}, D(v,v)",
        "at most min(d_u, K − 1) = 1",
        "1 for H^GN",
        f"{stable(block):.4g}",
    )


def least_rank(e: Example, path: Path) -> int:
    """Smallest rank of a Jacobian along a path."""
    return min(rank(e.jacobian[after, before]) for before, after in itertools.pairwise(path))


@CHECKS.clause("dag.prop55")
def proposition_55() -> Outcome:
    """rank(Γ) minus the smallest rank of a Jacobian along its two paths; sums are subadditive."""
    excess = [-1]
    cases = (bottleneck(0, 2, 1), bottleneck(1, 1, 1), skip(0), diamond(1))
    for case in cases:
        e = first_example(case)
        for v in case.dag.order[:2]:
            gammas = []
            to_output = list(paths(case.dag, v, case.dag.output))
            for a, b in itertools.product(to_output, repeat=2):
                from_a = path_jacobian(e, a)
                from_b = path_jacobian(e, b)
                gamma = from_a.T @ e.base @ from_b
                bound = min(least_rank(e, a), least_rank(e, b))
                excess.append(rank(gamma) - bound)
                gammas.append(gamma)
            excess.append(rank(total(gammas)) - sum(rank(gamma) for gamma in gammas))
    return Outcome(float(max(excess)), instances=8)
