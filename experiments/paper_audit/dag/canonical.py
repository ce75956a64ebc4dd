"""DAG paper, Sections 3.5 and 5.6: what follows from the canonical decomposition H = H^GN + H^T."""

from __future__ import annotations

import torch
from torch import Tensor, diag, nn, outer
from torch.func import grad, hessian, vmap

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    exists,
    relative_error,
    strongest,
    worked,
    worst,
)
from experiments.paper_audit.dag.comparison import blocks_agree, true_blocks, true_gauss_newton
from experiments.paper_audit.dag.instances import (
    Instance,
    ScalarNode,
    chain,
    copy,
    piecewise_linear,
    pooled,
    scalar_nodes,
    smooth,
    smooth_and_piecewise_linear,
    smooth_chains,
)
from experiments.paper_audit.dag.oracle import (
    Example,
    assembled,
    exact,
    examples,
    first_example,
    gauss_newton,
)
from experiments.paper_audit.dag.parameter_oracle import parameter_blocks, parametric
from experiments.paper_audit.tensors import gauss, grid, norm_of, seeded, total, unit, zeros
from runner.curvature import Dag, Node

CHECKS = Checks()


def assembled_gauss_newton(case: Instance) -> Tensor:
    """[H^GN] of every example."""
    return assembled(gauss_newton(case), case.dag.order)


@CHECKS.errors("dag.remark8", smooth_and_piecewise_linear)
def psd(case: Instance) -> float:
    """Smallest eigenvalue of [H^GN] for convex losses over the largest, with the sign turned."""
    values = torch.linalg.eigvalsh(assembled_gauss_newton(case))
    return float((-values[:, 0] / values[:, -1]).max())


def concave() -> Outcome:
    """Remark 8 without a convex loss: out = v, loss = −out²/2."""
    case = scalar_nodes([copy("v", "input"), copy("out", "v")], [1.0], square=True)
    smallest = torch.linalg.eigvalsh(-assembled_gauss_newton(case))[:, 0].min()
    return Outcome(float(-smallest))


CHECKS.without["dag.remark8", "convex loss"] = concave


def wide_jacobian(e: Example) -> Tensor:
    """J = [J_out,v1, ...] side by side."""
    out = e.dag.output
    return torch.cat([e.total[out, v] for v in e.dag.order], 1)


@CHECKS.clause("dag.remark8.form")
def quadratic_form() -> Errors:
    """r^T [H^GN] r = |Σ_v J_out,v r_v|² in the metric ∇²ℓ, for random r."""
    for case in smooth():
        for e in examples(case):
            full = assembled(e.gauss_newton, case.dag.order)
            r = gauss(seeded(0), len(full))
            moved = wide_jacobian(e) @ r
            yield relative_error(moved @ e.base @ moved, r @ full @ r)


@CHECKS.clause("dag.remark9")
def reads_as_ggn() -> Errors:
    """J^T ∇²ℓ J with J = [J_out,v1, ...] side by side; with the transpose of the print the factors
    do not multiply."""
    for case in smooth():
        e = first_example(case)
        wide = wide_jacobian(e)
        yield relative_error(wide.T @ e.base @ wide, assembled(e.gauss_newton, case.dag.order))


@CHECKS.clause("dag.remark8.blocks")
def indefinite_blocks() -> Outcome:
    """Some diagonal block of H has a negative eigenvalue."""
    shares = []
    for case in smooth():
        blocks = exact(case)
        for v in case.dag.order:
            for block in blocks[v, v]:
                if norm_of(block) > 1e-9:
                    values = torch.linalg.eigvalsh(block)
                    shares.append(float(-values.min() / values.abs().max()))
    where = "diagonal blocks of smooth networks"
    return exists(where, max(shares), "a negative eigenvalue is wanted")


