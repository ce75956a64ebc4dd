"""DAG paper, Theorems 25 and 77, Section 5.1: decay with distance."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    attack,
    exists,
    outcome_of,
    worked,
)
from experiments.paper_audit.dag.instances import (
    Instance,
    chain,
    copy,
    residual,
    scalar_nodes,
    smooth_and_piecewise_linear,
)
from experiments.paper_audit.dag.linear_graphs import GRAPHS, WIDTH, Linear, of_numbers
from experiments.paper_audit.dag.oracle import end_block, exact, examples, first_example
from experiments.paper_audit.tensors import (
    diagonal,
    gauss,
    norm_of,
    ones,
    real,
    seeded,
    spectral_norm,
    total,
    unit,
)

CHECKS = Checks()


def chains() -> tuple[Instance, ...]:
    return (
        chain(0),
        chain(1, nn.ReLU),
        chain(2, nn.GELU, norm=True),
        residual(3),
        residual(4, nn.Tanh),
    )


@CHECKS.errors("dag.thm25", chains)
def theorem_25(case: Instance) -> float:
    """R(v_i,v_j) / (‖H[v_j,v_j]‖_F ‖J_j ... J_{i+1}‖₂) − 1 of single examples, over chains."""
    excess = [-1.0]
    for e in examples(case):
        pairs = itertools.combinations(case.dag.order, 2)
        for v, w in pairs:
            bound = e.blocks[w, w].norm() * spectral_norm(e.total[w, v])
            resonance = e.blocks[v, w].norm()
            excess.append(float(resonance / bound.clamp_min(1e-300)) - 1)
    return max(excess)


@CHECKS.clause("dag.thm25.exponent")
def lyapunov_identity() -> Errors:
    """Eq. 8: ‖Π‖₂ = exp((j − i) λ) with λ = log‖Π‖₂ / (j − i); and C_L = ‖∇²ℓ‖_F for every
    activation."""
    for case in (chain(0), chain(1, nn.ReLU)):
        e = first_example(case)
        numbered = enumerate(case.dag.order)
        for (a, v), (b, w) in itertools.combinations(numbered, 2):
            norm = float(spectral_norm(e.total[w, v]))
            exponent = math.log(norm) / (b - a)
            yield abs(math.exp((b - a) * exponent) / norm - 1)
        yield abs(float(e.blocks["out", "out"].norm() / e.base.norm()) - 1)


@CHECKS.clause("dag.thm77")
def decay(target: float = 0.9) -> Outcome:
    """R^GN(v,w) / (‖∇²ℓ‖_F (s rho)^dist) − 1 on linear graphs with s rho = target, attacked."""
    found = []
    for graph in GRAPHS:
        excess = of_numbers(lambda graph: graph.decay_excess(), graph, target)
        attained = unit(WIDTH).flatten().repeat(len(graph) + 1)  # by chains
        starts = (attained, Linear.start(graph, 0), Linear.start(graph, 1))
        for start in starts:
            found.append(attack(excess, start, 60))
    return outcome_of(found, instances=60 * len(found))


CHECKS.without["dag.thm77", "s rho < 1"] = lambda: decay(2.5)


@CHECKS.clause("dag.thm77.proof")
def children_sum() -> Errors:
    """Theorem 77, proof: H^GN[v,w] = Σ_u D_uvᵀ H^GN[u,w] for arbitrary w and v ≠ out."""
    for case in smooth_and_piecewise_linear():
        e = first_example(case)
        blocks = e.gauss_newton
        size = float(max(block.abs().max() for block in blocks.values()))
        order = case.dag.order
        pairs = itertools.product(order[:-1], order)
        for v, w in pairs:
            found = total(e.jacobian[u, v].T @ blocks[u, w] for u in case.dag.children[v])
            yield float((found - blocks[v, w]).abs().max()) / size


@CHECKS.clause("dag.remark27")
def looser() -> Outcome:
    """Remark 27: bound (9) over bound (10) for GN blocks of a chain with s = 1 and rho <= 1, less
    1."""

    def excess(z: Tensor) -> float:
        graph = Linear(GRAPHS[0], z, 0.95)
        blocks = graph.blocks()
        size = norm_of(graph.base)
        values = []
        for v, w in itertools.combinations(graph.order, 2):
            nine = float(blocks[w, w].norm() * spectral_norm(graph.total(w, v)))
            ten = size * 0.95 ** graph.distance(v, w)
            values.append(nine / ten - 1)
        return max(values)

    found = [attack(excess, Linear.start(GRAPHS[0], k), 60) for k in range(3)]
    return outcome_of(found, instances=180)


@CHECKS.clause("dag.remark27.number")
def arithmetic() -> Outcome:
    """Remark 27 and Section 5.1: rho^8 ≈ 780 at rho = 2.6 (2.59 in Table 2); corrected: rho^7."""
    printed = abs(2.6**8 / 780 - 1)
    right = abs(2.59**7 / 780 - 1)
    witness = worked("2.6⁸", "≈ 780", "2.59⁷ = 782", f"{2.6**8:.0f}")
    return Outcome(printed, right, 1, witness, tolerance=0.05)


def exponents(depth: int, seed: int) -> tuple[float, float]:
    """Eq. 8 on a ReLU chain of width 64 with He initialization; how far the first exponent of QR
    steps is from the growth of one vector."""
    generator = seeded(seed)
    h = gauss(generator, 64)
    product = q = unit(64)
    logs = 0.0
    for _ in range(depth):
        w = gauss(generator, 64, 64) * math.sqrt(2 / 64)
        active = (w @ h > 0).double()
        jacobian = active[:, None] * w
        h = torch.relu(w @ h)
        product = jacobian @ product
        q, r = torch.linalg.qr(jacobian @ q)
        logs += math.log(abs(float(r[0, 0])))
    growth = math.log(norm_of(product[:, 0]))
    exponent = math.log(float(spectral_norm(product))) / depth
    return exponent, abs(logs - growth) / depth


@CHECKS.clause("dag.lambda1")
def lyapunov_at_init() -> Outcome:
    """Section 7: lambda_1 < 0 at initialization? Eq. 8 on ReLU chains of width 64 with He
    initialization, its least value over depths and seeds; corrected: QR steps from Q = I give the
    growth of one vector, (1/L) log |J ... e_1|."""
    found = [exponents(depth, seed) for depth in (8, 10, 12) for seed in range(3)]
    values, errors = zip(*found, strict=True)
    witness = worked(
        "‖J_8···J_1‖₂ ≈ 5 of Section 5.1 in Eq. 8",
        "λ_1 ≈ −0.02",
        "ln(5)/8 = 0.20",
        f"{math.log(5) / 8:.4f}",
    )
    least = max(min(values), 0.0)
    return Outcome(least, max(errors), len(values), witness)


@CHECKS.clause("dag.remark30")
def not_necessary() -> Outcome:
    """Remark 30: s rho < 1 is not necessary: J alternates diag(2, 1/8) and diag(1/8, 2): rho = 2, R
    decays as 2^-L."""
    first = diagonal(0.125, 2.0)
    second = diagonal(2.0, 0.125)
    layers = [lambda h: first @ h, lambda h: second @ h]
    start = ones(2)
    near = float(spectral_norm(end_block(layers, start)))
    far = float(spectral_norm(end_block(layers * 4, start)))
    return exists("alternating diag(2, 1/8)", 1 - far / near, "decay is wanted")


@CHECKS.clause("dag.cor28")
def threshold() -> Outcome:
    """Corollary 28: blocks with dist > ⌈log eps / log(s rho)⌉ are below eps ‖∇²ℓ‖_F, attacked on a
    chain of 8."""

    def excess(z: Tensor, target: float, eps: float) -> float:
        limit = math.ceil(math.log(eps) / math.log(target))
        graph = Linear(GRAPHS[-1], z, target)
        far = []
        for (v, w), block in graph.blocks().items():
            if graph.distance(v, w) > limit:
                far.append(norm_of(block))
        bound = eps * norm_of(graph.base)
        return max(far) / bound - 1

    start = Linear.start(GRAPHS[-1], 0)
    first = attack(lambda z: excess(z, 0.5, 0.1), start, 40)
    second = attack(lambda z: excess(z, 0.3, 0.2), start, 40)
    return Outcome(max(first, second), instances=80)


@CHECKS.clause("dag.remark38")
def mean_of_norms() -> Outcome:
    """Remark 38: R(d) as the mean of norms cannot fall by cancellation; the norm of the mean can
    (and is measured)."""
    nodes = [copy("v", "input"), ("out", ("v",), lambda v: v.square() / 2)]
    case = scalar_nodes(nodes, [1.0], square=True)
    signs = real([[1.0], [-1.0]])
    blocks = exact(replace(case, x=signs, y=signs))["v", "out"]
    of_norms = float(blocks.flatten(1).norm(dim=1).mean())
    norm = norm_of(blocks.mean(0))
    witness = worked(
        "v = x, out = v²/2, loss = out²/2, examples x = 1 and x = −1: block (v, out) = x",
        f"mean of norms {of_norms:.4g}",
        f"norm of the mean {norm:.4g}",
        "cancellation lowers the second only",
    )
    share = norm / of_norms
    return Outcome(1 - share, max(0.0, share - 1), 1, witness)
