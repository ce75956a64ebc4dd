"""Predicted cost compared with measured cost, of networks whose gradients are slow for their operations."""

import time

import pytest
import torch
from torch import nn

from runner.curvature import inter_layer_metrics, verify
from runner.diagnose.command import Options
from runner.diagnose.costs import cost_of, cost_of_certificate, cost_of_layers
from runner.diagnose.parts import density
from runner.diagnose.problem import Problem
from runner.diagnose.target import Snapshot
from tests.curvature.module_cases import UNet

WITHIN = 4.0
"""Factor of processor time; the page promises three for parts of more than a second."""


class Dense(nn.Module):
    """A U-Net of dense layers: long skips by concatenation."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.d1, self.d2, self.d3 = nn.Linear(16, width), nn.Linear(width, width), nn.Linear(width, width)
        self.u2, self.u1, self.out = nn.Linear(2 * width, width), nn.Linear(2 * width, width), nn.Linear(width, 5)

    def forward(self, x):
        a = torch.tanh(self.d1(x))
        b = torch.tanh(self.d2(a))
        c = torch.tanh(self.d3(b))
        b = torch.tanh(self.u2(torch.cat([c, b], 1)))
        return self.out(torch.tanh(self.u1(torch.cat([b, a], 1))))


def problem(module, x, y):
    torch.manual_seed(0)
    return Problem(Snapshot(0, module.eval(), nn.CrossEntropyLoss(), [(x, y)], False), Options())


def problems():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(4, 1, 8, 8, generator=g)
    yield problem(Dense(), torch.randn(12, 16, generator=g), torch.arange(12) % 5)
    yield problem(UNet(), x, (x[:, 0] > 0).long())


def taken(code):
    started = time.process_time()
    code()
    return time.process_time() - started


def test_small_networks_take_exact_blocks_and_convolutions_products():
    exact, products = (cost_of_layers(found) for found in problems())
    assert "exact blocks" in exact.method and "exact blocks" not in products.method
    assert exact.gradients > 0 and products.gradients > 0


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_the_predicted_cost_between_layers_agrees_with_the_measured_one(which):
    """A prediction from operations at the rate of a gradient was once 17 times too large for dense nodes."""
    found = list(problems())[which]
    dag = found.dag
    predicted = cost_of_layers(found), cost_of_certificate(found)
    times = (
        taken(lambda: inter_layer_metrics(dag, dag.x, dag.y, generator=found.generator("layers"))),
        taken(lambda: verify(dag, dag.x, dag.y, generator=found.generator("certificate"))),
    )
    for cost, seconds in zip(predicted, times, strict=True):
        ratio = cost.gradients * found.gradient.seconds / seconds
        assert 1 / WITHIN < ratio < WITHIN, (cost, seconds, ratio)


@pytest.mark.slow
def test_the_predicted_cost_over_parameters_is_that_of_the_products():
    found = next(problems())
    predicted = cost_of("density")(found)
    assert "estimated" in predicted.method
    ratio = predicted.gradients * found.gradient.seconds / taken(lambda: density(found))
    assert 1 / WITHIN < ratio < WITHIN, ratio
