"""DAG paper, Appendices M, I and J: the attention block, HVP and complexity counts."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.paper_audit.checks import Entry, Outcome, Witness, equality, relative_error, worst
from experiments.paper_audit.dag.instances import Instance, attention, linear_chain, smooth
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.tensors import gauss, real, seeded
from runner.curvature import Dag, Node


def softmax_second(z: Tensor) -> Tensor:
    """M.2 for all i, j, k."""
    s, eye = torch.softmax(z, 0), torch.eye(len(z), dtype=z.dtype)
    found = torch.einsum("ij,ik->ijk", eye, eye) - torch.einsum("ij,k->ijk", eye, s)
    found = (
        found - torch.einsum("ik,j->ijk", eye, s) - torch.einsum("jk,j->jk", eye, s).unsqueeze(0)
    )
    return s[:, None, None] * (found + 2 * s[None, :, None] * s[None, None, :])


def logits() -> list[Tensor]:
    return [gauss(seeded(n), n) for n in (2, 3, 4, 7)]


def soft(z: Tensor) -> Tensor:
    return torch.softmax(z, 0)


def softmax_first() -> Outcome:
    return equality(
        logits(),
        torch.func.jacrev(soft),
        lambda z: torch.diag(soft(z)) - torch.outer(soft(z), soft(z)),
    )


def softmax_dense() -> Outcome:
    """Remark 101: S and T dense since all σ_i > 0? n = 2 with equal logits: T = 0; corrected: generically dense."""
    z = torch.zeros(2, dtype=torch.float64)
    second = torch.func.hessian(soft)(z)
    generic = [
        torch.func.hessian(soft)(w).abs().min() / torch.func.hessian(soft)(w).abs().max()
        for w in logits()
    ]
    generic += [torch.func.jacrev(soft)(w).abs().min() for w in logits()]
    witness = Witness(
        "two equal logits, σ = (1/2, 1/2): T_σ;z",
        "dense",
        "dense for other logits",
        f"largest entry {float(second.abs().max()):g}",
    )
    return Outcome(
        1.0 if float(second.abs().max()) < 1e-12 else 0.0,
        0.0 if float(min(generic)) > 1e-6 else 1.0,
        5,
        witness,
    )


def positions(block: Tensor, tokens: int, width: int) -> Tensor:
    """Norms of the token-by-token sub-blocks."""
    return block.view(tokens, width, tokens, width).permute(0, 2, 1, 3).flatten(2).norm(dim=2)


def dense(pair: tuple[str, str]) -> Outcome:
    """1 if a token pair's sub-block vanishes, over sizes; also counts n² non-zero pairs (Remark 103.3)."""

    def empty(size: tuple[int, int]) -> float:
        tokens, width = size
        found = positions(examples(attention(tokens, tokens, width))[0].blocks[pair], tokens, width)
        return float(int((found > 1e-12 * found.max()).sum()) != tokens**2)

    return worst(((2, 2), (3, 2), (4, 3), (5, 1)), empty)


def products() -> Outcome:
    """Proposition 102.1: H[q,v] from first derivatives: O = A V is bilinear, so H[v,v] has no tensor part, and H[q,v]
    = J_q^T d2 loss J_v + the derivative of A contracted with delta."""
    errors = []
    for seed in range(3):
        e = examples(attention(seed))[0]
        errors.append(relative_error(e.gauss_newton("out")["v", "v"], e.blocks["v", "v"]))
        found = e.total["out", "q"].T @ e.base @ e.total["out", "v"] + e.curvature["out"]["q", "v"]
        errors.append(relative_error(found, e.blocks["q", "v"]))
    return Outcome(max(errors), instances=3)


def mixed_norms(seed: int, tokens: int, width: int) -> tuple[float, float, float]:
    """‖H^T‖_F of (q,k), (q,v) and (k,v) in one attention block: weights N(0, 1/width), inputs and targets N(0, 1)."""
    generator = seeded(seed)
    x, y = gauss(generator, 2, tokens, width)
    weights = gauss(generator, 3, width, width) / width**0.5
    start = (x @ weights).flatten()

    def output(flat: Tensor) -> Tensor:
        q, k, v = flat.view(3, tokens, width)
        return torch.softmax(q @ k.T / width**0.5, 1) @ v

    residual = output(start) - y
    tensor = torch.func.hessian(lambda flat: (residual * output(flat)).sum())(start).view(
        3, x.numel(), 3, x.numel()
    )
    q_k, q_v, k_v = (float(tensor[a, :, b].norm()) for a, b in ((0, 1), (0, 2), (1, 2)))
    return q_k, q_v, k_v


