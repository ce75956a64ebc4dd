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
from runner.curvature.function.groups import ParameterGroups, parameter_groups

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
    measured = 0
    for step in range(experiment.steps[-1] + 1):
        if step in experiment.steps:
            measured_tables = curvature(model, loss, x, y, ctx)
            for name, rows in measured_tables.items():
                tables[name] += [{"step": step} | row for row in rows]
            measured += 1
            ctx.progress(measured, len(experiment.steps), f"step {step}")
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return {**tables}


def mixture(experiment: PhiBlockDiagonal, classes: int, ctx: Context) -> tuple[Tensor, Tensor]:
    """Examples around one centre for each class, classes in turn; float64."""
    count = experiment.examples
    generator = ctx.torch_generator(f"data/{classes}")
    centres = torch.randn(classes, INPUTS, dtype=torch.float64, generator=generator)
    noise = torch.randn(count, INPUTS, dtype=torch.float64, generator=generator)
    y = torch.arange(count) % classes
    x = centres[y] + experiment.spread * noise
    return x, y


def curvature(
    model: nn.Sequential, loss: nn.Module, x: Tensor, y: Tensor, ctx: Context
) -> dict[str, list[Row]]:
    """Rows of phi, of layers and of certificate of a network at one step."""
    parameters = parameter_groups(model, None)
    hessian, gauss_newton = dense_curvature(model, x, y)
    with torch.no_grad():
        output = model(x)
        mean_loss = float(loss(output, y))
    accuracy = float((output.argmax(1) == y).double().mean())
    rows = []
    matrices = (("hessian", hessian), ("gauss_newton", gauss_newton))
    for part, matrix in matrices:
        squares = matrix.square()
        for partition in PARTITIONS:
            row: Row = {"loss": mean_loss, "accuracy": accuracy}
            row |= {"part": part, "partition": partition}
            rows.append(row | phi_row(squares, labels(parameters, partition)))
    value, theta = flat_loss(model, loss, x, y, parameters)
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
    inside = sum(float(squares[block][:, block].sum()) for block in blocks_of(label))
    row = {
        "parameters": int(chosen.sum()),
        "blocks": int(label.max()) + 1,
        "phi": math.nan,
        "status": "the matrix is zero",
    }
    if total > 0:
        row["phi"] = 1 - inside / total
        row["status"] = "ok"
    return row


def layer_rows(hessian: Tensor, parameters: ParameterGroups) -> list[Row]:
    """Trace and norms of each layer's block."""
    rows = []
    for name, group in parameters.groups.items():
        block = hessian[group, group]
        of_block = float(block.square().sum())
        of_rows = float(hessian[group].square().sum())
        of_diagonal = float(block.diagonal().square().sum())
        row = {"layer": name, "parameters": len(block)}
        row["trace"] = float(block.trace())
        row["norm"] = math.sqrt(of_block)
        row["diagonal_share"] = of_diagonal / of_block if of_block > 0 else math.nan
        row["outside_share"] = 1 - of_block / of_rows if of_rows > 0 else math.nan
        rows.append(row)
    return rows


def flat_loss(
    model: nn.Sequential, loss: nn.Module, x: Tensor, y: Tensor, parameters: ParameterGroups
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The loss as a function of all parameters in one vector, and that vector."""
    named = parameters.parameters
    sizes = [p.numel() for p in named.values()]

    def value(theta: Tensor) -> Tensor:
        values = {}
        pieces = zip(named, theta.split(sizes), strict=True)
        for name, piece in pieces:
            values[name] = piece.view_as(named[name])
        return loss(functional_call(model, values, (x,)), y)

    theta = torch.cat([p.detach().flatten() for p in named.values()])
    return value, theta


def blocks_of(label: Tensor) -> list[Tensor]:
    """Places of the parameters of each block."""
    known = (label >= 0).nonzero().squeeze(1)
    blocks = label[known]
    order = blocks.argsort(stable=True)
    return list(known[order].split(torch.bincount(blocks).tolist()))


def labels(parameters: ParameterGroups, partition: str) -> Tensor:
    """The block of every parameter, -1 for what is left out. A neuron: what goes into one output of
    a layer, with its bias; "output neuron": those of the last layer, all other parameters held
    fixed."""
    if partition == "output neuron":
        neurons = labels(parameters, "neuron")
        *_, last = parameters.groups.values()
        of_last = neurons[last]
        label = torch.full_like(neurons, -1)
        label[last] = of_last - of_last.min()
        return label
    if partition == "parameter":
        return torch.arange(parameters.size)
    blocks = []
    start = 0
    for names in parameters.members.values():
        shapes = [parameters.parameters[name].shape for name in names]
        outputs = max(shape[0] for shape in shapes)
        for shape in shapes:
            inputs = math.prod(shape[1:])
            unit = torch.arange(shape[0]).repeat_interleave(inputs)
            if partition == "layer":
                unit = torch.zeros_like(unit)
            blocks.append(start + unit)
        start += outputs if partition == "neuron" else 1
    return torch.cat(blocks)
