"""200 random graphs (160 of them slow) against a dense float64 Hessian that knows nothing of the
engine.

Each graph is drawn as plain data: steps with a kind, parents and weights. The engine gets it as
nodes (modules, shared and in-place modules, varargs, plain functions, composites), the oracle
evaluates the data itself with torch operations in float64, one example at a time, and
differentiates its loss twice.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import runner.curvature as rc
from runner.curvature.graphs.dag import Concatenated, Residual, WeightedSum
from tests.curvature.oracles import assembled, placed

GRAPHS, GROUPS = 200, 20
ACTIVATIONS = {
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


@dataclass
class Graph:
    steps: list[Step]
    loss: object
    oracle_loss: Callable[[Tensor, Tensor], Tensor]
    x: Tensor
    y: Tensor
    dtype: torch.dtype

    def evaluate(self, x, shifts):
        """Output of one example (1, d), float64."""
        values = {"input": x}
        for step in self.steps:
            values[step.name] = step.oracle(*(values[p] for p in step.parents)) + shifts[step.name]
        return values[self.steps[-1].name]


def linear(rng, i, o, dtype):
    """A layer and its copy in float64."""
    layer = nn.Linear(i, o, bias=rng.random() < 0.8).to(dtype)
    return layer, copy.deepcopy(layer).double()


def one_parent(rng, i, dtype):
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
        wide = copy.deepcopy(norm).double()
        return (lambda h: h + norm(h)), (lambda h: h + wide(h)), i
    o = i if kind == "residual" else rng.randint(1, 3)
    layer, wide = linear(rng, i, o, dtype)
    if kind == "residual":
        return Residual(nn.Sequential(layer, module()), 0.5), lambda h: h + 0.5 * act(wide(h)), i
    if kind == "function":
        return lambda h: act(F.linear(h, layer.weight, layer.bias)), lambda h: act(wide(h)), o
    return nn.Sequential(layer, module()), lambda h: act(wide(h)), o


def merge(rng, widths, dtype):
    """The same for several parents."""
    kind = rng.choice(["cat", "varargs", "axis", "product", "sum"])
    if kind == "sum" and len(set(widths)) == 1:
        weights = [rng.uniform(-1, 1) for _ in widths]
        return (
            WeightedSum(*weights),
            lambda *h: sum(c * t for c, t in zip(weights, h, strict=True)),
            widths[0],
        )
    if kind == "product" and len(set(widths)) == 1:
        return (
            lambda a, *rest: a * torch.tanh(sum(rest)),
            lambda a, *rest: a * torch.tanh(sum(rest)),
            widths[0],
        )
    o = rng.randint(1, 3)
    head, wide = linear(rng, sum(widths), o, dtype)
    module, act = ACTIVATIONS[rng.choice(list(ACTIVATIONS))]
    oracle = lambda *h: act(wide(torch.cat(h, 1)))  # noqa: E731
    if kind == "varargs":
        return lambda *h: act(head(torch.cat(h, 1))), oracle, o
    if kind == "axis":
        return lambda *h: act(head(torch.cat(list(h), axis=1))), oracle, o
    return Concatenated(nn.Sequential(head, module())), oracle, o


def draw(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    dtype = torch.float32 if rng.random() < 0.25 else torch.float64
    batch, width = rng.choice([1, 2, 3]), rng.randint(1, 3)
    steps = []
    widths = {"input": width}
    shared = {}
    for i in range(rng.randint(1, 4)):
        known = list(widths)
        if len(known) > 2 and rng.random() < 0.5:
            parents = tuple(rng.sample(known, rng.randint(2, min(3, len(known)))))
            parents = (known[-1], *(p for p in parents if p != known[-1]))
        else:
            parents = (known[-1],)
        if (
            len(parents) == 1 and widths[parents[0]] in shared and rng.random() < 0.3
        ):  # a module used twice
            fn, oracle = shared[widths[parents[0]]]
            o = widths[parents[0]]
        elif len(parents) == 1:
            fn, oracle, o = one_parent(rng, widths[parents[0]], dtype)
            if o == widths[parents[0]]:
                shared[o] = fn, oracle
        else:
            fn, oracle, o = merge(rng, [widths[p] for p in parents], dtype)
        steps.append(Step(f"n{i}", parents, fn, oracle, o))
        widths[f"n{i}"] = o
    parents_of_some = {name for step in steps for name in step.parents}
    loose = [s.name for s in steps[:-1] if s.name not in parents_of_some]
    kind = rng.choice(["cross_entropy", "mse", "mean", "none", "bce"])
    classes = 1 if kind == "bce" else rng.randint(2, 3)
    last = (steps[-1].name, *loose)
    head, wide = linear(rng, sum(widths[p] for p in last), classes, dtype)
    oracle = lambda *h: wide(torch.cat(h, 1))  # noqa: E731
    fn = head if len(last) == 1 else (lambda *h: head(torch.cat(h, 1)))
    steps.append(Step("out", last, fn, oracle, classes))
    x = torch.randn(batch, width, dtype=dtype)
    return Graph(steps, *losses(rng, kind, batch, classes, dtype, x), dtype)


def losses(rng, kind, batch, classes, dtype, x):
    """(loss for the engine, for the oracle, x, y)."""
    if kind == "cross_entropy":
        y = torch.randint(0, classes, (batch,)).to(
            rng.choice([torch.int64, torch.uint8, torch.int32])
        )
        return "cross_entropy", lambda f, t: F.cross_entropy(f, t.long()), x, y
    if kind == "mse":
        return "mse", F.mse_loss, x, torch.randn(batch, classes, dtype=dtype)
    if kind == "mean":
        scale = 10.0 ** rng.choice([-12, 0, 12])
        y = torch.randn(batch, classes, dtype=dtype)
        return (
            lambda f, t: scale * F.huber_loss(f, t),
            lambda f, t: scale * F.huber_loss(f, t),
            x,
            y,
        )
    if kind == "bce":
        y = torch.rand(batch, 1, dtype=dtype)
        return nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits, x, y
    y = torch.randint(0, classes, (batch,))
    return nn.CrossEntropyLoss(reduction="none"), lambda f, t: F.cross_entropy(f, t), x, y


def dense(graph):
    """Hessian of the mean of the examples' losses with respect to what is added to the nodes'
    outputs, float64."""
    y = graph.y.double() if graph.y.is_floating_point() else graph.y

    def total(shifts):
        examples = zip(graph.x.double(), y, strict=True)
        return torch.stack(
            [graph.oracle_loss(graph.evaluate(x[None], shifts), t[None]) for x, t in examples]
        ).mean()

    return torch.autograd.functional.hessian(
        *placed(total, {s.name: (s.width,) for s in graph.steps})
    )


def far(found, expected):
    scale = float(expected.abs().max())
    error = float((found.double() - expected).abs().max())
    return error / scale if scale > 0 else error


SWEEP = [
    pytest.param(group, marks=[pytest.mark.slow] if group % 5 else []) for group in range(GROUPS)
]


@pytest.mark.parametrize("group", SWEEP)
def test_random_graphs_agree_with_the_dense_hessian(group):
    for seed in range(group, GRAPHS, GROUPS):
        graph = draw(seed)
        dag = rc.Dag([rc.Node(s.name, s.parents, s.fn) for s in graph.steps], graph.loss)
        names = [s.name for s in graph.steps]
        expected = dense(graph)
        allowed = (
            1e-11 if graph.dtype == torch.float64 else 1e-3
        )  # two-unit layer norms are ill-conditioned
        blocks = rc.exact_blocks(dag, graph.x, graph.y)
        matrix = assembled(blocks, names)
        assert matrix.dtype == graph.dtype and far(matrix, expected) < allowed, (
            f"exact blocks of graph {seed}"
        )
        operator = rc.CurvatureOperator(dag, graph.x, graph.y, names)
        places = torch.arange(len(expected)).split([s.width for s in graph.steps])
        order = torch.cat([places[names.index(v)] for v in operator.nodes])
        assert far(operator.dense(), expected[order][:, order]) < allowed, (
            f"products of graph {seed}"
        )
        if seed % 4 == 0:
            newton = rc.gauss_newton_blocks(dag, graph.x, graph.y)
            part = rc.CurvatureOperator(dag, graph.x, graph.y, names, part="gauss_newton")
            whole = assembled(newton, operator.nodes)
            assert far(part.dense(), whole.double()) < allowed, f"Gauss-Newton of graph {seed}"
