"""Small random networks on which the formulas of the DAG paper are tried, with their blocks by automatic
differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from runner.curvature import Concatenated, Dag, Node, Residual, WeightedSum
from runner.curvature.exact.derivatives import evaluate
from runner.curvature.exact.routing import Blocks, Reach, Router

Act = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Instance:
    """A network with its data, float64."""

    name: str
    dag: Dag
    x: Tensor
    y: Tensor

    def router(self) -> Router:
        """Per-example local derivatives of every node."""
        with torch.no_grad():
            router = Router(self.dag, evaluate(self.dag, self.x), self.y, Reach(self.dag, self.dag.order))
            router.derive_all()
        return router


def layer(i: int, o: int, act: Act, norm: bool = False) -> nn.Sequential:
    return nn.Sequential(nn.Linear(i, o), *([nn.LayerNorm(o)] if norm else []), act()).double()


def chain(
    seed: int, act: Act = nn.SiLU, norm: bool = False, widths: Sequence[int] = (3, 4, 3, 4), batch: int = 2
) -> Instance:
    """input -> h1 -> h2 -> ... -> out, cross-entropy."""
    torch.manual_seed(seed)
    nodes = [
        Node(f"h{k}", ("input",) if k == 1 else (f"h{k - 1}",), layer(widths[k - 1], widths[k], act, norm))
        for k in range(1, len(widths))
    ]
    nodes.append(Node("out", (nodes[-1].name,), nn.Linear(widths[-1], 3).double()))
    return _with_data(f"chain of widths {tuple(widths)}", Dag(nodes), widths[0], batch)


def residual(seed: int, act: Act = nn.SiLU, depth: int = 3, scale: float = 0.5, shrink: float = 1.0) -> Instance:
    """h <- h + scale * act(W h) of width 4 down to the output itself, cross-entropy over the 4 components."""
    torch.manual_seed(seed)
    nodes = [Node("h0", ("input",), layer(3, 4, act))]
    for k in range(depth):
        branch = layer(4, 4, act)
        with torch.no_grad():
            branch.get_parameter("0.weight").mul_(shrink)
        nodes.append(Node(f"h{k + 1}", (f"h{k}",), Residual(branch, scale)))
    return _with_data(f"residual network of depth {depth}", Dag(nodes), 3, 2)


def diamond(seed: int, act: Act = nn.SiLU, merge: str = "cat") -> Instance:
    """stem -> a, b -> merge -> out; merge "cat": act(W [a, b]), "sum": a + b."""
    torch.manual_seed(seed)
    join: nn.Module = Concatenated(layer(6, 3, act)) if merge == "cat" else WeightedSum(1.0, 1.0)
    nodes = [
        Node("stem", ("input",), layer(3, 4, act)),
        Node("a", ("stem",), layer(4, 3, act)),
        Node("b", ("stem",), layer(4, 3, act)),
        Node("merge", ("a", "b"), join),
        Node("out", ("merge",), nn.Linear(3, 3).double()),
    ]
    return _with_data(f"diamond with {merge} merge", Dag(nodes), 3, 2)


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
    nodes: Sequence[tuple[str, tuple[str, ...], Callable[..., Tensor]]], x: Sequence[float], square: bool = False
) -> Instance:
    """Nodes given by functions of (1, d) tensors, with the loss sum(out), or sum(out^2) / 2: counter-examples by
    hand."""

    def loss(output: Tensor, _: Tensor) -> Tensor:
        return output.square().sum(1) / 2 if square else output.sum(1)

    data = torch.tensor([list(x)], dtype=torch.float64)
    return Instance("by hand", Dag([Node(*node) for node in nodes], loss=loss), data, data)


def _with_data(name: str, dag: Dag, width: int, batch: int) -> Instance:
    x = torch.randn(batch, width, dtype=torch.float64)
    with torch.no_grad():
        classes = dag.forward(x)[dag.output].shape[1]
    return Instance(name, dag, x, torch.randint(0, classes, (batch,)))


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


@cache
def autodiff_blocks(case: Instance) -> Blocks:
    """Mean over the batch of d2 L / de_v de_w for all pairs, by differentiating the perturbed network twice."""
    with torch.no_grad():
        values = case.dag.forward(case.x)
    nodes = case.dag.order
    sizes = [values[v][0].numel() for v in nodes]

    def loss(flat: Tensor) -> Tensor:
        pieces = flat.split(sizes)
        shifts = {v: piece.view(values[v].shape[1:]) for v, piece in zip(nodes, pieces, strict=True)}
        return case.dag.mean_loss(case.x, case.y, shifts)

    dense = torch.autograd.functional.hessian(loss, torch.zeros(sum(sizes), dtype=torch.float64))
    rows = zip(nodes, dense.split(sizes, 0), strict=True)
    return {(v, w): block for v, row in rows for w, block in zip(nodes, row.split(sizes, 1), strict=True)}


def relative_error(found: Blocks, expected: Blocks) -> float:
    """Largest error of a block of `found` relative to that block of `expected`, in the largest entries.

    Blocks far smaller than the largest one are measured against 1e-4 of it, as rounding is.
    """
    floor = 1e-4 * max(float(block.abs().max()) for block in expected.values())
    return max(
        float((block - expected[pair]).abs().max()) / max(float(expected[pair].abs().max()), floor)
        for pair, block in found.items()
    )
