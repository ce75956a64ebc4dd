"""DAG paper, Sections 3.1 to 3.5: second derivatives of nodes, the recursion of Eq. 2, the canonical decomposition."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import equality, exists, relative_error
from experiments.paper_audit.dag import printed
from experiments.paper_audit.dag.compare import blocks_agree, true_blocks, true_gauss_newton, true_tensor
from experiments.paper_audit.dag.networks import (
    Instance,
    by_hand,
    chain,
    diamond,
    identity,
    piecewise_linear,
    scalar_nodes,
    skip,
    smooth,
)
from experiments.paper_audit.dag.oracle import Blocks, Example, examples
from experiments.paper_audit.formula import Formula, Outcome, Witness

ROUTING = (
    "H[v,w] = sum_u D_uv^T H[u,w] + sum_u sum_{p in Pa(u)} (sum_i delta_u,i T_u;v,p[i]) J_pw over the children u of v"
)


def everything() -> tuple[Instance, ...]:
    return (*by_hand(), *smooth())


def second(case: Instance, e: Example) -> Blocks:
    return printed.equation_2(case.dag, e, e.base)


def first_order(case: Instance, e: Example) -> Blocks:
    return printed.equation_2(case.dag, e, e.base, tensor_terms=False)


def without_base(case: Instance, e: Example) -> Blocks:
    return printed.equation_2(case.dag, e, torch.zeros_like(e.base))


def right(case: Instance, e: Example) -> Blocks:
    return printed.routed(case.dag, e, e.base)


def right_tensor(case: Instance, e: Example) -> Blocks:
    return printed.routed(case.dag, e, torch.zeros_like(e.base))


def related(case: Instance) -> set[tuple[str, str]]:
    """Pairs of different nodes with a directed path between them."""
    return {(v, w) for v, w in itertools.permutations(case.dag.order, 2) if next(printed.paths(case.dag, v, w), None)}


def unrelated_with_exact(case: Instance, e: Example) -> Blocks:
    """Eq. 2 with exact blocks on its right-hand side, for pairs without a directed path between them."""
    dag, tied = case.dag, related(case)
    found: Blocks = {}
    for v, w in itertools.combinations(dag.order[:-1], 2):
        if (v, w) in tied or (w, v) in tied:
            continue
        terms = [
            e.jacobian[a, v].T @ e.blocks[a, b] @ e.jacobian[b, w] for a in dag.children[v] for b in dag.children[w]
        ]
        terms += [e.curvature[u][v, w] for u in dag.children[v] if u in dag.children[w]]
        found[v, w] = printed.added(terms, len(e.delta[v]), len(e.delta[w]))
    return found


def diagonal_with_exact(case: Instance, e: Example) -> Blocks:
    """Eq. 2 for v = w with exact blocks on its right-hand side."""
    dag, found = case.dag, {}
    for v in dag.order[:-1]:
        children = dag.children[v]
        terms = [e.jacobian[a, v].T @ e.blocks[a, b] @ e.jacobian[b, v] for a in children for b in children]
        terms += [e.curvature[u][v, v] for u in children]
        found[v, v] = printed.added(terms, len(e.delta[v]), len(e.delta[v]))
    return found


def boundary(case: Instance, e: Example) -> Blocks:
    """Base cases: H[out,out] = ∇²ℓ, H[v,out] = Σ D^T H[u,out], H[out,v] its transpose."""
    out = case.dag.output
    found = {(out, out): e.base}
    for v in case.dag.order[:-1]:
        found[v, out] = printed.one_sided(case.dag, e, e.blocks, v, out)
        found[out, v] = found[v, out].T
    return found


def one_directional(case: Instance, e: Example) -> Blocks:
    return {(v, w): printed.one_sided(case.dag, e, e.blocks, v, w) for v, w in related(case)}


def equation_1() -> Outcome:
    """T_u;v[i] = sigma''(z_i) W_i W_i^T for f_u = sigma(W f_v + b), against autodiff."""

    def case(seed: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        o, i = ((1, 1), (2, 3), (5, 4), (3, 3))[seed]
        w = torch.randn(o, i, generator=generator, dtype=torch.float64)
        b, f = (torch.randn(k, generator=generator, dtype=torch.float64) for k in (o, i))
        return w, b, f

    def found(seed: int) -> Tensor:
        w, b, f = case(seed)
        bend = torch.func.vmap(torch.func.grad(torch.func.grad(torch.tanh)))(w @ f + b)
        return torch.einsum("i,ij,ik->ijk", bend, w, w)

    def expected(seed: int) -> Tensor:
        w, b, f = case(seed)
        return torch.func.jacfwd(torch.func.jacrev(lambda h: torch.tanh(w @ h + b)))(f)

    return equality(range(4), expected, found)


def _mixed(merge: nn.Module | None, seed: int = 0) -> float:
    """Norm of T_u;v,w of the merge node of a diamond, over δ, relative to D."""
    case = diamond(seed, merge="sum") if merge is None else diamond(seed)
    e = examples(case)[0]
    return float(e.curvature["merge"]["a", "b"].norm() / e.delta["merge"].norm().clamp_min(1e-300))


def linear_merge() -> Outcome:
    return Outcome(max(_mixed(None, seed) for seed in range(4)), instances=4)


def nonlinear_merge() -> Outcome:
    return exists("act(W [a, b]) with SiLU", _mixed(nn.SiLU()), "the mixed tensor must not vanish")


def example_5_skip() -> Outcome:
    """Pairs of children that term (1) runs over for (v1, v2) in v1 → v2 → out with a skip v1 → out, against the four
    that are printed; corrected: for (v1, v1)."""
    children = {"v1": {"v2", "out"}, "v2": {"out"}}
    listed = {("v2", "v2"), ("v2", "out"), ("out", "v2"), ("out", "out")}

    def missing(v: str, w: str) -> float:
        return float(len(listed ^ set(itertools.product(children[v], children[w]))))

    witness = Witness(
        "v1 → v2 → out, v1 → out: Ch(v1) × Ch(v2)", "4 pairs", "4 pairs for (v1, v1)", "(v2, out), (out, out)"
    )
    return Outcome(missing("v1", "v2"), missing("v1", "v1"), 1, witness)


def example_6(case: Instance, e: Example) -> Blocks:
    """Diamond: H[a,b] = D^T H[m,m] D + the mixed tensor term."""
    found = e.jacobian["merge", "a"].T @ e.blocks["merge", "merge"] @ e.jacobian["merge", "b"]
    return {("a", "b"): found + e.curvature["merge"]["a", "b"]}


def minimal_topology() -> Outcome:
    """Nodes of the smallest graph here in which term (2) of Eq. 2 is not zero, over the diamond's four, less one."""
    small = by_hand()[1]
    size = len(small.dag.order) if float(examples(small)[0].curvature["out"]["v", "w"].abs().max()) > 0 else 4
    witness = Witness(f"{small}: nodes of the graph", "4 (the diamond)", "3 (a skip)", "T_out;v,w δ = 1 ≠ 0")
    return Outcome(4 - size, nonlinear_merge().printed, 2, witness)