def main_source() -> Outcome:
    """Proposition 102.2: the largest tensor norm of (q,v) or (k,v) over that of (q,k), and how often (q,k) is first."""
    found = {
        size: [mixed_norms(seed, *size) for seed in range(draws)]
        for size, draws in (((3, 2), 60), ((8, 16), 12))
    }
    first = {size: sum(q_k >= max(rest) for q_k, *rest in norms) for size, norms in found.items()}
    witness = Witness(
        "Gaussian weights, inputs and targets, 3 tokens of width 2",
        "(q,k) has the largest H^T",
        "",
        f"in {first[3, 2]} of 60 (in {first[8, 16]} of 12 at 8 tokens of width 16)",
    )
    return Outcome(max(max(rest) / q_k for q_k, *rest in found[3, 2]) - 1, None, 72, witness)


def two_heads() -> Outcome:
    """M.4, 'reduces to block diagonalization by heads': H of (q of head 1, q of head 2); corrected: T of the
    concatenated output is block diagonal."""
    torch.manual_seed(0)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(1, 2), 2) @ v

    mix = torch.randn(4, 4, dtype=torch.float64)
    names = [f"{letter}{h}" for h in (1, 2) for letter in "qkv"]
    nodes = [Node(name, ("input",), nn.Linear(2, 2, bias=False).double()) for name in names]
    heads = lambda a, b, c, d, e, f: torch.cat([attend(a, b, c), attend(d, e, f)], 2) @ mix  # noqa: E731
    dag = Dag([*nodes, Node("out", tuple(names), heads)], loss="mse")
    x = torch.randn(1, 3, 2, dtype=torch.float64)
    example = examples(Instance("two heads", dag, x, torch.randn(1, 3, 4, dtype=torch.float64)))[0]
    cross = float(example.blocks["q1", "q2"].norm() / example.blocks["q1", "q1"].norm())
    local = float(
        example.curvature["out"]["q1", "q2"].norm() / example.curvature["out"]["q1", "q1"].norm()
    )
    witness = Witness(
        "two heads and an output projection: ‖H[q1,q2]‖ / ‖H[q1,q1]‖",
        "0",
        "0 for T",
        f"{cross:.3g}",
    )
    return Outcome(cross, local, 1, witness)


def flops(width: int) -> tuple[float, float]:
    """Floating-point operations of a backward pass and of an HVP of a fully connected network of this width."""
    torch.manual_seed(0)
    net = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(width, width), nn.Tanh())))
    x, parameters = torch.randn(8, width), list(net.parameters())
    counts = []
    for twice in (False, True):
        with FlopCounterMode(display=False) as counter:
            grads = torch.autograd.grad(net(x).square().sum(), parameters, create_graph=twice)
            if twice:
                torch.autograd.grad(torch.stack([g.sum() for g in grads]).sum(), parameters)
        counts.append(float(counter.get_total_flops()))
    return counts[0], counts[1]


def hvp_cost() -> Outcome:
    """Corollary 21, Eq. I.1: HVP over gradient, the same multiple (at most 4) at every width; both linear in P."""
    ratios = [(lambda f: f[1] / f[0])(flops(width)) for width in (8, 32, 128)]
    linear = flops(128)[1] / flops(32)[1] / 16 - 1
    return Outcome(
        max(max(ratios) / 4 - 1, max(ratios) - min(ratios) - 0.01, abs(linear) - 0.01), instances=3
    )


def propagated() -> Outcome:
    """Definition 20: Σ_w H[v,w] r_w with r propagated by Eq. 6, against the derivative of δ_v along e_in = r.

    Corrected: with r_w the increments e_w themselves (nothing propagated).
    """
    wrong, right, witness = 0.0, 0.0, None
    for case in (linear_chain(), *smooth()[:3]):
        e, order = examples(case)[0], case.dag.order
        first = order[0]
        r = torch.ones(len(e.delta[first]), dtype=torch.float64)
        moved = {w: e.total[w, first] @ r for w in order if (w, first) in e.total}
        truth = e.blocks[first, first] @ r
        found = torch.stack([e.blocks[first, w] @ moved[w] for w in moved]).sum(0)
        wrong = max(wrong, relative_error(found, truth))
        free = torch.stack(
            [
                e.blocks[first, w] @ (r if w == first else torch.zeros(len(e.delta[w])).double())
                for w in order
            ]
        ).sum(0)
        right = max(right, relative_error(free, truth))
        witness = witness or Witness(
            f"{case}, r = 1 at v: HVP at v",
            f"{float(found):g} (each node counts once more)",
            f"{float(free):g}",
            f"{float(truth):g}",
        )
    return Outcome(wrong, right, 4, witness)


