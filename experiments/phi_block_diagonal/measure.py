"""One network: its training, and its exact curvature at every checkpoint."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.phi_block_diagonal.dense import dense_curvature
from experiments.phi_block_diagonal.settings import PhiBlockDiagonal
from runner.contract import Cell, Context, Table
from runner.contract.records import certificate_row
from runner.curvature import verify
from runner.curvature.function.groups import Layout, layout
from runner.models.network import default_init

PARTITIONS = ("layer", "neuron", "parameter", "output neuron")


def measure(experiment: PhiBlockDiagonal, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables phi (step, part, partition), layers (step, layer) and certificate (step)."""
    classes = int(cell.params["classes"])
    x, y = mixture(experiment, classes, ctx)
    model = network(
        str(cell.params["architecture"]),
        bool(cell.params["residual"]),
        classes,
        experiment.width,
        ctx.torch_generator("network"),
    )
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), experiment.rate)
    phi: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    certificate: list[dict[str, Any]] = []
    for step in range(experiment.steps[-1] + 1):
        if step in experiment.steps:
            found, each, verified = curvature(model, loss, x, y, ctx)
            certificate.append({"step": step} | verified)
            with torch.no_grad():
                output = model(x)
                state = {
                    "step": step,
                    "loss": float(loss(output, y)),
                    "accuracy": float((output.argmax(1) == y).double().mean()),
                }
            phi += [state | row for row in found]
            layers += [{"step": step} | row for row in each]
            ctx.progress(experiment.steps.index(step) + 1, len(experiment.steps), f"step {step}")
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return {"phi": phi, "layers": layers, "certificate": certificate}


def mixture(experiment: PhiBlockDiagonal, classes: int, ctx: Context) -> tuple[Tensor, Tensor]:
    """Examples around one centre for each class, classes in turn; float64."""
    generator = ctx.torch_generator(f"data/{classes}")
    centres = torch.randn(classes, INPUTS, dtype=torch.float64, generator=generator)
    y = torch.arange(experiment.examples) % classes
    noise = torch.randn(experiment.examples, INPUTS, dtype=torch.float64, generator=generator)
    return centres[y] + experiment.spread * noise, y


