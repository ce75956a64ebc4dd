"""DAG paper, Section 3.3 and Appendix M: the attention block."""

from __future__ import annotations

import torch
from torch import Tensor, diag, outer
from torch.func import grad, hessian, jacfwd, jacrev

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    matches,
    relative_error,
    worked,
    worst,
)
from experiments.paper_audit.dag.instances import Instance, attention, projection
from experiments.paper_audit.dag.oracle import Blocks, first_example
from experiments.paper_audit.tensors import gauss, norm_of, seeded, unit, zeros
from runner.curvature import Dag, Node

CHECKS = Checks()


def soft(z: Tensor) -> Tensor:
    return torch.softmax(z, 0)


def logits() -> list[Tensor]:
    return [gauss(seeded(n), n) for n in (2, 3, 4, 7)]


def softmax_first(z: Tensor) -> Tensor:
    """M.1."""
    s = soft(z)
    return diag(s) - outer(s, s)


def softmax_second(z: Tensor) -> Tensor:
    """M.2 for all i, j, k."""
    s = soft(z)
    eye = unit(len(z))
    found = torch.einsum("ij,ik->ijk", eye, eye)
    found = found - torch.einsum("ij,k->ijk", eye, s)
    found = found - torch.einsum("ik,j->ijk", eye, s)
    same_index = torch.einsum("jk,j->jk", eye, s)
    found = found - same_index.unsqueeze(0)
    return s[:, None, None] * (found + 2 * s[None, :, None] * s[None, None, :])


CHECKS["dag.m1"] = matches(logits, jacrev(soft), softmax_first)
CHECKS["dag.m2"] = matches(logits, hessian(soft), softmax_second)


@CHECKS.clause("dag.remark101")
def softmax_dense() -> Outcome:
    """Remark 101: S and T dense since all σ_i > 0? n = 2 with equal logits: T = 0; corrected:
    generically dense."""
    second = hessian(soft)(zeros(2))
    largest = float(second.abs().max())
    generic = []
    for z in logits():
        entries = hessian(soft)(z).abs()
        smallest_share = entries.min() / entries.max()
        generic.append(float(smallest_share))
        first = jacrev(soft)(z).abs()
        generic.append(float(first.min()))
    witness = worked(
        "two equal logits, σ = (1/2, 1/2): T_σ;z",
        "dense",
        "dense for other logits",
        f"largest entry {largest:g}",
    )
    vanishes = float(largest < 1e-12)
    not_dense = float(min(generic) <= 1e-6)
    return Outcome(vanishes, not_dense, 5, witness)


def empty_token_pairs(size: tuple[int, int], v: str, w: str) -> float:
    """1 if the sub-block of H[v,w] of a pair of tokens vanishes."""
    tokens, width = size
    e = first_example(attention(tokens, tokens, width))
    block = e.blocks[v, w]
    by_tokens = block.view(tokens, width, tokens, width)
    norms = by_tokens.norm(dim=(1, 3))
    is_present = norms > 1e-12 * norms.max()
    present = int(is_present.sum())
    return float(present != tokens**2)


def dense(v: str, w: str) -> Outcome:
    """Proposition 102 and Remark 103.3, over sizes: n² pairs of tokens."""
    sizes = ((2, 2), (3, 2), (4, 3), (5, 1))
    return worst(sizes, lambda size: empty_token_pairs(size, v, w))


CHECKS["dag.prop102.1"] = lambda: dense("q", "v")
CHECKS["dag.prop102.2"] = lambda: dense("q", "k")
CHECKS["dag.prop102.3"] = lambda: dense("k", "v")


@CHECKS.clause("dag.prop102.form", instances=3)
def products() -> Errors:
    """Proposition 102.1: H[q,v] from first derivatives: O = A V is bilinear, so H[v,v] has no
    tensor part, and H[q,v] = J_q^T d2 loss J_v + the derivative of A contracted with delta."""
    for seed in range(3):
        e = first_example(attention(seed))
        gauss_newton = e.gauss_newton["v", "v"]
        yield relative_error(gauss_newton, e.blocks["v", "v"])
        by_q = e.total["out", "q"]
        by_v = e.total["out", "v"]
        first_term = by_q.T @ e.base @ by_v
        mixed_term = e.curvature["out"]["q", "v"]
        yield relative_error(first_term + mixed_term, e.blocks["q", "v"])


