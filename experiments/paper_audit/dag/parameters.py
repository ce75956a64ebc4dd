"""DAG paper: parametric blocks (Eq. 5, F.1, I.1), weight sharing, and the attention block (Appendix M)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.paper_audit.dag.networks import (
    Instance,
    attention,
    autodiff_blocks,
    chain,
    diamond,
    layer,
    relative_error,
    skip,
)
from experiments.paper_audit.formula import Formula, Outcome
from runner.curvature import Dag, Node, exact_blocks, parameter_hessian, parametric_blocks, split_blocks
from runner.curvature.exact.routing import Blocks
from runner.curvature.parameters.dense import node_parameters, parametric_terms


def parameters_by_autodiff(case: Instance) -> Blocks:
    """d2 L / dtheta_v dtheta_w for the parameters of every module node, by differentiating the mean loss twice."""
    shapes = {(name, key): p.shape for name in case.dag.order for key, p in case.dag.nodes[name].parameters().items()}
    flat = torch.cat(
        [p.detach().flatten() for name in case.dag.order for p in case.dag.nodes[name].parameters().values()]
    )

    def loss(theta: Tensor) -> Tensor:
        pieces = dict(zip(shapes, theta.split([s.numel() for s in shapes.values()]), strict=True))
        values = {"input": case.x}
        for name in case.dag.order:
            node = case.dag.nodes[name]
            own = {key: piece.view(shapes[n, key]) for (n, key), piece in pieces.items() if n == name}
            arguments = tuple(values[p] for p in node.parents)
            values[name] = (
                functional_call(node.fn, own, arguments) if isinstance(node.fn, nn.Module) else node(*arguments)
            )
        return case.dag.loss.per_example(values[case.dag.output], case.y).mean()

    dense = torch.autograd.functional.hessian(loss, flat)
    sizes = {v: sum(s.numel() for (n, _), s in shapes.items() if n == v) for v in case.dag.order}
    names = [v for v in case.dag.order if sizes[v]]
    rows = zip(names, dense.split([sizes[v] for v in names], 0), strict=True)
    return {(v, w): b for v, r in rows for w, b in zip(names, r.split([sizes[u] for u in names], 1), strict=True)}


def instances() -> Iterable[Instance]:
    return (
        chain(0, widths=(2, 3, 2)),
        chain(1, nn.ReLU, widths=(2, 3, 2, 2)),
        chain(2, nn.Tanh, norm=True, widths=(2, 3, 2)),
        diamond(3),
        skip(4),
    )


def equation_5() -> Outcome:
    """Third term as printed: u runs over Pa(v) and Ch(w) only, so that w itself and farther ancestors are left out."""
    worst = right = 0.0
    count = 0
    for case in instances():
        exact, terms = parameters_by_autodiff(case), parametric_terms(case.dag, case.x, case.y)
        printed = {(v, w): term.routed + term.own + _printed_third(case, v, w) for (v, w), term in terms.items()}
        worst = max(worst, relative_error(printed, exact))
        right = max(right, relative_error({pair: term.total for pair, term in terms.items()}, exact))
        count += 1
    small = _two_factors()
    exact_entry = float(parameters_by_autodiff(small)["out", "h"].sum())
    printed_entry = float(parametric_terms(small.dag, small.x, small.y)["out", "h"].routed.sum())
    return Outcome(
        worst,
        right,
        count,
        f"h = a x, out = b h, loss = out at x = a = b = 1: d2L/dadb = {exact_entry:g}, printed {printed_entry:g} "
        "(no node is both a parent of out and a child of h)",
    )


def _printed_third(case: Instance, v: str, w: str) -> Tensor:
    """sum over u in Pa(v) and Ch(w) of M_v,u^T D_uw D_w, mean over the batch; zero for v = w."""

    dag, router = case.dag, case.router()
    shape = [sum(p.numel() for p in dag.nodes[n].parameters().values()) for n in (v, w)]
    total = torch.zeros(shape[0], shape[1], dtype=torch.float64)
    common = [u for u in dict.fromkeys(dag.nodes[v].parents) if u in dag.children[w]]
    if v == w or not common:
        return total
    mixed, d = node_parameters(dag.nodes[v], router).mixed, node_parameters(dag.nodes[w], router).d
    for u in common:
        total = total + torch.einsum("bpi,bpw,bwj->ij", mixed[u], router.local[u].jacobians[w], d) / len(d)
    return total


def _two_factors() -> Instance:
    h, out = nn.Linear(1, 1, bias=False).double(), nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        h.weight.fill_(1.0)
        out.weight.fill_(1.0)
    dag = Dag([Node("h", ("input",), h), Node("out", ("h",), out)], loss=lambda f, _: f.sum(1))
    one = torch.ones(1, 1, dtype=torch.float64)
    return Instance("two factors", dag, one, one)


def equation_i1() -> Outcome:
    """[H r]_theta_v = D_v^T sum_w H[v,w] (sum_w' D_ww' r_theta_w') + own term r, read with w' = w; corrected: with
    the mixed terms."""
    worst = right = 0.0
    count = 0
    for case in instances():
        exact, terms = parameters_by_autodiff(case), parametric_terms(case.dag, case.x, case.y)
        names = list(dict.fromkeys(v for v, _ in terms))
        r = {v: torch.randn(terms[v, v].own.shape[0], dtype=torch.float64) for v in names}
        true = {(v, v): sum((exact[v, w] @ r[w] for w in names), torch.zeros_like(r[v])) for v in names}
        printed = {(v, v): sum((terms[v, w].routed @ r[w] for w in names), terms[v, v].own @ r[v]) for v in names}
        corrected = {(v, v): sum((terms[v, w].total @ r[w] for w in names), torch.zeros_like(r[v])) for v in names}
        worst, right = max(worst, relative_error(printed, true)), max(right, relative_error(corrected, true))
        count += 1
    return Outcome(
        worst, right, count, "h = a x, out = b h, loss = out at x = a = b = 1, r = (1, 1): (1, 1), printed (0, 0)"
    )


def remark_49() -> Outcome:
    """Shared weights: the sum over copies against autodiff in the shared parameter."""
    worst = 0.0
    for seed in range(3):
        torch.manual_seed(seed)
        cell, head = layer(3, 3, nn.SiLU), nn.Linear(3, 2).double()
        dag = Dag(
            [
                Node("s1", ("input",), cell),
                Node("s2", ("s1",), cell),
                Node("s3", ("s2",), cell),
                Node("out", ("s3",), head),
            ]
        )
        x, y = torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1])
        names = [f"s1.{key}" for key, _ in cell.named_parameters()]
        sizes = [p.numel() for p in cell.parameters()]
        keys = [key for key, _ in cell.named_parameters()]

        def loss(flat: Tensor, cell=cell, head=head, x=x, y=y, sizes=sizes, keys=keys, dag=dag) -> Tensor:
            shapes = [p.shape for p in cell.parameters()]
            own = {k: piece.view(s) for k, piece, s in zip(keys, flat.split(sizes), shapes, strict=True)}
            h = x
            for _ in range(3):
                h = functional_call(cell, own, (h,))
            return dag.loss.per_example(head(h), y).mean()

        exact = torch.autograd.functional.hessian(loss, torch.cat([p.detach().flatten() for p in cell.parameters()]))
        found = parameter_hessian(dag, x, y)
        rows = torch.cat([torch.arange(found.spans[n].start, found.spans[n].stop) for n in names])
        error = float((found.matrix[rows][:, rows] - exact).abs().max() / exact.abs().max())
        worst = max(worst, error)
    return Outcome(worst, instances=3)


def corollary_17() -> Outcome:
    """||H[theta_v,theta_w]||_F - ||D_v||_2 ||D_w||_2 ||H[v,w]||_F - ||other terms||_F, relative; one example at a
    time."""
    worst = -1.0
    count = 0
    for base in instances():
        case = Instance(base.name, base.dag, base.x[:1], base.y[:1])
        blocks, terms = exact_blocks(case.dag, case.x, case.y), parametric_terms(case.dag, case.x, case.y)
        router = case.router()

        norms = {
            v: float(torch.linalg.matrix_norm(node_parameters(case.dag.nodes[v], router).d[0], 2))
            for v in dict.fromkeys(v for v, _ in terms)
        }
        for (v, w), term in terms.items():
            bound = norms[v] * norms[w] * float(torch.linalg.matrix_norm(blocks[v, w])) + float(
                torch.linalg.matrix_norm(term.own + term.below + term.above)
            )
            size = float(torch.linalg.matrix_norm(term.total))
            worst = max(worst, (size - bound) / max(bound, 1e-300))
            count += 1
    return Outcome(worst, instances=count)


def theorem_19() -> Outcome:
    """The whole parametric Hessian from Eq. 2 and Eq. 5 as printed, against autodiff."""
    from experiments.paper_audit.dag import printed as dag_printed

    worst = right = 0.0
    cases = (chain(0, widths=(2, 3, 2)), chain(2, nn.Tanh, widths=(2, 3, 2, 2)))
    for case in cases:
        exact, router = parameters_by_autodiff(case), case.router()
        blocks = dag_printed.equation_2(router, router.loss_hessian)
        local = {v: node_parameters(case.dag.nodes[v], router) for v in case.dag.order}
        printed = {}
        for v, w in exact:
            routed = torch.einsum("bvi,bvw,bwj->ij", local[v].d, blocks[v, w], local[w].d) / len(case.x)
            printed[v, w] = routed + (local[v].own if v == w else 0) + _printed_third(case, v, w)
        worst = max(worst, relative_error(printed, exact))
        right = max(right, relative_error(parametric_blocks(case.dag, case.x, case.y), exact))
    return Outcome(worst, right, len(cases), "as for Eq. 5: h = a x, out = b h, loss = out: d2L/dadb = 1, printed 0")


def softmax_derivatives(second: bool) -> Outcome:
    """M.1: S = diag(s) - s s^T; M.2: d2 s_i/dz_j dz_k = s_i (d_ij d_ik - d_ij s_k - d_ik s_j) - s_i s_j d_jk + 2 s_i
    s_j s_k."""
    worst = 0.0
    for n in (1, 2, 4, 7):
        torch.manual_seed(n)
        z = torch.randn(n, dtype=torch.float64)
        s, eye = torch.softmax(z, 0), torch.eye(n, dtype=torch.float64)
        if second:
            exact = torch.stack(
                [torch.autograd.functional.hessian(lambda t, i=i: torch.softmax(t, 0)[i], z) for i in range(n)]
            )
            found = torch.einsum("ij,ik->ijk", eye, eye) - torch.einsum("ij,k->ijk", eye, s)
            found = found - torch.einsum("ik,j->ijk", eye, s) - torch.einsum("jk,j->jk", eye, s).unsqueeze(0)
            found = s[:, None, None] * (found + 2 * s[None, :, None] * s[None, None, :])
        else:
            exact = torch.autograd.functional.jacobian(lambda t: torch.softmax(t, 0), z)
            found = torch.diag(s) - torch.outer(s, s)
        worst = max(worst, float((found - exact).abs().max() / exact.abs().max().clamp_min(1e-3)))
    return Outcome(worst, instances=4)


def proposition_102_density() -> Outcome:
    """Blocks (q,v), (q,k), (k,v): 1 if a token pair's sub-block of some cross-block is zero, else 0."""
    sizes = ((2, 2), (3, 2), (4, 3), (5, 1))
    empty = 0.0
    for seed, (tokens, width) in enumerate(sizes):
        case = attention(seed, tokens, width)
        blocks = autodiff_blocks(case)
        for pair in (("q", "v"), ("q", "k"), ("k", "v")):
            parts = blocks[pair].view(tokens, width, tokens, width).permute(0, 2, 1, 3).flatten(2).norm(dim=2)
            if float(parts.min()) <= 1e-12 * float(parts.max()):
                empty = 1.0
    return Outcome(empty, instances=len(sizes))


def proposition_102_source() -> Outcome:
    """Proposition 102.2: largest excess of another pair's tensor norm over that of (q,k), relative."""
    worst, where = -1.0, ""
    for seed in range(20):
        case = attention(seed, 3, 2)
        tensor = split_blocks(case.dag, case.x, case.y).tensor
        norms = {
            pair: float(torch.linalg.matrix_norm(tensor[pair]))
            for pair in (("q", "k"), ("q", "v"), ("k", "v"), ("q", "q"))
        }
        main = norms.pop(("q", "k"))
        other, norm = max(norms.items(), key=lambda item: item[1])
        if norm / main - 1 > worst:
            worst, where = (
                norm / main - 1,
                f"seed {seed}, 3 tokens of width 2: ||H^T[{','.join(other)}]|| = {norm:.3g}, (q,k) {main:.3g}",
            )
    return Outcome(worst, instances=20, counterexample=where)


FORMULAS: tuple[Formula, ...] = (
    Formula(
        "dag.eq5",
        "Eq. 5 and F.1 (third term also in Algorithm 2)",
        "H[theta_v,theta_w] = D_v^T H[v,w] D_w + (v = w) sum_i delta_i T_theta[i] + mixed terms over u in both "
        "Pa(v) and Ch(w)",
        equation_5,
        "holds after correction",
        "wrong statement",
        "mixed terms sum_{p in Pa(v)} M_v,p^T J_pw D_w + sum_{p in Pa(w)} D_v^T J_pv^T M_w,p with J over all paths "
        "(identity for p = w), M_v,p = sum_i delta_v,i d2 f_v,i / df_p dtheta_v",
    ),
    Formula(
        "dag.i1",
        "Eq. I.1",
        "[H r]_theta_v = D_v^T (sum_w H[v,w] D_w r_theta_w) + sum_i delta_i T_theta[i] r_theta_v",
        equation_i1,
        "holds after correction",
        "wrong statement",
        "the mixed input-parameter terms of Eq. 5 are missing",
    ),
    Formula(
        "dag.thm19",
        "Theorem 19",
        "Eq. 2 and Eq. 5 together give the exact Hessian in the parameters",
        theorem_19,
        "holds after correction",
        "wrong statement",
        "true with the corrected forms of Eq. 2 and Eq. 5",
    ),
    Formula("dag.remark49", "Remark 49", "H[theta,theta] of a shared weight = sum over pairs of its copies", remark_49),
    Formula(
        "dag.cor17",
        "Corollary 17",
        "||H[theta_v,theta_w]||_F <= ||D_v||_2 ||D_w||_2 ||H[v,w]||_F + ||other terms of Eq. 5||_F",
        corollary_17,
    ),
    Formula("dag.m1", "Eq. M.1", "softmax Jacobian diag(s) - s s^T", lambda: softmax_derivatives(False)),
    Formula(
        "dag.m2",
        "Eq. M.2",
        "d2 s_i/dz_j dz_k = s_i (d_ij d_ik - d_ij s_k - d_ik s_j - d_jk s_j + 2 s_j s_k)",
        lambda: softmax_derivatives(True),
    ),
    Formula(
        "dag.prop102",
        "Proposition 102, Example 37",
        "the cross-blocks (q,v), (q,k), (k,v) are dense along the positions",
        proposition_102_density,
    ),
    Formula(
        "dag.prop102.source",
        "Proposition 102.2",
        "the pair (q,k) is the main source of H^T in the attention block",
        proposition_102_source,
        "fails",
        "wrong statement",
        "(q,v) and (k,v) have mixed second derivatives too, and can carry more",
    ),
)
