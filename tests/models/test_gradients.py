"""The written-out backward pass of every block against float64 autograd, and the closed forms that
the models state for the curvature engine against their forward passes."""

import pytest
import torch
from torch.testing import assert_close

from runner.curvature import Dag, Node, split_blocks
from runner.curvature.graphs.derivatives import evaluate
from runner.models.activations import ACTIVATIONS
from runner.models.architectures import bottleneck_mlp, diamond, mlp
from runner.training.backprop import gradient_function, loss_value, written_out
from tests.draws import normal, seeded
from tests.errors import refusal


def networks():
    small = {"inputs": 7, "outputs": 4, "generator": seeded(3)}
    for name in ACTIVATIONS:
        yield f"plain-{name}", mlp(depth=3, width=5, activation=name, **small)
        yield f"bare-{name}", mlp(depth=2, width=6, activation=name, norm=False, **small)
    yield "residual", mlp(depth=3, width=5, residual=True, **small)
    yield "residual-silu", mlp(depth=2, width=5, residual=True, activation="silu", **small)
    yield "spectral", mlp(depth=3, width=5, norm=False, spectral=True, **small)
    yield "bottleneck", bottleneck_mlp(narrow=2, width=6, depth=4, **small)
    for merge in ("sum", "cat"):
        for k in (1, 2, 3):
            yield (
                f"diamond-{merge}-{k}",
                diamond(branch_depth=k, merge=merge, activation="silu", width=4, **small),
            )


CASES = dict(networks())


def autograd(network, x, y, loss):
    value = loss_value(loss, network(x), y)
    return value, torch.autograd.grad(value, list(network.parameters()))


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", CASES)
def test_written_out_gradient_is_autograds(name, mode):
    network = CASES[name].double().train(mode)
    assert written_out(network)
    # away from LayerNorm's initial weights 1 and 0, where a swap of the two would not show
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=seeded(p.numel()), dtype=p.dtype))
    x = normal(9, 7, generator=seeded(5))
    y = torch.randint(4, (9,), generator=seeded(6))
    state = {k: v.clone() for k, v in network.state_dict().items()}
    expected, gradients = autograd(network, x, y, "cross_entropy")
    network.load_state_dict(
        state
    )  # the power iteration of spectral normalisation moves on in training mode
    value = gradient_function(network, "cross_entropy")(x, y)
    assert_close(value, expected, rtol=1e-12, atol=1e-14)
    for p, g in zip(network.parameters(), gradients, strict=True):
        assert_close(p.grad, g, rtol=1e-10, atol=1e-13)


def test_mean_squared_error_gradient():
    network = mlp(inputs=7, outputs=1, depth=2, width=5, generator=seeded()).double()
    x = normal(9, 7, generator=seeded(5))
    y = normal(9, generator=seeded(6))
    expected, gradients = autograd(network, x, y, "mse")
    assert_close(gradient_function(network, "mse")(x, y), expected)
    for p, g in zip(network.parameters(), gradients, strict=True):
        assert_close(p.grad, g, rtol=1e-10, atol=1e-13)


STRUCTURED = {
    "plain": lambda: mlp(inputs=5, outputs=3, depth=3, width=4),
    "plain smooth without norm": lambda: mlp(
        inputs=5, outputs=3, depth=3, width=4, activation="gelu", norm=False
    ),
    "residual": lambda: mlp(
        inputs=5, outputs=3, depth=3, width=4, residual=True, activation="silu"
    ),
    "spectral": lambda: mlp(
        inputs=5, outputs=3, depth=2, width=4, norm=False, spectral=True, activation="tanh"
    ),
    "leaky": lambda: mlp(inputs=5, outputs=3, depth=2, width=4, activation="leaky_relu"),
    "sum": lambda: diamond(
        inputs=5, outputs=3, branch_depth=2, width=4, merge="sum", activation="softplus"
    ),
    "cat": lambda: diamond(
        inputs=5, outputs=3, branch_depth=2, width=4, merge="cat", activation="silu"
    ),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_stated_structure_gives_the_blocks_of_automatic_differentiation(name):
    dag = STRUCTURED[name]().double().eval().to_dag()
    x, y = normal(3, 5), torch.tensor([0, 2, 1])
    assert set(evaluate(dag, x).structures) == set(dag.order)
    opaque = Dag([Node(n.name, n.parents, lambda *p, fn=n.fn: fn(*p)) for n in dag.nodes.values()])
    assert not evaluate(opaque, x).structures
    found, expected = split_blocks(dag, x, y), split_blocks(opaque, x, y)
    for part in ("total", "gauss_newton", "tensor"):
        blocks, exact = getattr(found, part), getattr(expected, part)
        scale = max(float(block.abs().max()) for block in expected.total.values())
        assert (
            max(float((blocks[pair] - exact[pair]).abs().max()) for pair in exact) < 1e-12 * scale
        )


def test_spectral_weights_in_training_mode_are_refused():
    net = mlp(inputs=5, outputs=3, depth=2, width=4, norm=False, spectral=True).double()
    with refusal("not deterministic"):
        split_blocks(net.to_dag(), normal(3, 5), torch.tensor([0, 2, 1]))
