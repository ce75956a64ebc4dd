"""The trained grid of Exp. 5: closed forms against the engine, stacked trainings against one of the loop's own."""

import itertools

import pandas as pd
import pytest
import torch

from experiments.dag.exp5.grid import score
from experiments.dag.exp5.grid.norms import ATTENTION_PAIRS, RELU_PAIRS, AttentionNorms, relu_pairs
from experiments.dag.exp5.grid.settings import NETWORKS, Exp5ProtocolGrid
from experiments.dag.exp5.grid.stacked import OUTPUTS, stacked, train_all, trial_network
from experiments.dag.protocol.training import build
from runner.contract import Context, analyse, measure
from runner.curvature import split_blocks
from runner.data.loading import load
from runner.run.config import build_job
from runner.training.minibatch import train
from runner.training.order import StreamOrder


@pytest.fixture(scope="module")
def setup() -> Exp5ProtocolGrid:
    small = [
        "experiment.train=[96]",
        "dataset.validation=24",
        "dataset.tokens=3",
        "dataset.width=4",
        "training.batch=32",
    ]
    small += ["training.epochs=4", "experiment.examples=8", "experiment.noise=[0.1]", "experiment.response=[tanh]"]
    found = build_job(["experiment=exp5_protocol_grid", *small]).experiment
    assert isinstance(found, Exp5ProtocolGrid)
    return found


def test_other_steps_are_cells_of_one_target_each(setup):
    cells = [c.params for c in setup.cells() if "rate" in c.params]
    assert len(cells) == 2 * 4 and {(c["rate"], c["epochs"]) for c in cells} == {
        (3e-4, 4),
        (3e-3, 4),
        (1e-3, 15),
        (1e-3, 60),
    }
    cell = next(c for c in setup.cells() if c.params.get("rate") == 3e-3 and c.params["network"] == "relu_mlp")
    rows = measure(setup, cell, Context(seed=42))["relu_mlp"]
    assert [(r["noise"], r["spread"], r["offset"], r["checkpoint"]) for r in rows] == [
        (0.1, 1.0, 0.0, c) for c in ("init", "mid", "final")
    ]
    plain = measure(setup, next(c for c in setup.cells() if c.params["network"] == "relu_mlp"), Context(seed=42))[
        "relu_mlp"
    ]
    same = [r for r in plain if (r["spread"], r["offset"]) == (1.0, 0.0)]
    assert rows[0]["test_loss"] == same[0]["test_loss"] and rows[2]["test_loss"] != same[2]["test_loss"]


def norm(block):
    return float(torch.linalg.matrix_norm(block))


def test_norms_of_all_pairs_are_the_engines(setup):
    torch.manual_seed(3)
    x, y = torch.randn(5, 3, 4).double(), torch.randn(5).double()
    network = build(setup.network_settings("attention"), 42).double()
    found = AttentionNorms(network, x).of(y)
    for pair in ATTENTION_PAIRS:
        key = tuple(pair.split("-"))
        blocks = split_blocks(network.to_dag("mse"), x, y, key)
        want = {"full": blocks.total[key], "gn": blocks.gauss_newton[key], "tensor": blocks.tensor[key]}
        for name, block in want.items():
            assert found[pair][name] == pytest.approx(norm(block), rel=1e-10), (pair, name)
    network = build(setup.network_settings("relu_mlp"), 42).double()
    norms = relu_pairs(network, x)
    assert set(norms) == set(RELU_PAIRS)
    for pair in (name for name in RELU_PAIRS if "shared" not in name):
        key = tuple(pair.split("-"))
        assert norms[pair] == pytest.approx(norm(split_blocks(network.to_dag("mse"), x, y, key).total[key]), rel=1e-10)


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_stacked_trial_is_a_training_of_its_own(setup, kind):
    from dataclasses import replace

    drawn = [load(replace(setup.dataset, train=96, spread=s, offset=o), Context(seed=1)) for s, o in ((1, 0), (5, 3))]
    network = build(setup.network_settings(kind), 42)
    assert torch.allclose(
        OUTPUTS[kind](stacked(network, 2), drawn[0].train.inputs)[1], network(drawn[0].train.inputs)[:, 0], atol=1e-6
    )
    targets = torch.stack([data.train.targets for data in drawn])
    training = replace(setup.training, rate=0.02)
    order = StreamOrder(torch.Generator().manual_seed(7))
    states = train_all(kind, network, drawn[0].train.inputs, targets, training, order, lambda *_: None)
    for trial, data in enumerate(drawn):
        alone = build(setup.network_settings(kind), 42)
        settings = {n: getattr(training, n) for n in ("optimizer", "rate", "weight_decay", "clip", "batch", "epochs")}
        result = train(alone, data.train, data.test, loss="mse", order=torch.Generator().manual_seed(7), **settings)
        for checkpoint in ("init", "mid", "final"):
            want = result.states[checkpoint]
            trial_network(network, states[checkpoint], trial)
            for name, value in network.state_dict().items():
                assert torch.allclose(value, want[name], rtol=1e-3, atol=1e-4), (trial, checkpoint, name)
    assert not torch.allclose(
        states["final"]["stages.head.linear.bias"][0], states["final"]["stages.head.linear.bias"][1]
    )


