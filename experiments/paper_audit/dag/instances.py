"""Networks on which the formulas of the DAG paper are tried: by hand, and random ones of every
graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from experiments.paper_audit.tensors import gauss, real, uniform
from runner.curvature import Dag, Node
from runner.curvature.graphs.dag import Concatenated, Residual, WeightedSum

Act = Callable[[], nn.Module]
Blocks = dict[tuple[str, str], Tensor]
ScalarNode = tuple[str, tuple[str, ...], Callable[..., Tensor]]
"""Name, parents and function of a node that is given by hand."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A network with its data, float64."""

    name: str
    dag: Dag
    x: Tensor
    y: Tensor

    def __str__(self) -> str:
        return self.name


def with_data(name: str, dag: Dag, width: int, batch: int = 2) -> Instance:
    """With random inputs and classes."""
    x = torch.randn(batch, width, dtype=torch.float64)
    with torch.no_grad():
        output = dag.forward(x)[dag.output]
    classes = output.shape[1]
    y = torch.randint(0, classes, (batch,))
    return Instance(name, dag, x, y)


def layer(i: int, o: int, act: Act, norm: bool = False) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Linear(i, o)]
    if norm:
        parts.append(nn.LayerNorm(o))
    return nn.Sequential(*parts, act()).double()


def linear_head(name: str, width: int) -> Node:
    """The node "out", of three classes."""
    return Node("out", (name,), nn.Linear(width, 3).double())


def chain(
    seed: int,
    act: Act = nn.SiLU,
    norm: bool = False,
    widths: Sequence[int] = (3, 4, 3, 4),
    batch: int = 2,
) -> Instance:
    """input -> h1 -> h2 -> ... -> out, cross-entropy."""
    torch.manual_seed(seed)
    nodes = []
    parent = "input"
    sizes = itertools.pairwise(widths)
    for k, (i, o) in enumerate(sizes, start=1):
        name = f"h{k}"
        nodes.append(Node(name, (parent,), layer(i, o, act, norm)))
        parent = name
    dag = Dag([*nodes, linear_head(parent, widths[-1])])
    return with_data(f"chain of widths {tuple(widths)}", dag, widths[0], batch)


def residual(seed: int, act: Act = nn.SiLU, depth: int = 3, scale: float = 0.5) -> Instance:
    """h <- h + scale * act(W h) of width 4 down to the output itself, cross-entropy over the 4
    components."""
    torch.manual_seed(seed)
    nodes = [Node("h0", ("input",), layer(3, 4, act))]
    for k in range(depth):
        nodes.append(Node(f"h{k + 1}", (f"h{k}",), Residual(layer(4, 4, act), scale)))
    return with_data(f"residual network of depth {depth}", Dag(nodes), 3)


def diamond(
    seed: int, act: Act = nn.SiLU, merge: str = "cat", lengths: tuple[int, int] = (1, 1)
) -> Instance:
    """stem -> a, b -> merge -> out; merge "cat": act(W [a, b]), "sum": a + b. lengths: layers of
    the branches, the last of which are a and b."""
    torch.manual_seed(seed)
    join: nn.Module = WeightedSum(1.0, 1.0)
    if merge == "cat":
        join = Concatenated(layer(6, 3, act))
    nodes = [Node("stem", ("input",), layer(3, 4, act))]
    for end, length in zip("ab", lengths, strict=True):
        parent = "stem"
        width = 4
        inner = [f"{end}{k}" for k in range(1, length)]
        for name in [*inner, end]:
            nodes.append(Node(name, (parent,), layer(width, 3, act)))
            parent = name
            width = 3
    nodes += [Node("merge", ("a", "b"), join), linear_head("merge", 3)]
    name = f"diamond with {merge} merge, branches of {lengths[0]} and {lengths[1]}"
    return with_data(name, Dag(nodes), 3)


def skip(seed: int, act: Act = nn.SiLU) -> Instance:
    """a -> b, and (b, a) -> m by act(W [b, a]): a skip into a nonlinear merge."""
    torch.manual_seed(seed)
    nodes = [
        Node("a", ("input",), layer(3, 4, act)),
        Node("b", ("a",), layer(4, 4, act)),
        Node("m", ("b", "a"), Concatenated(layer(8, 4, act))),
        linear_head("m", 4),
    ]
    return with_data("skip into a nonlinear merge", Dag(nodes), 3)


def projection(name: str, width: int) -> Node:
    """W x of every token, without a bias."""
    return Node(name, ("input",), nn.Linear(width, width, bias=False).double())


def attention(seed: int, tokens: int = 3, width: int = 2) -> Instance:
    """q, k, v -> softmax(q k^T / sqrt(d)) v = out, squared error per token."""
    torch.manual_seed(seed)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(1, 2) / width**0.5
        return torch.softmax(scores, 2) @ v

    nodes = [projection(name, width) for name in "qkv"]
    dag = Dag([*nodes, Node("out", ("q", "k", "v"), attend)], loss="mse")
    x = torch.randn(1, tokens, width, dtype=torch.float64)
    y = torch.randn_like(x)
    return Instance(f"attention over {tokens} tokens", dag, x, y)


