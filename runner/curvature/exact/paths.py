"""Which paths of the graph carry a block: curvature is made at a node and routed along one path to v and one to w.

    H[v,w] = sum_{a: v->out, b: w->out} D_a^T (d2 loss/df_out^2) D_b
             + sum_u sum_{p,q in Pa(u)} sum_{a: v->p, b: w->q} D_a^T C_u;p,q D_b,

D_a the product of the Jacobians along path a (the identity for the path of one node), C_u;p,q the loss-weighted
second derivative of node u. This is Theorem 33 of the DAG paper with its sources counted once: the printed Eq. 11
sums the full blocks H[c,c] of every common descendant c, which contain each other, and so counts the same curvature
again at every c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.exact.derivatives import evaluate
from runner.curvature.exact.routing import Reach, Router
from runner.curvature.graph.checks import check_before_measuring
from runner.curvature.graph.dag import INPUT, Dag
from runner.curvature.graph.state import undisturbed

MAX_PATH_PAIRS = 10_000


@dataclass(frozen=True)
class Contribution:
    """One term: mean over the batch of D_a^T S D_b, (d_v, d_w), D_a the product of the Jacobians along path_v and D_b
    along path_w (DAG paper, Theorem 33).

    source: node whose curvature S it carries; the output stands for the loss when `from_loss`.
    """

    path_v: tuple[str, ...]
    path_w: tuple[str, ...]
    source: str
    from_loss: bool
    block: Tensor

    @property
    def resonance(self) -> float:
        """||block||_F (Definition 66)."""
        return float(torch.linalg.matrix_norm(self.block.double()))


def paths(dag: Dag, start: str, end: str) -> list[tuple[str, ...]]:
    """Every directed path from start to end as node names, both ends included; [(start,)] when they are the same.

    Raises ValueError for unknown nodes.
    """
    dag.select([start, end])
    place = {name: i for i, name in enumerate((INPUT, *dag.order))}

    def extend(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if path[-1] == end:
            yield path
            return
        for child in dag.children[path[-1]]:
            if place[child] <= place[end]:
                yield from extend((*path, child))

    return list(extend((start,)))


@undisturbed
def path_decomposition(
    dag: Dag, x: Tensor, y: Tensor, v: str, w: str, *, max_pairs: int = MAX_PATH_PAIRS, check: bool = True
) -> list[Contribution]:
    """The terms of H[v,w], (d_v, d_w) each, one per source and pair of paths; they add up to the exact block (DAG
    paper, Theorem 33, with its sources counted once).

    x: (B, ...), y: (B, ...); max_pairs: terms at most. Raises ValueError for unknown nodes, when there are more than
    max_pairs terms, and as the guards of checks.py do.
    """
    dag.select([v, w])
    evaluation = check_before_measuring(dag, x, y) if check else evaluate(dag, x)
    with torch.no_grad():
        router = Router(dag, evaluation, y, Reach(dag, dag.select([v, w])))
        router.derive_all()
        sources = _sources(router)
        ends = [(p, q, paths(dag, v, p), paths(dag, w, q)) for _, _, p, q, _ in sources]
        count = sum(len(a) * len(b) for _, _, a, b in ends)
        if count > max_pairs:
            raise ValueError(
                f"H[{v},{w}] has {count} pairs of paths, more than max_pairs = {max_pairs}; "
                "use exact_blocks for the sum"
            )
        products: dict[tuple[str, ...], Tensor] = {}
        found = []
        for (source, from_loss, _, _, curvature), (_, _, left, right) in zip(sources, ends, strict=True):
            for a in left:
                for b in right:
                    term = torch.bmm(_along(router, a, products).mT, torch.bmm(curvature, _along(router, b, products)))
                    found.append(Contribution(a, b, source, from_loss, term.mean(0)))
        return found


def _sources(router: Router) -> list[tuple[str, bool, str, str, Tensor]]:
    """(node, from the loss, p, q, curvature (B, d_p, d_q)) of everything that bends."""
    out = router.dag.output
    found = [(out, True, out, out, router.loss_hessian)]
    for u in router.reach.backwards:
        if u in router.local:
            found += [(u, False, p, q, c) for (p, q), c in router.local[u].curvature.items()]
    return found


def _along(router: Router, path: tuple[str, ...], products: dict[tuple[str, ...], Tensor]) -> Tensor:
    """D_a of each example, (B, d_end, d_start)."""
    if path not in products:
        if len(path) == 1:
            value = router.evaluation.values[path[0]]
            d = value[0].numel()
            products[path] = torch.eye(d, dtype=value.dtype, device=value.device).expand(len(value), d, d)
        else:
            step = router.local[path[-1]].jacobians[path[-2]]
            products[path] = torch.bmm(step, _along(router, path[:-1], products))
    return products[path]