def test_scores_count_what_lies_within_the_margin(setup):
    """Tables in which every number is the printed one but for those of one network at one offset."""
    printed, rows = score.printed(), {"attention": [], "relu_mlp": []}
    assert len(printed) == 16 and sum(name[0] == "attention" for name in printed) == 11
    for network, offset, checkpoint, seed in itertools.product(rows, (0.0, 0.5), ("init", "mid", "final"), (42, 43)):
        value = {n[1]: v for n, v in printed.items() if (n[0], n[2]) == (network, checkpoint)}
        row = {"response": "tanh", "train": 96, "noise": 0.1, "spread": 1.0, "offset": offset, "seed": seed}
        row |= {"checkpoint": checkpoint, "test_loss": value.get("test_loss", 1.0) * (1 + offset)}
        if network == "attention":
            for pair in ATTENTION_PAIRS:
                far = 1.0 if pair == "q-k" else 9.0
                row |= {f"{pair} full": far * value["full"], f"{pair} gn": far * value["gn"]}
                row[f"{pair} tensor"] = value["gap"] * far * value["gn"] * (1 if pair == "q-k" else 2)
        else:
            row |= {pair: value["full"] * (1.0 if pair == "block1-block2" else 0.1) for pair in RELU_PAIRS}
        rows[network].append(row)
    tables = {name: pd.DataFrame(found) for name, found in rows.items()}
    analysis = analyse(setup, tables)
    assert len(analysis.scored) == 2 * 3 * 6
    best, second = analysis.scored.iloc[0], analysis.scored.iloc[1]
    assert (best["attention_pair"], best["relu_pair"], best["offset"]) == ("q-k", "block1-block2", 0.0)
    assert (best["met"], second["met"]) == (16, 13) and best["off"] < 1e-12 < second["off"]
    assert second["relu_pair"] != "block1-block2" or second["offset"] == 0.5
    assert any("no evidence" in line for line in analysis.notes())
    for make in analysis.figures().values():
        assert make().axes
    moved = {name: pd.concat([t, t.assign(rate=3e-3, epochs=4, offset=0.7)]) for name, t in tables.items()}
    analysis = analyse(setup, {n: t.query("offset != 0.7 or noise == 0.1") for n, t in moved.items()})
    assert len(analysis.scored) == 3 * 3 * 6
    assert set(analysis.scored.query("printed_steps")["rate"]) == {1e-3} and not analysis.scored["printed_steps"].all()
    assert not any("moved one at a time" in line for line in analyse(setup, tables).notes())
    assert any("moved one at a time" in line for line in analysis.notes())
    lacking = {**tables, "relu_mlp": tables["relu_mlp"].query("offset == 0 or seed == 42")}
    assert set(analyse(setup, lacking).scored["offset"]) == {0.0}
    assert analyse(setup, {"attention": tables["attention"]}).notes() == []