def missing_boundary() -> Outcome:
    """Algorithms 1 and 3 on piecewise-linear networks; corrected: with the boundary blocks of Algorithm 5."""
    return blocks_agree(
        (by_hand()[2], *piecewise_linear()),
        true_blocks,
        lambda case, e: printed.algorithm_1(case.dag, e, False),
        lambda case, e: printed.algorithm_1(case.dag, e, True),
    )


def figure_1() -> Outcome:
    """v0 → v1 → v2 → out with a skip v0 → v2: D_out,v0 = D3 (I + D2 D1) and the blocks of panel (b)."""
    errors = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        d = [torch.randn(3, 3, generator=generator, dtype=torch.float64) for _ in range(3)]
        nodes: list[tuple[str, tuple[str, ...], Callable[..., Tensor]]] = [
            ("v0", ("input",), identity),
            ("v1", ("v0",), lambda h, d=d: h @ d[0].T),
            ("v2", ("v1", "v0"), lambda a, b, d=d: a @ d[1].T + b),
            ("out", ("v2",), lambda h, d=d: h @ d[2].T),
        ]
        e = examples(scalar_nodes(nodes, [1.0, 2.0, -1.0], square=True))[0]
        eye = torch.eye(3, dtype=torch.float64)
        errors.append(relative_error(d[2] @ (eye + d[1] @ d[0]), e.total["out", "v0"]))
        errors.append(relative_error(d[0].T @ e.blocks["v1", "out"] + e.blocks["v2", "out"], e.blocks["v0", "out"]))
        errors.append(relative_error(d[1].T @ e.blocks["v2", "out"], e.blocks["v1", "out"]))
    return Outcome(max(errors), instances=len(errors))


