"""DAG paper, Sections 3.1 to 3.5: second derivatives of nodes, the recursions as printed and corrected."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import (
    Entry,
    Outcome,
    Witness,
    equality,
    exists,
    needs,
    relative_error,
)
from experiments.paper_audit.dag.instances import (
    Instance,
    by_hand,
    chain,
    diamond,
    identity,
    linear_chain,
    piecewise_linear,
    scalar_nodes,
    skip,
    smooth,
)
from experiments.paper_audit.dag.oracle import (
    Blocks,
    Example,
    blocks_agree,
    examples,
    true_blocks,
    true_gauss_newton,
    true_tensor,
)
from experiments.paper_audit.tensors import gauss, seeded, unit
from runner.curvature import Dag


def added(terms: list[Tensor], rows: int, columns: int) -> Tensor:
    return torch.stack(terms).sum(0) if terms else torch.zeros(rows, columns, dtype=torch.float64)


def equation_2(dag: Dag, e: Example, base: Tensor, tensor_terms: bool = True) -> Blocks:
    """Eq. 2 with its base cases; `base` is the block (out, out). tensor_terms=False: the recursion of H^GN, Theorem 7.

    H[v,w] = sum_{u1 in Ch(v), u2 in Ch(w)} D^T H[u1,u2] D + (v != w) sum_{u in Ch(v) and Ch(w)} C_u;v,w
             + (v = w) sum_{u in Ch(v)} C_u;v,v;  H[v,out] = sum_u D_uv^T H[u,out].
    """
    found: Blocks = {(dag.output, dag.output): base}

    def block(v: str, w: str) -> Tensor:
        if (v, w) not in found:
            found[v, w] = compute(v, w)
        return found[v, w]

    def compute(v: str, w: str) -> Tensor:
        if v == dag.output:
            return block(w, v).T
        if w == dag.output:
            return one_sided(dag, e, {(u, w): block(u, w) for u in dag.children[v]}, v, w)
        terms = [
            e.jacobian[a, v].T @ block(a, b) @ e.jacobian[b, w]
            for a in dag.children[v]
            for b in dag.children[w]
        ]
        if tensor_terms:
            terms += [e.curvature[u][v, w] for u in dag.children[v] if u in dag.children[w]]
        return added(terms, len(e.delta[v]), len(e.delta[w]))

    return {(v, w): block(v, w) for v in dag.order for w in dag.order}


def one_sided(dag: Dag, e: Example, known: Blocks, v: str, w: str) -> Tensor:
    """Remark 76: sum_{u in Ch(v)} D_uv^T H[u,w]."""
    terms = [e.jacobian[u, v].T @ known[u, w] for u in dag.children[v]]
    return added(terms, len(e.delta[v]), len(e.delta[w]))


def routed(dag: Dag, e: Example, base: Tensor) -> Blocks:
    """The right recursion: H[v,w] = sum_{u in Ch(v)} D_uv^T H[u,w] + sum_u sum_{p in Pa(u)} C_u;v,p J_pw."""
    found: Blocks = {(dag.output, w): base @ e.total[dag.output, w] for w in dag.order}
    for v in reversed(dag.order[:-1]):
        for w in dag.order:
            terms = [
                e.curvature[u][v, p] @ e.total[p, w]
                for u in dag.children[v]
                for p in dict.fromkeys(dag.nodes[u].parents)
                if (p, w) in e.total
            ]
            found[v, w] = one_sided(dag, e, found, v, w) + added(
                terms, len(e.delta[v]), len(e.delta[w])
            )
    return found


def algorithm_1(dag: Dag, e: Example, boundary: bool) -> Blocks:
    """Algorithms 1 and 3 line by line: a cached base block (out, out), then double sums over children for all pairs.

    boundary: with the blocks (v, out) of Algorithm 5 computed first, which Algorithm 3 leaves to Algorithm 1.
    """
    cache: Blocks = {(dag.output, dag.output): e.base}
    if boundary:
        for v in reversed(dag.order[:-1]):
            cache[v, dag.output] = one_sided(dag, e, cache, v, dag.output)
            cache[dag.output, v] = cache[v, dag.output].T

    def compute(v: str, w: str) -> Tensor:
        if (v, w) in cache:
            return cache[v, w]
        terms = [
            e.jacobian[a, v].T @ compute(a, b) @ e.jacobian[b, w]
            for a in dag.children[v]
            for b in dag.children[w]
        ]
        terms += [e.curvature[u][v, w] for u in dag.children[v] if u in dag.children[w]]
        cache[v, w] = added(terms, len(e.delta[v]), len(e.delta[w]))
        return cache[v, w]

    return {(v, w): compute(v, w) for v in reversed(dag.order) for w in reversed(dag.order)}


def equation_11(dag: Dag, e: Example, v: str, w: str) -> Tensor:
    """Eq. 11: sum over common descendants c and pairs of paths of D^T H[c,c] D, plus H^T[v,w]; Desc(v) excludes v."""
    terms = [e.tensor(dag.output)[v, w]]
    for c in dag.order:
        if c not in (v, w) and (c, v) in e.total and (c, w) in e.total:
            first = added(
                [path_jacobian(e, p) for p in paths(dag, v, c)], len(e.delta[c]), len(e.delta[v])
            )
            second = added(
                [path_jacobian(e, p) for p in paths(dag, w, c)], len(e.delta[c]), len(e.delta[w])
            )
            terms.append(first.T @ e.blocks[c, c] @ second)
    return added(terms, 1, 1)


def paths(dag: Dag, v: str, c: str) -> Iterator[tuple[str, ...]]:
    """Directed paths from v to c (Definition 64); the path of length zero where v = c."""
    if v == c:
        yield (c,)
        return
    for u in dag.children[v]:
        for rest in paths(dag, u, c):
            yield (v, *rest)


def path_jacobian(e: Example, path: tuple[str, ...]) -> Tensor:
    """G.2: product of D_{u_{i+1},u_i} along the path."""
    result = unit(len(e.delta[path[0]]))
    for a, b in itertools.pairwise(path):
        result = e.jacobian[b, a] @ result
    return result


def sources(dag: Dag, e: Example, v: str, w: str) -> list[Tensor]:
    """The right path decomposition: one term for each pair of paths and each source of curvature.

    Pairs of paths to out with ∇²ℓ between them; for each node u, parents p, q of it, and paths v → p, w → q, C_u;p,q.
    """
    ends = itertools.product(paths(dag, v, dag.output), paths(dag, w, dag.output))
    terms = [path_jacobian(e, a).T @ e.base @ path_jacobian(e, b) for a, b in ends]
    for u in dag.order:
        parents = [p for p in dict.fromkeys(dag.nodes[u].parents) if p != "input"]
        for p, q in itertools.product(parents, repeat=2):
            for a, b in itertools.product(paths(dag, v, p), paths(dag, w, q)):
                terms.append(path_jacobian(e, a).T @ e.curvature[u][p, q] @ path_jacobian(e, b))
    return terms


def everything() -> tuple[Instance, ...]:
    return (*by_hand(), *smooth())


def second(case: Instance, e: Example) -> Blocks:
    return equation_2(case.dag, e, e.base)


def first_order(case: Instance, e: Example) -> Blocks:
    return equation_2(case.dag, e, e.base, tensor_terms=False)


def without_base(case: Instance, e: Example) -> Blocks:
    return equation_2(case.dag, e, torch.zeros_like(e.base))


def right(case: Instance, e: Example) -> Blocks:
    return routed(case.dag, e, e.base)


def right_tensor(case: Instance, e: Example) -> Blocks:
    return routed(case.dag, e, torch.zeros_like(e.base))


def related(case: Instance) -> set[tuple[str, str]]:
    """Pairs of different nodes with a directed path between them."""
    return {
        (v, w)
        for v, w in itertools.permutations(case.dag.order, 2)
        if next(paths(case.dag, v, w), None)
    }


def unrelated_with_exact(case: Instance, e: Example) -> Blocks:
    """Eq. 2 with exact blocks on its right-hand side, for pairs without a directed path between them."""
    dag, tied = case.dag, related(case)
    found: Blocks = {}
    for v, w in itertools.combinations(dag.order[:-1], 2):
        if (v, w) in tied or (w, v) in tied:
            continue
        terms = [
            e.jacobian[a, v].T @ e.blocks[a, b] @ e.jacobian[b, w]
            for a in dag.children[v]
            for b in dag.children[w]
        ]
        terms += [e.curvature[u][v, w] for u in dag.children[v] if u in dag.children[w]]
        found[v, w] = added(terms, len(e.delta[v]), len(e.delta[w]))
    return found


def diagonal_with_exact(case: Instance, e: Example) -> Blocks:
    """Eq. 2 for v = w with exact blocks on its right-hand side."""
    dag, found = case.dag, {}
    for v in dag.order[:-1]:
        children = dag.children[v]
        terms = [
            e.jacobian[a, v].T @ e.blocks[a, b] @ e.jacobian[b, v]
            for a in children
            for b in children
        ]
        terms += [e.curvature[u][v, v] for u in children]
        found[v, v] = added(terms, len(e.delta[v]), len(e.delta[v]))
    return found


def boundary(case: Instance, e: Example) -> Blocks:
    """Base cases: H[out,out] = ∇²ℓ, H[v,out] = Σ D^T H[u,out], H[out,v] its transpose."""
    out = case.dag.output
    found = {(out, out): e.base}
    for v in case.dag.order[:-1]:
        found[v, out] = one_sided(case.dag, e, e.blocks, v, out)
        found[out, v] = found[v, out].T
    return found


def one_directional(case: Instance, e: Example) -> Blocks:
    return {(v, w): one_sided(case.dag, e, e.blocks, v, w) for v, w in related(case)}


def equation_1() -> Outcome:
    """T_u;v[i] = sigma''(z_i) W_i W_i^T for f_u = sigma(W f_v + b), against autodiff."""

    def case(seed: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = seeded(seed)
        o, i = ((1, 1), (2, 3), (5, 4), (3, 3))[seed]
        w = gauss(generator, o, i)
        b, f = (gauss(generator, k) for k in (o, i))
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


def example_6(case: Instance, e: Example) -> Blocks:
    """Diamond: H[a,b] = D^T H[m,m] D + the mixed tensor term."""
    found = e.jacobian["merge", "a"].T @ e.blocks["merge", "merge"] @ e.jacobian["merge", "b"]
    return {("a", "b"): found + e.curvature["merge"]["a", "b"]}


def first_term_of_example_6() -> Outcome:
    """The first term of Example 6 against the GN block: a, b = x, m = a + b, out = m², loss = out; corrected: with
    H^GN[m, m]."""
    nodes: list[tuple[str, tuple[str, ...], Callable[..., Tensor]]] = [
        ("a", ("input",), identity),
        ("b", ("input",), identity),
        ("m", ("a", "b"), lambda a, b: a + b),
        ("out", ("m",), lambda m: m**2),
    ]
    e = examples(scalar_nodes(nodes, [1.0]))[0]
    exact = e.gauss_newton("out")["a", "b"]
    left, right = e.jacobian["m", "a"].T, e.jacobian["m", "b"]
    first, second = (
        float((left @ m @ right).squeeze())
        for m in (e.blocks["m", "m"], e.gauss_newton("out")["m", "m"])
    )
    where = "a, b = x, m = a + b, out = m², loss = out: first term of H[a, b], GN component"
    witness = Witness(where, f"{first:g}", f"{second:g}", f"{float(exact.squeeze()):g}")
    return Outcome(
        abs(first - float(exact.squeeze())), abs(second - float(exact.squeeze())), 1, witness
    )


def missing_boundary() -> Outcome:
    """Algorithms 1 and 3 on piecewise-linear networks; corrected: with the boundary blocks of Algorithm 5."""
    return blocks_agree(
        (linear_chain(), *piecewise_linear()),
        true_blocks,
        lambda case, e: algorithm_1(case.dag, e, False),
        lambda case, e: algorithm_1(case.dag, e, True),
    )


def figure_1() -> Outcome:
    """v0 → v1 → v2 → out with a skip v0 → v2: D_out,v0 = D3 (I + D2 D1) and the blocks of panel (b)."""
    errors = []
    for seed in range(3):
        generator = seeded(seed)
        d = [gauss(generator, 3, 3) for _ in range(3)]
        nodes: list[tuple[str, tuple[str, ...], Callable[..., Tensor]]] = [
            ("v0", ("input",), identity),
            ("v1", ("v0",), lambda h, d=d: h @ d[0].T),
            ("v2", ("v1", "v0"), lambda a, b, d=d: a @ d[1].T + b),
            ("out", ("v2",), lambda h, d=d: h @ d[2].T),
        ]
        e = examples(scalar_nodes(nodes, [1.0, 2.0, -1.0], square=True))[0]
        eye = unit(3)
        errors.append(relative_error(d[2] @ (eye + d[1] @ d[0]), e.total["out", "v0"]))
        errors.append(
            relative_error(
                d[0].T @ e.blocks["v1", "out"] + e.blocks["v2", "out"], e.blocks["v0", "out"]
            )
        )
        errors.append(relative_error(d[1].T @ e.blocks["v2", "out"], e.blocks["v1", "out"]))
    return Outcome(max(errors), instances=len(errors))


CHECKS: dict[str, Entry] = {
    "dag.eq1": equation_1,
    "dag.remark3.linear": linear_merge,
    "dag.remark3.nonlinear": nonlinear_merge,
    "dag.eq2": lambda: blocks_agree(everything(), true_blocks, second, right),
    "dag.eq2.piecewise": lambda: blocks_agree(piecewise_linear(), true_blocks, second),
    "dag.eq2.unrelated": lambda: blocks_agree(
        everything(), true_blocks, unrelated_with_exact, right
    ),
    "dag.eq2.diagonal": lambda: blocks_agree(everything(), true_blocks, diagonal_with_exact, right),
    "dag.eq2.base": lambda: blocks_agree(everything(), true_blocks, boundary),
    "dag.algorithm1": missing_boundary,
    "dag.algorithm5": lambda: blocks_agree(
        everything(), true_blocks, lambda c, e: algorithm_1(c.dag, e, True), right
    ),
    "dag.example5": lambda: blocks_agree(
        [chain(seed, widths=(3, 4, 5)) for seed in range(3)],
        true_blocks,
        lambda c, e: {
            ("h1", "h1"): e.jacobian["h2", "h1"].T @ e.blocks["h2", "h2"] @ e.jacobian["h2", "h1"]
            + e.curvature["h2"]["h1", "h1"],
            ("h1", "h2"): e.jacobian["h2", "h1"].T @ e.blocks["h2", "h2"],
        },
    ),
    "dag.example6": lambda: blocks_agree(
        (diamond(0), diamond(1, merge="sum"), diamond(2, nn.Tanh)), true_blocks, example_6
    ),
    "dag.example6.gn": first_term_of_example_6,
    "dag.remark76": lambda: blocks_agree(everything(), true_blocks, one_directional, right),
    "dag.remark76.chain": needs(
        lambda: blocks_agree(
            (
                by_hand()[0],
                chain(0),
                chain(1, nn.Tanh, widths=(2, 5, 2, 3, 4)),
                chain(2, nn.GELU, norm=True),
            ),
            true_blocks,
            one_directional,
        ),
        ("no skips", lambda: blocks_agree((skip(6),), true_blocks, one_directional)),
    ),
    "dag.prop14.directed": lambda: blocks_agree(
        (by_hand()[1], skip(6), skip(7)), true_blocks, one_directional, right
    ),
    "dag.thm7.gn": lambda: blocks_agree(
        (*everything(), *piecewise_linear()), true_gauss_newton, first_order
    ),
    "dag.thm7.tensor": lambda: blocks_agree(everything(), true_tensor, without_base, right_tensor),
    "dag.fig1": figure_1,
}
