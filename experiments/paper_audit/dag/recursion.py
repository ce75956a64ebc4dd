"""DAG paper, Sections 3.2 to 3.5: the recursions as printed and corrected."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from experiments.paper_audit.checks import Checks
from experiments.paper_audit.dag.comparison import (
    blocks_agree,
    true_blocks,
    true_gauss_newton,
    true_tensor,
)
from experiments.paper_audit.dag.instances import (
    Instance,
    by_hand,
    linear_chain,
    piecewise_linear,
    smooth,
    smooth_and_piecewise_linear,
)
from experiments.paper_audit.dag.oracle import Blocks, Example
from experiments.paper_audit.tensors import zeros
from runner.curvature import Dag

CHECKS = Checks()


def added(terms: list[Tensor], rows: int, columns: int) -> Tensor:
    if terms:
        return torch.stack(terms).sum(0)
    return zeros(rows, columns)


def summed(e: Example, v: str, w: str, terms: list[Tensor]) -> Tensor:
    """Sum of terms of the block (v, w)."""
    return added(terms, len(e.delta[v]), len(e.delta[w]))


def between_children(e: Example, known: Blocks, v: str, w: str) -> list[Tensor]:
    """First sum of Eq. 2: D_av^T H[a,b] D_bw over children a of v and b of w."""
    children = e.dag.children
    terms = []
    pairs = itertools.product(children[v], children[w])
    for a, b in pairs:
        left = e.jacobian[a, v]
        right = e.jacobian[b, w]
        terms.append(left.T @ known[a, b] @ right)
    return terms


def of_common_children(e: Example, v: str, w: str) -> list[Tensor]:
    """Second sum of Eq. 2: C_u;v,w over common children u."""
    children = e.dag.children
    return [e.curvature[u][v, w] for u in children[v] if u in children[w]]


def one_sided(e: Example, known: Blocks, v: str, w: str) -> Tensor:
    """Remark 76: sum_{u in Ch(v)} D_uv^T H[u,w]."""
    terms = []
    for u in e.dag.children[v]:
        terms.append(e.jacobian[u, v].T @ known[u, w])
    return summed(e, v, w, terms)


def downwards(dag: Dag) -> list[tuple[str, str]]:
    """All pairs, from the input to the output."""
    return [(v, w) for v in dag.order for w in dag.order]


def upwards(dag: Dag) -> list[tuple[str, str]]:
    """All pairs, from the output to the input: the children of a pair come before it."""
    return downwards(dag)[::-1]


def base_cases(e: Example, base: Tensor) -> Blocks:
    """H[out,out] = base, H[v,out] = sum_u D_uv^T H[u,out], and H[out,v], its transpose."""
    out = e.dag.output
    known: Blocks = {(out, out): base}
    for v in reversed(e.dag.order[:-1]):
        known[v, out] = one_sided(e, known, v, out)
        known[out, v] = known[v, out].T
    return known


def equation_2(e: Example, base: Tensor, tensor_terms: bool = True) -> Blocks:
    """Eq. 2 with its base cases; `base` is the block (out, out). tensor_terms=False: the recursion
    of H^GN, Theorem 7.

    H[v,w] = sum_{u1 in Ch(v), u2 in Ch(w)} D^T H[u1,u2] D
             + (v != w) sum_{u in Ch(v) and Ch(w)} C_u;v,w + (v = w) sum_{u in Ch(v)} C_u;v,v;
    H[v,out] = sum_u D_uv^T H[u,out].
    """
    known = base_cases(e, base)
    for v, w in upwards(e.dag):
        if e.dag.output in (v, w):
            continue
        terms = between_children(e, known, v, w)
        if tensor_terms:
            terms += of_common_children(e, v, w)
        known[v, w] = summed(e, v, w, terms)
    return {pair: known[pair] for pair in downwards(e.dag)}


def through_parents(e: Example, v: str, w: str) -> list[Tensor]:
    """C_u;v,p J_pw over children u of v and parents p of u that w reaches."""
    terms = []
    for u in e.dag.children[v]:
        parents = dict.fromkeys(e.dag.nodes[u].parents)
        for p in parents:
            if (p, w) in e.total:
                jacobian = e.total[p, w]
                terms.append(e.curvature[u][v, p] @ jacobian)
    return terms


def routed(e: Example, base: Tensor) -> Blocks:
    """The right recursion: H[v,w] = sum_{u in Ch(v)} D_uv^T H[u,w] + sum_u sum_{p in Pa(u)} C_u;v,p
    J_pw."""
    order = e.dag.order
    out = e.dag.output
    known: Blocks = {}
    for w in order:
        known[out, w] = base @ e.total[out, w]
    for v in reversed(order[:-1]):
        for w in order:
            terms = through_parents(e, v, w)
            curved = summed(e, v, w, terms)
            routed_part = one_sided(e, known, v, w)
            known[v, w] = routed_part + curved
    return known


def double_sums(e: Example, known: Blocks) -> Blocks:
    """Algorithms 1 and 3 line by line: double sums over children for all pairs whose block is not
    known before."""
    for v, w in upwards(e.dag):
        if (v, w) not in known:
            routed_terms = between_children(e, known, v, w)
            terms = routed_terms + of_common_children(e, v, w)
            known[v, w] = summed(e, v, w, terms)
    return {pair: known[pair] for pair in upwards(e.dag)}


def algorithm_3(e: Example) -> Blocks:
    """From the cached base block (out, out) alone."""
    out = e.dag.output
    return double_sums(e, {(out, out): e.base})


def algorithm_5(e: Example) -> Blocks:
    """With the blocks (v, out) computed first, which Algorithm 3 leaves to Algorithm 1."""
    return double_sums(e, base_cases(e, e.base))


def everything() -> tuple[Instance, ...]:
    return by_hand() + smooth()


def by_hand_and_random() -> tuple[Instance, ...]:
    return by_hand() + smooth_and_piecewise_linear()


def linear_by_hand_and_piecewise_linear() -> tuple[Instance, ...]:
    return (linear_chain(), *piecewise_linear())


def second(e: Example) -> Blocks:
    return equation_2(e, e.base)


def first_order(e: Example) -> Blocks:
    return equation_2(e, e.base, tensor_terms=False)


def without_base(e: Example) -> Blocks:
    return equation_2(e, torch.zeros_like(e.base))


def right(e: Example) -> Blocks:
    return routed(e, e.base)


def right_tensor(e: Example) -> Blocks:
    return routed(e, torch.zeros_like(e.base))


CHECKS["dag.eq2"] = blocks_agree(everything, true_blocks, second, right)
CHECKS["dag.eq2.piecewise"] = blocks_agree(piecewise_linear, true_blocks, second)
CHECKS["dag.thm7.gn"] = blocks_agree(by_hand_and_random, true_gauss_newton, first_order)
CHECKS["dag.thm7.tensor"] = blocks_agree(everything, true_tensor, without_base, right_tensor)
CHECKS["dag.algorithm1"] = blocks_agree(
    linear_by_hand_and_piecewise_linear, true_blocks, algorithm_3, algorithm_5
)
"""Algorithms 1 and 3 on piecewise-linear networks; corrected: with the boundary blocks of Algorithm
5."""
CHECKS["dag.algorithm5"] = blocks_agree(everything, true_blocks, algorithm_5, right)
