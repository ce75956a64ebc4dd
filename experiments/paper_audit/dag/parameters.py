"""DAG paper, Section 3.6 and Appendix F.1: blocks in the parameters (Eq. 5), Eq. I.1, weight sharing."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.paper_audit.checks import (
    Entry,
    Outcome,
    Witness,
    attack,
    exists,
    needs,
    relative_error,
    worst,
)
from experiments.paper_audit.dag import recursion
from experiments.paper_audit.dag.instances import (
    Instance,
    chain,
    diamond,
    layer,
    piecewise_linear,
    skip,
    smooth,
)
from experiments.paper_audit.dag.oracle import (
    Blocks,
    Example,
    assembled,
    blocks_agree,
    examples,
    mean,
    parameter_blocks,
    parametric,
    stacked,
)
from experiments.paper_audit.tensors import gauss, real, seeded, spectral_norm
from runner.curvature import Dag, Node


def two_factors() -> Instance:
    """h = a x, out = b h, loss = out at x = a = b = 1: ∂²L/∂a∂b = 1."""
    h, out = nn.Linear(1, 1, bias=False).double(), nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        h.weight.fill_(1.0)
        out.weight.fill_(1.0)
    dag = Dag([Node("h", ("input",), h), Node("out", ("h",), out)], loss=lambda f, _: f.sum(1))
    one = torch.ones(1, 1, dtype=torch.float64)
    return Instance("h = a x, out = b h, loss = out, at x = a = b = 1", dag, one, one)


def instances() -> tuple[Instance, ...]:
    return (
        two_factors(),
        chain(0, widths=(2, 3, 2)),
        chain(1, nn.Tanh, norm=True, widths=(2, 3, 2)),
        diamond(2),
        skip(3),
        chain(1, nn.ReLU, widths=(2, 4, 4, 2)),
    )


def index(case: Instance, e: Example) -> int:
    return examples(case).index(e)


def routed(case: Instance, e: Example, blocks: Blocks) -> Blocks:
    """First term of Eq. 5: D_vᵀ H[v,w] D_w."""
    own = parametric(case, index(case, e))
    return {(v, w): own[v].d.T @ blocks[v, w] @ own[w].d for v in own for w in own}


def pure(case: Instance, e: Example) -> Blocks:
    """Second term: 1{v = w} Σ_i δ_v,i ∂²f_v,i/∂θ_v²."""
    own = parametric(case, index(case, e))
    return {
        (v, w): own[v].own
        if v == w
        else 0 * own[v].d.T @ torch.zeros_like(e.blocks[v, w]) @ own[w].d
        for v in own
        for w in own
    }


def third(case: Instance, e: Example, v: str, w: str) -> Tensor:
    """Third term as printed in F.1 and Algorithm 2: u over Pa(v) ∩ Ch(w) of M_v,uᵀ D_uw D_w, v ≠ w."""
    own = parametric(case, index(case, e))
    common = [
        u for u in dict.fromkeys(case.dag.nodes[v].parents) if u in case.dag.children.get(w, ())
    ]
    terms = [own[v].mixed[u].T @ e.jacobian[u, w] @ own[w].d for u in common if v != w]
    return recursion.added(terms, own[v].d.shape[1], own[w].d.shape[1])


def mixed(case: Instance, e: Example, v: str, w: str) -> Tensor:
    """Right third term, one side: Σ_{p ∈ Pa(v)} M_v,pᵀ J_pw D_w with J over all paths (identity for p = w)."""
    own = parametric(case, index(case, e))
    terms = [m.T @ e.total[p, w] @ own[w].d for p, m in own[v].mixed.items() if (p, w) in e.total]
    return recursion.added(terms, own[v].d.shape[1], own[w].d.shape[1])


def equation_5(case: Instance, e: Example, blocks: Blocks | None = None) -> Blocks:
    first, second = routed(case, e, blocks or e.blocks), pure(case, e)
    return {pair: first[pair] + second[pair] + third(case, e, *pair) for pair in first}


def two_edges(case: Instance, e: Example) -> Blocks:
    """Eq. 5 as printed, for pairs (v, w) with exactly one node between them on a chain."""
    order = case.dag.order
    whole = equation_5(case, e)
    return {(v, w): whole[v, w] for w, v in zip(order, order[2:], strict=False)}


def right_5(case: Instance, e: Example) -> Blocks:
    first, second = routed(case, e, e.blocks), pure(case, e)
    return {
        (v, w): first[v, w] + second[v, w] + mixed(case, e, v, w) + mixed(case, e, w, v).T
        for v, w in first
    }


def truth(case: Instance, e: Example) -> Blocks:
    """Of the mean loss; the same for every example, so that its batch mean is itself."""
    return parameter_blocks(case)


def product(case: Instance, e: Example, blocks: Blocks) -> Blocks:
    """[H r]_θv of a fixed random r, from blocks."""
    names = list(dict.fromkeys(v for v, _ in blocks))
    generator = seeded(0)
    ones = case.name == two_factors().name
    r = {
        v: torch.ones(blocks[v, v].shape[0], dtype=torch.float64)
        if ones
        else gauss(generator, blocks[v, v].shape[0])
        for v in names
    }
    return {
        (v, v): torch.stack([blocks[v, w] @ r[w] for w in names]).sum(0)[:, None] for v in names
    }


def i_1(case: Instance, e: Example) -> Blocks:
    """Eq. I.1 read with w' = w (D_ww' local): routed and pure terms, without mixed ones."""
    first, second = routed(case, e, e.blocks), pure(case, e)
    return product(case, e, {pair: first[pair] + second[pair] for pair in first})


def remainder(case: Instance) -> float:
    """‖H_θvθw‖_F over ‖D_v‖₂‖D_w‖₂‖H[v,w]‖_F + ‖other terms‖_F, less 1; the largest of all pairs and examples."""
    largest = -1.0
    for e in examples(case):
        own, first, whole = (
            parametric(case, index(case, e)),
            routed(case, e, e.blocks),
            right_5(case, e),
        )
        for (v, w), block in whole.items():
            scale = spectral_norm(own[v].d) * spectral_norm(own[w].d)
            bound = float(scale * e.blocks[v, w].norm() + (block - first[v, w]).norm())
            largest = max(largest, float(block.norm()) / bound - 1 if bound else -1.0)
    return largest


def without_remainder(case: Instance) -> float:
    """The same without the other terms, absolute where H[v,w] is zero."""
    largest = -1.0
    for e in examples(case):
        own, whole = parametric(case, index(case, e)), right_5(case, e)
        for (v, w), block in whole.items():
            scale = spectral_norm(own[v].d) * spectral_norm(own[w].d)
            bound = float(scale * e.blocks[v, w].norm())
            largest = max(
                largest, float(block.norm()) / bound - 1 if bound > 1e-12 else float(block.norm())
            )
    return largest


def coupling_bounds() -> Outcome:
    """‖H_θvθw‖ against C(v,w) ‖D_v‖‖D_w‖ while the loss is multiplied by 10⁴: C stays, the block grows."""
    case = chain(0, widths=(2, 3, 2))
    e, own = examples(case)[0], parametric(case, 0)
    v, w = "h1", "h2"
    coupling = float(e.blocks[v, w].norm() / (e.blocks[v, v].norm() * e.blocks[w, w].norm()).sqrt())
    scale = float(spectral_norm(own[v].d) * spectral_norm(own[w].d))
    block = 1e4 * float((own[v].d.T @ e.blocks[v, w] @ own[w].d).norm())
    witness = Witness(
        f"{case}, loss times 10⁴, first term of pair ({v}, {w})",
        f"at most {scale * coupling:.4g}",
        "R in place of C",
        f"{block:.4g}",
    )
    return Outcome(max(block / (scale * coupling) - 1, 0.0), remainder(case), 2, witness)


def pure_of_linear() -> Outcome:
    """Remark 16: second and third tensors of Eq. 5 for a linear layer; the pure one is zero, the mixed one is not."""
    case = two_factors()
    own = parametric(case, 0)["out"]
    witness = Witness(
        "f = W f_v: ∂²f/∂W²", "≠ 0", "= 0, only ∂²f/∂f_v∂W ≠ 0", f"{float(own.own.abs().max()):g}"
    )
    return Outcome(
        1.0 if float(own.own.abs().max()) == 0 else 0.0,
        0.0 if float(own.mixed["h"].abs().max()) > 0 else 1.0,
        1,
        witness,
    )


def beyond_ggn() -> Outcome:
    """Remark 16: with H^T = 0 in activations, the parametric Hessian still differs from D^T H^GN D."""
    case = chain(1, nn.ReLU, widths=(2, 4, 4, 2))
    exact, first = (
        parameter_blocks(case),
        mean(stacked([routed(case, e, e.gauss_newton("out")) for e in examples(case)])),
    )
    gap = max(float((exact[p] - first[p]).norm() / exact[p].norm().clamp_min(1e-12)) for p in exact)
    return exists("ReLU chain, all pairs", gap, "a difference is wanted")


def shared() -> Outcome:
    """Remark 49 and weight tying: sum over pairs of copies against autodiff in the shared weight."""

    def error(seed: int) -> float:
        torch.manual_seed(seed)
        cell, head = layer(3, 3, nn.SiLU), nn.Linear(3, 2).double()
        nodes = [Node(f"s{k}", ("input",) if k == 1 else (f"s{k - 1}",), cell) for k in (1, 2, 3)]
        dag = Dag([*nodes, Node("out", ("s3",), head)])
        case = Instance(
            "shared cell", dag, torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1])
        )
        named = {k: p.detach() for k, p in cell.named_parameters()}
        sizes = [p.numel() for p in named.values()]

        def loss(flat: Tensor) -> Tensor:
            own = {
                k: part.view(p.shape)
                for (k, p), part in zip(named.items(), flat.split(sizes), strict=True)
            }
            h = case.x
            for _ in range(3):
                h = functional_call(cell, own, (h,))
            return dag.loss.per_example(head(h), case.y).mean()

        exact = torch.autograd.functional.hessian(
            loss, torch.cat([p.flatten() for p in named.values()])
        )
        blocks = parameter_blocks(case)
        copies = [v for v in dag.order if v != "out"]
        return relative_error(
            torch.stack([blocks[v, w] for v in copies for w in copies]).sum(0), exact
        )

    return worst(range(3), error)


def first_terms_psd() -> Outcome:
    """Remark 96 (3): the first terms of Eqs. 2 and 5 alone give a PSD matrix (convex loss)."""

    def violation(case: Instance) -> float:
        e = examples(case)[0]
        blocks = routed(case, e, e.gauss_newton(case.dag.output))
        order = tuple(dict.fromkeys(v for v, _ in blocks))
        values = torch.linalg.eigvalsh(assembled(blocks, order))
        return float(-values[0] / values[-1])

    return worst(instances()[1:], violation)


Jacobian = torch.autograd.functional.jacobian
Hessian = torch.autograd.functional.hessian


def negative_mass(matrix: Tensor) -> float:
    """m⁻(H) of Definition 82."""
    values = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
    return float(-values[values < 0].sum())


def whole(case: Instance, part: str = "all") -> Tensor:
    """[H] or [H^GN] of the batch mean, all nodes."""
    found = [e.gauss_newton(case.dag.output) if part == "gn" else e.blocks for e in examples(case)]
    return assembled(mean(stacked(found)), case.dag.order)


def gauss_newton_mass() -> Outcome:
    return worst(
        (*smooth(), *piecewise_linear()),
        lambda c: negative_mass(whole(c, "gn")) / float(whole(c, "gn").trace()),
    )


def full_mass() -> Outcome:
    return exists(
        "smooth networks",
        max(negative_mass(whole(c)) / float(whole(c).norm()) for c in smooth()),
        "m⁻ > 0 is wanted",
    )


def only_tensor() -> Outcome:
    """m⁻(H) <= m⁻-bound ‖H^T‖_*: no negative curvature beyond what H^T carries (Weyl), and none where H^T = 0."""
    found = []
    for case in (*smooth(), *piecewise_linear()):
        h, gn = whole(case), whole(case, "gn")
        nuclear = float(torch.linalg.svdvals(h - gn).sum())
        found.append((negative_mass(h) - nuclear) / float(h.norm()))
    return Outcome(max(found), instances=len(found))


def piecewise_mass() -> Outcome:
    return worst(piecewise_linear(), lambda c: negative_mass(whole(c)) / float(whole(c).trace()))


def parameter_saddle() -> Outcome:
    """Proposition 85: negative curvature in parameters is contained in H^T of Theorem 83? A linear network at its
    saddle: L = (a b − 1)²/2 at a = b = 0. Corrected: it is contained in H − GGN."""

    def loss(p: Tensor) -> Tensor:
        return (p[0] * p[1] - 1) ** 2 / 2

    p = torch.zeros(2, dtype=torch.float64)
    hessian = Hessian(loss, p)
    inner = Jacobian(lambda q: q[0] * q[1], p)
    rest = hessian - torch.outer(inner, inner)
    lowest = float(torch.linalg.eigvalsh(hessian)[0])
    activations = 0.0  # both nodes are linear: every T is zero
    witness = Witness(
        "f = a b x, loss = (f − 1)²/2 at x = 1, a = b = 0",
        f"H^T = {activations:g}, so no negative curvature",
        "it is in H − GGN (mixed terms of Eq. 5)",
        f"smallest eigenvalue {lowest:g}",
    )
    return Outcome(-lowest, max(0.0, negative_mass(hessian) - negative_mass(rest)), 1, witness)


def escape() -> Outcome:
    """Proposition 85: at a critical point L(θ ± a v) − L(θ) = a² λ/2 + O(a³) for an eigenvector v."""

    def loss(p: Tensor) -> Tensor:
        return torch.cos(p).sum() + (p[0] * p[1] * 3).sin() * 0 + 2 * p[0] * p[1] + p.pow(4).sum()

    point = torch.zeros(3, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(Hessian(loss, point))
    errors = [float(Jacobian(loss, point).norm())]
    for value, v in zip(values, vectors.T, strict=True):
        for step in (1e-2, -1e-2):
            change = float(loss(point + step * v) - loss(point))
            errors.append(abs(change - step**2 * float(value) / 2) / 1e-6)
            if value < 0:
                errors.append(max(0.0, change))
    return Outcome(max(errors), instances=len(errors), tolerance=0.1)


def descent_sign() -> Outcome:
    """Corollary 86: the step −sign(∇L·v) v does not ascend to first order."""

    def excess(z: Tensor) -> float:
        g, v = z[:4], z[4:]
        return float(g @ (-torch.sign(g @ v) * v))

    found = max(attack(excess, gauss(seeded(k), 8))[0] for k in range(3))
    return Outcome(found, instances=240)


def dropped_tensor_part() -> Outcome:
    """Remark 13: −λ_min / λ_max of the parametric Hessian without H^T, f = a b x, loss = (f − 1)²/2 at a = b = 0, where
    H^T = 0; corrected: of the GGN at a = 0, b = 1."""
    hessian = torch.func.hessian(lambda p: (p[0] * p[1] - 1) ** 2 / 2)(
        torch.zeros(2, dtype=torch.float64)
    )
    inner = real([1.0, 0.0])
    values, right = (torch.linalg.eigvalsh(m) for m in (hessian, torch.outer(inner, inner)))
    witness = Witness(
        "f = a b x, loss = (f − 1)²/2, a = b = 0, x = 1: smallest eigenvalue without H^T",
        ">= 0",
        ">= 0 for the GGN",
        f"{float(values[0]):g}",
    )
    return Outcome(float(-values[0] / values[-1]), float(-right[0] / right[-1]), 2, witness)


def hessian_vector_product(case: Instance, r: Tensor) -> Tensor:
    """Forward over backward: the derivative along r of the gradient of the first example's loss.

    Backward over forward is the same; torch 2.13 loses terms of LayerNorm on that way.
    """
    x, y, order = case.x[:1], case.y[:1], case.dag.order
    shape = {v: f.shape for v, f in case.dag.forward(x).items()}

    def loss(flat: Tensor) -> Tensor:
        parts = flat.split([shape[v].numel() for v in order])
        return case.dag.mean_loss(
            x, y, {v: part.view(shape[v]) for v, part in zip(order, parts, strict=True)}
        )

    zero = torch.zeros_like(r)
    found: Tensor = torch.func.jvp(torch.func.grad(loss), (zero,), (r,))[1]
    return found.detach()


def split_product() -> Outcome:
    """Remark 22: an HVP by two applications of AD against H^GN r + H^T r, the latter by the recursion."""

    def error(case: Instance) -> float:
        e, order = examples(case)[0], case.dag.order
        tensor = recursion.routed(case.dag, e, torch.zeros_like(e.base))
        whole = assembled(e.gauss_newton(case.dag.output), order) + assembled(tensor, order)
        r = gauss(seeded(0), len(whole))
        return relative_error((whole @ r).detach(), hessian_vector_product(case, r))

    return worst(smooth(), error)


CHECKS: dict[str, Entry] = {
    "dag.eq5": lambda: blocks_agree(instances(), truth, equation_5, right_5),
    "dag.eq5.two_edges": lambda: blocks_agree(
        [chain(seed, act, widths=(2, 3, 2, 3)) for seed, act in enumerate((nn.Tanh, nn.SiLU))],
        truth,
        two_edges,
    ),
    "dag.i1": lambda: blocks_agree(
        instances(),
        lambda c, e: product(c, e, truth(c, e)),
        i_1,
        lambda c, e: product(c, e, right_5(c, e)),
    ),
    "dag.thm19": lambda: blocks_agree(
        instances(),
        truth,
        lambda c, e: equation_5(c, e, recursion.equation_2(c.dag, e, e.base)),
        right_5,
    ),
    "dag.remark16": beyond_ggn,
    "dag.remark16.linear": pure_of_linear,
    "dag.cor17": needs(
        lambda: worst(instances(), remainder),
        ("the remainder", lambda: worst(instances(), without_remainder)),
    ),
    "dag.cor17.coupling": coupling_bounds,
    "dag.remark49": shared,
    "dag.remark96.psd": first_terms_psd,
    "dag.thm83.gn": gauss_newton_mass,
    "dag.thm83.full": full_mass,
    "dag.thm83.only": only_tensor,
    "dag.remark84": needs(
        piecewise_mass,
        (
            "piecewise linear",
            lambda: worst(
                smooth(), lambda c: negative_mass(whole(c)) / float(whole(c).trace().abs())
            ),
        ),
    ),
    "dag.prop85": escape,
    "dag.prop85.space": parameter_saddle,
    "dag.cor86": descent_sign,
    "dag.remark13": dropped_tensor_part,
    "dag.remark22": split_product,
}
