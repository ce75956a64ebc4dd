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
from tests.curvature.cases import node_operator
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
    x: Tensor
    dtype: torch.dtype
    loss: object
    oracle_loss: Callable[[Tensor, Tensor], Tensor]
    y: Tensor

    def evaluate(self, x, shifts):
        """Output of one example (1, d), float64."""
        values = {"input": x}
        for step in self.steps:
            values[step.name] = step.oracle(*(values[p] for p in step.parents)) + shifts[step.name]
        return values[self.steps[-1].name]


def wide(module):
    """A copy in float64."""
    return copy.deepcopy(module).double()


def linear(rng, i, o, dtype):
    return nn.Linear(i, o, bias=rng.random() < 0.8).to(dtype)


def activation(rng):
    """(a module, its function)."""
    make, function = ACTIVATIONS[rng.choice(list(ACTIVATIONS))]
    return make(), function


def doubled(h):
    return h * torch.sin(h)


def gated(a, *rest):
    return a * torch.tanh(sum(rest))


def one_parent(rng, i, dtype):
    """(engine's function, oracle's, width) of a node with one parent of width i."""
    kind = rng.choice(["layer", "layer", "activation", "residual", "product", "norm", "function"])
    module, act = activation(rng)
    if kind == "activation":
        return module, act, i
    if kind == "product":
        return doubled, doubled, i
    if kind == "norm":
        norm = nn.LayerNorm(i).to(dtype)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        exact = wide(norm)
        return (lambda h: h + norm(h)), (lambda h: h + exact(h)), i
    o = i if kind == "residual" else rng.randint(1, 3)
    layer = linear(rng, i, o, dtype)
    exact = wide(layer)
    if kind == "residual":
        return Residual(nn.Sequential(layer, module), 0.5), lambda h: h + 0.5 * act(exact(h)), i
    if kind == "function":
        return lambda h: act(F.linear(h, layer.weight, layer.bias)), lambda h: act(exact(h)), o
    return nn.Sequential(layer, module), lambda h: act(exact(h)), o


def merge(rng, widths, dtype):
    """The same for several parents."""
    kind, equal = rng.choice(["cat", "varargs", "axis", "product", "sum"]), len(set(widths)) == 1
    if kind == "sum" and equal:
        weights = [rng.uniform(-1, 1) for _ in widths]
        weighed = lambda *h: sum(c * t for c, t in zip(weights, h, strict=True))  # noqa: E731
        return WeightedSum(*weights), weighed, widths[0]
    if kind == "product" and equal:
        return gated, gated, widths[0]
    o = rng.randint(1, 3)
    head = linear(rng, sum(widths), o, dtype)
    exact, (module, act) = wide(head), activation(rng)
    oracle = lambda *h: act(exact(torch.cat(h, 1)))  # noqa: E731
    if kind == "varargs":
        return lambda *h: act(head(torch.cat(h, 1))), oracle, o
    if kind == "axis":
        return lambda *h: act(head(torch.cat(list(h), axis=1))), oracle, o
    return Concatenated(nn.Sequential(head, module)), oracle, o


def draw_parents(rng, known):
    """The last node, and sometimes others."""
    if len(known) < 3 or rng.random() >= 0.5:
        return (known[-1],)
    others = rng.sample(known, rng.randint(2, min(3, len(known))))
    return (known[-1], *(p for p in others if p != known[-1]))


def draw(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    dtype = torch.float32 if rng.random() < 0.25 else torch.float64
    batch, width = rng.choice([1, 2, 3]), rng.randint(1, 3)
    steps, widths, shared = [], {"input": width}, {}
    for i in range(rng.randint(1, 4)):
        parents = draw_parents(rng, list(widths))
        inputs = [widths[p] for p in parents]
        if len(parents) > 1:
            made = merge(rng, inputs, dtype)
        elif inputs[0] in shared and rng.random() < 0.3:  # a module used twice
            made = shared[inputs[0]]
        else:
            made = one_parent(rng, inputs[0], dtype)
            if made[2] == inputs[0]:
                shared[inputs[0]] = made
        steps.append(Step(f"n{i}", parents, *made))
        widths[f"n{i}"] = made[2]
    used = {name for step in steps for name in step.parents}
    last = [step.name for step in reversed(steps) if step.name not in used]
    kind = rng.choice(["cross_entropy", "mse", "mean", "none", "bce"])
    classes = 1 if kind == "bce" else rng.randint(2, 3)
    head = linear(rng, sum(widths[p] for p in last), classes, dtype)
    exact = wide(head)
    fn = head if len(last) == 1 else (lambda *h: head(torch.cat(h, 1)))
    steps.append(Step("out", tuple(last), fn, lambda *h: exact(torch.cat(h, 1)), classes))
    x = torch.randn(batch, width, dtype=dtype)
    return Graph(steps, x, dtype, *draw_loss(rng, kind, batch, classes, dtype))


def draw_loss(rng, kind, batch, classes, dtype):
    """(loss for the engine, for the oracle, y)."""
    values, labels = torch.randn(batch, classes, dtype=dtype), torch.randint(classes, (batch,))
    if kind == "mse":
        return "mse", F.mse_loss, values
    if kind == "mean":
        scale = 10.0 ** rng.choice([-12, 0, 12])
        huber = lambda f, t: scale * F.huber_loss(f, t)  # noqa: E731
        return huber, huber, values
    if kind == "bce":
        return nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits, torch.sigmoid(values)
    plain = lambda f, t: F.cross_entropy(f, t.long())  # noqa: E731
    if kind == "none":
        return nn.CrossEntropyLoss(reduction="none"), plain, labels
    return "cross_entropy", plain, labels.to(rng.choice([torch.int64, torch.uint8, torch.int32]))


def dense(graph):
    """Hessian of the mean of the examples' losses with respect to what is added to the nodes'
    outputs, float64."""
    y = graph.y.double() if graph.y.is_floating_point() else graph.y

    def total(shifts):
        losses = []
        for x, t in zip(graph.x.double().split(1), y.split(1), strict=True):
            losses.append(graph.oracle_loss(graph.evaluate(x, shifts), t))
        return torch.stack(losses).mean()

    shapes = {step.name: (step.width,) for step in graph.steps}
    return torch.autograd.functional.hessian(*placed(total, shapes))


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
        names, expected = [s.name for s in graph.steps], dense(graph)
        # two-unit layer norms are ill-conditioned
        allowed = 1e-11 if graph.dtype == torch.float64 else 1e-3
        matrix = assembled(rc.exact_blocks(dag, graph.x, graph.y), names)
        assert matrix.dtype == graph.dtype
        assert far(matrix, expected) < allowed, f"exact blocks of graph {seed}"
        operator = node_operator(dag, graph.x, graph.y, names)
        places = torch.arange(len(expected)).split([s.width for s in graph.steps])
        order = torch.cat([places[names.index(v)] for v in operator.nodes])
        right = expected[order][:, order]
        assert far(operator.dense(), right) < allowed, f"products of graph {seed}"
        if seed % 4 == 0:
            newton = rc.gauss_newton_blocks(dag, graph.x, graph.y)
            part = operator.with_part("gauss_newton")
            whole = assembled(newton, operator.nodes).double()
            assert far(part.dense(), whole) < allowed, f"Gauss-Newton of graph {seed}"
