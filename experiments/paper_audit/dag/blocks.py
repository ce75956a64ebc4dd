"""DAG paper: the recursions, the decomposition into Gauss-Newton and tensor part, the path decomposition."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from experiments.paper_audit.dag import printed
from experiments.paper_audit.dag.networks import (
    Instance,
    autodiff_blocks,
    chain,
    diamond,
    piecewise_linear,
    relative_error,
    scalar_nodes,
    skip,
    smooth,
)
from experiments.paper_audit.formula import Formula, Outcome
from runner.curvature import assemble, exact_blocks, gauss_newton_blocks, path_decomposition, split_blocks
from runner.curvature.exact.routing import Blocks


def _errors(cases: Iterable[Instance], error: Callable[[Instance], float]) -> tuple[float, int]:
    found = [error(case) for case in cases]
    return max(found), len(found)


def _recursion_error(case: Instance) -> float:
    router = case.router()
    return relative_error(printed.mean(printed.equation_2(router, router.loss_hessian)), autodiff_blocks(case))


def _routed_error(case: Instance) -> float:
    return relative_error(exact_blocks(case.dag, case.x, case.y), autodiff_blocks(case))


def square_after_identity() -> Instance:
    """v = x, u = v, out = u^2, loss = out, at x = 1."""
    return scalar_nodes(
        [("v", ("input",), lambda h: 1 * h), ("u", ("v",), lambda h: 1 * h), ("out", ("u",), lambda h: h * h)], [1.0]
    )


def product_with_a_skip() -> Instance:
    """v = x, w = v, out = v w, loss = out, at x = 1."""
    return scalar_nodes(
        [("v", ("input",), lambda h: 1 * h), ("w", ("v",), lambda h: 1 * h), ("out", ("v", "w"), lambda a, b: a * b)],
        [1.0],
    )


def equation_1() -> Outcome:
    """T_u;v[i] = sigma''(z_i) W_i W_i^T for f_u = sigma(W f_v + b), against autodiff."""
    error = 0.0
    for seed, (i, o) in enumerate(((1, 1), (3, 2), (4, 5))):
        torch.manual_seed(seed)
        w, b, f = torch.randn(o, i).double(), torch.randn(o).double(), torch.randn(i).double()
        z = w @ f + b
        second = torch.diag(torch.autograd.functional.hessian(lambda t: torch.tanh(t).sum(), z))
        for k in range(o):
            exact = torch.autograd.functional.hessian(lambda h, k=k, w=w, b=b: torch.tanh(w @ h + b)[k], f)
            error = max(error, float((second[k] * torch.outer(w[k], w[k]) - exact).abs().max() / exact.abs().max()))
    return Outcome(error, instances=3)


def equation_2() -> Outcome:
    error, count = _errors(smooth(), _recursion_error)
    small = square_after_identity()
    router = small.router()
    wrong = float(printed.equation_2(router, router.loss_hessian)["v", "u"].sum())
    right = float(autodiff_blocks(small)["v", "u"].sum())
    return Outcome(
        error,
        _errors(smooth(), _routed_error)[0],
        count,
        f"v = x, u = v, out = u^2, loss = out at x = 1: H[v,u] = {right:g}, printed {wrong:g}",
    )


def equation_2_piecewise_linear() -> Outcome:
    error, count = _errors(piecewise_linear(), _recursion_error)
    return Outcome(error, instances=count)


def equation_2_diagonal() -> Outcome:
    """Eq. 2 for v = w with the exact blocks on its right-hand side, where a child also has another parent below v."""
    worst = 0.0
    for seed in range(3):
        case = skip(seed)
        router, exact = case.router(), exact_blocks(case.dag, case.x, case.y, per_example=True)
        terms = [
            router.local[a].jacobians["a"].mT @ exact[a, b] @ router.local[b].jacobians["a"]
            for a in ("b", "m")
            for b in ("b", "m")
        ]
        found = sum(terms, router.local["b"].curvature["a", "a"] + router.local["m"].curvature["a", "a"])
        worst = max(worst, relative_error({("a", "a"): found.mean(0)}, autodiff_blocks(case)))
    small = product_with_a_skip()
    return Outcome(
        worst,
        max(_routed_error(skip(seed)) for seed in range(3)),
        3,
        f"v = x, w = v, out = v w, loss = out: H[v,v] = {float(autodiff_blocks(small)['v', 'v'].sum()):g}, printed 0 "
        "(both pure second derivatives and the loss's are 0)",
    )


def example_5() -> Outcome:
    """Two-layer chain: the diagonal block of Eq. 2 and the cross block D^T H[v2,v2]."""
    error = 0.0
    for seed in range(3):
        case = chain(seed, widths=(3, 4, 5))
        router, exact = case.router(), autodiff_blocks(case)
        full = exact_blocks(case.dag, case.x, case.y, per_example=True)
        d = router.local["h2"].jacobians["h1"]
        own = d.mT @ full["h2", "h2"] @ d + router.local["h2"].curvature["h1", "h1"]
        found = {("h1", "h1"): own.mean(0), ("h1", "h2"): (d.mT @ full["h2", "h2"]).mean(0)}
        error = max(error, relative_error(found, exact))
    return Outcome(error, instances=3)


def example_6() -> Outcome:
    """Diamond: H[a,b] = D^T H[m,m] D + the mixed tensor term, for linear and nonlinear merges."""
    error = 0.0
    for case in (diamond(0), diamond(1, merge="sum"), diamond(2, nn.Tanh)):
        router, full = case.router(), exact_blocks(case.dag, case.x, case.y, per_example=True)
        merge = router.local["merge"]
        found = merge.jacobians["a"].mT @ full["merge", "merge"] @ merge.jacobians["b"]
        if ("a", "b") in merge.curvature:
            found = found + merge.curvature["a", "b"]
        error = max(error, relative_error({("a", "b"): found.mean(0)}, autodiff_blocks(case)))
    return Outcome(error, instances=3)


def _one_directional_error(case: Instance) -> float:
    full = exact_blocks(case.dag, case.x, case.y, per_example=True)
    found = printed.mean(printed.one_directional(case.router(), full))
    return relative_error(found, autodiff_blocks(case)) if found else 0.0


def remark_76() -> Outcome:
    error, count = _errors(smooth(), _one_directional_error)
    small = product_with_a_skip()
    return Outcome(
        error,
        _errors(smooth(), _routed_error)[0],
        count,
        f"v = x, w = v, out = v w, loss = out: H[v,w] = {float(autodiff_blocks(small)['v', 'w'].sum()):g}, printed 0",
    )


def proposition_14() -> Outcome:
    """Nonzero iff v and w reach a common descendant: largest share of a block that should be nonzero and is zero."""
    case = scalar_nodes(
        [
            ("v", ("input",), lambda h: h[:, :1]),
            ("w", ("input",), lambda h: h[:, 1:]),
            ("out", ("v", "w"), lambda a, b: a * a + b * b),
        ],
        [1.0, 1.0],
    )
    blocks = autodiff_blocks(case)
    share = float(blocks["v", "w"].abs().max() / blocks["v", "v"].abs().max())
    return Outcome(
        1.0 if share == 0 else 0.0,
        counterexample="out = v^2 + w^2, loss = out: v and w both reach out, H[v,w] = 0",
    )


def theorem_7_gauss_newton() -> Outcome:
    """The GN recursion, its unrolled form, and H^GN of the engine, against J^T (d2 loss) J by autodiff."""
    cases = (*smooth(), *piecewise_linear())

    def error(case: Instance) -> float:
        router = case.router()
        found = printed.mean(printed.equation_2(router, router.loss_hessian, tensor_terms=False))
        return relative_error(found, gauss_newton_by_autodiff(case))

    largest, count = _errors(cases, error)
    return Outcome(largest, instances=count)


def gauss_newton_by_autodiff(case: Instance) -> Blocks:
    """J_out,v^T (d2 loss/df_out^2) J_out,w per example by autograd, averaged."""
    with torch.no_grad():
        values = case.dag.forward(case.x)
    nodes, batch = case.dag.order, len(case.x)
    hessian = [
        torch.autograd.functional.hessian(
            lambda f, b=b: case.dag.loss.per_example(f.unsqueeze(0), case.y[b : b + 1]).sum(),
            values[case.dag.output][b],
        )
        for b in range(batch)
    ]
    shifts = tuple(torch.zeros_like(values[v]) for v in nodes)
    jacobians = torch.autograd.functional.jacobian(
        lambda *e: case.dag.forward(case.x, dict(zip(nodes, e, strict=True)))[case.dag.output].flatten(1), shifts
    )
    found: Blocks = {}
    k = values[case.dag.output][0].numel()
    for v, j_v in zip(nodes, jacobians, strict=True):
        for w, j_w in zip(nodes, jacobians, strict=True):
            found[v, w] = (
                sum(
                    j_v[b, :, b].flatten(1).T @ hessian[b].reshape(k, k) @ j_w[b, :, b].flatten(1) for b in range(batch)
                )
                / batch
            )  # type: ignore[assignment]
    return found


def _tensor_error(case: Instance, found: Blocks) -> float:
    exact, gauss_newton = autodiff_blocks(case), gauss_newton_by_autodiff(case)
    return relative_error(found, {pair: exact[pair] - gauss_newton[pair] for pair in exact})


def theorem_7_tensor() -> Outcome:
    cases = [case for case in smooth() if not case.name.startswith("attention")]

    def printed_error(case: Instance) -> float:
        router = case.router()
        return _tensor_error(case, printed.mean(printed.equation_2(router, torch.zeros_like(router.loss_hessian))))

    error, count = _errors(cases, printed_error)
    routed, _ = _errors(cases, lambda case: _tensor_error(case, split_blocks(case.dag, case.x, case.y).tensor))
    return Outcome(error, routed, count, "as for Eq. 2: v = x, u = v, out = u^2, loss = out: H^T[v,u] = 2, printed 0")


def remark_8() -> Outcome:
    """Smallest eigenvalue of [GN[v,w]] for a convex loss, relative to the largest, with the sign turned."""

    def violation(case: Instance) -> float:
        eigenvalues = torch.linalg.eigvalsh(assemble(gauss_newton_blocks(case.dag, case.x, case.y), case.dag.order))
        return float(-eigenvalues[0] / eigenvalues[-1])

    error, count = _errors((*smooth(), *piecewise_linear()), violation)
    return Outcome(error, instances=count)


def proposition_10() -> Outcome:
    """H - GN by autodiff for piecewise-linear networks."""

    def error(case: Instance) -> float:
        return relative_error(gauss_newton_by_autodiff(case), autodiff_blocks(case))

    largest, count = _errors(piecewise_linear(), error)
    return Outcome(largest, instances=count)


def theorem_33() -> Outcome:
    """Eq. 11 with the exact blocks H[c,c], against autodiff; corrected: every source of curvature once."""
    worst = right = 0.0
    cases = (chain(0), chain(0, nn.ReLU), diamond(0), skip(0))
    for case in cases:
        exact, split = autodiff_blocks(case), split_blocks(case.dag, case.x, case.y, per_example=True)
        first, other = case.dag.order[0], case.dag.order[1]
        for v, w in ((first, first), (first, other)):
            found = printed.equation_11(case, split.total, split.tensor, v, w).mean(0)
            worst = max(worst, relative_error({(v, w): found}, exact))
            terms = path_decomposition(case.dag, case.x, case.y, v, w)
            total = sum((t.block for t in terms), torch.zeros_like(found))
            right = max(right, relative_error({(v, w): total}, exact))
    small = scalar_nodes(
        [("v", ("input",), lambda h: 1 * h), ("u", ("v",), lambda h: 1 * h), ("out", ("u",), lambda h: h)],
        [1.0],
        square=True,
    )
    split = split_blocks(small.dag, small.x, small.y, per_example=True)
    wrong = float(printed.equation_11(small, split.total, split.tensor, "v", "v").sum())
    return Outcome(
        worst,
        right,
        len(cases),
        f"v = x, u = v, out = u, loss = out^2 / 2: H[v,v] = {float(autodiff_blocks(small)['v', 'v'].sum()):g}, "
        f"printed {wrong:g} (once for c = u, once for c = out)",
    )


def corollary_67() -> Outcome:
    """R(v,w) - sum of path resonances, relative, with the paths of the corrected decomposition."""
    worst = -1.0
    cases = (diamond(0), skip(0), skip(1, nn.Tanh))
    for case in cases:
        first = case.dag.order[0]
        terms = path_decomposition(case.dag, case.x, case.y, first, first)
        total = sum(term.resonance for term in terms)
        norm = float(torch.linalg.matrix_norm(sum((t.block for t in terms), torch.zeros_like(terms[0].block))))
        worst = max(worst, (norm - total) / total)
    return Outcome(worst, instances=len(cases))


ROUTING = (
    "H[v,w] = sum_u D_uv^T H[u,w] + sum_u sum_{p in Pa(u)} (sum_i delta_u,i T_u;v,p[i]) J_pw over the children u of v, "
    "J_pw the total Jacobian of f_p with respect to e_w"
)

FORMULAS: tuple[Formula, ...] = (
    Formula("dag.eq1", "Eq. 1", "[T_u;v]_ijk = sigma''(z_i) W_ij W_ik for f_u = sigma(W f_v + b)", equation_1),
    Formula(
        "dag.eq2",
        "Eq. 2",
        "H[v,w] = double sum over children D^T H[u1,u2] D + mixed tensor of common children (v != w) "
        "+ pure tensor of children (v = w), with one-sided base cases at the output",
        equation_2,
        "holds after correction",
        "wrong statement",
        f"{ROUTING}. As printed, the tensor term of every pair in which one node is an ancestor of the other is lost",
    ),
    Formula(
        "dag.eq2.piecewise",
        "Eq. 2, piecewise-linear activations",
        "the same recursion where every tensor term is zero",
        equation_2_piecewise_linear,
    ),
    Formula(
        "dag.eq2.diagonal",
        "Eq. 2, v = w, nonlinear merge of a skip",
        "the diagonal block with exact blocks H[u1,u2] on the right",
        equation_2_diagonal,
        "holds after correction",
        "wrong statement",
        f"{ROUTING}; a child u of v that is also fed by a descendant p of v adds (C_u;v,p J_pv) and its transpose",
    ),
    Formula("dag.example5", "Example 5", "blocks (v1,v1) and (v1,v2) of a two-layer chain", example_5),
    Formula("dag.example6", "Example 6", "cross-branch block of a diamond with mixed tensor term", example_6),
    Formula(
        "dag.remark76",
        "Remark 76, Proposition 14",
        "for v an ancestor of w, H[v,w] = sum over children u of v of D_uv^T H[u,w], without tensor terms",
        remark_76,
        "holds after correction",
        "missing assumption",
        "holds when no child of v has another parent at or below w; otherwise the terms C_u;v,p J_pw are added",
    ),
    Formula(
        "dag.prop14",
        "Proposition 14",
        "H[v,w] is nonzero if and only if v and w reach a common descendant or depend directly",
        proposition_14,
        "fails",
        "wrong statement",
        "only if: without such a path the block is zero; with one it may still vanish",
    ),
    Formula(
        "dag.thm7.gn",
        "Theorem 7.1, Remark 9",
        "H^GN by its own recursion = J_out,v^T (d2 loss) J_out,w",
        theorem_7_gauss_newton,
    ),
    Formula(
        "dag.thm7.tensor",
        "Theorem 7.2",
        "H^T = H - H^GN satisfies the recursion of Eq. 2 with base 0",
        theorem_7_tensor,
        "holds after correction",
        "wrong statement",
        "T[v,w] = sum_u D_uv^T T[u,w] + sum_u sum_{p in Pa(u)} C_u;v,p J_pw with T[out,w] = 0",
    ),
    Formula(
        "dag.remark8", "Remark 8, Theorem 83.1", "[H^GN[v,w]] is positive semi-definite for a convex loss", remark_8
    ),
    Formula("dag.prop10", "Proposition 10", "H = H^GN for piecewise-linear activations", proposition_10),
    Formula(
        "dag.thm33",
        "Theorem 33, Eq. 11 (also Theorem 65)",
        "H[v,w] = sum over common descendants c and pairs of paths of D^T H[c,c] D + H^T[v,w]",
        theorem_33,
        "holds after correction",
        "wrong statement",
        "each source of curvature once: H[v,w] = sum over pairs of paths to out of D^T (d2 loss) D + sum over nodes u, "
        "their parents p, q and pairs of paths v -> p, w -> q of D^T C_u;p,q D",
    ),
    Formula("dag.cor67", "Corollary 67", "R(v,w) <= sum over pairs of paths of R(p_v, p_w)", corollary_67),
)
