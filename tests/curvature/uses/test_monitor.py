"""Curvature during a training: right numbers, and a training that goes on as if nothing had
happened."""

import math
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import runner.curvature as rc
from tests.curvature.matrices import largest
from tests.draws import normal, seeded
from tests.errors import refusal


def network(dropout=0.0):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3)]
    return nn.Sequential(*layers).double()


X, Y = normal(24, 4, generator=seeded(1)), torch.arange(24) % 3
LOSS = nn.CrossEntropyLoss()


def lambda_1(net, loss=LOSS):
    """The largest eigenvalue of the dense Hessian."""
    return float(largest(rc.ParameterOperator(net, loss, (X, Y)), 1))


def watching(net, *every, **numbers):
    return rc.monitor(net, LOSS, (X, Y), *every, **numbers)


def train(net, steps, after):
    """Losses of a training whose batches, dropout and data augmentation are random."""
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        rows = torch.randint(24, (8,))
        noise = random.random() + np.random.rand()  # noqa: NPY002
        loss = nn.functional.cross_entropy(net(X[rows] * (1 + 0.01 * noise)), Y[rows])
        loss.backward()
        after(step)  # gradients are there
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("seed", [None, 3])
def test_a_training_that_is_watched_is_the_same_training_bit_for_bit(seed):
    plain = train(network(0.3), 12, lambda step: None)
    net = network(0.3)
    watch = watching(net, 4, eigenvalues=2, trace=4, seed=seed)
    assert train(net, 12, watch) == plain
    assert [row["step"] for row in watch.rows] == [0, 4, 8]
    assert all("reason" not in row for row in watch.rows)
    assert net.training and all(m.training for m in net.modules())
    assert "3 rows" in repr(watch)


def test_the_numbers_are_those_of_the_network_at_that_step():
    net, truths = network(), []
    measures = {"bound": rc.upper_bound_estimate, "size": lambda h: h.shape[0]}
    watch = watching(net, 5, eigenvalues=3, trace=200, measures=measures)

    def after(step):
        if watch(step) is not None:
            net.eval()
            truths.append(rc.ParameterOperator(net, LOSS, (X, Y)).dense())
            net.train()

    train(net, 11, after)
    frame = watch.to_frame()
    assert list(frame.index) == [0, 5, 10]
    for (_, row), truth in zip(frame.iterrows(), truths, strict=True):
        values = torch.linalg.eigvalsh(truth).flip(0).tolist()
        found = row[["lambda_1", "lambda_2", "lambda_3"]].tolist()
        assert found == pytest.approx(values[:3], rel=1e-7)
        assert row["trace"] == pytest.approx(float(truth.trace()), rel=1e-9)
        assert row["bound"] >= row["lambda_1"] and row["size"] == len(truth)
        assert row["seconds"] > 0


@pytest.mark.parametrize(
    "weights, settings",
    [
        (None, {"eigenvalues": 0}),
        ([3, 1], {"weights": [3, 1], "groups": ["0"], "part": "gauss_newton"}),
    ],
)
def test_numbers_between_layers_have_the_settings_of_the_others(weights, settings):
    net, batches = network(), [(X[:9], Y[:9]), (X[9:], Y[9:])]
    row = rc.monitor(net, LOSS, batches, layers=["0", "4"], **settings)(0)
    blocks = rc.LayerOperator(net.eval(), LOSS, batches, ["0", "4"], weights=weights).blocks()
    assert row["R[0, 4]"] == pytest.approx(float(blocks["0", "4"].norm()), rel=1e-6)
    assert {"C[0, 4]", "D[0, 0]", "gap[4, 4]"} <= set(row)


def test_searches_start_from_the_vectors_found_last():
    """On the same network at half the products or less: 1e-9 has been reached before."""
    torch.manual_seed(0)
    net, loss = nn.Sequential(nn.Linear(4, 60), nn.Tanh(), nn.Linear(60, 3)).double(), LOSS
    counts = []

    def products(operator):
        return operator.products

    watch = rc.monitor(net, loss, (X, Y), measures={"products": products})
    for step in (0, 100):
        counts.append(watch(step)["products"])
    assert watch.vectors.shape == (483, 1)
    assert counts[1] < counts[0]
    assert watch.rows[1]["lambda_1"] == pytest.approx(watch.rows[0]["lambda_1"], rel=1e-9)


def test_a_fixed_draw_of_dropout():
    """The Hessian of the sub-network that one draw leaves, the same at each call."""
    net = network(0.5)
    net[1].eval()
    rows = [watching(net, seed=seed).measure(0) for seed in (1, 1, 2)]
    assert rows[0]["lambda_1"] == rows[1]["lambda_1"] != rows[2]["lambda_1"]


def test_a_failure_later_is_a_row_with_its_reason_and_one_at_first_is_raised():
    net = network()
    watch = watching(net, 1)
    watch(0)
    with torch.no_grad():
        net[0].weight.fill_(math.nan)
    row = watch(1)
    assert "finite" in row["reason"] and math.isnan(row["lambda_1"])
    with refusal("every as a whole number"):
        watching(net, 0)
    with pytest.raises(ValueError):
        rc.monitor(net, LOSS, [], 1)(0)


