"""Corrections of the errata of the DAG paper on the family of simplest networks."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import grad, hessian, jacfwd, jacrev

from experiments.paper_audit.corrections import Corrections
from experiments.paper_audit.dag import recursion
from experiments.paper_audit.dag.comparison import averaged
from experiments.paper_audit.dag.coupling import couplings
from experiments.paper_audit.dag.instances import Instance, relative_error
from experiments.paper_audit.dag.kinks import central_differences
from experiments.paper_audit.dag.negative_curvature import hessian_vector_product, negative_mass
from experiments.paper_audit.dag.oracle import (
    Blocks,
    Example,
    assembled,
    exact,
    examples,
    first_example,
    gauss_newton,
    mean,
    reaches,
)
from experiments.paper_audit.dag.parameter_oracle import (
    of_node,
    parameter_blocks,
)
from experiments.paper_audit.dag.parameters import remainder, right_5, routed
from experiments.paper_audit.dag.path_sums import resonances
from experiments.paper_audit.dag.paths import sources
from experiments.paper_audit.dag.probes import sign_vectors
from experiments.paper_audit.dag.ranks import singular, stable
from experiments.paper_audit.dag.single_steps import boundary, pulled_to_branches
from experiments.paper_audit.dag.stability import (
    distance_of_uniform_skips,
    farthest,
    uniform,
)
from experiments.paper_audit.family import Member, attention_graphs, graphs
from experiments.paper_audit.tensors import (
    gauss,
    norm_of,
    seeded,
    spectral_norm,
    total,
    unit,
    zeros,
)
from runner.curvature import Dag, Node
from runner.curvature.graphs.dag import Concatenated, Residual

CORRECTIONS = Corrections()
Errors = Iterator[float]


def residual(case: Instance) -> bool:
    """Is every node h + f(h)?"""
    return all(isinstance(node.fn, Residual) for node in case.dag.nodes.values())


def softmax(case: Instance) -> bool:
    """Is the loss softmax cross-entropy?"""
    return case.dag.loss.name == "cross_entropy"


def norm(matrix: Tensor) -> float:
    return float(spectral_norm(matrix))


# Recursions and sums over paths


@CORRECTIONS.on(graphs, "dag.eq2")
def recursion_of_blocks(case: Instance) -> Errors:
    for e in examples(case):
        yield relative_error(recursion.right(e), e.blocks)


@CORRECTIONS.on(graphs, "dag.algorithm1")
def boundary_blocks(case: Instance) -> Errors:
    for e in examples(case):
        yield relative_error(boundary(e), e.blocks)


@CORRECTIONS.on(graphs, "dag.eq5", "dag.cor29")
def blocks_in_parameters(case: Instance) -> Errors:
    yield relative_error(averaged(case, right_5), parameter_blocks(case))


@CORRECTIONS.on(graphs, "dag.thm33")
def sources_of_curvature(case: Instance) -> Errors:
    for e in examples(case):
        found = {(v, w): recursion.summed(e, v, w, sources(e, v, w)) for v, w in e.blocks}
        yield relative_error(found, e.blocks)


@CORRECTIONS.on(graphs, "dag.additive")
def sum_of_resonances(case: Instance) -> Errors:
    whole, summed = resonances(case)
    yield (whole - summed) / max(summed, 1e-12)


@CORRECTIONS.on(graphs, "dag.example6")
def first_term(case: Instance) -> Errors:
    if "merge" in case.dag.nodes:
        for e in examples(case):
            found = {("a", "b"): pulled_to_branches(e, "merge", e.gauss_newton)}
            yield relative_error(found, e.gauss_newton)


@CORRECTIONS.on(graphs, "dag.def20")
def product_with_increments(case: Instance) -> Errors:
    whole = assembled(first_example(case).blocks, case.dag.order)
    increments = gauss(seeded(0), len(whole))
    difference = whole @ increments - hessian_vector_product(case, increments)
    yield norm_of(difference) / max(norm_of(whole), 1e-12)


# Decay and stability


@CORRECTIONS.on(graphs, "dag.cor73", "dag.necessary")
def between_bounds(case: Instance) -> Errors:
    """σ_min(∇²ℓ) ‖Σ D_p‖₂ <= R(v,out) <= ‖∇²ℓ‖_F ‖Σ D_p‖₂."""
    out = case.dag.output
    for e in examples(case):
        least = float(singular(e.base)[-1])
        largest = norm_of(e.base)
        for v in case.dag.order:
            paths = norm(e.total[out, v])
            resonance = norm_of(e.blocks[v, out])
            yield least * paths - resonance
            yield resonance - largest * paths


def branches(e: Example) -> list[Tensor]:
    """J − I of the edges of a residual chain."""
    return [
        jacobian - unit(len(jacobian)) for (_, v), jacobian in e.jacobian.items() if v != "input"
    ]


@CORRECTIONS.on(graphs, "dag.thm34b")
def upper_bound_with_skips(case: Instance) -> Errors:
    """R(v0,out) <= ‖∇²ℓ‖_F (1 + ρ)^L, k = 1."""
    if residual(case):
        for e in examples(case):
            parts = branches(e)
            rho = max(norm(part) for part in parts)
            first, out = case.dag.order[0], case.dag.output
            bound = norm_of(e.base) * (1 + rho) ** len(parts)
            yield norm_of(e.blocks[first, out]) / bound - 1


@CORRECTIONS.on(graphs, "dag.sketch")
def least_singular_value(case: Instance) -> Errors:
    """σ_min(Π (I + D)) >= (1 − ρ)^L for ρ < 1, k = 1."""
    if residual(case):
        for e in examples(case):
            parts = branches(e)
            rho = max(norm(part) for part in parts)
            first, out = case.dag.order[0], case.dag.output
            if rho < 1:
                yield (1 - rho) ** len(parts) - float(singular(e.total[out, first])[-1])


@CORRECTIONS.on(graphs, "dag.thm34.scaling", tolerance=1e-3)
def limits_of_the_bound(case: Instance) -> Errors:
    """(1 − (αρ)^k)^(L/k), α = 1/L, L = 10⁴, with ρ of a scalar chain."""
    depth = 10**4
    if not residual(case):
        rho = max(norm(jacobian) for jacobian in first_example(case).jacobian.values())
        yield abs((1 - rho / depth) ** depth - math.exp(-rho))
        yield abs((1 - (rho / depth) ** 2) ** (depth // 2) - 1)


def from_output(case: Instance, e: Example, jacobian: Blocks) -> dict[str, Tensor]:
    """J_out,v of every node from local Jacobians."""
    out = case.dag.output
    found = {out: unit(len(e.delta[out]))}
    for v in reversed(case.dag.order[:-1]):
        found[v] = total(found[u] @ jacobian[u, v] for u in dict.fromkeys(case.dag.children[v]))
    return found


@CORRECTIONS.on(graphs, "dag.thm43", tolerance=1e-4)
def change_of_blocks(case: Instance, eps: float = 1e-6) -> Errors:
    """‖ΔH^GN[v,w]‖_F over (l_v + l_w) eps π_v π_w ‖∇²ℓ‖_F, less 1; l, π over paths to out."""
    generator = seeded(0)
    for e in examples(case):
        moved = {}
        for edge, d in e.jacobian.items():
            noise = gauss(generator, *d.shape)
            moved[edge] = d + eps * spectral_norm(d) * noise / spectral_norm(noise)
        before = from_output(case, e, e.jacobian)
        after = from_output(case, e, moved)
        length = {case.dag.output: 0}
        size = {case.dag.output: 1.0}
        for v in reversed(case.dag.order[:-1]):
            children = dict.fromkeys(case.dag.children[v])
            length[v] = max(1 + length[u] for u in children)
            size[v] = sum(norm(e.jacobian[u, v]) * size[u] for u in children)
        for v, w in e.blocks:
            change = after[v].T @ e.base @ after[w] - before[v].T @ e.base @ before[w]
            bound = (length[v] + length[w]) * eps * size[v] * size[w] * norm_of(e.base)
            yield norm_of(change) / bound - 1 if bound else norm_of(change)


def without_and_with_skips(member: Member) -> list[tuple[Instance, Instance]]:
    pairs = itertools.pairwise(graphs(member))
    return [(plain, skipped) for plain, skipped in pairs if residual(skipped)]


@CORRECTIONS.on(without_and_with_skips, "dag.thm69")
def with_skips(pair: tuple[Instance, Instance]) -> Errors:
    """(1 − η)/(1 + η) R_base <= R_res where ‖G_res‖ >= ‖G_base‖; B >= 0 is B = 0, both with ∇²ℓ of
    the base."""
    plain, skipped = pair
    for e, after in zip(examples(plain), examples(skipped), strict=True):
        order = plain.dag.order
        for pair_of_nodes, g in e.gauss_newton.items():
            g_after = after.gauss_newton[pair_of_nodes]
            if 0 < norm_of(g) <= norm_of(g_after):
                eta = max(
                    norm_of(e.tensor[pair_of_nodes]) / norm_of(g),
                    norm_of(after.tensor[pair_of_nodes]) / norm_of(g_after),
                )
                kept = norm_of(after.blocks[pair_of_nodes])
                least = (1 - eta) / (1 + eta) * norm_of(e.blocks[pair_of_nodes])
                yield least / kept - 1
        out = plain.dag.output
        moved = {(v, w): after.total[out, v].T @ e.base @ after.total[out, w] for v, w in e.blocks}
        change = assembled(moved, order) - assembled(e.gauss_newton, order)
        lowest = float(torch.linalg.eigvalsh(change)[0])
        if lowest > -1e-12:
            yield norm_of(change)


# Parameters


def nodes_with_parameters(case: Instance) -> tuple[str, ...]:
    return tuple(v for v in case.dag.order if case.dag.nodes[v].parameters())


@CORRECTIONS.on(graphs, "dag.cor17")
def bound_with_remainder(case: Instance) -> Errors:
    yield remainder(case)


def beyond_gauss_newton(case: Instance) -> tuple[Tensor, Tensor]:
    """H_θ by automatic differentiation, and H_θ − GGN."""
    order = nodes_with_parameters(case)
    whole = assembled(parameter_blocks(case), order)
    of_gauss_newton = averaged(case, lambda e: routed(e, e.gauss_newton))
    return whole, whole - assembled(of_gauss_newton, order)


@CORRECTIONS.on(graphs, "dag.cor12")
def at_gap_zero(case: Instance) -> Errors:
    """H_θ − GGN is what Eq. 5 has beyond its first term, wherever the gap is 0."""
    if all(norm_of(tensor) < 1e-12 for e in examples(case) for tensor in e.tensor.values()):
        whole, difference = beyond_gauss_newton(case)
        order = nodes_with_parameters(case)

        def others(e: Example) -> Blocks:
            first = routed(e, e.blocks)
            return {pair: block - first[pair] for pair, block in right_5(e).items()}

        terms = assembled(averaged(case, others), order)
        yield norm_of(difference - terms) / max(norm_of(whole), 1e-12)


@CORRECTIONS.on(graphs, "dag.prop85")
def negative_curvature(case: Instance) -> Errors:
    whole, difference = beyond_gauss_newton(case)
    excess = negative_mass(whole) - negative_mass(difference)
    yield excess / max(norm_of(whole), 1e-12)


def linear_part(node: Node) -> tuple[nn.Linear, nn.Module | None] | None:
    """Linear map and activation of a node that is a layer, or a merge or skip around one."""
    function = node.fn
    if isinstance(function, Residual):
        function = function.branch
    if isinstance(function, Concatenated):
        function = next(iter(function.children()))
    if isinstance(function, nn.Sequential):
        first, last = function
        assert isinstance(first, nn.Linear)
        return first, last
    return (function, None) if isinstance(function, nn.Linear) else None


@CORRECTIONS.on(graphs, "dag.remark16")
def parametric_tensors(case: Instance) -> Errors:
    """Of a linear layer ∂²f/∂θ² = 0 and ∂²f/∂f_p∂θ ≠ 0."""
    e = first_example(case)
    for node in case.dag.nodes.values():
        if isinstance(node.fn, nn.Linear) and node.parents != ("input",):
            own = of_node(node, e.value, torch.ones_like(e.delta[node.name]))
            (mixed,) = own.mixed.values()
            yield norm_of(own.own)
            yield float(norm_of(mixed) == 0)


# Second derivatives of layers


def layers(case: Instance) -> Iterator[tuple[Node, Tensor, Tensor, Tensor, Tensor]]:
    """Node, δ, input, W and σ″(z) of every layer, at the first example."""
    e = first_example(case)
    for node in case.dag.nodes.values():
        parts = linear_part(node)
        if parts is None:
            continue
        module, act = parts
        value = torch.cat([e.value[p].flatten() for p in node.parents])
        weight = module.weight.detach()
        with torch.no_grad():
            z = module(value)
        bend = zeros(len(z))
        if act is not None:
            bend = torch.func.vmap(grad(grad(act)))(z).detach()
        yield node, e.delta[node.name], value, weight, bend


@CORRECTIONS.on(graphs, "dag.diagonal", "dag.cat_relu")
def tensor_of_layers(case: Instance) -> Errors:
    """Σ_i δ_i T_i = Wᵀ diag(δ σ″(z)) W, parents of a merge side by side."""
    e = first_example(case)
    for node, delta, _, weight, bend in layers(case):
        found = weight.T @ torch.diag(delta * bend) @ weight
        exact = assembled(e.curvature[node.name], node.parents)
        yield norm_of(found - exact) / max(norm_of(exact), 1.0)


@CORRECTIONS.on(graphs, "dag.scaling")
def norm_of_tensor(case: Instance) -> Errors:
    """‖T‖ = (Σ_i σ″(z_i)² ‖W_i‖⁴)^½."""
    for node, _, value, weight, bend in layers(case):
        parts = linear_part(node)
        assert parts is not None
        module, act = parts

        def layer(x: Tensor, module: nn.Linear = module, act: nn.Module | None = act) -> Tensor:
            z = module(x)
            return z if act is None else act(z)

        second = jacfwd(jacrev(layer))(value)
        formula = (bend.square() * weight.square().sum(1).square()).sum().sqrt()
        yield abs(float(second.detach().norm() - formula))


@CORRECTIONS.on(graphs, "dag.heads39")
def tensor_before_the_head(case: Instance) -> Errors:
    """H^T of the parents of out is Σ_i δ_i f″_i of the head."""
    out = case.dag.output
    for e in examples(case):
        parents = [p for p in case.dag.nodes[out].parents if p != "input"]
        if parents:
            found = {(v, w): e.curvature[out][v, w] for v in parents for w in parents}
            yield max(norm_of(found[pair] - e.tensor[pair]) for pair in found)


@CORRECTIONS.on(attention_graphs, "dag.example37")
def tensor_of_attention(case: Instance) -> Errors:
    """H^T[q,k] = Σ_i δ_i T_i."""
    for e in examples(case):
        yield norm_of(e.curvature["out"]["q", "k"] - e.tensor["q", "k"])


@CORRECTIONS.on(attention_graphs, "dag.remark101")
def dense_softmax(case: Instance) -> Errors:
    """S and T of softmax have no zero entry, for two or more logits."""
    e = first_example(case)
    scores = e.value["q"][0] @ e.value["k"][0].mT
    for logits in scores:
        if len(logits) > 1:
            second = hessian(lambda z: torch.softmax(z, 0))(logits).abs()
            yield float(second.min() < 1e-12)


@CORRECTIONS.on(graphs, "dag.thm46.3", tolerance=1e-5)
def differences(case: Instance) -> Errors:
    e = first_example(case)
    for v in case.dag.order:
        found = central_differences(case, v).detach()
        yield norm_of(found - e.blocks[v, v]) / max(norm_of(e.blocks[v, v]), 1.0)


@CORRECTIONS.on(graphs, "dag.thm46.lipschitz")
def slope_of_layers(case: Instance) -> Errors:
    """‖J_v‖₂ <= (Σ_p ‖J_p‖₂²)^½ ‖W_v‖₂ from the first node, for layers with slopes up to 1."""
    e = first_example(case)
    first = case.dag.order[0]
    for node in case.dag.nodes.values():
        parts = linear_part(node)
        if parts and not isinstance(node.fn, Residual):
            parents = [p for p in node.parents if p != "input"]
            squares = sum(norm(e.total[p, first]) ** 2 for p in parents)
            if parents:
                bound = squares**0.5 * norm(parts[0].weight.detach())
                yield norm(e.total[node.name, first]) - bound


# Ranks


def on_every_path(dag: Dag, v: str) -> set[str]:
    """Nodes that every path from v to the output passes, both ends included."""

    def avoids(node: str, banned: str) -> bool:
        if node == banned:
            return False
        return node == dag.output or any(avoids(u, banned) for u in dag.children[node])

    return {u for u in dag.order if reaches(dag, v, u) and not avoids(v, u)}


def narrowest(case: Instance, v: str, w: str) -> int:
    """Least width of a node that every path from v and from w to the output passes."""
    e = first_example(case)
    shared = on_every_path(case.dag, v) & on_every_path(case.dag, w)
    return min(len(e.delta[u]) for u in shared)


def beyond(block: Tensor, rank: int) -> float:
    """σ_{rank+1} / σ_1; 0 of a zero block."""
    values = singular(block)
    if rank >= len(values) or not float(values[0]):
        return 0.0
    return float(values[rank] / values[0])


@CORRECTIONS.on(graphs, "dag.remark60")
def stable_rank(case: Instance) -> Errors:
    """D(H^GN[v,w]) <= min(d_u, K − 1) for softmax cross-entropy and blocks that are not zero."""
    if softmax(case):
        for e in examples(case):
            classes = len(e.base)
            for (v, w), block in e.gauss_newton.items():
                if norm_of(block) > 1e-12:
                    yield stable(block) - min(narrowest(case, v, w), classes - 1)


@CORRECTIONS.on(graphs, "dag.remark53")
def rank_of_softmax(case: Instance) -> Errors:
    """rank H^GN[w,w] <= K − 1 for softmax cross-entropy."""
    if softmax(case):
        for e in examples(case):
            for w in case.dag.order:
                yield beyond(e.gauss_newton[w, w], len(e.base) - 1)


@CORRECTIONS.on(graphs, "dag.prop31.text")
def rank_behind_a_bottleneck(case: Instance) -> Errors:
    """rank H^GN[v,w] <= width of a node that all paths from v, or all from w, pass."""
    for e in examples(case):
        for (v, w), block in e.gauss_newton.items():
            width = min(narrowest(case, v, v), narrowest(case, w, w))
            yield beyond(block, width)


@CORRECTIONS.on(graphs, "dag.exp2")
def rank_of_means(case: Instance) -> Errors:
    """rank of the mean of B blocks H^GN[v,v] <= B d_u."""
    for (v, w), blocks in gauss_newton(case).items():
        width = min(narrowest(case, v, v), narrowest(case, w, w))
        yield beyond(blocks.mean(0), len(blocks) * width)


# Means, couplings, estimates


@CORRECTIONS.on(graphs, "dag.remark38")
def norm_of_the_mean(case: Instance) -> Errors:
    for blocks in exact(case).values():
        of_norms = float(blocks.flatten(1).norm(dim=1).mean())
        yield norm_of(blocks.mean(0)) - of_norms


@CORRECTIONS.on(graphs, "dag.def23")
def coupling_without_tensor_part(case: Instance) -> Errors:
    """C <= 1 where ∇²ℓ >= 0 and H^T = 0, wherever C is defined."""
    blocks = mean(gauss_newton(case))
    sizes = {pair: block if norm_of(block) > 1e-12 else 0 * block for pair, block in blocks.items()}
    for value in couplings(sizes):
        yield value - 1


@CORRECTIONS.on(graphs, "dag.probes")
def error_of_probes(case: Instance) -> Errors:
    """Variance of ‖A z‖² over all sign vectors, and its bound 2 ‖A‖_F⁴ / D."""
    for block in first_example(case).blocks.values():
        if norm_of(block) < 1e-12:
            continue
        a = block / norm_of(block)
        gram = a.T @ a
        samples = (sign_vectors(len(gram)) @ a.mT).square().sum(1)
        variance = float(samples.var(correction=0))
        squares = gram.square()
        formula = 2 * float(squares.sum() - squares.diagonal().sum())
        yield abs(variance - formula)
        yield formula - 2 / stable(a)


@CORRECTIONS.on(graphs, "dag.remark45")
def least_squares(case: Instance) -> Errors:
    """H (H d + g) = 0 for d = −H⁺ g."""
    e = first_example(case)
    whole = assembled(e.blocks, case.dag.order)
    gradient = torch.cat([e.delta[v] for v in case.dag.order])
    step = -torch.linalg.pinv(whole, rtol=1e-10) @ gradient
    scale = max(norm_of(whole), 1e-12) * max(norm_of(gradient), 1e-12)
    yield norm_of(whole @ (whole @ step + gradient)) / scale


@CORRECTIONS.on(graphs, "dag.fisher")
def fisher_matrix(case: Instance) -> Errors:
    """∇²ℓ is the Fisher matrix of the output for softmax cross-entropy."""
    if softmax(case):
        for e in examples(case):
            p = torch.softmax(e.value[case.dag.output].flatten(), 0)
            scores = p - unit(len(p))
            yield norm_of(scores.T @ torch.diag(p) @ scores - e.base)


# Counts


def skips_on_a_chain(member: Member) -> list[tuple[int, int]]:
    """(L, B) of uniform skips on the member's chain, if it is long enough for two."""
    layers = len(graphs(member)[0].dag.order)
    return [(layers, count) for count in (2, 4) if layers == 8]


