"""DAG paper, Section 3.6 and Appendix F.1: blocks in the parameters (Eq. 5), Eq. I.1, weight
sharing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.paper_audit.checks import (
    Checks,
    Outcome,
    exists,
    relative_error,
    worked,
    worst,
)
from experiments.paper_audit.dag import recursion
from experiments.paper_audit.dag.comparison import averaged, blocks_agree
from experiments.paper_audit.dag.instances import Instance, chain, diamond, layer, skip
from experiments.paper_audit.dag.oracle import (
    Blocks,
    Example,
    Flat,
    Hessian,
    assembled,
    examples,
    first_example,
)
from experiments.paper_audit.dag.parameter_oracle import parameter_blocks, parametric
from experiments.paper_audit.tensors import gauss, norm_of, ones, seeded, spectral_norm, total
from runner.curvature import Dag, Node

CHECKS = Checks()
Loss = Callable[[Tensor, Tensor], Tensor]


def summed(output: Tensor, _: Tensor) -> Tensor:
    return output.sum(1)


def large_square(output: Tensor, _: Tensor) -> Tensor:
    return 1e4 * output.square().sum(1) / 2


def two_factors(loss: Loss = summed, text: str = "out") -> Instance:
    """h = a x, out = b h at x = a = b = 1; of the loss out, ∂²L/∂a∂b = 1."""
    h = nn.Linear(1, 1, bias=False).double()
    out = nn.Linear(1, 1, bias=False).double()
    for module in (h, out):
        nn.init.ones_(module.weight)
    dag = Dag([Node("h", ("input",), h), Node("out", ("h",), out)], loss=loss)
    one = ones(1, 1)
    return Instance(f"h = a x, out = b h, loss = {text}, at x = a = b = 1", dag, one, one)


def relu_chain() -> Instance:
    return chain(1, nn.ReLU, widths=(2, 4, 4, 2))


def instances() -> tuple[Instance, ...]:
    normalised = chain(1, nn.Tanh, norm=True, widths=(2, 3, 2))
    plain = chain(0, widths=(2, 3, 2))
    return (
        two_factors(),
        plain,
        normalised,
        diamond(2),
        skip(3),
        relu_chain(),
    )


def routed(e: Example, blocks: Blocks) -> Blocks:
    """First term of Eq. 5: D_vᵀ H[v,w] D_w."""
    own = parametric(e)
    found = {}
    for v, w in itertools.product(own, repeat=2):
        left = own[v].d.T
        found[v, w] = left @ blocks[v, w] @ own[w].d
    return found


def with_pure(e: Example, blocks: Blocks) -> Blocks:
    """With the second term: 1{v = w} Σ_i δ_v,i ∂²f_v,i/∂θ_v²."""
    found = routed(e, blocks)
    for v, own in parametric(e).items():
        found[v, v] = found[v, v] + own.own
    return found


def third(e: Example, v: str, w: str) -> Tensor:
    """Third term as printed in F.1 and Algorithm 2: u over Pa(v) ∩ Ch(w) of M_v,uᵀ D_uw D_w, v ≠
    w."""
    children = e.dag.children.get(w, ())
    between = []
    parents = dict.fromkeys(e.dag.nodes[v].parents)
    for u in parents:
        if v != w and u in children:
            between.append(u)
    return sum_of_mixed(e, v, w, between, e.jacobian)


def sum_of_mixed(
    e: Example, v: str, w: str, between: Iterable[str], jacobian: Mapping[tuple[str, str], Tensor]
) -> Tensor:
    """Sum of M_v,pᵀ jacobian[p,w] D_w over the nodes p between v and w."""
    of_v, of_w = (parametric(e)[node] for node in (v, w))
    terms = []
    for p in between:
        terms.append(of_v.mixed[p].T @ jacobian[p, w] @ of_w.d)
    return recursion.added(terms, of_v.d.shape[1], of_w.d.shape[1])


def mixed(e: Example, v: str, w: str) -> Tensor:
    """Right third term, one side: Σ_{p ∈ Pa(v)} M_v,pᵀ J_pw D_w with J over all paths (identity for
    p = w)."""
    parents = parametric(e)[v].mixed
    reached = [p for p in parents if (p, w) in e.total]
    return sum_of_mixed(e, v, w, reached, e.total)


def equation_5(e: Example, blocks: Blocks | None = None) -> Blocks:
    found = with_pure(e, blocks or e.blocks)
    for v, w in found:
        mixed_term = third(e, v, w)
        found[v, w] = found[v, w] + mixed_term
    return found


def right_5(e: Example) -> Blocks:
    found = with_pure(e, e.blocks)
    for v, w in found:
        of_v = mixed(e, v, w)
        of_w = mixed(e, w, v)
        found[v, w] = found[v, w] + of_v + of_w.T
    return found


def true_parameter_blocks(e: Example) -> Blocks:
    """Of the mean loss; the same for every example, so that its batch mean is itself."""
    return parameter_blocks(e.case)


CHECKS["dag.eq5"] = blocks_agree(instances, true_parameter_blocks, equation_5, right_5)


def two_edges(e: Example) -> Blocks:
    """Eq. 5 as printed, for pairs (v, w) with exactly one node between them on a chain."""
    order = e.dag.order
    whole = equation_5(e)
    return {pair: whole[pair] for pair in zip(order[2:], order, strict=False)}


def chains() -> list[Instance]:
    widths = (2, 3, 2, 3)
    tanh = chain(0, nn.Tanh, widths=widths)
    silu = chain(1, nn.SiLU, widths=widths)
    return [tanh, silu]


def both_recursions(e: Example) -> Blocks:
    return equation_5(e, recursion.equation_2(e, e.base))


CHECKS["dag.eq5.two_edges"] = blocks_agree(chains, true_parameter_blocks, two_edges)
CHECKS["dag.thm19"] = blocks_agree(instances, true_parameter_blocks, both_recursions, right_5)


def product(e: Example, blocks: Blocks) -> Blocks:
    """[H r]_θv of a fixed random r (of ones in the example by hand), from blocks."""
    names = list(dict.fromkeys(v for v, _ in blocks))
    by_hand = e.case.name == two_factors().name
    generator = seeded(0)
    r = {}
    for v in names:
        size = len(blocks[v, v])
        r[v] = ones(size) if by_hand else gauss(generator, size)
    products = {}
    for v in names:
        image = total(blocks[v, w] @ r[w] for w in names)
        products[v, v] = image[:, None]
    return products


CHECKS["dag.i1"] = blocks_agree(
    instances,
    lambda e: product(e, parameter_blocks(e.case)),
    lambda e: product(e, with_pure(e, e.blocks)),
    lambda e: product(e, right_5(e)),
)
"""Eq. I.1 read with w' = w (D_ww' local): routed and pure terms, without mixed ones."""


def jacobian_norms(e: Example, v: str, w: str) -> Tensor:
    """‖D_v‖₂ ‖D_w‖₂."""
    own = parametric(e)
    return spectral_norm(own[v].d) * spectral_norm(own[w].d)


def remainder(case: Instance) -> float:
    """‖H_θvθw‖_F over ‖D_v‖₂‖D_w‖₂‖H[v,w]‖_F + ‖other terms‖_F, less 1; the largest of all pairs
    and examples."""
    largest = -1.0
    for e in examples(case):
        first = routed(e, e.blocks)
        exact = right_5(e)
        for (v, w), block in exact.items():
            others = (block - first[v, w]).norm()
            of_first = jacobian_norms(e, v, w) * e.blocks[v, w].norm()
            bound = float(of_first + others)
            if bound:
                largest = max(largest, norm_of(block) / bound - 1)
    return largest


def without_remainder(case: Instance) -> float:
    """The same without the other terms, absolute where H[v,w] is zero."""
    largest = -1.0
    for e in examples(case):
        exact = right_5(e)
        for (v, w), block in exact.items():
            bound = float(jacobian_norms(e, v, w) * e.blocks[v, w].norm())
            violation = norm_of(block)
            if bound > 1e-12:
                violation = violation / bound - 1
            largest = max(largest, violation)
    return largest


CHECKS["dag.cor17"] = lambda: worst(instances(), remainder)
CHECKS.without["dag.cor17", "the remainder"] = lambda: worst(instances(), without_remainder)


@CHECKS.clause("dag.cor17.coupling")
def coupling_bounds() -> Outcome:
    """‖H_θvθw‖ against C(v,w) ‖D_v‖‖D_w‖ and the remainder for two linear layers of one number,
    with the loss 10⁴ out²/2; corrected: R in place of C."""
    case = two_factors(large_square, "10⁴ out²/2")
    e = first_example(case)
    resonance = {pair: block.norm() for pair, block in e.blocks.items()}
    pair = ("h", "out")
    scale = resonance["h", "h"] * resonance["out", "out"]
    coupling = resonance[pair] / scale.sqrt()
    jacobians = jacobian_norms(e, *pair)
    block = right_5(e)[pair]
    others = (block - routed(e, e.blocks)[pair]).norm()
    printed = float(jacobians * coupling + others)
    right = float(jacobians * resonance[pair] + others)
    exact = norm_of(block)
    witness = worked(
        f"{case}: |∂²L/∂a∂b|",
        f"at most {printed:.0f} (C = {float(coupling):g}, remainder {float(others):.0f})",
        f"at most {right:.0f} (R = {float(resonance[pair]):.0f})",
        f"{exact:.0f}",
    )
    return Outcome(exact / printed - 1, exact / right - 1, 1, witness)


@CHECKS.clause("dag.remark16.linear")
def pure_of_linear() -> Outcome:
    """Remark 16: second and third tensors of Eq. 5 for a linear layer; the pure one is zero, the
    mixed one is not."""
    own = parametric(first_example(two_factors()))["out"]
    pure = float(own.own.abs().max())
    mixed = float(own.mixed["h"].abs().max())
    witness = worked("f = W f_v: ∂²f/∂W²", "≠ 0", "= 0, only ∂²f/∂f_v∂W ≠ 0", f"{pure:g}")
    printed = float(pure == 0)
    corrected = float(mixed == 0)
    return Outcome(printed, corrected, 1, witness)


@CHECKS.clause("dag.remark16")
def beyond_ggn() -> Outcome:
    """Remark 16: with H^T = 0 in activations, the parametric Hessian still differs from D^T H^GN
    D."""
    case = relu_chain()
    exact = parameter_blocks(case)
    first = averaged(case, lambda e: routed(e, e.gauss_newton))
    gaps = []
    for pair, block in exact.items():
        difference = (block - first[pair]).norm()
        gaps.append(float(difference / block.norm().clamp_min(1e-12)))
    return exists("ReLU chain, all pairs", max(gaps), "a difference is wanted")


@CHECKS.errors("dag.remark49", lambda: range(3))
def shared(seed: int) -> float:
    """Remark 49 and weight tying: sum over pairs of copies against autodiff in the shared
    weight."""

    torch.manual_seed(seed)
    cell = layer(3, 3, nn.SiLU)
    head = nn.Linear(3, 2).double()
    copies = {"s1": "input", "s2": "s1", "s3": "s2"}
    nodes = [Node(name, (parent,), cell) for name, parent in copies.items()]
    dag = Dag([*nodes, Node("out", ("s3",), head)])
    x = torch.randn(2, 3, dtype=torch.float64)
    case = Instance("shared cell", dag, x, torch.tensor([0, 1]))
    weights = Flat({name: p.detach() for name, p in cell.named_parameters()})

    def loss(flat: Tensor) -> Tensor:
        h = case.x
        for _ in copies:
            h = functional_call(cell, weights.tensors(flat), (h,))
        return dag.loss.per_example(head(h), case.y).mean()

    blocks = parameter_blocks(case)
    summed = total(blocks[v, w] for v in copies for w in copies)
    return relative_error(summed, Hessian(loss, weights.point))


@CHECKS.errors("dag.remark96.psd", lambda: instances()[1:])
def first_terms_psd(case: Instance) -> float:
    """Remark 96 (3): the first terms of Eqs. 2 and 5 alone give a PSD matrix (convex loss)."""

    e = first_example(case)
    blocks = routed(e, e.gauss_newton)
    order = tuple(dict.fromkeys(v for v, _ in blocks))
    values = torch.linalg.eigvalsh(assembled(blocks, order))
    return float(-values[0] / values[-1])
