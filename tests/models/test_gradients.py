"""The written-out backward pass of every block against float64 autograd, and the closed forms that
the models state for the curvature engine against their forward passes."""

import pytest
import torch
from torch.testing import assert_close

from runner.curvature import Dag, Node, split_blocks
from runner.curvature.graphs.derivatives import evaluate
from runner.models.architectures import mlp
from runner.training.backprop import gradient_function, loss_value, written_out
from tests.draws import normal, seeded
from tests.errors import refusal
from tests.models.networks import ARCHITECTURES, network


def check_gradient(network, loss, x, y):
    """The written-out gradient is that of autograd."""
    state = {name: value.clone() for name, value in network.state_dict().items()}
    expected = loss_value(loss, network(x), y)
    gradients = torch.autograd.grad(expected, list(network.parameters()))
    # the power iteration of spectral normalisation moves on in training
    network.load_state_dict(state)
    value = gradient_function(network, loss)(x, y)
    assert_close(value, expected, rtol=1e-12, atol=1e-14)
    for p, g in zip(network.parameters(), gradients, strict=True):
        assert_close(p.grad, g, rtol=1e-10, atol=1e-13)


X = normal(9, 7, generator=seeded(5))


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_written_out_gradient_is_autograds(name, mode):
    net = network(name).double().train(mode)
    assert written_out(net)
    # away from LayerNorm's initial weights 1 and 0, where a swap of the two would not show
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=seeded(p.numel()), dtype=p.dtype))
    y = torch.randint(4, (9,), generator=seeded(6))
    check_gradient(net, "cross_entropy", X, y)


def test_mean_squared_error_gradient():
    net = mlp(inputs=7, outputs=1, depth=2, width=5, generator=seeded()).double()
    check_gradient(net, "mse", X, normal(9, generator=seeded(6)))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_stated_structure_gives_the_blocks_of_automatic_differentiation(name):
    dag = network(name).double().eval().to_dag()
    x, y = normal(3, 7), torch.tensor([0, 2, 1])
    assert set(evaluate(dag, x).structures) == set(dag.order)
    opaque = Dag([Node(n.name, n.parents, lambda *p, fn=n.fn: fn(*p)) for n in dag.nodes.values()])
    assert not evaluate(opaque, x).structures
    found, expected = split_blocks(dag, x, y), split_blocks(opaque, x, y)
    scale = max(float(block.abs().max()) for block in expected.total.values())
    for part in ("total", "gauss_newton", "tensor"):
        blocks, exact = getattr(found, part), getattr(expected, part)
        for pair in exact:
            assert float((blocks[pair] - exact[pair]).abs().max()) < 1e-12 * scale


def test_spectral_weights_in_training_mode_are_refused():
    net = network("spectral").double()
    with refusal("not deterministic"):
        split_blocks(net.to_dag(), normal(3, 7), torch.tensor([0, 2, 1]))
