"""DAG paper, Sections 3.1 to 3.4: second derivatives of nodes, and the recursions by hand and with
exact blocks."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.func import grad, jacfwd, jacrev, vmap

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    exists,
    matches,
    relative_error,
    worked,
)
from experiments.paper_audit.dag.comparison import blocks_agree, true_blocks
from experiments.paper_audit.dag.instances import (
    Instance,
    ScalarNode,
    by_hand,
    chain,
    copy,
    diamond,
    identity,
    scalar_nodes,
    skip,
    smooth_chains,
)
from experiments.paper_audit.dag.oracle import Blocks, Example, first_example, reaches
from experiments.paper_audit.dag.recursion import (
    between_children,
    everything,
    of_common_children,
    one_sided,
    right,
    summed,
)
from experiments.paper_audit.tensors import gauss, seeded, unit
from runner.curvature import Dag

CHECKS = Checks()


def related(dag: Dag) -> list[tuple[str, str]]:
    """Pairs of different nodes with a directed path from the first to the second."""
    return [pair for pair in itertools.permutations(dag.order, 2) if reaches(dag, *pair)]


def with_exact(e: Example, pairs: list[tuple[str, str]]) -> Blocks:
    """Eq. 2 with exact blocks on its right-hand side."""
    found: Blocks = {}
    for v, w in pairs:
        routed_terms = between_children(e, e.blocks, v, w)
        terms = routed_terms + of_common_children(e, v, w)
        found[v, w] = summed(e, v, w, terms)
    return found


def unrelated_with_exact(e: Example) -> Blocks:
    """For pairs without a directed path between them."""
    tied = set(related(e.dag))
    tied |= {(w, v) for v, w in tied}
    untied = [pair for pair in itertools.combinations(e.dag.order[:-1], 2) if pair not in tied]
    return with_exact(e, untied)


def diagonal_with_exact(e: Example) -> Blocks:
    """For v = w."""
    return with_exact(e, [(v, v) for v in e.dag.order[:-1]])


def boundary(e: Example) -> Blocks:
    """Base cases: H[out,out] = ∇²ℓ, H[v,out] = Σ D^T H[u,out], H[out,v] its transpose."""
    out = e.dag.output
    found = {(out, out): e.base}
    for v in e.dag.order[:-1]:
        found[v, out] = one_sided(e, e.blocks, v, out)
        found[out, v] = found[v, out].T
    return found


def one_directional(e: Example) -> Blocks:
    """Remark 76 with exact blocks on its right-hand side, for pairs with a path from v to w."""
    found = {}
    for v, w in related(e.dag):
        found[v, w] = one_sided(e, e.blocks, v, w)
    return found


CHECKS["dag.eq2.unrelated"] = blocks_agree(everything, true_blocks, unrelated_with_exact, right)
CHECKS["dag.eq2.diagonal"] = blocks_agree(everything, true_blocks, diagonal_with_exact, right)
CHECKS["dag.eq2.base"] = blocks_agree(everything, true_blocks, boundary)
CHECKS["dag.remark76"] = blocks_agree(everything, true_blocks, one_directional, right)


def chains() -> tuple[Instance, ...]:
    return (by_hand()[0], *smooth_chains())


def a_skip() -> tuple[Instance, ...]:
    return (skip(6),)


def three_skips() -> tuple[Instance, ...]:
    return (by_hand()[1], skip(6), skip(7))


CHECKS["dag.remark76.chain"] = blocks_agree(chains, true_blocks, one_directional)
CHECKS.without["dag.remark76.chain", "no skips"] = blocks_agree(
    a_skip, true_blocks, one_directional
)
CHECKS["dag.prop14.directed"] = blocks_agree(three_skips, true_blocks, one_directional, right)


def example_5(e: Example) -> Blocks:
    """Chain: H[h1,h1] and H[h1,h2] from H[h2,h2]."""
    d = e.jacobian["h2", "h1"]
    block = e.blocks["h2", "h2"]
    first_term = d.T @ block @ d
    diagonal = first_term + e.curvature["h2"]["h1", "h1"]
    return {("h1", "h1"): diagonal, ("h1", "h2"): d.T @ block}


def example_6(e: Example) -> Blocks:
    """Diamond: H[a,b] = D^T H[m,m] D + the mixed tensor term."""
    first_term = pulled_to_branches(e, "merge", e.blocks)
    second_term = e.curvature["merge"]["a", "b"]
    return {("a", "b"): first_term + second_term}


def pulled_to_branches(e: Example, m: str, blocks: Blocks) -> Tensor:
    """D_m,aᵀ block[m,m] D_m,b."""
    left = e.jacobian[m, "a"]
    right = e.jacobian[m, "b"]
    return left.T @ blocks[m, m] @ right


def chains_of_two_layers() -> list[Instance]:
    return [chain(seed, widths=(3, 4, 5)) for seed in range(3)]


def diamonds() -> tuple[Instance, ...]:
    tanh = diamond(2, nn.Tanh)
    return (diamond(0), diamond(1, merge="sum"), tanh)


CHECKS["dag.example5"] = blocks_agree(chains_of_two_layers, true_blocks, example_5)
CHECKS["dag.example6"] = blocks_agree(diamonds, true_blocks, example_6)


@CHECKS.clause("dag.example6.gn")
def first_term_of_example_6() -> Outcome:
    """The first term of Example 6 against the GN block: a, b = x, m = a + b, out = m², loss = out;
    corrected: with H^GN[m, m]."""
    nodes: list[ScalarNode] = [
        copy("a", "input"),
        copy("b", "input"),
        ("m", ("a", "b"), lambda a, b: a + b),
        ("out", ("m",), lambda m: m**2),
    ]
    e = first_example(scalar_nodes(nodes, [1.0]))
    gauss_newton = e.gauss_newton
    exact = float(gauss_newton["a", "b"])
    printed = float(pulled_to_branches(e, "m", e.blocks))
    corrected = float(pulled_to_branches(e, "m", gauss_newton))
    where = "a, b = x, m = a + b, out = m², loss = out: first term of H[a, b], GN component"
    witness = worked(where, f"{printed:g}", f"{corrected:g}", f"{exact:g}")
    return Outcome(abs(printed - exact), abs(corrected - exact), 1, witness)


SHAPES = ((1, 1), (2, 3), (5, 4), (3, 3))


def dense_layer(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """W, b and f of a layer."""
    generator = seeded(seed)
    o, i = SHAPES[seed]
    return gauss(generator, o, i), gauss(generator, o), gauss(generator, i)


def equation_1(seed: int) -> Tensor:
    """T_u;v[i] = sigma''(z_i) W_i W_i^T for f_u = sigma(W f_v + b)."""
    w, b, f = dense_layer(seed)
    bend = vmap(grad(grad(torch.tanh)))(w @ f + b)
    return torch.einsum("i,ij,ik->ijk", bend, w, w)


def second_derivative_of_layer(seed: int) -> Tensor:
    w, b, f = dense_layer(seed)
    return jacfwd(jacrev(lambda h: torch.tanh(w @ h + b)))(f)


CHECKS["dag.eq1"] = matches(lambda: range(4), second_derivative_of_layer, equation_1)


def mixed_tensor(case: Instance) -> float:
    """Norm of T_u;v,w of the merge node of a diamond, relative to δ."""
    e = first_example(case)
    delta = e.delta["merge"].norm().clamp_min(1e-300)
    return float(e.curvature["merge"]["a", "b"].norm() / delta)


@CHECKS.clause("dag.remark3.linear")
def linear_merge() -> Errors:
    for seed in range(4):
        yield mixed_tensor(diamond(seed, merge="sum"))


@CHECKS.clause("dag.remark3.nonlinear")
def nonlinear_merge() -> Outcome:
    share = mixed_tensor(diamond(0))
    return exists("act(W [a, b]) with SiLU", share, "the mixed tensor must not vanish")


@CHECKS.clause("dag.fig1")
def figure_1() -> Errors:
    """v0 → v1 → v2 → out with a skip v0 → v2: D_out,v0 = D3 (I + D2 D1) and the blocks of panel
    (b)."""
    for seed in range(3):
        generator = seeded(seed)
        d1, d2, d3 = (gauss(generator, 3, 3) for _ in range(3))
        e = _example_of_figure_1(d1, d2, d3)
        blocks = e.blocks
        yield relative_error(d3 @ (unit(3) + d2 @ d1), e.total["out", "v0"])
        through_v1 = d1.T @ blocks["v1", "out"]
        of_v0 = through_v1 + blocks["v2", "out"]
        yield relative_error(of_v0, blocks["v0", "out"])
        of_v1 = d2.T @ blocks["v2", "out"]
        yield relative_error(of_v1, blocks["v1", "out"])


def _example_of_figure_1(d1: Tensor, d2: Tensor, d3: Tensor) -> Example:
    nodes: list[ScalarNode] = [
        ("v0", ("input",), identity),
        ("v1", ("v0",), lambda h: h @ d1.T),
        ("v2", ("v1", "v0"), lambda a, b: a @ d2.T + b),
        ("out", ("v2",), lambda h: h @ d3.T),
    ]
    return first_example(scalar_nodes(nodes, [1.0, 2.0, -1.0], square=True))
