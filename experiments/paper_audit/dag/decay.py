"""DAG paper, Theorems 25 and 77: how the norm of a block falls with the distance of its nodes."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import attack, exists, worst
from experiments.paper_audit.dag.graphs import GRAPHS, Linear
from experiments.paper_audit.dag.networks import Instance, chain, piecewise_linear, residual, smooth
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.formula import Entry, Outcome, Witness, needs


def theorem_25() -> Outcome:
    """R(v_i,v_j) / (‖H[v_j,v_j]‖_F ‖J_j ... J_{i+1}‖₂) − 1 of single examples, over chains."""

    def violation(case: Instance) -> float:
        found = [-1.0]
        for e in examples(case):
            for v, w in itertools.combinations(case.dag.order, 2):
                bound = e.blocks[w, w].norm() * torch.linalg.matrix_norm(e.total[w, v], 2)
                found.append(float(e.blocks[v, w].norm() / bound.clamp_min(1e-300)) - 1)
        return max(found)

    return worst(
        (chain(0), chain(1, nn.ReLU), chain(2, nn.GELU, norm=True), residual(3), residual(4, nn.Tanh)), violation
    )


def lyapunov_identity() -> Outcome:
    """Eq. 8: ‖Π‖₂ = exp((j − i) λ) with λ = log‖Π‖₂ / (j − i); and C_L = ‖∇²ℓ‖_F for every activation."""
    errors = []
    for case in (chain(0), chain(1, nn.ReLU)):
        e = examples(case)[0]
        for (a, v), (b, w) in itertools.combinations(enumerate(case.dag.order), 2):
            norm = float(torch.linalg.matrix_norm(e.total[w, v], 2))
            exponent = math.log(norm) / (b - a)
            errors.append(abs(math.exp((b - a) * exponent) / norm - 1))
        errors.append(abs(float(e.blocks["out", "out"].norm() / e.base.norm()) - 1))
    return Outcome(max(errors), instances=len(errors))


def _decay_excess(edges: Any, target: float, z: Tensor) -> float:
    return Linear(edges, z, target).decay_excess()


def decay(target: float) -> Outcome:
    """R^GN(v,w) / (‖∇²ℓ‖_F (s rho)^dist) − 1 on linear graphs with s rho = target, attacked."""
    found = []
    for graph in GRAPHS:
        for seed in range(3):
            found.append(attack(partial(_decay_excess, graph, target), Linear.start(graph, seed), 60)[0])
    return Outcome(max(found), instances=60 * len(found))


def children_sum() -> Outcome:
    """Theorem 77, proof: H^GN[v,w] = Σ_u D_uvᵀ H^GN[u,w] for arbitrary w and v ≠ out."""
    errors = []
    for case in (*smooth(), *piecewise_linear()):
        e = examples(case)[0]
        blocks = e.gauss_newton(case.dag.output)
        for v, w in itertools.product(case.dag.order[:-1], case.dag.order):
            found = torch.stack([e.jacobian[u, v].T @ blocks[u, w] for u in case.dag.children[v]]).sum(0)
            size = float(max(b.abs().max() for b in blocks.values()))
            errors.append(float((found - blocks[v, w]).abs().max()) / size)
    return Outcome(max(errors), instances=len(errors))


def looser() -> Outcome:
    """Remark 27: bound (9) over bound (10) for GN blocks of a chain with s = 1 and rho <= 1, less 1."""

    def excess(z: Tensor) -> float:
        graph = Linear(GRAPHS[0], z, 0.95)
        blocks, values = graph.blocks(), []
        for v, w in itertools.combinations(graph.order, 2):
            nine = float(blocks[w, w].norm() * torch.linalg.matrix_norm(graph.total(w, v), 2))
            values.append(nine / (float(graph.base.norm()) * 0.95 ** graph.distance(v, w)) - 1)
        return max(values)

    return Outcome(max(attack(excess, Linear.start(GRAPHS[0], k), 60)[0] for k in range(3)), instances=180)


def arithmetic() -> Outcome:
    """Remark 27 and Section 5.1: rho^8 ≈ 780 at rho = 2.6 (2.59 in Table 2); corrected: rho^7."""
    printed, right = abs(2.6**8 / 780 - 1), abs(2.59**7 / 780 - 1)
    witness = Witness("2.6⁸", "≈ 780", "2.59⁷ = 782", f"{2.6**8:.0f}")
    return Outcome(printed, right, 1, witness, tolerance=0.05)


def lyapunov_at_init() -> Outcome:
    """Section 7: lambda_1 < 0 at initialization? Eq. 8 on ReLU chains of width 64 with He initialization, its least
    value over depths and seeds; corrected: QR steps from Q = I give the growth of one vector, (1/L) log |J ... e_1|."""
    values, errors = [], []
    for depth, seed in itertools.product((8, 10, 12), range(3)):
        generator = torch.Generator().manual_seed(seed)
        h = torch.randn(64, generator=generator, dtype=torch.float64)
        product = q = torch.eye(64, dtype=torch.float64)
        logs = 0.0
        for _ in range(depth):
            w = torch.randn(64, 64, generator=generator, dtype=torch.float64) * math.sqrt(2 / 64)
            jacobian = (w @ h > 0).double()[:, None] * w
            h, product = torch.relu(w @ h), jacobian @ product
            q, r = torch.linalg.qr(jacobian @ q)
            logs += math.log(abs(float(r[0, 0])))
        values.append(math.log(float(torch.linalg.matrix_norm(product, 2))) / depth)
        errors.append(abs(logs - math.log(float(product[:, 0].norm()))) / depth)
    witness = Witness(
        "‖J_8···J_1‖₂ ≈ 5 of Section 5.1 in Eq. 8", "λ_1 ≈ −0.02", "ln(5)/8 = 0.20", f"{math.log(5) / 8:.4f}"
    )
    return Outcome(max(min(values), 0.0), max(errors), len(values), witness)


def not_necessary() -> Outcome:
    """Remark 30: s rho < 1 is not necessary: J alternates diag(2, 1/8) and diag(1/8, 2): rho = 2, R decays as 2^-L."""
    a, b = (torch.diag(torch.tensor(v).double()) for v in ([2.0, 0.125], [0.125, 2.0]))
    sizes = [float(torch.linalg.matrix_norm(torch.linalg.matrix_power(a @ b, k), 2)) for k in (1, 4)]
    return exists("alternating diag(2, 1/8)", 1 - sizes[1] / sizes[0], "decay is wanted")


def threshold() -> Outcome:
    """Corollary 28: blocks with dist > ⌈log eps / log(s rho)⌉ are below eps ‖∇²ℓ‖_F, attacked on a chain of 8."""
    found = []
    for target, eps in ((0.5, 0.1), (0.3, 0.2)):
        limit = math.ceil(math.log(eps) / math.log(target))

        def excess(z: Tensor, target: float = target, eps: float = eps, limit: int = limit) -> float:
            graph = Linear(GRAPHS[-1], z, target)
            far = [float(b.norm()) for (v, w), b in graph.blocks().items() if graph.distance(v, w) > limit]
            return max(far) / (eps * float(graph.base.norm())) - 1

        found.append(attack(excess, Linear.start(GRAPHS[-1], 0), 40)[0])
    return Outcome(max(found), instances=80)


CHECKS: dict[str, Entry] = {
    "dag.thm25": theorem_25,
    "dag.thm25.exponent": lyapunov_identity,
    "dag.thm77": needs(lambda: decay(0.9), ("s rho < 1", lambda: decay(2.5))),
    "dag.thm77.proof": children_sum,
    "dag.remark27": looser,
    "dag.remark27.number": arithmetic,
    "dag.lambda1": lyapunov_at_init,
    "dag.cor29": threshold,
    "dag.remark30": not_necessary,
    "dag.cor28": threshold,
}
