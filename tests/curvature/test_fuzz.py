"""200 random graphs (160 of them slow) against a dense float64 Hessian that knows nothing of the engine.

Each graph is drawn as plain data: steps with a kind, parents and weights. The engine gets it as nodes (modules, shared
and in-place modules, varargs, plain functions, composites), the oracle evaluates the data itself with torch operations
in float64, one example at a time, and differentiates its loss twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature import (
    Concatenated,
    CurvatureOperator,
    Dag,
    Node,
    Residual,
    WeightedSum,
    exact_blocks,
    gauss_newton_blocks,
)

GRAPHS, GROUPS = 200, 20
ACTIVATIONS: dict[str, tuple[Callable[[], nn.Module], Callable[[Tensor], Tensor]]] = {
    "tanh": (nn.Tanh, torch.tanh),
    "silu": (nn.SiLU, F.silu),
    "silu in place": (lambda: nn.SiLU(inplace=True), F.silu),
    "softplus": (nn.Softplus, F.softplus),
    "relu": (nn.ReLU, torch.relu),
    "relu in place": (lambda: nn.ReLU(inplace=True), torch.relu),
    "gelu": (nn.GELU, F.gelu),
}


@dataclass
class Step:
    """One node: its function for the engine, and what it computes, for the oracle."""

    name: str
    parents: tuple[str, ...]
    fn: Callable[..., Tensor]
    oracle: Callable[..., Tensor]
    width: int
    kind: str = ""
    """How several parents are merged, "" for one."""


@dataclass
class Graph:
    steps: list[Step]
    loss: object
    oracle_loss: Callable[[Tensor, Tensor], Tensor]
    x: Tensor
    y: Tensor
    dtype: torch.dtype

    def evaluate(self, x: Tensor, shifts: dict[str, Tensor]) -> Tensor:
        """Output of one example (1, d), float64."""
        values = {"input": x}
        for step in self.steps:
            values[step.name] = step.oracle(*(values[p] for p in step.parents)) + shifts[step.name]
        return values[self.steps[-1].name]


def wide(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.detach().double()


def linear(rng: random.Random, i: int, o: int, dtype: torch.dtype) -> nn.Linear:
    return nn.Linear(i, o, bias=rng.random() < 0.8).to(dtype)


def one_parent(rng: random.Random, i: int, dtype: torch.dtype) -> tuple[Callable, Callable, int]:
    """(engine's function, oracle's, width) of a node with one parent of width i."""
    kind = rng.choice(["layer", "layer", "activation", "residual", "product", "norm", "function"])
    module, act = ACTIVATIONS[rng.choice(list(ACTIVATIONS))]
    if kind == "activation":
        return module(), act, i
    if kind == "product":
        return lambda h: h * torch.sin(h), lambda h: h * torch.sin(h), i
    if kind == "norm":
        norm = nn.LayerNorm(i).to(dtype)
        with torch.no_grad():
            norm.weight.uniform_(0.5, 1.5)
        w, b = wide(norm.weight), wide(norm.bias)
        return (lambda h: h + norm(h)), (lambda h: h + F.layer_norm(h, (i,), w, b)), i
    o = i if kind == "residual" else rng.randint(1, 3)
    weights = linear(rng, i, o, dtype)
    w, b = wide(weights.weight), wide(weights.bias)
    if kind == "residual":
        return Residual(nn.Sequential(weights, module()), 0.5), lambda h: h + 0.5 * act(F.linear(h, w, b)), i
    if kind == "function":
        return lambda h: act(F.linear(h, weights.weight, weights.bias)), lambda h: act(F.linear(h, w, b)), o
    return nn.Sequential(weights, module()), lambda h: act(F.linear(h, w, b)), o


def merge(rng: random.Random, widths: list[int], dtype: torch.dtype) -> tuple[Callable, Callable, int, str]:
    """The same for several parents, and the kind."""
    kind = rng.choice(["cat", "varargs", "axis", "product", "sum"])
    if kind == "sum" and len(set(widths)) == 1:
        weights = [rng.uniform(-1, 1) for _ in widths]
        return WeightedSum(*weights), lambda *h: sum(c * t for c, t in zip(weights, h, strict=True)), widths[0], kind
    if kind == "product" and len(set(widths)) == 1:
        return lambda a, *rest: a * torch.tanh(sum(rest)), lambda a, *rest: a * torch.tanh(sum(rest)), widths[0], kind
    o = rng.randint(1, 3)
    head = linear(rng, sum(widths), o, dtype)
    module, act = ACTIVATIONS[rng.choice(list(ACTIVATIONS))]
    w, b = wide(head.weight), wide(head.bias)

    def oracle(*h: Tensor) -> Tensor:
        return act(F.linear(torch.cat(h, 1), w, b))

    if kind == "varargs":
        return lambda *h: act(head(torch.cat(h, 1))), oracle, o, kind
    if kind == "axis":
        return lambda *h: act(head(torch.cat(list(h), axis=1))), oracle, o, kind
    return Concatenated(nn.Sequential(head, module())), oracle, o, "cat"


def draw(seed: int) -> Graph:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    dtype = torch.float32 if rng.random() < 0.25 else torch.float64
    batch, width = rng.choice([1, 2, 3]), rng.randint(1, 3)
    steps: list[Step] = []
    widths = {"input": width}
    shared: dict[int, tuple[Callable, Callable]] = {}
    for i in range(rng.randint(1, 4)):
        kind = ""
        known = list(widths)
        if len(known) > 2 and rng.random() < 0.5:
            parents = tuple(rng.sample(known, rng.randint(2, min(3, len(known)))))
            parents = (known[-1], *(p for p in parents if p != known[-1]))
        else:
            parents = (known[-1],)
        if len(parents) == 1 and widths[parents[0]] in shared and rng.random() < 0.3:  # a module used twice
            fn, oracle = shared[widths[parents[0]]]
            o = widths[parents[0]]
        elif len(parents) == 1:
            fn, oracle, o = one_parent(rng, widths[parents[0]], dtype)
            if o == widths[parents[0]]:
                shared[o] = fn, oracle
        else:
            fn, oracle, o, kind = merge(rng, [widths[p] for p in parents], dtype)
        steps.append(Step(f"n{i}", parents, fn, oracle, o, kind))
        widths[f"n{i}"] = o
    loose = [s.name for s in steps[:-1] if not any(s.name in t.parents for t in steps)]
    kind = rng.choice(["cross_entropy", "mse", "mean", "none", "bce"])
    classes = 1 if kind == "bce" else rng.randint(2, 3)
    last = (steps[-1].name, *loose)
    head = linear(rng, sum(widths[p] for p in last), classes, dtype)
    w, b = wide(head.weight), wide(head.bias)
    oracle = lambda *h: F.linear(torch.cat(h, 1), w, b)  # noqa: E731
    fn = head if len(last) == 1 else (lambda *h: head(torch.cat(h, 1)))
    steps.append(Step("out", last, fn, oracle, classes))
    x = torch.randn(batch, width, dtype=dtype)
    return Graph(steps, *losses(rng, kind, batch, classes, dtype, x), dtype)


def losses(rng: random.Random, kind: str, batch: int, classes: int, dtype: torch.dtype, x: Tensor) -> tuple:
    """(loss for the engine, for the oracle, x, y)."""
    if kind == "cross_entropy":
        y = torch.randint(0, classes, (batch,)).to(rng.choice([torch.int64, torch.uint8, torch.int32]))
        return "cross_entropy", lambda f, t: F.cross_entropy(f, t.long()), x, y
    if kind == "mse":
        return "mse", F.mse_loss, x, torch.randn(batch, classes, dtype=dtype)
    if kind == "mean":
        scale = 10.0 ** rng.choice([-12, 0, 12])
        y = torch.randn(batch, classes, dtype=dtype)
        return lambda f, t: scale * F.huber_loss(f, t), lambda f, t: scale * F.huber_loss(f, t), x, y
    if kind == "bce":
        y = torch.rand(batch, 1, dtype=dtype)
        return nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits, x, y
    y = torch.randint(0, classes, (batch,))
    return nn.CrossEntropyLoss(reduction="none"), lambda f, t: F.cross_entropy(f, t), x, y


def dense(graph: Graph) -> Tensor:
    """Hessian of the mean of the examples' losses with respect to what is added to the nodes' outputs, float64."""
    sizes = [s.width for s in graph.steps]
    names = [s.name for s in graph.steps]
    flat = torch.zeros(sum(sizes), dtype=torch.float64, requires_grad=True)
    y = graph.y.double() if graph.y.is_floating_point() else graph.y
    shifts = dict(zip(names, flat.split(sizes), strict=True))
    examples = range(len(graph.x))
    total = sum(
        graph.oracle_loss(graph.evaluate(graph.x[b : b + 1].double(), shifts), y[b : b + 1]) for b in examples
    ) / len(graph.x)
    (gradient,) = torch.autograd.grad(total, flat, create_graph=True)
    if not gradient.requires_grad:
        return torch.zeros(len(flat), len(flat), dtype=torch.float64)
    eye = torch.eye(len(flat), dtype=torch.float64)
    return torch.stack([torch.autograd.grad(gradient, flat, e, retain_graph=True)[0] for e in eye])


def far(found: Tensor, expected: Tensor) -> float:
    scale = float(expected.abs().max())
    error = float((found.double() - expected).abs().max())
    return error / scale if scale > 0 else error


SWEEP = [pytest.param(group, marks=[pytest.mark.slow] if group % 5 else []) for group in range(GROUPS)]


@pytest.mark.parametrize("group", SWEEP)
def test_random_graphs_agree_with_the_dense_hessian(group):
    for seed in range(group, GRAPHS, GROUPS):
        graph = draw(seed)
        dag = Dag([Node(s.name, s.parents, s.fn) for s in graph.steps], graph.loss)
        names = [s.name for s in graph.steps]
        expected = dense(graph)
        allowed = 1e-11 if graph.dtype == torch.float64 else 1e-3  # two-unit layer norms are ill-conditioned
        blocks = exact_blocks(dag, graph.x, graph.y)
        matrix = torch.cat([torch.cat([blocks[v, w] for w in names], 1) for v in names])
        assert matrix.dtype == graph.dtype and far(matrix, expected) < allowed, f"exact blocks of graph {seed}"
        operator = CurvatureOperator(dag, graph.x, graph.y, names)
        order = torch.cat(
            [torch.arange(len(expected)).split([s.width for s in graph.steps])[names.index(v)] for v in operator.nodes]
        )
        assert far(operator.dense(), expected[order][:, order]) < allowed, f"products of graph {seed}"
        if seed % 4 == 0:
            newton = gauss_newton_blocks(dag, graph.x, graph.y)
            part = CurvatureOperator(dag, graph.x, graph.y, names, part="gauss_newton")
            whole = torch.cat([torch.cat([newton[v, w] for w in operator.nodes], 1) for v in operator.nodes])
            assert far(part.dense(), whole.double()) < allowed, f"Gauss-Newton of graph {seed}"


def test_the_graphs_cover_what_they_should():
    graphs = [draw(seed) for seed in range(GRAPHS)]
    assert sum(g.dtype == torch.float32 for g in graphs) > 20
    assert {len(g.x) for g in graphs} == {1, 2, 3}
    assert sum(any(len(s.parents) > 1 for s in g.steps) for g in graphs) > 60
    assert sum(len({id(s.fn) for s in g.steps}) < len(g.steps) for g in graphs) > 10, "shared modules"
    kinds = {
        kind: sum(s.kind == kind for g in graphs for s in g.steps)
        for kind in ("cat", "varargs", "axis", "product", "sum")
    }
    assert min(kinds.values()) > 5, kinds
    in_place = [s for g in graphs for s in g.steps if getattr(s.fn, "inplace", False)]
    assert len(in_place) > 10
    assert {type(g.loss).__name__ for g in graphs} >= {"str", "function", "BCEWithLogitsLoss", "CrossEntropyLoss"}