def pair_count() -> Outcome:
    """Proposition 89, proof: pairs with non-empty Ch(v) ∪ Ch(w) are at most O(ns)? a chain of n = 100, s = 2."""
    n = 100
    pairs = n * n - 1  # all but (out, out)
    witness = Witness(
        "a chain of 100 nodes, s = 2: pairs (v, w) with a child",
        "at most O(n s), 200",
        "n² − 1",
        str(pairs),
    )
    return Outcome(
        pairs / (n * 2) - 1,
        0.0
        if pairs
        == sum(1 for v, w in itertools.product(range(n), repeat=2) if (v, w) != (n - 1, n - 1))
        else 1.0,
        1,
        witness,
    )


def radius_count() -> Outcome:
    """Definition 79: pairs within distance k on a chain of n nodes, over n (2k + 1)."""
    found = [
        sum(abs(a - b) <= k for a, b in itertools.product(range(n), repeat=2)) / (n * (2 * k + 1))
        - 1
        for n, k in ((10, 2), (50, 5))
    ]
    return Outcome(max(found), instances=2)


def batch_norm() -> Outcome:
    """Theorem 87, batch normalisation: the node function and its Jacobians in γ and β."""
    x = gauss(seeded(0), 6, 3)
    module = nn.BatchNorm1d(3, eps=1e-5).double()
    mean, var = x.mean(0), x.var(0, correction=0)
    found = 1.3 * (x - mean) / (var + 1e-5).sqrt() + 0.2
    with torch.no_grad():
        module.weight.fill_(1.3)
        module.bias.fill_(0.2)
    return Outcome(relative_error(found, module(x).detach()))


def reparametrised() -> Outcome:
    """Remark 88: with f = μ + σ ε the Hessian of E[L] is the mean of the Hessians, over a finite noise."""
    noise = gauss(seeded(0), 5)

    def loss(p: Tensor, eps: Tensor) -> Tensor:
        return torch.log1p(torch.exp(p[0] + p[1] * eps)) ** 2

    p = real([0.3, 0.7])
    whole = torch.func.hessian(lambda q: torch.stack([loss(q, e) for e in noise]).mean())(p)
    parts = torch.stack([torch.func.hessian(loss)(p, e) for e in noise]).mean(0)
    return Outcome(relative_error(parts, whole), instances=5)


def at_zero_residual() -> Outcome:
    """Example 37: attention of two tokens, loss |O − Y|²/2: H^T[Q, K] at Y = O; corrected: linear in O − Y."""
    generator = seeded(0)
    q, k, v, y = gauss(generator, 4, 2, 1).unbind(0)

    def output(a: Tensor, b: Tensor) -> Tensor:
        return torch.softmax(a @ b.T, 1) @ v

    def tensor_part(residual: Tensor) -> Tensor:
        def projected(a: Tensor, b: Tensor) -> Tensor:
            return (residual * output(a, b)).sum()

        return torch.func.jacfwd(torch.func.grad(projected), argnums=1)(q, k)

    sizes = [float(tensor_part(s * (output(q, k) - y)).norm()) for s in (0.0, 1.0, 2.0)]
    where = "attention of two tokens, width 1, |O − Y|²/2 at Y = O: ‖H^T[Q, K]‖"
    witness = Witness(
        where, "not 0", "linear in O − Y", f"{sizes[0]:g}; {sizes[1]:.3g} for a random Y"
    )
    return Outcome(
        1.0 if sizes[0] == 0 < sizes[1] else 0.0, abs(sizes[2] / sizes[1] - 2), 3, witness
    )


CHECKS: dict[str, Entry] = {
    "dag.m1": softmax_first,
    "dag.m2": lambda: equality(logits(), torch.func.hessian(soft), softmax_second),
    "dag.remark101": softmax_dense,
    "dag.prop102.1": lambda: dense(("q", "v")),
    "dag.prop102.2": lambda: dense(("q", "k")),
    "dag.prop102.3": lambda: dense(("k", "v")),
    "dag.example37": at_zero_residual,
    "dag.prop102.form": products,
    "dag.prop102.source": main_source,
    "dag.heads": two_heads,
    "dag.cor21": hvp_cost,
    "dag.def20": propagated,
    "dag.prop89": pair_count,
    "dag.def79": radius_count,
    "dag.thm87.bn": batch_norm,
    "dag.remark88": reparametrised,
}
