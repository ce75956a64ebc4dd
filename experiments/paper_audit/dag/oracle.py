"""References for the DAG paper: automatic differentiation of the perturbed network, one example at a time.

Nothing here uses the recursions of the engine: blocks are second derivatives of the loss with shifts e_v added to the
nodes' outputs, total Jacobians are first derivatives of the output with such shifts, and local derivatives are those
of one node's function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.paper_audit.checks import TOLERANCE, Outcome, Witness, digits
from experiments.paper_audit.dag.instances import Instance, relative_error
from runner.curvature import Dag, Node

Blocks = dict[tuple[str, str], Tensor]
Jacobian = torch.autograd.functional.jacobian
Hessian = torch.autograd.functional.hessian


@dataclass(frozen=True, eq=False)
class Example:
    """Derivatives of one example.

    jacobian[u, v]: local D_uv of an edge v → u; curvature[u][v, p] = Σ_i δ_u,i T_u;v,p[i]; delta[u] = ∂L/∂f_u;
    total[w, v]: Jacobian of f_w with respect to e_v over all paths (identity for v = w, absent without a path);
    base = ∇²ℓ; value[u]: f_u; blocks[v, w] = ∂²L/∂e_v∂e_w.
    """

    jacobian: Blocks
    curvature: Mapping[str, Blocks]
    delta: Mapping[str, Tensor]
    total: Blocks
    base: Tensor
    value: Mapping[str, Tensor]
    blocks: Blocks

    def gauss_newton(self, output: str) -> Blocks:
        """J_out,vᵀ ∇²ℓ J_out,w for all pairs."""
        names = [v for w, v in self.total if w == output]
        return {
            (v, w): self.total[output, v].T @ self.base @ self.total[output, w]
            for v in names
            for w in names
        }

    def tensor(self, output: str) -> Blocks:
        """H − H^GN."""
        return {
            pair: self.blocks[pair] - block for pair, block in self.gauss_newton(output).items()
        }


@cache
def examples(case: Instance) -> tuple[Example, ...]:
    """Every example of the instance by itself."""
    return tuple(_example(case, b) for b in range(len(case.x)))


def exact(case: Instance) -> Blocks:
    """Blocks per example, (B, d_v, d_w)."""
    return stacked([e.blocks for e in examples(case)])


def gauss_newton(case: Instance) -> Blocks:
    """Gauss–Newton blocks per example, (B, d_v, d_w)."""
    return stacked([e.gauss_newton(case.dag.output) for e in examples(case)])


def tensor_part(case: Instance) -> Blocks:
    return stacked([e.tensor(case.dag.output) for e in examples(case)])


def stacked(parts: list[Blocks]) -> Blocks:
    return {pair: torch.stack([part[pair] for part in parts]) for pair in parts[0]}


def mean(blocks: Blocks) -> Blocks:
    """Batch means of per-example blocks."""
    return {pair: block.mean(0) for pair, block in blocks.items()}


def assembled(blocks: Blocks, order: tuple[str, ...]) -> Tensor:
    """One matrix of the blocks of the nodes in `order`."""
    return torch.cat([torch.cat([blocks[v, w] for w in order], -1) for v in order], -2)


def _example(case: Instance, b: int) -> Example:
    dag, x, y = case.dag, case.x[b : b + 1], case.y[b : b + 1]
    with torch.no_grad():
        value = {k: f.detach() for k, f in dag.forward(x).items()}
    shape = {v: value[v].shape for v in dag.order}
    sizes = [value[v].numel() for v in dag.order]

    def shifts(flat: Tensor) -> dict[str, Tensor]:
        return {
            v: part.view(shape[v]) for v, part in zip(dag.order, flat.split(sizes), strict=True)
        }

    zero = torch.zeros(sum(sizes), dtype=torch.float64)
    hessian = Hessian(lambda e: dag.mean_loss(x, y, shifts(e)), zero)
    gradient = torch.func.grad(lambda e: dag.mean_loss(x, y, shifts(e)))(zero)
    wide = Jacobian(
        lambda e: torch.cat([dag.forward(x, shifts(e))[v].flatten() for v in dag.order]), zero
    )
    delta = dict(zip(dag.order, gradient.detach().split(sizes), strict=True))
    total = {
        (w, v): d for (w, v), d in _split(wide, dag.order, sizes).items() if reaches(dag, v, w)
    }
    out = value[dag.output].flatten()
    base = Hessian(lambda f: dag.loss.per_example(f.view(shape[dag.output]), y).sum(), out).detach()
    jacobian: Blocks = {}
    curvature: dict[str, Blocks] = {}
    for u in dag.order:
        own, second = _local(dag.nodes[u], value, delta[u])
        jacobian |= {(u, v): d for v, d in own.items()}
        curvature[u] = second
    return Example(
        jacobian, curvature, delta, total, base, value, _split(hessian, dag.order, sizes)
    )


def reaches(dag: Dag, v: str, w: str) -> bool:
    """Is there a directed path from v to w (of any length, zero included)?"""
    return v == w or any(reaches(dag, u, w) for u in dag.children[v])


def _split(matrix: Tensor, order: tuple[str, ...], sizes: list[int]) -> Blocks:
    rows = zip(order, matrix.detach().split(sizes, 0), strict=True)
    return {
        (v, w): block
        for v, row in rows
        for w, block in zip(order, row.split(sizes, 1), strict=True)
    }


def _local(
    node: Node, value: Mapping[str, Tensor], delta: Tensor
) -> tuple[dict[str, Tensor], Blocks]:
    """(D_u,p by parent, Σ_i δ_i T_u;p,q[i] by pair of parents) of one node; a repeated parent counts once."""
    parents = list(dict.fromkeys(node.parents))
    sizes = [value[p].numel() for p in parents]

    def function(flat: Tensor) -> Tensor:
        parts = {p: f.view(value[p].shape) for p, f in zip(parents, flat.split(sizes), strict=True)}
        return node(*(parts[p] for p in node.parents)).flatten()

    point = torch.cat([value[p].flatten() for p in parents])
    first = dict(zip(parents, Jacobian(function, point).detach().split(sizes, 1), strict=True))
    second = Hessian(lambda flat: delta @ function(flat), point)
    return first, _split(second, tuple(parents), sizes)


@dataclass(frozen=True, eq=False)
class Parametric:
    """Derivatives of one node of one example with respect to its own parameters.

    d = ∂f_v/∂θ_v; own = Σ_i δ_i ∂²f_v,i/∂θ_v²; mixed[p] = Σ_i δ_i ∂²f_v,i/∂f_p∂θ_v, (d_p, p_v).
    """

    d: Tensor
    own: Tensor
    mixed: Mapping[str, Tensor]


@cache
def parametric(case: Instance, b: int) -> Mapping[str, Parametric]:
    """By node with a module, of example b."""
    example = examples(case)[b]
    found = {}
    for name in case.dag.order:
        node = case.dag.nodes[name]
        if node.parameters():
            found[name] = _parametric(node, example.value, example.delta[name])
    return found


def _parametric(node: Node, value: Mapping[str, Tensor], delta: Tensor) -> Parametric:
    parents = list(dict.fromkeys(node.parents))
    function, theta = flat_function(node)
    sizes = [value[p].numel() for p in parents]

    def at(flat: Tensor, own: Tensor) -> Tensor:
        parts = {p: f.view(value[p].shape) for p, f in zip(parents, flat.split(sizes), strict=True)}
        return function(own, tuple(parts[p] for p in node.parents)).flatten()

    point = torch.cat([value[p].flatten() for p in parents])
    d = Jacobian(lambda own: at(point, own), theta)
    own = Hessian(lambda own: delta @ at(point, own), theta)
    cross = Jacobian(
        lambda flat: Jacobian(lambda own: delta @ at(flat, own), theta, create_graph=True), point
    )  # (p_v, d)
    return Parametric(
        d.detach(), own.detach(), dict(zip(parents, cross.detach().T.split(sizes, 0), strict=True))
    )


def flat_function(node: Node) -> tuple[Callable[[Tensor, tuple[Tensor, ...]], Tensor], Tensor]:
    """(node's function of its flattened parameters and arguments, the parameters flattened)."""
    named = {k: p.detach() for k, p in node.parameters().items()}
    sizes = [p.numel() for p in named.values()]

    def function(flat: Tensor, arguments: tuple[Tensor, ...]) -> Tensor:
        parts = {
            k: f.view(p.shape) for (k, p), f in zip(named.items(), flat.split(sizes), strict=True)
        }
        if isinstance(node.fn, nn.Module):
            result = functional_call(node.fn, parts, arguments)
        else:
            result = node.fn(*arguments, **parts)
        assert isinstance(result, Tensor)
        return result

    return function, torch.cat([p.flatten() for p in named.values()])


@cache
def parameter_blocks(case: Instance) -> Blocks:
    """∂²L/∂θ_v∂θ_w of the mean loss for every pair of nodes with parameters, by differentiating it twice."""
    names = tuple(v for v in case.dag.order if case.dag.nodes[v].parameters())
    functions = {v: flat_function(case.dag.nodes[v]) for v in names}
    sizes = [functions[v][1].numel() for v in names]

    def loss(theta: Tensor) -> Tensor:
        own = dict(zip(names, theta.split(sizes), strict=True))
        values = {"input": case.x}
        for v in case.dag.order:
            node = case.dag.nodes[v]
            arguments = tuple(values[p] for p in node.parents)
            values[v] = functions[v][0](own[v], arguments) if v in own else node(*arguments)
        return case.dag.loss.per_example(values[case.dag.output], case.y).mean()

    return _split(Hessian(loss, torch.cat([functions[v][1] for v in names])), names, sizes)


Recursion = Callable[[Instance, Example], Blocks]


def averaged(case: Instance, recursion: Recursion) -> Blocks:
    """Batch mean of a recursion's blocks, one example at a time."""
    return mean(stacked([recursion(case, e) for e in examples(case)]))


def blocks_agree(
    cases: Iterable[Instance],
    exact: Recursion,
    printed: Recursion,
    corrected: Recursion | None = None,
) -> Outcome:
    """Largest relative error of any block (of the pairs that `printed` gives); the witness is the worst block."""
    worst, right, count, witness = 0.0, 0.0, 0, None
    for case in cases:
        truth, found = averaged(case, exact), averaged(case, printed)
        if not found:
            continue
        count += 1
        error = relative_error(found, truth)
        worst = max(worst, error)
        better = averaged(case, corrected) if corrected else None
        if better is not None:
            right = max(right, relative_error({pair: better[pair] for pair in found}, truth))
        if error > TOLERANCE and witness is None:
            v, w = max(found, key=lambda pair: float((found[pair] - truth[pair]).abs().max()))
            shown = "" if better is None else digits(better[v, w])
            witness = Witness(
                f"{case}: block ({v}, {w})", digits(found[v, w]), shown, digits(truth[v, w])
            )
    return Outcome(worst, right if corrected else None, count, witness)


def true_blocks(_: Instance, e: Example) -> Blocks:
    return e.blocks


def true_gauss_newton(case: Instance, e: Example) -> Blocks:
    return e.gauss_newton(case.dag.output)


def true_tensor(case: Instance, e: Example) -> Blocks:
    return e.tensor(case.dag.output)
