"""DAG paper, Theorem 33 and Appendix G: directed paths, and blocks as sums over pairs of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import Tensor

from experiments.paper_audit.dag.oracle import Example
from experiments.paper_audit.dag.recursion import summed
from experiments.paper_audit.tensors import total, unit
from runner.curvature import Dag

Path = tuple[str, ...]


def paths(dag: Dag, v: str, c: str) -> Iterator[Path]:
    """Directed paths from v to c (Definition 64); the path of length zero where v = c."""
    if v == c:
        yield (c,)
        return
    for u in dag.children[v]:
        for rest in paths(dag, u, c):
            yield (v, *rest)


def path_jacobian(e: Example, path: Path) -> Tensor:
    """G.2: product of D_{u_{i+1},u_i} along the path."""
    result = unit(len(e.delta[path[0]]))
    for a, b in itertools.pairwise(path):
        result = e.jacobian[b, a] @ result
    return result


def total_over_paths(e: Example, v: str, c: str) -> Tensor:
    """Sum of the Jacobians of all paths from v to c."""
    return total(path_jacobian(e, path) for path in paths(e.dag, v, c))


def equation_11(e: Example, v: str, w: str) -> Tensor:
    """Eq. 11: sum over common descendants c and pairs of paths of D^T H[c,c] D, plus H^T[v,w];
    Desc(v) excludes v."""
    terms = [e.tensor[v, w]]
    for c in e.dag.order:
        if c not in (v, w) and (c, v) in e.total and (c, w) in e.total:
            left = total_over_paths(e, v, c)
            right = total_over_paths(e, w, c)
            terms.append(left.T @ e.blocks[c, c] @ right)
    return summed(e, v, w, terms)


def along_pairs(
    e: Example, starts: tuple[str, str], ends: tuple[str, str], matrix: Tensor
) -> list[Tensor]:
    """D_aᵀ matrix D_b for each pair of paths a, b between the starts and the ends."""
    ends_of_paths = zip(starts, ends, strict=True)
    first, second = (paths(e.dag, v, p) for v, p in ends_of_paths)
    pairs = itertools.product(first, second)
    return [path_jacobian(e, a).T @ matrix @ path_jacobian(e, b) for a, b in pairs]


def sources(e: Example, v: str, w: str) -> list[Tensor]:
    """The right path decomposition: one term for each pair of paths and each source of curvature.

    Pairs of paths to out with ∇²ℓ between them; for each node u, parents p, q of it, and paths v →
    p, w → q, C_u;p,q.
    """
    out = e.dag.output
    terms = along_pairs(e, (v, w), (out, out), e.base)
    for u in e.dag.order:
        parents_of_u = dict.fromkeys(e.dag.nodes[u].parents)
        parents = [p for p in parents_of_u if p != "input"]
        for p, q in itertools.product(parents, repeat=2):
            curvature = e.curvature[u][p, q]
            terms += along_pairs(e, (v, w), (p, q), curvature)
    return terms