def test_curves_over_saved_checkpoints(tmp_path):
    net = network()
    watch = watching(net, 2)

    def after(step):
        if watch(step):
            state = net.state_dict()
            content = state if step else {"state_dict": state, "epoch": 1}
            torch.save(content, tmp_path / f"step{step}.pt")

    train(net, 13, after)
    twin = network()
    curve = watching(twin)
    rows = curve.over_checkpoints(str(tmp_path / "step*.pt"))
    assert [row["step"] for row in rows] == [0, 2, 4, 6, 8, 10, 12]  # by number, not by letter
    watched = [row["lambda_1"] for row in watch.rows]
    assert [row["lambda_1"] for row in rows] == pytest.approx(watched, rel=1e-6)
    assert twin[0].weight.equal(network()[0].weight)
    with refusal("files that match"):
        curve.over_checkpoints(str(tmp_path / "none*.pt"))
    torch.save({"x": torch.ones(1)}, tmp_path / "other.pt")
    with refusal("expected a state of Sequential"):
        curve.over_checkpoints([tmp_path / "other.pt"])


class Stopped(nn.Linear):
    """Interrupted at the n-th call."""

    calls = -1

    def forward(self, x):
        self.calls -= 1
        if self.calls == 0:
            raise KeyboardInterrupt
        return super().forward(x)


def test_checkpoints_of_a_loss_that_reads_the_parameters_of_the_network(tmp_path):
    """A penalty: its derivative at the saved weights counts, and the network is as before."""
    net = nn.Sequential(Stopped(4, 3)).double()
    weight = net[0].weight

    def loss(f, y):
        return nn.functional.cross_entropy(f, y) + 3 * (net[0].weight ** 4).sum()

    def state():
        same = net[0].weight is weight, weight.grad is gradient
        return *same, net.training, weight.detach().clone(), torch.get_rng_state()

    gradient = weight.grad = torch.ones_like(weight)
    watch = rc.monitor(net, loss, (X, Y))
    truths = []
    for step in (1, 2):
        torch.save(net.state_dict(), tmp_path / f"step{step}.pt")
        truths.append(lambda_1(net, loss))
        with torch.no_grad():
            weight.mul_(-1.5)
    before = state()
    rows = watch.over_checkpoints(str(tmp_path / "step*.pt"))
    assert [row["lambda_1"] for row in rows] == pytest.approx(truths, rel=1e-6)
    net[0].calls = 3
    with pytest.raises(KeyboardInterrupt):
        watch.over_checkpoints(str(tmp_path / "step*.pt"))
    for now, then in zip(state(), before, strict=True):
        assert now is then or torch.equal(now, then)


def test_layers_that_merge_their_weights_for_evaluation_are_not_written_to():
    class Adapted(nn.Linear):
        merged = False

        def __init__(self):
            super().__init__(4, 3)
            self.down, self.up = nn.Parameter(torch.ones(1, 4)), nn.Parameter(torch.ones(3, 1))

        def train(self, mode=True):
            if mode == self.merged:
                sign = -1 if mode else 1
                self.weight.data += sign * self.up.detach() @ self.down.detach()
                self.merged = not mode
            return super().train(mode)

        def forward(self, x):
            plain = super().forward(x)
            return plain if self.merged else plain + x @ (self.up @ self.down).T

    net = nn.Sequential(Adapted(), nn.Dropout(0.5)).double()
    before = net[0].weight.detach().clone()
    row = watching(net)(0)
    assert net[0].weight.equal(before) and not net[0].merged and net[1].training
    assert row["lambda_1"] == pytest.approx(lambda_1(net[:1]), rel=1e-6)


# ------------------------------------------------------- the page, and callbacks of other libraries


class Trainer:
    """Calls a callback as Lightning's does."""

    global_step = 0

    def fit(self, module, callback, steps):
        for index in range(steps):
            self.global_step += 1
            callback.on_train_batch_end(self, module, None, (X, Y), index)


class Logged(nn.Linear):
    """A LightningModule that keeps what it logs."""

    def log_dict(self, values):
        self.logged = values


def test_the_page_runs_and_its_callbacks_fit_the_protocols(monkeypatch, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "estimators.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    libraries = {
        "lightning": SimpleNamespace(Callback=object),
        "transformers": SimpleNamespace(TrainerCallback=object),
    }
    names = dict(libraries)
    monkeypatch.chdir(tmp_path)
    callbacks = []
    for block in blocks:
        exec(compile(block, "estimators.md", "exec"), names)
        if "class Curvature" in block:
            callbacks.append(names["Curvature"]())
    of_lightning, of_transformers = callbacks
    watch, module = names["watch"], Logged(2, 2)
    assert [row["step"] for row in watch.rows] == [0, 10, 20]
    Trainer().fit(module, of_lightning, 10)
    assert watch.rows[-1]["step"] == 10 and module.logged["lambda_1"] > 0
    for step in (29, 30, 31):
        of_transformers.on_step_end(None, SimpleNamespace(global_step=step), None, model=module)
    assert [row["step"] for row in watch.rows] == [0, 10, 20, 10, 30]
