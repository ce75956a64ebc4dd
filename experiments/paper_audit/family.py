"""The simplest networks, on which every correction of the errata is tried.

A correction is a claim of this project and has to hold for every network that it speaks of, not for
the papers' networks alone. An author refutes a false one with a network that fits on one line, so
the family has those networks. It was fixed before the corrections were tried on it; an entry of
errata.toml names the members to which its assumptions apply, and says why the others are outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from experiments.paper_audit.attention.terms import Matrices
from experiments.paper_audit.dag.instances import Instance as Graph
from experiments.paper_audit.scalar.networks import Bias, Linear, Relu
from experiments.paper_audit.tensors import gauss, ones, real, seeded, zeros
from experiments.paper_audit.three_layer import NAMES, Instance as ThreeLayer
from runner.curvature import Dag, Node
from runner.curvature.graphs.dag import Concatenated, Residual

Member = Literal[
    "scalar chain",
    "one unit",
    "equal branches",
    "two classes",
    "depth 1",
    "constant activation",
    "linear activation",
    "singular loss",
]
MEMBERS: tuple[Member, ...] = get_args(Member)
ABSENT: dict[tuple[str, Member], str] = {
    ("scalar", "depth 1"): "the networks of the paper have a hidden layer",
    ("attention", "depth 1"): "every network of the paper is one layer of attention",
}
"""Members that no network of a kind can be, and why."""


# Graphs with a node for each layer (DAG paper)

Loss = Callable[[Tensor, Tensor], Tensor]


def half_square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().sum(1) / 2


def summed(output: Tensor, _: Tensor) -> Tensor:
    """∇²ℓ = 0."""
    return output.sum(1)


def square_of_sum(output: Tensor, _: Tensor) -> Tensor:
    """∇²ℓ has rank 1."""
    return output.sum(1).square() / 2


class Constant(nn.Module):
    """φ(z) = 1/2."""

    def forward(self, z: Tensor) -> Tensor:
        return 0 * z + 0.5


def dense(seed: int, inputs: int, outputs: int, act: nn.Module | None = None) -> nn.Module:
    """A layer with weights N(0, 1/inputs) and biases N(0, 0.01)."""
    generator = seeded(seed)
    linear = nn.Linear(inputs, outputs).double()
    with torch.no_grad():
        linear.weight.copy_(gauss(generator, outputs, inputs) / inputs**0.5)
        linear.bias.copy_(gauss(generator, outputs) / 10)
    return nn.Sequential(linear, act) if act else linear


def factor(value: float) -> nn.Module:
    """h ↦ value · h, of one number."""
    linear = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(linear.weight, value)
    return linear


def in_a_row(
    name: str, layers: Sequence[nn.Module], data: tuple[Tensor, Tensor], loss: Any = "cross_entropy"
) -> Graph:
    """One layer after the other; the last is the output."""
    names = [*(f"h{k}" for k in range(1, len(layers))), "out"]
    parents = ["input", *names]
    nodes = []
    for node, parent, layer in zip(names, parents, layers, strict=False):
        nodes.append(Node(node, (parent,), layer))
    return Graph(name, Dag(nodes, loss=loss), *data)


def with_skips(layers: Sequence[nn.Module]) -> list[nn.Module]:
    """h ↦ h + f(h)."""
    return [Residual(layer, 1.0) for layer in layers]


def points(seed: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """Two inputs with two different classes."""
    return gauss(seeded(seed), 2, width), torch.tensor([0, classes - 1])


def plain_and_residual(
    name: str, layers: Sequence[nn.Module], data: tuple[Tensor, Tensor], loss: Any
) -> tuple[Graph, ...]:
    """Layers of one width, without and with an identity skip over each."""
    plain = in_a_row(name, layers, data, loss)
    residual = in_a_row(f"{name} with identity skips", with_skips(layers), data, loss)
    return plain, residual


def scalar_chain() -> tuple[Graph, ...]:
    """D = 0.9 eight times."""
    layers = [factor(0.9) for _ in range(8)]
    data = (ones(1, 1), zeros(1, 1))
    return plain_and_residual("scalar chain, D = 0.9, L = 8", layers, data, half_square)


def one_unit() -> tuple[Graph, ...]:
    """One tanh unit a layer."""
    layers = [dense(k, 1, 1, nn.Tanh()) for k in range(3)]
    data = (real([[1.0], [-0.5]]), real([[0.3], [0.2]]))
    return plain_and_residual("one tanh unit a layer, L = 3", layers, data, half_square)


def equal_branches() -> tuple[Graph, ...]:
    """out = (v, v), and two branches with the same weights into one merge."""
    first = Node("v", ("input",), factor(1.0))
    both = Node("out", ("v",), lambda v: torch.cat([v, v], 1))
    twice = Graph(
        "out = (v, v), softmax", Dag([first, both]), real([[1.0], [-0.5]]), torch.tensor([0, 1])
    )
    branch = dense(1, 2, 2, nn.Tanh())
    half = dense(2, 2, 2)
    merge = nn.Linear(4, 2).double()
    with torch.no_grad():
        weight = half.get_parameter("weight")
        merge.weight.copy_(torch.cat([weight, weight], 1))
    nodes = [
        Node("stem", ("input",), dense(0, 2, 2, nn.Tanh())),
        Node("a", ("stem",), branch),
        Node("b", ("stem",), branch),
        Node("merge", ("a", "b"), Concatenated(nn.Sequential(merge, nn.Tanh()))),
        Node("out", ("merge",), dense(3, 2, 3)),
    ]
    diamond = Graph("two equal branches", Dag(nodes), *points(4, 2, 3))
    return twice, diamond


def singular_loss() -> tuple[Graph, ...]:
    """∇²ℓ = 0, ∇²ℓ of rank 1, and no residual."""
    layers = [dense(0, 2, 3, nn.Tanh()), dense(1, 3, 2, nn.Tanh())]
    x, _ = points(2, 2, 2)
    nothing = zeros(2, 2)
    linear = in_a_row("loss linear in the output", layers, (x, nothing), summed)
    rank_one = in_a_row("∇²ℓ of rank 1", layers, (x, nothing), square_of_sum)
    with torch.no_grad():
        fitted = linear.dag.forward(x)["out"].detach()
    solved = in_a_row("no residual", layers, (x, fitted), half_square)
    return linear, rank_one, solved


@cache
def graphs(member: Member) -> tuple[Graph, ...]:
    """Networks of the DAG paper, a node for each layer."""
    tanh = [dense(0, 2, 3, nn.Tanh()), dense(1, 3, 2)]
    square = gauss(seeded(5), 2, 3)
    constant = [dense(k, 3, 3, Constant()) for k in range(3)]
    linear = [dense(k, 3, 3) for k in range(3)]
    if member == "scalar chain":
        return scalar_chain()
    if member == "one unit":
        return one_unit()
    if member == "equal branches":
        return equal_branches()
    if member == "two classes":
        return (in_a_row("two classes", tanh, points(2, 2, 2)),)
    if member == "depth 1":
        return (in_a_row("one linear layer, softmax", [dense(0, 3, 3)], points(1, 3, 3)),)
    if member == "constant activation":
        head = [*constant, dense(4, 3, 3)]
        return plain_and_residual("constant activation", head, points(3, 3, 3), "cross_entropy")
    if member == "linear activation":
        return plain_and_residual("linear activation", linear, (square, -square), half_square)
    return singular_loss()


# The three-layer network (WS-bound and HSR papers)


def three_layer_network(
    name: str, columns: Sequence[Sequence[float]], output: Sequence[float], x: Any, q: Any
) -> ThreeLayer:
    """columns: b and W of every unit; output: c and V."""
    units = real(columns).mT.flatten()
    theta = torch.cat([units, real(output)])
    return ThreeLayer(name, theta, real(x), real(q))


TWO_POINTS = [[1.0], [-0.5]]


@cache
def three_layer(member: Member) -> tuple[ThreeLayer, ...]:
    """Networks of the WS-bound and of the HSR paper: one hidden layer, one output, labels 0 and
    1."""
    build = three_layer_network
    if member == "scalar chain":
        return (build("linear", [[0.0, 0.9]], [0.0, 0.9], [[1.0]], [0.0]),)
    if member == "one unit":
        x = [[1.0, 0.5], [-0.5, 1.0], [0.2, -1.0]]
        unit = [[0.1, 0.7, -0.4]]
        return tuple(build(name, unit, [0.2, 1.3], x, [0.0, 1.0, 1.0]) for name in NAMES)
    if member == "equal branches":
        units = [[0.3, 0.7], [0.3, 0.7]]
        signs = (1.0, -1.0)
        return tuple(
            build(name, units, [0.2, 1.0, sign], TWO_POINTS, [0.0, 1.0])
            for name in NAMES
            for sign in signs
        )
    if member == "two classes":
        units = [[0.3, 0.7], [-0.2, 1.1]]
        labels = ([0.0, 1.0], [0.0, 0.0])
        return tuple(build("tanh", units, [0.2, 1.0, -0.6], TWO_POINTS, q) for q in labels)
    if member == "depth 1":  # the hidden layer does not reach the output
        units = [[0.3, 0.7], [-0.2, 1.1]]
        return (build("sigmoid", units, [0.4, 0.0, 0.0], TWO_POINTS, [0.0, 1.0]),)
    if member == "constant activation":  # hidden values that no input changes
        units = [[0.3, 0.0], [-0.2, 0.0]]
        return tuple(build(name, units, [0.2, 1.0, -0.6], TWO_POINTS, [0.0, 1.0]) for name in NAMES)
    if member == "linear activation":
        generator = seeded(0)
        x = gauss(generator, 4, 2).tolist()
        units = gauss(generator, 3, 3).tolist()
        return (build("linear", units, [0.1, 0.6, -0.4, 0.9], x, [0.0, 1.0, 0.0, 1.0]),)
    units = [[0.3, 0.7], [-0.2, 1.1]]  # s' and δ below 1e-12
    return (build("tanh", units, [30.0, 1.0, -0.6], TWO_POINTS, [1.0, 1.0]),)


# One hidden layer without or with biases, one input (scalar-spectrum paper)

Layers = tuple[Tensor, Tensor, Tensor, Tensor]
"""w, v, x, y."""


def scalar_layers(member: Member) -> tuple[Layers, ...]:
    x = real([1.0, -0.5, 0.3, -1.2])
    y = real([0.2, -1.0, 0.7, 0.4])
    w = real([1.0, -0.7, 0.4])
    v = real([0.5, 1.1, -0.8])
    if member == "scalar chain":
        return ((real([0.9]), real([0.9]), ones(1), zeros(1)),)
    if member == "one unit":
        return ((real([1.3]), real([-0.6]), x, y),)
    if member == "equal branches":
        equal = ones(2)
        return ((equal, equal / 2, x, y), (equal, equal, x, y), (equal, -equal, x, y))
    if member == "two classes":
        return ((w, v, x, torch.sign(y)),)
    if member == "constant activation":
        return ((w, zeros(3), x, y),)
    if member == "linear activation":
        return ((w, v, x, y), (w, v, x, -y))
    if member == "singular loss":  # no residual, and no input
        return ((w, v, x, torch.dot(w, v) * x), (w, v, 0 * x, y))
    raise ValueError(f"{member}: {ABSENT['scalar', member]}")


@cache
def linear(member: Member) -> tuple[Linear, ...]:
    """Linear networks of the scalar-spectrum paper."""
    return tuple(Linear(*layers) for layers in scalar_layers(member))


@cache
def relu(member: Member) -> tuple[Relu, ...]:
    """ReLU networks of the scalar-spectrum paper, the same numbers."""
    return tuple(Relu(*layers) for layers in scalar_layers(member))


@cache
def with_bias(member: Member) -> tuple[Bias, ...]:
    """Networks with bias of the scalar-spectrum paper, inputs of mean 0 and mean square 1."""
    networks = []
    for w, v, x, y in scalar_layers(member):
        count = len(x)
        signs = real([1.0, -1.0]).repeat(max(count // 2, 1))
        targets = y if count > 1 else y.repeat(2)
        b = real([0.4, -0.2, 0.9])[: len(w)]
        networks.append(Bias(w, v, signs, targets, b))
    return tuple(networks)


# One layer of attention (attention paper)


def attention_matrices(tokens: int, width: int) -> Matrices:
    generator = seeded(10 * tokens + width)
    shapes = ((width, tokens), (width, width), (width, width), (tokens, width))
    x, w, v, b = (gauss(generator, *shape) for shape in shapes)
    return x, w, v, b


@cache
def attention(member: Member) -> tuple[Matrices, ...]:
    """X (d, n), W, V and B of the attention paper."""
    one = ones(1, 1)
    if member == "scalar chain":  # one token of width 1
        return ((one, one, one, 0 * one),)
    if member == "one unit":  # width 1
        return (attention_matrices(3, 1),)
    if member == "equal branches":  # two equal tokens
        x, w, v, b = attention_matrices(3, 2)
        equal = torch.stack([x[:, 0], x[:, 0], x[:, 2]], 1)
        return ((equal, w, v, b),)
    if member == "two classes":  # softmax over two tokens
        return (attention_matrices(2, 2),)
    if member == "constant activation":  # uniform softmax, and constant values
        x, w, v, b = attention_matrices(3, 2)
        return ((x, 0 * w, v, b), (x, w, 0 * v, b))
    if member == "linear activation":  # softmax over one token is 1
        return (attention_matrices(1, 2),)
    if member == "singular loss":  # no residual, and no data
        x, w, v, _ = attention_matrices(2, 2)
        fitted = torch.softmax((x.T @ w @ x).T, -1) @ x.T @ v
        return ((x, w, v, fitted), (0 * x, w, v, 0 * fitted))
    raise ValueError(f"{member}: {ABSENT['attention', member]}")


@cache
def attention_graphs(member: Member) -> tuple[Graph, ...]:
    """The same as graphs: queries, keys and values are nodes before the output."""

    def graph(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Graph:
        def attend(q: Tensor, k: Tensor, values: Tensor) -> Tensor:
            return torch.softmax(q @ k.transpose(1, 2), 2) @ values

        nodes = [
            Node("q", ("input",), lambda tokens: tokens @ w.mT),
            Node("k", ("input",), lambda tokens: 1 * tokens),
            Node("v", ("input",), lambda tokens: tokens @ v),
            Node("out", ("q", "k", "v"), attend),
        ]
        inputs = x.mT.unsqueeze(0)
        dag = Dag(nodes, loss="mse")
        return Graph(f"attention over {len(b)} tokens of width {len(x)}", dag, inputs, b[None])

    return tuple(graph(*matrices) for matrices in attention(member))
