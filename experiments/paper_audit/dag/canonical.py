"""DAG paper, Sections 3.5 and 5.6: what follows from the canonical decomposition H = H^GN + H^T."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import (
    Entry,
    Outcome,
    Witness,
    exists,
    needs,
    relative_error,
    strongest,
    worst,
)
from experiments.paper_audit.dag.instances import (
    Instance,
    chain,
    identity,
    piecewise_linear,
    pooled,
    scalar_nodes,
    smooth,
)
from experiments.paper_audit.dag.oracle import (
    assembled,
    blocks_agree,
    exact,
    examples,
    gauss_newton,
    parameter_blocks,
    parametric,
    true_blocks,
    true_gauss_newton,
)
from experiments.paper_audit.tensors import gauss, seeded
from runner.curvature import Dag, Node


def psd() -> Outcome:
    """Smallest eigenvalue of [H^GN] for convex losses over the largest, with the sign turned."""

    def violation(case: Instance) -> float:
        values = torch.linalg.eigvalsh(assembled(gauss_newton(case), case.dag.order))
        return float((-values[:, 0] / values[:, -1]).max())

    return worst((*smooth(), *piecewise_linear()), violation)


def concave() -> Outcome:
    """Remark 8 without a convex loss: out = v, loss = −out²/2."""
    case = scalar_nodes(
        [("v", ("input",), identity), ("out", ("v",), identity)], [1.0], square=True
    )
    values = torch.linalg.eigvalsh(-assembled(gauss_newton(case), case.dag.order))
    return Outcome(float(-values[:, 0].min()))


def quadratic_form() -> Outcome:
    """r^T [H^GN] r = |Σ_v J_out,v r_v|² in the metric ∇²ℓ, for random r."""
    errors = []
    for case in smooth():
        for e in examples(case):
            full = assembled(e.gauss_newton(case.dag.output), case.dag.order)
            r = gauss(seeded(0), len(full))
            parts = dict(
                zip(case.dag.order, r.split([len(e.delta[v]) for v in case.dag.order]), strict=True)
            )
            moved = torch.stack(
                [e.total[case.dag.output, v] @ parts[v] for v in case.dag.order]
            ).sum(0)
            errors.append(relative_error((moved @ e.base @ moved)[None], (r @ full @ r)[None]))
    return Outcome(max(errors), instances=len(errors))


def _extremes(blocks: list[Tensor]) -> tuple[float, float]:
    values = [torch.linalg.eigvalsh(b) for b in blocks]
    return max(float(v.max() / v.abs().max()) for v in values), max(
        float(-v.min() / v.abs().max()) for v in values
    )


def indefinite_blocks() -> Outcome:
    """Some diagonal block of H has a negative eigenvalue."""
    found = [
        b
        for case in smooth()
        for (v, w), block in exact(case).items()
        if v == w
        for b in block
        if b.norm() > 1e-9
    ]
    return exists(
        "diagonal blocks of smooth networks", _extremes(found)[1], "a negative eigenvalue is wanted"
    )


def tensor_signs() -> Outcome:
    """H^T may be positive and may be negative semi-definite: the least share of either sign found over instances."""
    up, down = 0.0, 0.0
    for sign in (1.0, -1.0):
        nodes = [("v", ("input",), identity), ("out", ("v",), lambda h, sign=sign: sign * h * h)]
        block = examples(scalar_nodes(nodes, [1.0]))[0].tensor("out")["v", "v"]
        up, down = max(up, float(block)), max(down, float(-block))
    return exists("out = ± v²", min(up, down), "both signs are wanted")


def reads_as_ggn() -> Outcome:
    """J^T ∇²ℓ J with J = [J_out,v1, ...] side by side; with the transpose of the print the factors do not multiply."""
    errors = []
    for case in smooth():
        e = examples(case)[0]
        wide = torch.cat([e.total[case.dag.output, v] for v in case.dag.order], 1)
        errors.append(
            relative_error(
                wide.T @ e.base @ wide, assembled(e.gauss_newton(case.dag.output), case.dag.order)
            )
        )
    return Outcome(max(errors), instances=len(errors))


def ggn_is_fisher() -> Outcome:
    """∇²ℓ − E_y[∇ℓ ∇ℓᵀ] under the model: for softmax cross-entropy (an exponential family), then Student's t."""
    family, other = [], []
    for seed in range(3):
        z = gauss(seeded(seed), 4)
        p = torch.softmax(z, 0)
        outer = torch.stack(
            [p[k] * torch.outer(p - torch.eye(4)[k], p - torch.eye(4)[k]) for k in range(4)]
        ).sum(0)
        family.append(relative_error(outer.double(), torch.diag(p) - torch.outer(p, p)))
    grid = torch.linspace(-200, 200, 400001, dtype=torch.float64)
    density = 1 / (torch.pi * (1 + grid**2))
    fisher = float(((2 * grid / (1 + grid**2)) ** 2 * density).sum() * (grid[1] - grid[0]))
    at_zero = 2.0  # second derivative of log(1 + (f − y)²) at f = y
    other.append(abs(at_zero - fisher) / fisher)
    witness = Witness(
        "−log of a Cauchy density, f = y",
        f"∇²ℓ = {at_zero:g} = Fisher",
        "",
        f"Fisher = {fisher:.3f}",
    )
    return Outcome(max(other), max(family), 4, witness)


