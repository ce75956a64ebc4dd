"""Networks on which the formulas of the DAG paper are tried: by hand, random ones of every graph, and linear graphs.

Gauss–Newton blocks depend on the Jacobians of the edges and on ∇²ℓ alone, so a graph of free matrices (`Linear`) is the
general case, on which bounds of Gauss–Newton blocks are attacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor, nn

from experiments.paper_audit.tensors import gauss, real, seeded, spectral_norm, unit
from runner.curvature import Dag, Node
from runner.curvature.graph.dag import Concatenated, Residual, WeightedSum

Act = Callable[[], nn.Module]
Blocks = dict[tuple[str, str], Tensor]


@dataclass(frozen=True, eq=False)
class Instance:
    """A network with its data, float64."""

    name: str
    dag: Dag
    x: Tensor
    y: Tensor

    def __str__(self) -> str:
        return self.name


def layer(i: int, o: int, act: Act, norm: bool = False) -> nn.Sequential:
    return nn.Sequential(nn.Linear(i, o), *([nn.LayerNorm(o)] if norm else []), act()).double()


def chain(
    seed: int,
    act: Act = nn.SiLU,
    norm: bool = False,
    widths: Sequence[int] = (3, 4, 3, 4),
    batch: int = 2,
) -> Instance:
    """input -> h1 -> h2 -> ... -> out, cross-entropy."""
    torch.manual_seed(seed)
    nodes = [
        Node(
            f"h{k}",
            ("input",) if k == 1 else (f"h{k - 1}",),
            layer(widths[k - 1], widths[k], act, norm),
        )
        for k in range(1, len(widths))
    ]
    nodes.append(Node("out", (nodes[-1].name,), nn.Linear(widths[-1], 3).double()))
    return _with_data(f"chain of widths {tuple(widths)}", Dag(nodes), widths[0], batch)


def residual(
    seed: int, act: Act = nn.SiLU, depth: int = 3, scale: float = 0.5, shrink: float = 1.0
) -> Instance:
    """h <- h + scale * act(W h) of width 4 down to the output itself, cross-entropy over the 4 components."""
    torch.manual_seed(seed)
    nodes = [Node("h0", ("input",), layer(3, 4, act))]
    for k in range(depth):
        branch = layer(4, 4, act)
        with torch.no_grad():
            branch.get_parameter("0.weight").mul_(shrink)
        nodes.append(Node(f"h{k + 1}", (f"h{k}",), Residual(branch, scale)))
    return _with_data(f"residual network of depth {depth}", Dag(nodes), 3, 2)


def diamond(
    seed: int, act: Act = nn.SiLU, merge: str = "cat", lengths: tuple[int, int] = (1, 1)
) -> Instance:
    """stem -> a, b -> merge -> out; merge "cat": act(W [a, b]), "sum": a + b. lengths: layers of the branches, the last
    of which are a and b."""
    torch.manual_seed(seed)
    join: nn.Module = Concatenated(layer(6, 3, act)) if merge == "cat" else WeightedSum(1.0, 1.0)
    nodes = [Node("stem", ("input",), layer(3, 4, act))]
    for end, length in zip("ab", lengths, strict=True):
        names = [*(f"{end}{k}" for k in range(1, length)), end]
        for parent, name in zip(("stem", *names), names, strict=False):
            nodes.append(Node(name, (parent,), layer(4 if parent == "stem" else 3, 3, act)))
    nodes += [Node("merge", ("a", "b"), join), Node("out", ("merge",), nn.Linear(3, 3).double())]
    return _with_data(
        f"diamond with {merge} merge, branches of {lengths[0]} and {lengths[1]}", Dag(nodes), 3, 2
    )


def skip(seed: int, act: Act = nn.SiLU) -> Instance:
    """a -> b, and (b, a) -> m by act(W [b, a]): a skip into a nonlinear merge."""
    torch.manual_seed(seed)
    nodes = [
        Node("a", ("input",), layer(3, 4, act)),
        Node("b", ("a",), layer(4, 4, act)),
        Node("m", ("b", "a"), Concatenated(layer(8, 4, act))),
        Node("out", ("m",), nn.Linear(4, 3).double()),
    ]
    return _with_data("skip into a nonlinear merge", Dag(nodes), 3, 2)


def attention(seed: int, tokens: int = 3, width: int = 2) -> Instance:
    """q, k, v -> softmax(q k^T / sqrt(d)) v = out, squared error per token."""
    torch.manual_seed(seed)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(1, 2) / width**0.5, 2) @ v

    nodes = [Node(name, ("input",), nn.Linear(width, width, bias=False).double()) for name in "qkv"]
    dag = Dag([*nodes, Node("out", ("q", "k", "v"), attend)], loss="mse")
    x = torch.randn(1, tokens, width, dtype=torch.float64)
    return Instance(f"attention over {tokens} tokens", dag, x, torch.randn_like(x))


def scalar_nodes(
    nodes: Sequence[tuple[str, tuple[str, ...], Callable[..., Tensor]]],
    x: Sequence[float],
    square: bool = False,
    name: str = "by hand",
) -> Instance:
    """Nodes given by functions of (1, d) tensors, with the loss sum(out), or sum(out^2) / 2: counter-examples by
    hand."""

    def loss(output: Tensor, _: Tensor) -> Tensor:
        return output.square().sum(1) / 2 if square else output.sum(1)

    data = real([list(x)])
    return Instance(name, Dag([Node(*node) for node in nodes], loss=loss), data, data)


def _with_data(name: str, dag: Dag, width: int, batch: int) -> Instance:
    x = torch.randn(batch, width, dtype=torch.float64)
    with torch.no_grad():
        classes = dag.forward(x)[dag.output].shape[1]
    return Instance(name, dag, x, torch.randint(0, classes, (batch,)))


def pooled(seed: int) -> Instance:
    """Max-pooling over pairs of four units."""
    torch.manual_seed(seed)
    pool = nn.Sequential(
        nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), nn.MaxPool1d(2), nn.Flatten()
    ).double()
    nodes = [Node("h1", ("input",), pool), Node("h2", ("h1",), layer(2, 3, nn.ReLU))]
    nodes.append(Node("out", ("h2",), nn.Linear(3, 3).double()))
    return _with_data("max-pooling and ReLU", Dag(nodes), 3, 2)


@cache
def smooth() -> tuple[Instance, ...]:
    """Instances with smooth activations: chains of several sizes, residual, diamonds, skip, attention."""
    return (
        chain(0),
        chain(1, nn.Tanh, widths=(2, 5, 2, 3, 4)),
        chain(2, nn.GELU, norm=True),
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


def relative_error(found: Blocks, expected: Blocks) -> float:
    """Largest error of a block of `found` relative to that block of `expected`, in the largest entries.

    Blocks far smaller than the largest one are measured against 1e-4 of it, as rounding is.
    """
    floor = 1e-4 * max(float(block.abs().max()) for block in expected.values()) or 1.0
    return max(
        float((block - expected[pair]).abs().max()) / max(float(expected[pair].abs().max()), floor)
        for pair, block in found.items()
    )


def identity(*parts: Tensor) -> Tensor:
    return 1 * parts[0]


def square_after_identity() -> Instance:
    nodes = [("v", ("input",), identity), ("u", ("v",), identity), ("out", ("u",), lambda h: h * h)]
    return scalar_nodes(nodes, [1.0], name="v = x, u = v, out = u², loss = out, at x = 1")


def product_with_a_skip() -> Instance:
    nodes = [
        ("v", ("input",), identity),
        ("w", ("v",), identity),
        ("out", ("v", "w"), lambda a, b: a * b),
    ]
    return scalar_nodes(nodes, [1.0], name="v = x, w = v, out = v w, loss = out, at x = 1")


def product_of_unequal_paths() -> Instance:
    nodes = [("v", ("input",), identity), ("w", ("input",), identity), ("p", ("w",), identity)]
    joined = [*nodes, ("out", ("v", "p"), lambda a, b: a * b)]
    return scalar_nodes(joined, [1.0], name="v = x, w = x, p = w, out = v p, loss = out, at x = 1")


def linear_chain() -> Instance:
    nodes = [("v", ("input",), identity), ("u", ("v",), identity), ("out", ("u",), identity)]
    return scalar_nodes(
        nodes, [1.0], square=True, name="v = x, u = v, out = u, loss = out²/2, at x = 1"
    )


@cache
def by_hand() -> tuple[Instance, ...]:
    """Four networks of one number a node."""
    return (
        square_after_identity(),
        product_with_a_skip(),
        product_of_unequal_paths(),
        linear_chain(),
    )


Edges = tuple[tuple[str, str], ...]
WIDTH = 2


def line(length: int) -> Edges:
    return tuple((f"n{k}", f"n{k + 1}") for k in range(length))


GRAPHS: tuple[Edges, ...] = (
    line(3),
    (("s", "a"), ("s", "b"), ("a", "out"), ("b", "out")),
    (("a", "b"), ("b", "out"), ("a", "out")),
    (("a", "b"), ("a", "c"), ("a", "d"), ("b", "d"), ("c", "d"), ("d", "out")),
    line(6),
)


@dataclass(frozen=True, eq=False)
class Linear:
    """Edges with matrices read off z, scaled so that (largest out-degree) · (largest norm) is `target` (None: as is).

    The last numbers of z make ∇²ℓ = A Aᵀ.
    """

    edges: Edges
    z: Tensor
    target: float | None = None

    @staticmethod
    def start(edges: Edges, seed: int) -> Tensor:
        generator = seeded(seed)
        return gauss(generator, (len(edges) + 1) * WIDTH**2)

    @cached_property
    def order(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(v for edge in self.edges for v in edge))

    @cached_property
    def branching(self) -> int:
        return max(sum(a == v for a, _ in self.edges) for v in self.order)

    @cached_property
    def matrices(self) -> dict[tuple[str, str], Tensor]:
        """D of each edge (v, u), mapping f_v to f_u."""
        raw = self.z.view(-1, WIDTH, WIDTH)
        largest = float(spectral_norm(raw[:-1]).max()) or 1.0
        scale = 1.0 if self.target is None else self.target / (self.branching * largest)
        return {edge: scale * raw[k] for k, edge in enumerate(self.edges)}

    @cached_property
    def base(self) -> Tensor:
        a = self.z.view(-1, WIDTH, WIDTH)[-1]
        return a @ a.T

    def total(self, w: str, v: str) -> Tensor:
        """Jacobian of f_w with respect to f_v over all paths; zero without one."""
        if v == w:
            return unit(WIDTH)
        parts = [self.total(w, u) @ self.matrices[a, u] for a, u in self.edges if a == v]
        return (
            torch.stack(parts).sum(0) if parts else torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
        )

    def blocks(self) -> dict[tuple[str, str], Tensor]:
        """Gauss–Newton blocks of all pairs."""
        out = self.order[-1] if self.order[-1] in {b for _, b in self.edges} else "out"
        j = {v: self.total(out, v) for v in self.order}
        return {(v, w): j[v].T @ self.base @ j[w] for v in self.order for w in self.order}

    def distance(self, v: str, w: str) -> int:
        """Edges of the shortest undirected path."""
        reached, steps = {v}, 0
        while w not in reached:
            reached |= {b for a, b in self.edges if a in reached} | {
                a for a, b in self.edges if b in reached
            }
            steps += 1
        return steps

    def depth(self, v: str) -> int:
        """Edges of the longest directed path from v."""
        return max((1 + self.depth(u) for a, u in self.edges if a == v), default=0)

    def path_norm(self, v: str) -> float:
        """Sum over paths to the end of the product of ‖D‖₂."""
        parts = [
            float(spectral_norm(self.matrices[a, u])) * self.path_norm(u)
            for a, u in self.edges
            if a == v
        ]
        return sum(parts) if parts else 1.0

    def decay_excess(self) -> float:
        """max R^GN(v,w) / (‖∇²ℓ‖_F (s rho)^dist) − 1."""
        assert self.target is not None
        size = float(self.base.norm()) or 1.0
        return (
            max(
                float(b.norm()) / (size * self.target ** self.distance(v, w))
                for (v, w), b in self.blocks().items()
            )
            - 1
        )

    def disturbed(self, noise: Linear, eps: float) -> Linear:
        """The graph with each D moved by eps ‖D‖₂ along the noise's direction."""
        parts = []
        for edge, d in self.matrices.items():
            direction = noise.matrices[edge] / spectral_norm(noise.matrices[edge])
            parts.append((d + eps * spectral_norm(d) * direction).flatten())
        return Linear(self.edges, torch.cat([*parts, self.z[-(WIDTH**2) :]]))
