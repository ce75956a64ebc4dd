"""The written-out backward pass of every block against float64 autograd, and pooling in training against torch's."""

import pytest
import torch

from runner.models.activations import ACTIVATIONS
from runner.models.architectures import bottleneck_mlp, diamond, mlp
from runner.training.backprop import gradient_function, loss_value, written_out


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def networks():
    small = {"inputs": 7, "outputs": 4, "generator": generator(3)}
    for name in ACTIVATIONS:
        yield f"plain-{name}", mlp(depth=3, width=5, activation=name, **small)
        yield f"bare-{name}", mlp(depth=2, width=6, activation=name, norm=False, **small)
    yield "residual", mlp(depth=3, width=5, residual=True, **small)
    yield "residual-silu", mlp(depth=2, width=5, residual=True, activation="silu", **small)
    yield "spectral", mlp(depth=3, width=5, norm=False, spectral=True, **small)
    yield "bottleneck", bottleneck_mlp(narrow=2, width=6, depth=4, **small)
    for merge in ("sum", "cat"):
        for k in (1, 2, 3):
            yield f"diamond-{merge}-{k}", diamond(branch_depth=k, merge=merge, activation="silu", width=4, **small)


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
            p.add_(0.3 * torch.randn(p.shape, generator=generator(p.numel()), dtype=p.dtype))
    x = torch.randn(9, 7, generator=generator(5), dtype=torch.float64)
    y = torch.randint(4, (9,), generator=generator(6))
    state = {k: v.clone() for k, v in network.state_dict().items()}
    expected, gradients = autograd(network, x, y, "cross_entropy")
    network.load_state_dict(state)  # the power iteration of spectral normalisation moves on in training mode
    value = gradient_function(network, "cross_entropy")(x, y)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    for p, g in zip(network.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-10, atol=1e-13)


def test_mean_squared_error_gradient():
    network = mlp(inputs=7, outputs=1, depth=2, width=5, generator=generator()).double()
    x = torch.randn(9, 7, generator=generator(5), dtype=torch.float64)
    y = torch.randn(9, generator=generator(6), dtype=torch.float64)
    expected, gradients = autograd(network, x, y, "mse")
    torch.testing.assert_close(gradient_function(network, "mse")(x, y), expected)
    for p, g in zip(network.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-10, atol=1e-13)