@CHECKS.clause("dag.thm7.signs")
def tensor_signs() -> Outcome:
    """H^T may be positive and may be negative semi-definite: the least share of either sign found
    over instances."""
    values = []
    for sign in (1.0, -1.0):
        output = ("out", ("v",), lambda h, sign=sign: sign * h * h)
        tensor = first_example(scalar_nodes([copy("v", "input"), output], [1.0])).tensor
        values.append(float(tensor["v", "v"]))
    positive = max(0.0, *values)
    negative = max(0.0, *(-value for value in values))
    return exists("out = ± v²", min(positive, negative), "both signs are wanted")


def softmax_fisher_error(seed: int) -> float:
    """E_y[∇ℓ ∇ℓᵀ] under the model against ∇²ℓ, for softmax cross-entropy."""
    p = torch.softmax(gauss(seeded(seed), 4), 0)
    gradients = p - unit(4)
    squares = [outer(gradient, gradient) for gradient in gradients]
    fisher = total(share * square for share, square in zip(p, squares, strict=True))
    return relative_error(fisher, diag(p) - outer(p, p))


def cauchy_loss(residual: Tensor) -> Tensor:
    """−log of the Cauchy density, without its constant."""
    return torch.log1p(residual**2)


@CHECKS.clause("dag.remark9.fisher")
def ggn_is_fisher() -> Outcome:
    """∇²ℓ − E_y[∇ℓ ∇ℓᵀ] under the model: for softmax cross-entropy (an exponential family), then
    Student's t."""
    family = [softmax_fisher_error(seed) for seed in range(3)]
    residuals = grid(-200, 200, 400001)
    density = torch.exp(-cauchy_loss(residuals)) / torch.pi
    scores = vmap(grad(cauchy_loss))(residuals) ** 2
    spacing = residuals[1] - residuals[0]
    fisher = float((scores * density).sum() * spacing)
    at_zero = float(grad(grad(cauchy_loss))(zeros(())))
    witness = worked(
        "−log of a Cauchy density, f = y",
        f"∇²ℓ = {at_zero:g} = Fisher",
        "",
        f"Fisher = {fisher:.3f}",
    )
    printed = abs(at_zero - fisher) / fisher
    return Outcome(printed, max(family), 4, witness)


CHECKS["dag.prop10"] = blocks_agree(
    lambda: (*piecewise_linear(), pooled(0), pooled(1)), true_blocks, true_gauss_newton
)
"""H − H^GN for piecewise-linear networks, max-pooling included."""
CHECKS.without["dag.prop10", "piecewise linear"] = blocks_agree(
    smooth, true_blocks, true_gauss_newton
)


@CHECKS.clause("dag.cor12.kfac")
def zero_gap() -> Outcome:
    """Corollary 12: f = a b x at a = b = 0, x = 1, loss = f: gap 0 in activations, ‖H_θ − GGN‖;
    corrected: the activations' own blocks have no tensor part."""
    in_parameters = hessian(lambda p: p[0] * p[1])(zeros(2))
    left = norm_of(in_parameters)
    case = chain(0, nn.Identity, widths=(2, 3, 2))
    gaps = []
    for e in examples(case):
        gaps += [norm_of(block) for block in e.tensor.values()]
    witness = worked(
        "f = a b x, loss = f, a = b = 0, x = 1: ‖H_θ − GGN‖",
        "≈ 0",
        "0 for activations only",
        f"{left:.4g}",
    )
    return Outcome(left, max(gaps), 1, witness)


@CHECKS.errors("dag.remark39", smooth_chains)
def linear_head(case: Instance) -> float:
    """Remark 39: H^T[v,w] = 0 where everything from w to the logits is linear, whatever lies
    before."""
    last = case.dag.order[-2]
    shares = []
    for e in examples(case):
        tensor = e.tensor
        for v in case.dag.order:
            of_tensor = tensor[v, last].abs().max()
            of_block = e.blocks[v, last].abs().max()
            shares.append(float(of_tensor / of_block))
    return max(shares)


