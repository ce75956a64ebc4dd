"""One network: its training, and its exact curvature at every checkpoint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from experiments.phi_block_diagonal.networks import INPUTS, network
from runner.contract.experiment import Cell, Context, Table
from runner.curvature import ParameterOperator

if TYPE_CHECKING:
    from experiments.phi_block_diagonal import PhiBlockDiagonal

PARTITIONS = ("layer", "neuron", "parameter")


def measure(experiment: PhiBlockDiagonal, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables phi (step, part, partition) and layers (step, layer)."""
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
    for step in range(experiment.steps[-1] + 1):
        if step in experiment.steps:
            found, each = curvature(model, loss, x, y)
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
    return {"phi": phi, "layers": layers}


def mixture(experiment: PhiBlockDiagonal, classes: int, ctx: Context) -> tuple[Tensor, Tensor]:
    """Examples around one centre for each class, classes in turn; float64."""
    generator = ctx.torch_generator(f"data/{classes}")
    centres = torch.randn(classes, INPUTS, dtype=torch.float64, generator=generator)
    y = torch.arange(experiment.examples) % classes
    noise = torch.randn(experiment.examples, INPUTS, dtype=torch.float64, generator=generator)
    return centres[y] + experiment.spread * noise, y


def curvature(
    model: nn.Module, loss: nn.Module, x: Tensor, y: Tensor
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Phi of Hessian and Gauss-Newton matrix for each partition; trace and norms of each layer of the Hessian."""
    rows, layers = [], []
    for part in ("hessian", "gauss_newton"):
        operator = ParameterOperator(model, loss, [(x, y)], part=part)  # type: ignore[arg-type]
        matrix = operator.dense()
        squares = matrix.square()
        total = float(squares.sum())
        for partition in PARTITIONS:
            label = labels(operator, partition)
            inside = float(squares[label[:, None] == label[None, :]].sum())
            rows.append(
                {
                    "part": part,
                    "partition": partition,
                    "parameters": len(matrix),
                    "blocks": int(label.max()) + 1,
                    "phi": 1 - inside / total if total > 0 else math.nan,
                    "status": "ok" if total > 0 else "the matrix is zero",
                }
            )
        if part == "hessian":
            for name, at in operator.groups.items():
                block, row = matrix[at, at], float(squares[at].sum())
                own = float(block.square().sum())
                layers.append(
                    {
                        "layer": name,
                        "parameters": len(block),
                        "trace": float(block.trace()),
                        "norm": math.sqrt(own),
                        "diagonal_share": float(block.diagonal().square().sum()) / own if own > 0 else math.nan,
                        "outside_share": 1 - own / row if row > 0 else math.nan,
                    }
                )
    return rows, layers


def labels(operator: ParameterOperator, partition: str) -> Tensor:
    """The block of every parameter. A neuron: what goes into one output of a layer, with its bias."""
    found: list[Tensor] = []
    start = 0
    for names in operator.layout.members.values():
        shapes = [operator.layout.parameters[name].shape for name in names]
        outputs = max(shape[0] for shape in shapes)
        for shape in shapes:
            unit = torch.arange(shape[0]).repeat_interleave(math.prod(shape[1:]))
            found.append(start + (unit if partition == "neuron" else torch.zeros_like(unit)))
        start += outputs if partition == "neuron" else 1
    return torch.arange(operator.shape[0]) if partition == "parameter" else torch.cat(found)