def _tensor_part_recursion() -> Outcome:
    return blocks_agree(everything(), true_tensor, without_base, right_tensor)


FORMULAS: tuple[Formula, ...] = (
    Formula(
        "dag.eq1", "Remark 3, Eq. 1", "[T_u;v]_ijk = sigma''(z_i) W_ij W_ik for f_u = sigma(W f_v + b)", equation_1
    ),
    Formula("dag.remark3.linear", "Remark 3; Example 6", "the mixed tensor vanishes for linear merging", linear_merge),
    Formula(
        "dag.remark3.nonlinear", "Remark 3; Example 6", "and does not for a merge with phi'' != 0", nonlinear_merge
    ),
    Formula(
        "dag.eq2",
        "Eq. 2, Definition 4",
        "H[v,w] = double sum over children D^T H[u1,u2] D + mixed tensor of common children (v != w) "
        "+ pure tensor of children (v = w), with one-sided base cases at the output",
        lambda: blocks_agree(everything(), true_blocks, second, right),
        "holds after correction",
        "dag.eq2",
        ROUTING,
    ),
    Formula(
        "dag.eq2.piecewise",
        "Eq. 2, piecewise-linear activations",
        "the same recursion where every tensor term is zero",
        lambda: blocks_agree(piecewise_linear(), true_blocks, second),
    ),
    Formula(
        "dag.eq2.unrelated",
        "Eq. 2, v and w without a directed path between them",
        "the recursion with exact blocks on the right",
        lambda: blocks_agree(everything(), true_blocks, unrelated_with_exact),
    ),
    Formula(
        "dag.eq2.diagonal",
        "Eq. 2, v = w",
        "the diagonal block with exact blocks on the right, merges of a skip included",
        lambda: blocks_agree(everything(), true_blocks, diagonal_with_exact, right),
        "holds after correction",
        "dag.eq2",
        ROUTING + "; a child that is also fed by a descendant p of v adds C_u;v,p J_pv and its transpose",
    ),
    Formula(
        "dag.eq2.base",
        "Eq. 2, base cases; Definition 18",
        "H[out,out] = d2 loss, H[v,out] = sum_u D_uv^T H[u,out], H[out,v] = H[v,out]^T",
        lambda: blocks_agree(everything(), true_blocks, boundary),
    ),
    Formula(
        "dag.algorithm1",
        "Algorithms 1 and 3",
        "Algorithm 3 fills all blocks by Algorithm 1 from the cached block (out, out), activations piecewise linear",
        missing_boundary,
        "holds after correction",
        "dag.algorithm1",
        "with the boundary blocks (v, out) computed first, as in Algorithm 5",
    ),
    Formula(
        "dag.algorithm5",
        "Algorithm 5",
        "boundary blocks by the one-sided recursion, all others by Eq. 2",
        lambda: blocks_agree(everything(), true_blocks, lambda c, e: printed.algorithm_1(c.dag, e, True), right),
        "holds after correction",
        "dag.eq2",
        ROUTING,
    ),
    Formula(
        "dag.example5",
        "Example 5",
        "blocks (v1,v1) and (v1,v2) of a chain: D^T H[v2,v2] D + pure tensor, and D^T H[v2,v2]",
        lambda: blocks_agree(
            [chain(seed, widths=(3, 4, 5)) for seed in range(3)],
            true_blocks,
            lambda c, e: {
                ("h1", "h1"): e.jacobian["h2", "h1"].T @ e.blocks["h2", "h2"] @ e.jacobian["h2", "h1"]
                + e.curvature["h2"]["h1", "h1"],
                ("h1", "h2"): e.jacobian["h2", "h1"].T @ e.blocks["h2", "h2"],
            },
        ),
    ),
    Formula(
        "dag.example5.skip",
        "Example 5, skip connection",
        "term (1) for (v1, v2) includes (v2, v2), (v2, out), (out, v2), (out, out) from Ch(v1) x Ch(v2)",
        example_5_skip,
        "holds after correction",
        "dag.example5",
        "for the pair (v1, v1)",
    ),
    Formula(
        "dag.example6",
        "Example 6",
        "cross-branch block of a diamond: D^T H[v4,v4] D + mixed tensor term",
        lambda: blocks_agree((diamond(0), diamond(1, merge="sum"), diamond(2, nn.Tanh)), true_blocks, example_6),
    ),
    Formula(
        "dag.example6.minimal",
        "Example 6, last sentence",
        "this is the minimal topology in which term (2) can be nonzero",
        minimal_topology,
        "holds after correction",
        "dag.example6",
        "among graphs where v and w are not connected; a skip over one node needs three nodes",
    ),
    Formula(
        "dag.remark76",
        "Remark 76",
        "for v an ancestor of w, H[v,w] = sum over children u of v of D_uv^T H[u,w]",
        lambda: blocks_agree(everything(), true_blocks, one_directional, right),
        "holds after correction",
        "dag.remark76",
        "when no child of v has another parent at or below w; otherwise the terms C_u;v,p J_pw are added",
    ),
    Formula(
        "dag.remark76.chain",
        "Remark 76 on a chain; Theorem 25, proof",
        "the same without skips, every activation",
        lambda: blocks_agree(
            (by_hand()[0], chain(0), chain(1, nn.Tanh, widths=(2, 5, 2, 3, 4)), chain(2, nn.GELU, norm=True)),
            true_blocks,
            one_directional,
        ),
        dropped=(("no skips", lambda: blocks_agree((skip(6),), true_blocks, one_directional)),),
    ),
    Formula(
        "dag.prop14.directed",
        "Proposition 14, one-directional path",
        "the block of an ancestor pair reduces to that recursion, which excludes tensor terms",
        lambda: blocks_agree((by_hand()[1], skip(6), skip(7)), true_blocks, one_directional, right),
        "holds after correction",
        "dag.remark76",
        "when no child of v has another parent at or below w",
    ),
    Formula(
        "dag.thm7.gn",
        "Theorem 7.1; Remark 9; Appendix F",
        "H^GN by its own recursion = J_out,v^T (d2 loss) J_out,w",
        lambda: blocks_agree((*everything(), *piecewise_linear()), true_gauss_newton, first_order),
    ),
    Formula(
        "dag.thm7.tensor",
        "Theorem 7.2; Appendix F",
        "H^T = H - H^GN satisfies the recursion of Eq. 2 with base 0",
        lambda: blocks_agree(everything(), true_tensor, without_base, right_tensor),
        "holds after correction",
        "dag.eq2",
        "T[v,w] = sum_u D_uv^T T[u,w] + sum_u sum_{p in Pa(u)} C_u;v,p J_pw with T[out,w] = 0",
    ),
    Formula("dag.fig1", "Figure 1", "D_out,v0 = D3 (I + D2 D1) and the curvature routing of panel (b)", figure_1),
)