@CORRECTIONS.on(skips_on_a_chain, "dag.prop75.uniform")
def distance_with_skips(sizes: tuple[int, int]) -> Errors:
    """The largest distance with uniform skips is B − 2 + 2 ⌊(k + 1)/2⌋."""
    yield abs(float(farthest(sizes[0], uniform(*sizes)) - distance_of_uniform_skips(*sizes)))


def between(dag: Dag) -> dict[tuple[str, str], int]:
    """Edges between two nodes, whatever their direction."""
    neighbours = {v: set(dag.children[v]) for v in dag.order}
    for v in dag.order:
        for u in dag.children[v]:
            neighbours[u].add(v)
    steps: dict[tuple[str, str], int] = {}
    for v in dag.order:
        reached = {v: 0}
        queue = [v]
        for node in queue:
            for u in sorted(neighbours[node]):
                if u not in reached:
                    reached[u] = reached[node] + 1
                    queue.append(u)
        steps |= {(v, w): count for w, count in reached.items()}
    return steps


@CORRECTIONS.on(graphs, "dag.def79")
def pairs_within_a_radius(case: Instance) -> Errors:
    steps = between(case.dag)
    order = case.dag.order
    for radius in range(len(order)):
        near = Counter(v for (v, _), count in steps.items() if count <= radius)
        yield float(near.total() - len(order) * max(near.values()))


@CORRECTIONS.on(graphs, "dag.prop89")
def pairs_with_a_child(case: Instance) -> Errors:
    dag = case.dag
    count = sum(bool(dag.children[v] or dag.children[w]) for v in dag.order for w in dag.order)
    yield abs(float(count - (len(dag.order) ** 2 - 1)))
