"""The one table of test graphs and losses, and the dense float64 oracle that every method is
compared with."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature import Dag, LayerOperator, Node
from runner.curvature.graphs.dag import Concatenated, Residual, WeightedSum
from tests.curvature.oracles import blocks_of, gauss_newton_matrix, hessian_blocks, placed
from tests.draws import normal, seeded, tanh_net

ACTIVATIONS = {"smooth": nn.SiLU, "relu": nn.ReLU}


@dataclass(frozen=True)
class Case:
    name: str
    dag: Dag
    x: Tensor
    y: Tensor

    @property
    def nodes(self):
        return self.dag.order

    @property
    def given(self):
        """What a measurement takes."""
        return self.dag, self.x, self.y


def block(i, o, act, norm=False):
    if not norm:
        return nn.Sequential(nn.Linear(i, o), act()).double()
    module = nn.Sequential(nn.Linear(i, o), nn.LayerNorm(o), act()).double()
    nn.init.uniform_(module[1].weight, 0.5, 1.5)
    nn.init.normal_(module[1].bias)
    return module


def linear(i, o):
    return nn.Linear(i, o).double()


def graph(loss="cross_entropy", **nodes):
    """Nodes by name, each with the names of its parents and its function."""
    stated = [Node(name, tuple(parents.split()), fn) for name, (parents, fn) in nodes.items()]
    return Dag(stated, loss)


def chain(act):
    layers = [block(5, 4, act), block(4, 6, act), block(6, 3, act), linear(3, 4)]
    return Dag.from_sequential(layers, names=["a", "b", "c", "out"])


def chain_layer_norm(act):
    blocks = [block(i, o, act, norm=True) for i, o in ((5, 4), (4, 6), (6, 4))]
    return Dag.from_sequential([*blocks, linear(4, 3)], names=["h0", "h1", "h2", "out"])


def residual(act):
    blocks = (Residual(block(4, 4, act), scale=3**-0.5) for _ in range(3))
    layers = [block(5, 4, act, norm=True), *blocks, linear(4, 3)]
    return Dag.from_sequential(layers, names=["proj", "r0", "r1", "r2", "out"])


def skip(act):
    """A skip as an edge of the graph, into a nonlinear merge and into a linear one, and one
    straight to the output."""
    head = linear(4, 3)
    return graph(
        a=("input", block(5, 4, act)),
        b=("a", block(4, 4, act)),
        c=("b a", Concatenated(block(8, 4, act))),
        d=("c a", WeightedSum(0.5, 2.0)),
        out=("d b", lambda d, b: head(d * b)),
    )


def diamond_sum(act):
    return graph(
        stem=("input", block(5, 4, act, norm=True)),
        a0=("stem", block(4, 4, act, norm=True)),
        a1=("a0", block(4, 4, act, norm=True)),
        b0=("stem", block(4, 3, act, norm=True)),
        b1=("b0", block(3, 4, act, norm=True)),
        merge=("a1 b1", WeightedSum(2**-0.5, 2**-0.5)),
        out=("merge", linear(4, 3)),
    )


def diamond_cat(act):
    return graph(
        out=("merge", linear(4, 3)),
        merge=("b0 a0", Concatenated(block(7, 4, act))),
        b0=("stem", block(4, 3, act)),
        a0=("stem", block(4, 4, act)),
        stem=("input", block(5, 4, act)),
    )


def shared_weights(act):
    """The same module in three nodes, one of them reached by a skip."""
    cell = block(4, 4, act)
    return graph(
        loss="mse",
        embed=("input", linear(5, 4)),
        s1=("embed", cell),
        s2=("s1", cell),
        mix=("s2 embed", lambda a, b: a * b),
        s3=("mix", cell),
        out=("s3", linear(4, 2)),
    )


def attention(act):
    """Single-head attention on 3 tokens of width 2 (fan-in 3, node outputs with two dimensions),
    mean pool, scalar output."""
    q, k, v, head = linear(2, 2), linear(2, 2), linear(2, 2), linear(2, 1)
    mix = act()

    def attend(queries, keys, values):
        return torch.softmax(queries @ keys.transpose(1, 2) / 2**0.5, 2) @ values

    return graph(
        loss="mse",
        q=("input", q),
        k=("input", k),
        v=("input", v),
        attend=("q k v", attend),
        mlp=("attend", lambda h: mix(h)),
        out=("mlp", lambda h: head(h.mean(1))),
    )


def nested_branches(act):
    """A diamond inside a branch of a diamond, an edge across, and a callable loss that returns the
    mean."""

    def loss(output, target):
        return (output - target).pow(4).sum(1).mean() + torch.sin(output.sum(1)).mean()

    return graph(
        loss=loss,
        s=("input", block(5, 3, act)),
        a=("s", block(3, 3, act)),
        b=("s", block(3, 3, act)),
        a1=("a", block(3, 3, act)),
        a2=("a", block(3, 2, act)),
        am=("a1 a2", Concatenated(block(5, 3, act))),
        m=("am b a", Concatenated(block(9, 3, act, norm=True))),
        out=("m b", WeightedSum(1.0, -0.5)),
    )


def convolution(act):
    """Convolution, evaluation-mode BatchNorm, pooling: node outputs with three dimensions."""
    stem = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), act()).double()
    nn.init.normal_(stem[1].running_mean)
    nn.init.uniform_(stem[1].running_var, 0.5, 2)
    return graph(
        stem=("input", stem.eval()),
        conv=("stem", nn.Sequential(nn.Conv2d(2, 2, 2, padding=1), act()).double()),
        add=("conv stem", lambda c, s: c[:, :, 1:, 1:] + s),
        out=("add", nn.Sequential(nn.Flatten(), linear(8, 3))),
    )


MADE = (
    *(chain, chain_layer_norm, residual, skip, diamond_sum, diamond_cat),
    *(shared_weights, attention, nested_branches, convolution),
)
GRAPHS = {made.__name__: made for made in MADE}


def make(graph, activation="smooth", batch=3, seed=0):
    torch.manual_seed(seed)
    dag = GRAPHS[graph](ACTIVATIONS[activation])
    shape = {"attention": (3, 2), "convolution": (1, 3, 3)}.get(graph, (5,))
    x = normal(batch, *shape)
    with torch.no_grad():
        output = dag.forward(x)[dag.output]
    if dag.loss.name == "cross_entropy":
        y = torch.randint(0, output.shape[1], (batch,))
    else:
        y = torch.randn_like(output)
    return Case(f"{graph}-{activation}", dag, x, y)


KINKED = ("chain_layer_norm", "skip", "convolution")
ALL = [(graph, "smooth") for graph in GRAPHS]
ALL += [(graph, "relu") for graph in KINKED]
ALL += [pytest.param(g, "relu", marks=pytest.mark.slow) for g in GRAPHS if g not in KINKED]
"""(graph, activation): every graph with a smooth activation; with ReLU, three of them every day."""


def shapes_of(case, nodes):
    with torch.no_grad():
        values = case.dag.forward(case.x)
    return {v: values[v].shape[1:] for v in nodes}


def dense_hessian(case, nodes):
    """Blocks of the dense Hessian with respect to perturbations added to node outputs (the
    oracle)."""
    loss = lambda shifts: case.dag.mean_loss(case.x, case.y, shifts)  # noqa: E731
    return hessian_blocks(loss, shapes_of(case, nodes))


def dense_gauss_newton(case, nodes):
    """Oracle of the Gauss-Newton blocks."""
    shapes = shapes_of(case, nodes)
    output, zero = placed(lambda shifts: case.dag.forward(case.x, shifts)[case.dag.output], shapes)
    loss = lambda f: case.dag.loss.per_example(f, case.y).mean()  # noqa: E731
    return blocks_of(gauss_newton_matrix(output, zero, loss), shapes)


def relative_error(found, expected):
    """Largest entry of the difference over the largest entry of all expected blocks."""
    scale = max(float(b.abs().max()) for b in expected.values())
    return max(float((found[pair] - expected[pair]).abs().max()) for pair in expected) / scale


# ----------------------------------------------- a small batch, and functions between linear layers


X = normal(4, 6, generator=seeded())
Y = torch.tensor([0, 1, 2, 0])


def mlp(outputs=3):
    torch.manual_seed(1)
    return tanh_net(6, 5, outputs).double()


def between(fn, dtype=torch.float64, loss="cross_entropy", outputs=3):
    """input -> h (Linear) -> a (fn) -> out (Linear)."""
    torch.manual_seed(2)
    layers = [nn.Linear(6, 5).to(dtype), fn, nn.Linear(5, outputs).to(dtype)]
    return Dag.from_sequential(layers, loss, ["h", "a", "out"])


def node_operator(dag, x, y, nodes=None, part="hessian", **options):
    """Products between the nodes of a stated graph."""
    return LayerOperator(dag.as_module(), dag.loss, (x, y), dag.select(nodes), part, **options)


def with_backward(forward, backward):
    """A function of one tensor and its derivative: forward(t), backward(g, t)."""

    class Written(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return forward(t)

        @staticmethod
        def backward(ctx, g):
            return backward(g, *ctx.saved_tensors)

    return Written.apply


class Swish(torch.autograd.Function):
    """A backward without a second derivative."""

    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * torch.sigmoid(t)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        s = torch.sigmoid(t)
        return g * (s + t * s * (1 - s))


class Detached(torch.autograd.Function):
    """A backward that hides its dependence on t from autograd, which no mark tells."""

    @staticmethod
    def forward(ctx, t):
        ctx.kept = t.detach().clone()
        return torch.tanh(t)

    @staticmethod
    def backward(ctx, g):
        return g * (1 - torch.tanh(ctx.kept) ** 2)


class Own(nn.Module):
    """forward(module, *args, **kwargs), over submodules, parameters and numbers given by name."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.how = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self.how(self, *args, **kwargs)


def causal(t):
    mask = torch.ones(len(t), len(t), dtype=torch.bool).tril()
    return torch.softmax((t @ t.T).masked_fill(~mask, -torch.inf), 1) @ t


ROWS = Own(lambda m, h: m.lstm(h.unsqueeze(1))[0].squeeze(1), lstm=nn.LSTM(5, 5).double())
"""An LSTM with the default batch_first=False, given (B, T, d): it runs over the examples."""
MIXING = {
    "cumsum": lambda t: torch.tanh(t).cumsum(0),
    "reversed cumsum": lambda t: torch.tanh(t).flip(0).cumsum(0).flip(0),
    "causal attention": causal,
    "LSTM over dimension 0": ROWS,
    "position in the batch": lambda t: torch.tanh(t) * torch.arange(1, len(t) + 1).unsqueeze(1),
    "batch statistics": lambda t: torch.tanh(F.batch_norm(t, None, None, training=True)),
}


def scaled():
    """Its number is what tracing takes for a constant."""
    return Own(lambda m, t: torch.tanh(m.linear(t) * m.scale), linear=nn.Linear(5, 5), scale=1.0)


def patched(module, forward):
    module.forward = forward(module.forward)
    return module
