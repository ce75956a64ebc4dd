"""All trials of one cell: the same network and inputs, trained on the targets of every protocol, measured thrice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from experiments.dag.exp5.grid.norms import KINDS, RELU_PAIRS, AttentionNorms, relu_pairs
from experiments.dag.exp5.grid.stacked import OUTPUTS, Parameters, train_all, trial_network
from experiments.dag.protocol.training import build
from runner.contract import Cell, Context, Table
from runner.contract.seeding import torch_generator
from runner.data.attention import RegressionData
from runner.data.loading import load
from runner.training import CHECKPOINTS
from runner.training.order import StreamOrder

if TYPE_CHECKING:
    from experiments.dag.exp5.grid.settings import Exp5ProtocolGrid

Row = dict[str, Any]
DIGITS = 6
"""Significant digits that are kept: trainings are in float32."""


def measure(setup: Exp5ProtocolGrid, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Table named after the network: a row per protocol and checkpoint. A cell with a rate: the one target for that."""
    params: dict[str, Any] = dict(cell.params)
    kind, base = str(params["network"]), replace(setup.dataset, response=params["response"], train=params["train"])
    trials, training = list(itertools.product(setup.noise, setup.spread, setup.offset)), setup.training
    if "rate" in params:
        noise, spread, offset = setup.other_targets[str(params["response"])]
        trials, training = [(noise, spread, offset)], replace(training, rate=params["rate"], epochs=params["epochs"])
    drawn: list[RegressionData] = [
        load(replace(base, noise=noise, spread=spread, offset=offset), ctx) for noise, spread, offset in trials
    ]
    network = build(setup.network_settings(kind), ctx.seed)
    states = train_all(
        kind,
        network,
        drawn[0].train.inputs,
        torch.stack([data.train.targets for data in drawn]),
        training,
        StreamOrder(torch_generator(ctx.seed, "order")),
        ctx.progress,
    )
    rows: list[Row] = []
    for checkpoint in CHECKPOINTS:
        for trial, found in enumerate(checkpoint_rows(setup, kind, states[checkpoint], drawn, ctx.seed)):
            about = dict(zip(("noise", "spread", "offset"), trials[trial], strict=True))
            rows.append({**about, "checkpoint": checkpoint, **{k: _short(v) for k, v in found.items()}})
    return {kind: rows}


def checkpoint_rows(
    setup: Exp5ProtocolGrid, kind: str, states: Parameters, drawn: list[RegressionData], seed: int
) -> Iterator[dict[str, float]]:
    """Loss on the validation data, and norms of all pairs on the first of them, for every trial."""
    network = build(setup.network_settings(kind), seed)
    with torch.no_grad():
        outputs = OUTPUTS[kind](states, drawn[0].validation.inputs)
    for trial, data in enumerate(drawn):
        x, y = data.validation.first(setup.examples)
        found = {"test_loss": float((outputs[trial] - data.validation.targets).square().mean())}
        trial_network(network, states, trial)
        if kind == "attention":
            for pair, norms in AttentionNorms(network, x).of(y).items():
                found |= {f"{pair} {part}": norms[part] for part in KINDS}
        else:
            norms_of = relu_pairs(network, x)
            found |= {pair: norms_of[pair] for pair in RELU_PAIRS}
        yield found


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
