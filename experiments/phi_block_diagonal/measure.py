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

Row = dict[str, Any]
PARTITIONS = ("layer", "neuron", "parameter", "output neuron")


def measure(experiment: PhiBlockDiagonal, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables phi (step, part, partition), layers (step, layer) and certificate (step)."""
    classes = int(cell.params["classes"])
    x, y = mixture(experiment, classes, ctx)
    architecture = str(cell.params["architecture"])
    residual = bool(cell.params["residual"])
    generator = ctx.torch_generator("network")
    model = network(architecture, residual, classes, experiment.width, generator)
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), experiment.rate)
    tables: dict[str, list[Row]] = {"phi": [], "layers": [], "certificate": []}
    for step in range(experiment.steps[-1] + 1):
        if step in experiment.steps:
            for name, rows in curvature(model, loss, x, y, ctx).items():
                tables[name] += [{"step": step} | row for row in rows]
            ctx.progress(experiment.steps.index(step) + 1, len(experiment.steps), f"step {step}")
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return {**tables}


def mixture(experiment: PhiBlockDiagonal, classes: int, ctx: Context) -> tuple[Tensor, Tensor]:
    """Examples around one centre for each class, classes in turn; float64."""
    generator = ctx.torch_generator(f"data/{classes}")
    centres = torch.randn(classes, INPUTS, dtype=torch.float64, generator=generator)
    y = torch.arange(experiment.examples) % classes
    noise = torch.randn(experiment.examples, INPUTS, dtype=torch.float64, generator=generator)
    return centres[y] + experiment.spread * noise, y


def curvature(
    model: nn.Sequential, loss: nn.Module, x: Tensor, y: Tensor, ctx: Context
) -> dict[str, list[Row]]:
    """Rows of phi, of layers and of certificate of a network at one step."""
    parameters = layout(model, None)
    hessian, gauss_newton = dense_curvature(model, x, y)
    with torch.no_grad():
        output = model(x)
        accuracy = (output.argmax(1) == y).double().mean()
        state = {"loss": float(loss(output, y)), "accuracy": float(accuracy)}
    rows = []
    for part, matrix in (("hessian", hessian), ("gauss_newton", gauss_newton)):
        squares = matrix.square()
        for partition in PARTITIONS:
            where = {**state, "part": part, "partition": partition}
            rows.append(where | phi_row(squares, labels(parameters, partition)))
    return {
        "phi": rows,
        "layers": layer_rows(hessian, parameters),
        "certificate": [certified(model, loss, x, y, hessian, parameters, ctx)],
    }


def phi_row(squares: Tensor, label: Tensor) -> Row:
    """Phi of a partition, from the squared entries of a matrix and the block of each parameter."""
    chosen = label >= 0
    total = float(squares[chosen][:, chosen].sum())
    inside = sum(float(squares[at][:, at].sum()) for at in blocks_of(label))
    return {
        "parameters": int(chosen.sum()),
        "blocks": int(label.max()) + 1,
        "phi": 1 - inside / total if total > 0 else math.nan,
        "status": "ok" if total > 0 else "the matrix is zero",
    }


def layer_rows(hessian: Tensor, parameters: Layout) -> list[Row]:
    """Trace and norms of each layer's block."""
    rows = []
    for name, at in parameters.groups.items():
        block = hessian[at, at]
        of_block = float(block.square().sum())
        of_rows = float(hessian[at].square().sum())
        diagonal = float(block.diagonal().square().sum())
        row = {"layer": name, "parameters": len(block), "trace": float(block.trace())}
        row["norm"] = math.sqrt(of_block)
        row["diagonal_share"] = diagonal / of_block if of_block > 0 else math.nan
        row["outside_share"] = 1 - of_block / of_rows if of_rows > 0 else math.nan
        rows.append(row)
    return rows


def certified(
    model: nn.Sequential,
    loss: nn.Module,
    x: Tensor,
    y: Tensor,
    matrix: Tensor,
    parameters: Layout,
    ctx: Context,
) -> Row:
    """Row of `certificate`: the Hessian against differences of the network's own gradient, by
    layer."""
    named = parameters.parameters
    sizes = [p.numel() for p in named.values()]

    def gradient(theta: Tensor) -> Tensor:
        leaf = theta.detach().requires_grad_()
        pieces = zip(named.items(), leaf.split(sizes), strict=True)
        values = {name: piece.view_as(p) for (name, p), piece in pieces}
        value = loss(functional_call(model, values, (x,)), y)
        return torch.autograd.grad(value, leaf)[0]

    at = torch.cat([p.detach().flatten() for p in named.values()])
    generator = ctx.torch_generator("certificate")
    certificate = verify(
        matrix, at=at, gradient=gradient, groups=parameters.groups, generator=generator
    )
    return certificate_row("Hessian", certificate)


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
        neurons = labels(layout, "neuron")
        last = list(layout.groups.values())[-1]
        of_last = torch.full_like(neurons, -1)
        of_last[last] = neurons[last] - neurons[last].min()
        return of_last
    if partition == "parameter":
        return torch.arange(layout.size)
    blocks = []
    start = 0
    for names in layout.members.values():
        shapes = [layout.parameters[name].shape for name in names]
        outputs = max(shape[0] for shape in shapes)
        for shape in shapes:
            unit = torch.arange(shape[0]).repeat_interleave(math.prod(shape[1:]))
            if partition == "layer":
                unit = torch.zeros_like(unit)
            blocks.append(start + unit)
        start += outputs if partition == "neuron" else 1
    return torch.cat(blocks)


INPUTS = 16


class Block(nn.Module):
    """branch(h), or h + branch(h)."""

    def __init__(self, branch: nn.Module, residual: bool) -> None:
        super().__init__()
        self.branch = branch
        self.residual = residual

    def forward(self, h: Tensor) -> Tensor:
        if self.residual:
            return h + self.branch(h)
        return self.branch(h)


class SelfAttention(nn.Module):
    """One head of softmax attention, written out: it is differentiated twice."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))

    def forward(self, h: Tensor) -> Tensor:
        scores = self.query(h) @ self.key(h).mT / h.shape[-1] ** 0.5
        return self.out(torch.softmax(scores, -1) @ self.value(h))


class Mean(nn.Module):
    """Mean over tokens."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


def network(
    architecture: str, residual: bool, classes: int, width: int, generator: torch.Generator
) -> nn.Sequential:
    """Float64, torch's initial values from `generator`; smooth, so that the Hessian exists
    everywhere."""
    makers = {"mlp": perceptron, "convnet": convolutional, "transformer": transformer}
    with default_init(generator):
        return makers[architecture](residual, classes, width).double()


def perceptron(residual: bool, classes: int, width: int) -> nn.Sequential:
    hidden = [Block(nn.Sequential(nn.Linear(width, width), nn.GELU()), residual) for _ in range(2)]
    return nn.Sequential(nn.Linear(INPUTS, width), nn.GELU(), *hidden, nn.Linear(width, classes))


def convolutional(residual: bool, classes: int, width: int) -> nn.Sequential:
    channels = 2 * width // 3
    hidden = Block(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.GELU()), residual)
    start = [nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, channels, 3, padding=1), nn.GELU()]
    end = [nn.AdaptiveAvgPool2d((1, 2)), nn.Flatten(), nn.Linear(2 * channels, classes)]
    return nn.Sequential(*start, hidden, *end)


def transformer(residual: bool, classes: int, width: int) -> nn.Sequential:
    size = 2 * width // 3
    attention = nn.Sequential(nn.LayerNorm(size), SelfAttention(size))
    wide = [nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)]
    feed = nn.Sequential(nn.LayerNorm(size), *wide)
    blocks = [Block(branch, residual) for branch in (attention, feed)]
    start = [nn.Unflatten(1, (4, 4)), nn.Linear(4, size)]
    return nn.Sequential(*start, *blocks, Mean(), nn.Linear(size, classes))