def kinks() -> Outcome:
    """H − H^GN for piecewise-linear networks, max-pooling included."""
    return blocks_agree((*piecewise_linear(), pooled(0), pooled(1)), true_blocks, true_gauss_newton)


def curved() -> Outcome:
    """Proposition 10 without piecewise linearity."""
    return blocks_agree(smooth(), true_blocks, true_gauss_newton)


def zero_gap() -> Outcome:
    """Corollary 12: f = a b x at a = b = 0, x = 1, loss = f: gap 0 in activations, ‖H_θ − GGN‖; corrected: the
    activations' own blocks have no tensor part."""
    theta = torch.zeros(2, dtype=torch.float64)
    whole = torch.func.hessian(lambda p: p[0] * p[1])(theta)
    gradient = torch.func.grad(lambda p: p[0] * p[1])(theta)
    left = float((whole - 0 * torch.outer(gradient, gradient)).norm())
    case = chain(0, nn.Identity, widths=(2, 3, 2))
    gaps = [
        float((e.blocks[p] - e.gauss_newton(case.dag.output)[p]).norm())
        for e in examples(case)
        for p in e.blocks
    ]
    witness = Witness(
        "f = a b x, loss = f, a = b = 0, x = 1: ‖H_θ − GGN‖",
        "≈ 0",
        "0 for activations only",
        f"{left:.4g}",
    )
    return Outcome(left, max(gaps), 1, witness)


def linear_head() -> Outcome:
    """Remark 39: H^T[v,w] = 0 where everything from w to the logits is linear, whatever lies before."""

    def error(case: Instance) -> float:
        out, last = case.dag.output, case.dag.order[-2]
        found = [
            e.tensor(out)[v, last].abs().max() / e.blocks[v, last].abs().max()
            for e in examples(case)
            for v in case.dag.order
        ]
        return float(torch.stack(found).max())

    return worst(
        (chain(0), chain(1, nn.Tanh, widths=(2, 5, 2, 3, 4)), chain(2, nn.GELU, norm=True)), error
    )


def symmetric() -> Outcome:
    """H[v,w] − H[w,v]^T, by differentiating the gradient with respect to e_v in direction e_w and the other way."""

    def error(case: Instance) -> float:
        blocks = exact(case)
        return max(relative_error(b, blocks[w, v].mT) for (v, w), b in blocks.items())

    return worst(smooth(), error)