@CHECKS.errors("dag.symmetry", smooth)
def asymmetry(case: Instance) -> float:
    """H[v,w] − H[w,v]^T, by differentiating the gradient with respect to e_v in direction e_w and
    the other way."""
    blocks = exact(case)
    return max(relative_error(block, blocks[w, v].mT) for (v, w), block in blocks.items())


@CHECKS.clause("dag.remark42")
def tensors_symmetric() -> Outcome:
    """Remark 42: [T_u;v]_i and the assembled Hessian are symmetric; the mixed slices are d_v ×
    d_w."""

    def error(case: Instance) -> float:
        errors = []
        for e in examples(case):
            for curvature in e.curvature.values():
                for (v, w), block in curvature.items():
                    if v == w and float(block.abs().max()) > 1e-12:
                        errors.append(relative_error(block, block.T))
        return max(errors)

    return strongest(worst(smooth(), error), CHECKS["dag.symmetry"]())


@CHECKS.clause("dag.prop14.only_if")
def separate() -> Errors:
    """Proposition 14, 'only if': a block whose nodes share no descendant, here two heads with
    losses of their own."""
    for seed in range(4):
        generator = seeded(seed)
        a = gauss(generator, 3, 3)
        b = gauss(generator, 3, 3)
        x = gauss(generator, 6)
        sizes = hessian(_two_losses)(x, a, b).abs()
        yield float(sizes[:3, 3:].max() / sizes.max())


def _two_losses(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    v, w = x.split(3)
    first = torch.logsumexp(torch.tanh(a @ v), 0)
    hidden = torch.tanh(b @ w)
    second = hidden.square().sum()
    return first + second


@CHECKS.clause("dag.prop14.if")
def reached() -> Outcome:
    """Proposition 14, 'if': share of random blocks with a common descendant that vanish, then a
    case by hand."""
    nodes: list[ScalarNode] = [
        ("v", ("input",), lambda h: h[:, :1]),
        ("w", ("input",), lambda h: h[:, 1:]),
        ("out", ("v", "w"), lambda a, b: a * a + b * b),
    ]
    block = float(first_example(scalar_nodes(nodes, [1.0, 1.0])).blocks["v", "w"])
    generic = []
    for case in smooth():
        for b in exact(case).values():
            generic.append(float(b.abs().max() == 0))
    witness = worked(
        "out = v² + w², loss = out: H[v,w]",
        "≠ 0 (both reach out)",
        "may vanish, not generically",
        f"{block:g}",
    )
    count = 1 + len(smooth())
    return Outcome(float(block == 0), max(generic), count, witness)


@CHECKS.clause("dag.cor12.sign")
def tensor_norm_is_unsigned() -> Outcome:
    """Corollary 12: turning the sign of every source of H^T leaves the gap as it is (out = v ± v²/2
    at v = 1 with the same output)."""
    gaps = []
    for sign in (1.0, -1.0):
        output = ("out", ("v",), lambda h, s=sign: 2 * h + s * (h - 1) ** 2)
        e = first_example(scalar_nodes([copy("v", "input"), output], [1.0], square=True))
        tensor = e.tensor["v", "v"]
        gauss_newton = e.gauss_newton["v", "v"]
        gaps.append(float(tensor.norm() / gauss_newton.norm()))
    return Outcome(abs(gaps[0] - gaps[1]) / gaps[0], instances=2)


@CHECKS.clause("dag.single_node")
def single_node() -> Errors:
    """Abstract: with one node, D^T ∇²ℓ D + the pure parametric term is the Hessian in its
    parameters."""
    for seed in range(3):
        torch.manual_seed(seed)
        first = nn.Linear(2, 3)
        last = nn.Linear(3, 2)
        layers = nn.Sequential(first, nn.Tanh(), last)
        x = torch.randn(1, 2, dtype=torch.float64)
        dag = Dag([Node("out", ("input",), layers.double())])
        case = Instance("one node", dag, x, torch.tensor([0]))
        e = first_example(case)
        own = parametric(e)["out"]
        found = own.d.T @ e.base @ own.d + own.own
        yield relative_error(found, parameter_blocks(case)["out", "out"])