def curvature(
    model: nn.Sequential, loss: nn.Module, x: Tensor, y: Tensor, ctx: Context
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Phi of Hessian and Gauss-Newton matrix for each partition; trace and norms of each layer of
    the Hessian; and the certificate of the Hessian."""
    rows, layers = [], []
    found = layout(model, None)
    matrices = dict(zip(("hessian", "gauss_newton"), dense_curvature(model, x, y), strict=True))
    for part, matrix in matrices.items():
        squares = matrix.square()
        for partition in PARTITIONS:
            label = labels(found, partition)
            chosen = label >= 0
            total = float(squares[chosen][:, chosen].sum())
            inside = sum(float(squares[at][:, at].sum()) for at in blocks_of(label))
            rows.append(
                {
                    "part": part,
                    "partition": partition,
                    "parameters": int(chosen.sum()),
                    "blocks": int(label.max()) + 1,
                    "phi": 1 - inside / total if total > 0 else math.nan,
                    "status": "ok" if total > 0 else "the matrix is zero",
                }
            )
        if part == "hessian":
            for name, at in found.groups.items():
                block, row = matrix[at, at], float(squares[at].sum())
                own = float(block.square().sum())
                layers.append(
                    {
                        "layer": name,
                        "parameters": len(block),
                        "trace": float(block.trace()),
                        "norm": math.sqrt(own),
                        "diagonal_share": float(block.diagonal().square().sum()) / own
                        if own > 0
                        else math.nan,
                        "outside_share": 1 - own / row if row > 0 else math.nan,
                    }
                )
    return rows, layers, certified(model, loss, x, y, matrices["hessian"], found, ctx)


def certified(
    model: nn.Sequential,
    loss: nn.Module,
    x: Tensor,
    y: Tensor,
    matrix: Tensor,
    found: Layout,
    ctx: Context,
) -> dict[str, Any]:
    """Row of `certificate`: the Hessian against differences of the network's own gradient, by
    layer."""
    sizes = [p.numel() for p in found.parameters.values()]

    def gradient(theta: Tensor) -> Tensor:
        leaf = theta.detach().requires_grad_()
        pieces = zip(found.parameters.items(), leaf.split(sizes), strict=True)
        value = loss(functional_call(model, {k: t.view_as(p) for (k, p), t in pieces}, (x,)), y)
        return torch.autograd.grad(value, leaf)[0]

    at = torch.cat([p.detach().flatten() for p in found.parameters.values()])
    verified = verify(
        matrix,
        at=at,
        gradient=gradient,
        groups=found.groups,
        generator=ctx.torch_generator("certificate"),
    )
    return certificate_row("Hessian", verified)


def blocks_of(label: Tensor) -> list[Tensor]:
    """Places of the parameters of each block."""
    known = (label >= 0).nonzero().squeeze(1)
    order = known[label[known].argsort(stable=True)]
    return list(order.split(torch.bincount(label[known]).tolist()))


def labels(layout: Layout, partition: str) -> Tensor:
    """The block of every parameter, -1 for what is left out. A neuron: what goes into one output of
    a layer, with its bias; "output neuron": those of the last layer, all other parameters held
    fixed."""
    if partition == "output neuron":
        neurons, last = labels(layout, "neuron"), list(layout.groups.values())[-1]
        own = torch.full_like(neurons, -1)
        own[last] = neurons[last] - neurons[last].min()
        return own
    found: list[Tensor] = []
    start = 0
    for names in layout.members.values():
        shapes = [layout.parameters[name].shape for name in names]
        outputs = max(shape[0] for shape in shapes)
        for shape in shapes:
            unit = torch.arange(shape[0]).repeat_interleave(math.prod(shape[1:]))
            found.append(start + (unit if partition == "neuron" else torch.zeros_like(unit)))
        start += outputs if partition == "neuron" else 1
    return torch.arange(layout.size) if partition == "parameter" else torch.cat(found)


INPUTS = 16


class Block(nn.Module):
    """branch(h), or h + branch(h)."""

    def __init__(self, branch: nn.Module, residual: bool) -> None:
        super().__init__()
        self.branch, self.residual = branch, residual

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h) if self.residual else self.branch(h)


class SelfAttention(nn.Module):
    """One head of softmax attention, written out: it is differentiated twice."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))

    def forward(self, h: Tensor) -> Tensor:
        scores = self.query(h) @ self.key(h).mT / h.shape[-1] ** 0.5
        return self.out(torch.softmax(scores, -1) @ self.value(h))


class Reshape(nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), *self.shape)


class Mean(nn.Module):
    """Mean over tokens."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


def network(
    architecture: str, residual: bool, classes: int, width: int, generator: torch.Generator
) -> nn.Sequential:
    """Float64, torch's initial values from `generator`; smooth, so that the Hessian exists
    everywhere."""
    with default_init(generator):
        made = {"mlp": perceptron, "convnet": convolutional, "transformer": transformer}[
            architecture
        ]
        return made(residual, classes, width).double()


def perceptron(residual: bool, classes: int, width: int) -> nn.Sequential:
    hidden = [Block(nn.Sequential(nn.Linear(width, width), nn.GELU()), residual) for _ in range(2)]
    return nn.Sequential(nn.Linear(INPUTS, width), nn.GELU(), *hidden, nn.Linear(width, classes))


def convolutional(residual: bool, classes: int, width: int) -> nn.Sequential:
    channels = 2 * width // 3
    hidden = Block(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.GELU()), residual)
    start = [Reshape(1, 4, 4), nn.Conv2d(1, channels, 3, padding=1), nn.GELU()]
    return nn.Sequential(
        *start, hidden, nn.AdaptiveAvgPool2d((1, 2)), nn.Flatten(), nn.Linear(2 * channels, classes)
    )


def transformer(residual: bool, classes: int, width: int) -> nn.Sequential:
    size = 2 * width // 3
    attend = Block(nn.Sequential(nn.LayerNorm(size), SelfAttention(size)), residual)
    feed = nn.Sequential(
        nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)
    )
    body = [Reshape(4, 4), nn.Linear(4, size), attend, Block(feed, residual), Mean()]
    return nn.Sequential(*body, nn.Linear(size, classes))