def pooled(seed: int) -> Instance:
    """Max-pooling over pairs of four units."""
    torch.manual_seed(seed)
    parts = [nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), nn.MaxPool1d(2), nn.Flatten()]
    first = Node("h1", ("input",), nn.Sequential(*parts).double())
    second = Node("h2", ("h1",), layer(2, 3, nn.ReLU))
    dag = Dag([first, second, linear_head("h2", 3)])
    return with_data("max-pooling and ReLU", dag, 3)


def residual_blocks(
    depth: int, generator: torch.Generator, he: bool = False
) -> tuple[list[Tensor], Tensor]:
    """αDW of every block I + αDW of a residual MLP of width 64 like Exp. 1's before training, α =
    L^(−1/2), at 32 Gaussian inputs, (32, 64, 64) each, and its last layer.

    he: weights N(0, 2/64); else PyTorch's default for a linear layer.
    """
    alpha = depth**-0.5
    h = gauss(generator, 32, 64).relu()
    blocks = []
    for _ in range(depth):
        if he:
            scale = (2 / 64) ** 0.5
            weight = gauss(generator, 64, 64) * scale
        else:
            weight = default_weight(generator, 64, 64)
        z = h @ weight.mT
        active = (z > 0).double()
        blocks.append(alpha * active[..., None] * weight)
        h = h + alpha * z.relu()
    return blocks, h


def default_weight(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """Uniform in ±1/√columns."""
    return (uniform(generator, rows, columns) * 2 - 1) / columns**0.5


def smooth_chains() -> tuple[Instance, ...]:
    tanh = chain(1, nn.Tanh, widths=(2, 5, 2, 3, 4))
    gelu = chain(2, nn.GELU, norm=True)
    return (chain(0), tanh, gelu)


@cache
def smooth() -> tuple[Instance, ...]:
    """Instances with smooth activations: chains of several sizes, residual, diamonds, skip,
    attention."""
    return (
        *smooth_chains(),
        residual(3),
        diamond(4),
        diamond(5, nn.Softplus, "sum"),
        diamond(8, lengths=(2, 2)),
        diamond(9, nn.Tanh, lengths=(1, 2)),
        skip(6),
        attention(7),
    )


@cache
def piecewise_linear() -> tuple[Instance, ...]:
    """The same graphs with ReLU and Leaky ReLU, without LayerNorm."""
    return (
        chain(0, nn.ReLU),
        chain(1, nn.LeakyReLU, widths=(2, 5, 2, 3, 4)),
        residual(3, nn.ReLU),
        diamond(4, nn.ReLU),
        diamond(5, nn.LeakyReLU, "sum"),
        skip(6, nn.ReLU),
    )


def smooth_and_piecewise_linear() -> tuple[Instance, ...]:
    return smooth() + piecewise_linear()


def relative_error(found: Blocks, expected: Blocks) -> float:
    """Largest error of a block of `found` relative to that block of `expected`, in the largest
    entries.

    Blocks far smaller than the largest one are measured against 1e-4 of it, as rounding is.
    """
    sizes = {pair: float(block.abs().max()) for pair, block in expected.items()}
    floor = 1e-4 * max(sizes.values()) or 1.0
    errors = []
    for pair, block in found.items():
        errors.append(float((block - expected[pair]).abs().max()) / max(sizes[pair], floor))
    return max(errors)


def scalar_nodes(
    nodes: Sequence[ScalarNode], x: Sequence[float], square: bool = False, name: str = "by hand"
) -> Instance:
    """Nodes given by functions of (1, d) tensors, with the loss sum(out), or sum(out^2) / 2:
    counter-examples by hand."""

    def loss(output: Tensor, _: Tensor) -> Tensor:
        if square:
            return output.square().sum(1) / 2
        return output.sum(1)

    data = real([list(x)])
    return Instance(name, Dag([Node(*node) for node in nodes], loss=loss), data, data)


def identity(*parts: Tensor) -> Tensor:
    return 1 * parts[0]


def copy(name: str, parent: str) -> ScalarNode:
    """A node that hands on its parent's value."""
    return name, (parent,), identity


def square_after_identity() -> Instance:
    nodes = [copy("v", "input"), copy("u", "v"), ("out", ("u",), lambda h: h * h)]
    return scalar_nodes(nodes, [1.0], name="v = x, u = v, out = u², loss = out, at x = 1")


def product_with_a_skip() -> Instance:
    nodes = [copy("v", "input"), copy("w", "v"), ("out", ("v", "w"), lambda a, b: a * b)]
    return scalar_nodes(nodes, [1.0], name="v = x, w = v, out = v w, loss = out, at x = 1")


def product_of_unequal_paths() -> Instance:
    copies = [copy("v", "input"), copy("w", "input"), copy("p", "w")]
    nodes = [*copies, ("out", ("v", "p"), lambda a, b: a * b)]
    return scalar_nodes(nodes, [1.0], name="v = x, w = x, p = w, out = v p, loss = out, at x = 1")


def linear_chain() -> Instance:
    nodes = [copy("v", "input"), copy("u", "v"), copy("out", "u")]
    name = "v = x, u = v, out = u, loss = out²/2, at x = 1"
    return scalar_nodes(nodes, [1.0], square=True, name=name)


@cache
def by_hand() -> tuple[Instance, ...]:
    """Four networks of one number a node."""
    return (
        square_after_identity(),
        product_with_a_skip(),
        product_of_unequal_paths(),
        linear_chain(),
    )
