"""One network: its training, and its exact curvature at every checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.certificates import of_hessian
from experiments.phi_block_diagonal.dense import dense_curvature
from experiments.phi_block_diagonal.networks import INPUTS, network
from experiments.phi_block_diagonal.settings import PhiBlockDiagonal
from runner.contract import Cell, Context, Table
from runner.curvature.function.groups import Layout, layout

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
    value, theta = flat_loss(model, loss, x, y, parameters)
    rows = []
    for part, matrix in (("hessian", hessian), ("gauss_newton", gauss_newton)):
        squares = matrix.square()
        for partition in PARTITIONS:
            where = {**state, "part": part, "partition": partition}
            rows.append(where | phi_row(squares, labels(parameters, partition)))
    certificate = of_hessian("Hessian", hessian, value, theta, ctx, groups=parameters.groups)
    return {
        "phi": rows,
        "layers": layer_rows(hessian, parameters),
        "certificate": [certificate],
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


def flat_loss(
    model: nn.Sequential, loss: nn.Module, x: Tensor, y: Tensor, parameters: Layout
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The loss as a function of all parameters in one vector, and that vector."""
    named = parameters.parameters
    sizes = [p.numel() for p in named.values()]

    def value(theta: Tensor) -> Tensor:
        pieces = zip(named.items(), theta.split(sizes), strict=True)
        values = {name: piece.view_as(p) for (name, p), piece in pieces}
        return loss(functional_call(model, values, (x,)), y)

    return value, torch.cat([p.detach().flatten() for p in named.values()])


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