def mixed_norms(seed: int, tokens: int, width: int) -> tuple[float, float, float]:
    """‖H^T‖_F of (q,k), (q,v) and (k,v) in one attention block: weights N(0, 1/width), inputs and
    targets N(0, 1)."""
    generator = seeded(seed)
    x, y = gauss(generator, 2, tokens, width)
    weights = gauss(generator, 3, width, width) / width**0.5
    start = (x @ weights).flatten()

    def output(flat: Tensor) -> Tensor:
        q, k, v = flat.view(3, tokens, width)
        scores = q @ k.T / width**0.5
        return torch.softmax(scores, 1) @ v

    residual = output(start) - y
    matrix = hessian(lambda flat: (residual * output(flat)).sum())(start)
    tensor = matrix.view(3, x.numel(), 3, x.numel())
    q_k = norm_of(tensor[0, :, 1])
    q_v = norm_of(tensor[0, :, 2])
    k_v = norm_of(tensor[1, :, 2])
    return q_k, q_v, k_v


def times_first(norms: list[tuple[float, float, float]]) -> int:
    """In how many networks (q,k) has the largest norm."""
    return sum(q_k >= max(q_v, k_v) for q_k, q_v, k_v in norms)


@CHECKS.clause("dag.prop102.source")
def main_source() -> Outcome:
    """Proposition 102.2: the largest tensor norm of (q,v) or (k,v) over that of (q,k), and how
    often (q,k) is first."""
    small = [mixed_norms(seed, 3, 2) for seed in range(60)]
    large = [mixed_norms(seed, 8, 16) for seed in range(12)]
    witness = worked(
        "Gaussian weights, inputs and targets, 3 tokens of width 2",
        "(q,k) has the largest H^T",
        "",
        f"in {times_first(small)} of 60 (in {times_first(large)} of 12 at 8 tokens of width 16)",
    )
    ratio = max(max(q_v, k_v) / q_k for q_k, q_v, k_v in small)
    return Outcome(ratio - 1, None, 72, witness)


def two_head_network() -> Instance:
    """Two heads of width 2 over three tokens, and an output projection."""
    torch.manual_seed(0)
    mix = torch.randn(4, 4, dtype=torch.float64)
    names = ("q1", "k1", "v1", "q2", "k2", "v2")
    nodes = [projection(name, 2) for name in names]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(1, 2)
        return torch.softmax(scores, 2) @ v

    def project(*parts: Tensor) -> Tensor:
        first = attend(*parts[:3])
        second = attend(*parts[3:])
        heads = [first, second]
        return torch.cat(heads, 2) @ mix

    output = Node("out", names, project)
    dag = Dag([*nodes, output], loss="mse")
    x = torch.randn(1, 3, 2, dtype=torch.float64)
    y = torch.randn(1, 3, 4, dtype=torch.float64)
    return Instance("two heads", dag, x, y)


def mixed_over_own(blocks: Blocks) -> float:
    """‖block of the queries of both heads‖ / ‖that of the first head's alone‖."""
    mixed = blocks["q1", "q2"].norm()
    own = blocks["q1", "q1"].norm()
    return float(mixed / own)


@CHECKS.clause("dag.heads")
def two_heads() -> Outcome:
    """M.4, 'reduces to block diagonalization by heads': H of (q of head 1, q of head 2); corrected:
    T of the concatenated output is block diagonal."""
    e = first_example(two_head_network())
    curvature = e.curvature["out"]
    cross = mixed_over_own(e.blocks)
    local = mixed_over_own(curvature)
    where = "two heads and an output projection: ‖H[q1,q2]‖ / ‖H[q1,q1]‖"
    witness = worked(where, "0", "0 for T", f"{cross:.3g}")
    return Outcome(cross, local, 1, witness)


@CHECKS.clause("dag.example37")
def at_zero_residual() -> Outcome:
    """Example 37: attention of two tokens, loss |O − Y|²/2: H^T[Q, K] at Y = O; corrected: linear
    in O − Y."""
    q, k, v, y = gauss(seeded(0), 4, 2, 1)

    def output(a: Tensor, b: Tensor) -> Tensor:
        return torch.softmax(a @ b.T, 1) @ v

    def tensor_norm(residual: Tensor) -> float:
        projected = grad(lambda a, b: (residual * output(a, b)).sum())
        mixed = jacfwd(projected, argnums=1)(q, k)
        return norm_of(mixed)

    residual = output(q, k) - y
    none, once, twice = (tensor_norm(scale * residual) for scale in (0.0, 1.0, 2.0))
    where = "attention of two tokens, width 1, |O − Y|²/2 at Y = O: ‖H^T[Q, K]‖"
    shown = f"{none:g}; {once:.3g} for a random Y"
    witness = worked(where, "not 0", "linear in O − Y", shown)
    vanishes = float(none == 0 < once)
    nonlinear = abs(twice / once - 2)
    return Outcome(vanishes, nonlinear, 3, witness)
