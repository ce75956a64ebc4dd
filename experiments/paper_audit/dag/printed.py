"""The recursions of the DAG paper as they are printed, per example, on the local derivatives of a Router."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.paper_audit.dag.networks import Instance
from runner.curvature.exact.routing import Blocks, Router


def equation_2(router: Router, base: Tensor, tensor_terms: bool = True) -> Blocks:
    """Eq. 2 with its base cases; `base` is the block (out, out). tensor_terms=False: the recursion of H^GN in Theorem
    7.

    H[v,w] = sum_{u1 in Ch(v), u2 in Ch(w)} D^T H[u1,u2] D + (v != w) sum_{u in Ch(v) and Ch(w)} C_u;v,w
             + (v = w) sum_{u in Ch(v)} C_u;v,v;  H[v,out] = sum_u D_uv^T H[u,out].
    """
    dag = router.dag
    found: Blocks = {(dag.output, dag.output): base}

    def block(v: str, w: str) -> Tensor:
        if (v, w) not in found:
            found[v, w] = compute(v, w)
        return found[v, w]

    def compute(v: str, w: str) -> Tensor:
        if v == dag.output:
            return block(w, v).mT
        if w == dag.output:
            return _total([router.local[u].jacobians[v].mT @ block(u, w) for u in dag.children[v]])
        terms = [
            router.local[a].jacobians[v].mT @ block(a, b) @ router.local[b].jacobians[w]
            for a in dag.children[v]
            for b in dag.children[w]
        ]
        if tensor_terms:
            common = [u for u in dag.children[v] if u in dag.children[w]]
            terms += [router.local[u].curvature[v, w] for u in common if (v, w) in router.local[u].curvature]
        return _total(terms)

    return {(v, w): block(v, w) for v in dag.order for w in dag.order}


def one_directional(router: Router, exact: Blocks) -> Blocks:
    """Remark 76 for every pair (v ancestor of w): sum_{u in Ch(v)} D_uv^T H[u,w], with exact blocks on the right."""
    dag = router.dag
    ancestors = {(v, w) for v in dag.order for w in dag.order if v != w and router.jacobian(w, v) is not None}
    return {
        (v, w): _total([router.local[u].jacobians[v].mT @ exact[u, w] for u in dag.children[v]]) for v, w in ancestors
    }


def equation_11(case: Instance, exact: Blocks, tensor: Blocks, v: str, w: str) -> Tensor:
    """Eq. 11: sum over common descendants c and pairs of paths of D^T H[c,c] D, plus H^T[v,w]; per example.

    The sum over paths from v to c of D_path is the total Jacobian. Desc(v) excludes v.
    """
    router = case.router()
    terms = [tensor[v, w]]
    for c in case.dag.order:
        j_v, j_w = router.jacobian(c, v), router.jacobian(c, w)
        if j_v is not None and j_w is not None:
            terms.append(j_v.mT @ exact[c, c] @ j_w)
    return _total(terms)


def mean(blocks: Blocks) -> Blocks:
    """Batch means of per-example blocks."""
    return {pair: block.mean(0) for pair, block in blocks.items()}


def _total(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).sum(0)