def separate() -> Outcome:
    """Proposition 14, 'only if': a block whose nodes share no descendant, here two heads with losses of their own."""
    errors = []
    for seed in range(4):
        generator = seeded(seed)
        a, b = (gauss(generator, 3, 3) for _ in range(2))
        x = gauss(generator, 6)

        def loss(e: Tensor, a: Tensor = a, b: Tensor = b, x: Tensor = x) -> Tensor:
            v, w = (x + e).split(3)
            return torch.logsumexp(torch.tanh(a @ v), 0) + torch.tanh(b @ w).square().sum()

        hessian = torch.func.hessian(loss)(torch.zeros(6, dtype=torch.float64))
        errors.append(float(hessian[:3, 3:].abs().max() / hessian.abs().max()))
    return Outcome(max(errors), instances=len(errors))


def reached() -> Outcome:
    """Proposition 14, 'if': share of random blocks with a common descendant that vanish, then a case by hand."""
    nodes: list[tuple[str, tuple[str, ...], Callable[..., Tensor]]] = [
        ("v", ("input",), lambda h: h[:, :1]),
        ("w", ("input",), lambda h: h[:, 1:]),
        ("out", ("v", "w"), lambda a, b: a * a + b * b),
    ]
    block = float(examples(scalar_nodes(nodes, [1.0, 1.0]))[0].blocks["v", "w"])
    generic = max(float(b.abs().max() == 0) for case in smooth() for b in exact(case).values())
    witness = Witness(
        "out = v² + w², loss = out: H[v,w]",
        "≠ 0 (both reach out)",
        "may vanish, not generically",
        f"{block:g}",
    )
    return Outcome(1.0 if block == 0 else 0.0, generic, 1 + len(smooth()), witness)


def tensors_symmetric() -> Outcome:
    """Remark 42: [T_u;v]_i and the assembled Hessian are symmetric; the mixed slices are d_v × d_w."""

    def error(case: Instance) -> float:
        own = [
            c[v, v] for e in examples(case) for c in e.curvature.values() for v, w in c if v == w
        ]
        return max(relative_error(c, c.T) for c in own if float(c.abs().max()) > 1e-12)

    return strongest(worst(smooth(), error), symmetric())


def tensor_norm_is_unsigned() -> Outcome:
    """Corollary 12: turning the sign of every source of H^T leaves the gap as it is (out = v ± v²/2 at v = 1 with the
    same output)."""
    gaps = []
    for sign in (1.0, -1.0):
        nodes = [
            ("v", ("input",), identity),
            ("out", ("v",), lambda h, s=sign: 2 * h + s * (h - 1) ** 2),
        ]
        e = examples(scalar_nodes(nodes, [1.0], square=True))[0]
        gaps.append(
            float(e.tensor("out")["v", "v"].norm() / e.gauss_newton("out")["v", "v"].norm())
        )
    return Outcome(abs(gaps[0] - gaps[1]) / gaps[0], instances=2)


def single_node() -> Outcome:
    """Abstract: with one node, D^T ∇²ℓ D + the pure parametric term is the Hessian in its parameters."""
    errors = []
    for seed in range(3):
        torch.manual_seed(seed)
        node = Node(
            "out", ("input",), nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
        )
        case = Instance(
            "one node", Dag([node]), torch.randn(1, 2, dtype=torch.float64), torch.tensor([0])
        )
        e, own = examples(case)[0], parametric(case, 0)["out"]
        errors.append(
            relative_error(own.d.T @ e.base @ own.d + own.own, parameter_blocks(case)["out", "out"])
        )
    return Outcome(max(errors), instances=3)


CHECKS: dict[str, Entry] = {
    "dag.remark8": needs(psd, ("convex loss", concave)),
    "dag.remark8.form": quadratic_form,
    "dag.remark8.blocks": indefinite_blocks,
    "dag.thm7.signs": tensor_signs,
    "dag.remark9": reads_as_ggn,
    "dag.remark9.fisher": ggn_is_fisher,
    "dag.prop10": needs(kinks, ("piecewise linear", curved)),
    "dag.cor12.sign": tensor_norm_is_unsigned,
    "dag.cor12.kfac": zero_gap,
    "dag.remark39": linear_head,
    "dag.symmetry": symmetric,
    "dag.remark42": tensors_symmetric,
    "dag.prop14.only_if": separate,
    "dag.prop14.if": reached,
    "dag.single_node": single_node,
}
