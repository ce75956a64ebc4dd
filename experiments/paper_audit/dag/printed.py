"""The recursions of the DAG paper as they are printed, and the right ones, for the derivatives of one example."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.paper_audit.dag.oracle import Blocks, Example
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
        terms = [e.jacobian[a, v].T @ block(a, b) @ e.jacobian[b, w] for a in dag.children[v] for b in dag.children[w]]
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
            found[v, w] = one_sided(dag, e, found, v, w) + added(terms, len(e.delta[v]), len(e.delta[w]))
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
            e.jacobian[a, v].T @ compute(a, b) @ e.jacobian[b, w] for a in dag.children[v] for b in dag.children[w]
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
            first = added([path_jacobian(e, p) for p in paths(dag, v, c)], len(e.delta[c]), len(e.delta[v]))
            second = added([path_jacobian(e, p) for p in paths(dag, w, c)], len(e.delta[c]), len(e.delta[w]))
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
    result = torch.eye(len(e.delta[path[0]]), dtype=torch.float64)
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
