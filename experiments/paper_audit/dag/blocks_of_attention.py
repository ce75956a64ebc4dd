"""DAG paper, Section 3.3 and Appendix M: the attention block."""

from __future__ import annotations

import torch
from torch import Tensor, diag, outer
from torch.func import hessian, jacrev

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
from experiments.paper_audit.tensors import gauss, norm_of, real, seeded, unit, zeros
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
    largest = float(hessian(soft)(zeros(2)).abs().max())
    generic = []
    for z in logits():
        entries = hessian(soft)(z).abs()
        generic.append(float(entries.min() / entries.max()))
        generic.append(float(jacrev(soft)(z).abs().min()))
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
    norms = e.blocks[v, w].view(tokens, width, tokens, width).norm(dim=(1, 3))
    present = int((norms > 1e-12 * norms.max()).sum())
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
        yield relative_error(e.gauss_newton["v", "v"], e.blocks["v", "v"])
        by_q = e.total["out", "q"]
        by_v = e.total["out", "v"]
        first_term = by_q.T @ e.base @ by_v
        mixed_term = e.curvature["out"]["q", "v"]
        yield relative_error(first_term + mixed_term, e.blocks["q", "v"])


Norms = tuple[float, float, float]


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The output of one attention block, (tokens, width)."""
    scores = q @ k.T / q.shape[1] ** 0.5
    return torch.softmax(scores, 1) @ v


def mixed_norms(q: Tensor, k: Tensor, v: Tensor, residual: Tensor) -> Norms:
    """‖H^T‖_F of (q,k), (q,v) and (k,v) in one attention block, loss |O − Y|²/2, residual O − Y."""

    def weighted_output(flat: Tensor) -> Tensor:
        queries, keys, values = flat.view(3, *q.shape)
        return (residual * attended(queries, keys, values)).sum()

    start = torch.stack([q, k, v]).flatten()
    tensor = hessian(weighted_output)(start).view(3, q.numel(), 3, q.numel())
    q_k = norm_of(tensor[0, :, 1])
    q_v = norm_of(tensor[0, :, 2])
    k_v = norm_of(tensor[1, :, 2])
    return q_k, q_v, k_v


def drawn_norms(seed: int, tokens: int, width: int) -> Norms:
    """The same with weights N(0, 1/width), inputs and targets N(0, 1)."""
    generator = seeded(seed)
    x, y = gauss(generator, 2, tokens, width)
    weights = gauss(generator, 3, width, width) / width**0.5
    q, k, v = x @ weights
    return mixed_norms(q, k, v, attended(q, k, v) - y)


def times_first(norms: list[Norms]) -> int:
    """In how many networks (q,k) has the largest norm."""
    return sum(q_k >= max(q_v, k_v) for q_k, q_v, k_v in norms)


@CHECKS.clause("dag.prop102.source")
def main_source() -> Outcome:
    """Proposition 102.2: the largest tensor norm of (q,v) or (k,v) over that of (q,k), in a block
    by hand and in random ones, and how often (q,k) is first."""
    by_hand = real([[0.0, 0.0], [2.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).unsqueeze(2)
    q, k, v, residual = by_hand
    example = mixed_norms(q, k, v, residual)
    small = [drawn_norms(seed, 3, 2) for seed in range(60)]
    large = [drawn_norms(seed, 8, 16) for seed in range(12)]
    shown = ", ".join(f"{norm:.4g}" for norm in example)
    witness = worked(
        "two tokens of width 1, q = (0, 0), k = (2, 0), v = (1, 0), O − Y = (1, 0), |O − Y|²/2: "
        "‖H^T‖ of (q,k), (q,v), (k,v)",
        "(q,k) has the largest",
        "",
        f"{shown}; with Gaussian weights, inputs and targets (q,k) is first in "
        f"{times_first(small)} of 60 blocks of 3 tokens of width 2 and in {times_first(large)} "
        "of 12 of 8 tokens of width 16",
    )
    ratio = max(max(q_v, k_v) / q_k for q_k, q_v, k_v in [example, *small])
    return Outcome(ratio - 1, None, 73, witness)


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
        return torch.cat([first, second], 2) @ mix

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
    """Example 37: attention of two tokens, q = k = v = (1, 0), loss |O − Y|²/2: H^T[Q, K] at Y = O;
    corrected: linear in O − Y."""
    one = real([[1.0], [0.0]])
    none, once, twice = (mixed_norms(one, one, one, scale * one)[0] for scale in (0.0, 1.0, 2.0))
    where = "two tokens of width 1, q = k = v = (1, 0), |O − Y|²/2: ‖H^T[Q, K]‖ at Y = O"
    shown = f"{none:g}; {once:.4g} at O − Y = (1, 0), {twice:.4g} at (2, 0)"
    witness = worked(where, "not 0", "linear in O − Y", shown)
    vanishes = float(none == 0 < once)
    nonlinear = abs(twice / once - 2)
    return Outcome(vanishes, nonlinear, 3, witness)
