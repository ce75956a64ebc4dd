"""The networks are the ones that the papers define."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from runner.models.architectures import (
    attention_regressor,
    bottleneck_mlp,
    diamond,
    flat_mlp,
    graph_distance,
    mlp,
    positionwise_mlp,
)
from runner.models.network import INPUT, SpectralLinear
from runner.models.resnet import resnet18
from tests.draws import normal, seeded
from tests.errors import refusal
from tests.models.networks import ARCHITECTURES, network

F = nn.functional


def count(network):
    return sum(p.numel() for p in network.parameters())


def layer(block, h):
    """Linear and LayerNorm from their definitions."""
    z = h @ block.linear.weight.T + block.linear.bias
    if block.norm is None:
        return z
    centred = z - z.mean(1, keepdim=True)
    z = centred / torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-5)
    return z * block.norm.weight + block.norm.bias


def test_plain_network_by_hand():
    network = mlp(
        inputs=7, outputs=3, depth=2, width=5, activation="silu", generator=seeded()
    ).double()
    x = normal(4, 7, generator=seeded(1))
    h = x
    for name in ("projection", "block0", "block1"):
        z = layer(network.stages[name], h)
        h = z * torch.sigmoid(z)
    expected = h @ network.stages["head"].linear.weight.T + network.stages["head"].linear.bias
    assert_close(network(x), expected)
    assert network.measured == ("block0", "block1")
    assert list(network.activations(x)) == ["projection", "block0", "block1", "head"]


def test_residual_network_by_hand():
    network = mlp(inputs=7, outputs=3, depth=4, width=5, residual=True, generator=seeded()).double()
    assert (
        network.stages["projection"].norm is not None
    )  # the projection keeps LayerNorm, the blocks have none
    x = normal(4, 7, generator=seeded(1))
    h = layer(network.stages["projection"], x).clamp(min=0)
    for i in range(4):
        h = h + 0.5 * layer(network.stages[f"block{i}"], h).clamp(min=0)  # 4^-1/2
    assert_close(network(x), layer(network.stages["head"], h))
    assert all(network.stages[f"block{i}"].norm is None for i in range(4))


@pytest.mark.parametrize("merge, extra", [("sum", 0), ("cat", 2 * 32 * 32 + 32)])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_diamond_by_hand(merge, extra, k):
    network = diamond(branch_depth=k, merge=merge, generator=seeded()).double()
    block = 32 * 32 + 32 + 64
    assert count(network) == 3072 * 32 + 32 + 64 + 2 * k * block + extra + 32 * 10 + 10
    x = normal(4, 3072, generator=seeded(1))
    stem = layer(network.stages["stem"], x).relu()
    ends = []
    for branch in "ab":
        h = stem
        for i in range(k):
            h = layer(network.stages[f"{branch}{i}"], h).relu()
        ends.append(h)
    join = network.stages["merge"]
    h = (
        (ends[0] + ends[1]) / math.sqrt(2)
        if merge == "sum"
        else layer(join, torch.cat(ends, 1)).relu()
    )
    assert_close(network(x), layer(network.stages["head"], h))
    if merge == "cat":
        assert join.norm is None
    dag = network.to_dag()
    for i in range(k):
        for j in range(k):
            assert graph_distance(k, i, j) == 2 * k - i - j
            through_merge = 2 + (k - 1 - i) + (k - 1 - j)
            assert dag.distance(f"a{i}", f"b{j}") == min(
                through_merge, i + j + 2
            )  # or back through the stem


def test_bottleneck_is_at_block_half_depth():
    network = bottleneck_mlp(narrow=4, width=32, depth=6, inputs=10, outputs=7, generator=seeded())
    widths = {
        name: value.shape[1] for name, value in network.activations(torch.randn(2, 10)).items()
    }
    names = ("projection", *(f"block{i}" for i in range(6)), "head")
    assert widths == dict(zip(names, (32, 32, 32, 32, 4, 32, 32, 7), strict=True))
    assert network.stages["block3"].norm is not None


def test_spectral_network_bounds_its_layers():
    network = mlp(depth=3, width=16, norm=False, spectral=True, generator=seeded()).eval()
    for name in ("projection", "block0", "block1", "block2"):
        linear = network.stages[name].linear
        assert isinstance(linear, SpectralLinear)
        norm = torch.linalg.matrix_norm(linear.weight / linear.sigma(), 2)
        assert 0.999 < norm < 1.1  # 15 power steps from a random start
    assert not isinstance(network.stages["head"].linear, SpectralLinear)
    assert all(stage.module.norm is None for stage in network.graph())


def test_spectral_linear_is_torchs():
    ours = SpectralLinear(6, 4).double()
    theirs = nn.Linear(6, 4).double()
    theirs.load_state_dict({"weight": ours.weight.detach(), "bias": ours.bias.detach()})
    nn.utils.parametrizations.spectral_norm(theirs)
    norm = theirs.parametrizations.weight[0]
    norm._u.copy_(ours.u)
    norm._v.copy_(ours.v)
    x = normal(3, 6, generator=seeded())
    for mode in (True, True, False, True):
        ours.train(mode)
        theirs.train(mode)
        a, b = ours(x), theirs(x)
        assert_close(a, b, rtol=1e-10, atol=1e-12)
        (g,) = torch.autograd.grad(a.square().sum(), ours.weight)
        (h,) = torch.autograd.grad(b.square().sum(), theirs.parametrizations.weight.original)
        assert_close(g, h, rtol=1e-8, atol=1e-10)
        assert_close(ours.u, norm._u, rtol=1e-10, atol=1e-12)


def test_attention_and_its_control():
    network = attention_regressor(generator=seeded())
    control = positionwise_mlp(generator=seeded())
    assert (count(network), count(control)) == (785, 833)
    assert (network.parameter_count, control.parameter_count) == (785, 833)
    network, x = (
        network.double(),
        normal(5, 8, 16, generator=seeded(1)),
    )
    q, k, v = (x @ network.stages[name].weight.T for name in "qkv")
    attended = F.scaled_dot_product_attention(q, k, v)
    head = network.stages["head"].linear
    assert_close(network(x), attended.mean(1) @ head.weight.T + head.bias)
    permuted = control.double()(x[:, torch.randperm(8, generator=seeded(2))])
    assert_close(permuted, control(x))  # position by position, then the mean
    flat = flat_mlp(generator=seeded()).double()
    assert (count(flat), flat.parameter_count) == (865, 865)
    value = x.flatten(1)
    for name in flat.measured:
        value = F.relu(flat.stages[name].linear(value))
    assert_close(flat(x), flat.stages["head"].linear(value))
    assert control(x).shape == network(x).shape == flat(x).shape == (5, 1)


def test_resnet_sizes():
    residual, plain = resnet18(generator=seeded()), resnet18(skip=False, generator=seeded())
    assert (count(residual), count(plain)) == (11_181_642, 11_007_818)
    values = residual.eval().activations(torch.randn(2, 3, 32, 32))
    assert {name: tuple(value.shape[1:]) for name, value in values.items()} == {
        "stem": (64, 8, 8),
        "layer1": (64, 8, 8),
        "layer2": (128, 4, 4),
        "layer3": (256, 2, 2),
        "layer4": (512, 1, 1),
        "head": (10,),
    }
    assert residual.measured == plain.measured == ("stem", "layer1", "layer2", "layer3", "layer4")
    conv = residual.stages["layer2"][0].conv1.weight
    assert conv.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)  # 2/fan_out
    assert isinstance(residual.stages["layer1"][0].shortcut, nn.Identity)
    assert residual.stages["layer2"][0].shortcut[0].weight.shape == (128, 64, 1, 1)


def test_resnet_block_by_hand():
    block = resnet18(activation="silu", generator=seeded()).eval().stages["layer2"][0]
    x = torch.randn(2, 64, 8, 8, generator=seeded(1))
    h = F.conv2d(
        F.silu(block.norm1(F.conv2d(x, block.conv1.weight, stride=2, padding=1))),
        block.conv2.weight,
        padding=1,
    )
    short = block.shortcut[1](F.conv2d(x, block.shortcut[0].weight, stride=2))
    assert_close(block(x), F.silu(block.norm2(h) + short))


def test_default_torch_initialisation_from_the_stream():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b = mlp(depth=3, generator=seeded(1)), mlp(depth=3, generator=seeded(1))
    c = mlp(depth=3, generator=seeded(2))
    assert torch.equal(before, torch.random.get_rng_state())  # the global stream is untouched
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.stages["block0"].linear.weight, c.stages["block0"].linear.weight)
    for name, fan_in in (("projection", 3072), ("block1", 64)):
        for p in a.stages[
            name
        ].linear.parameters():  # uniform within 1/√fan_in, weights and biases alike
            assert p.abs().max() <= fan_in**-0.5 and p.abs().max() > 0.9 * fan_in**-0.5
    weight = a.stages["projection"].linear.weight
    assert weight.std().item() == pytest.approx((3 * 3072) ** -0.5, rel=0.02)


NETWORKS = {name: (lambda name=name: network(name), (6, 7)) for name in ARCHITECTURES} | {
    "attention": (lambda: attention_regressor(width=4), (6, 3, 4)),
    "control": (lambda: positionwise_mlp(width=4), (6, 3, 4)),
    "flat control": (lambda: flat_mlp(inputs=12, width=4), (6, 3, 4)),
    "resnet": (resnet18, (2, 3, 32, 32)),
}
"""Name -> what makes the network, and the shape of its inputs."""


@pytest.mark.parametrize("name", NETWORKS)
def test_graph_is_the_network(name):
    make, shape = NETWORKS[name]
    net, x = make().eval(), torch.randn(shape, generator=seeded(3))
    dag = net.to_dag("mse" if len(shape) == 3 else "cross_entropy")
    values = dag.forward(x)
    for stage, value in net.activations(x).items():
        assert_close(values[stage], value)
    assert set(net.measured) < set(dag.order) and dag.output == "head"
    assert INPUT not in net.measured
    if net.parameter_count < 1e6:  # the copy for exact blocks; of convolutions it takes seconds
        double = dag.to(torch.float64).forward(x.double())["head"]
        assert_close(double.float(), net(x), rtol=1e-3, atol=1e-4)


def test_mistakes_are_refused():
    for make, word in (
        (lambda: mlp(width=[4, 4], depth=3), "expected 4 widths"),
        (lambda: mlp(activation="rleu"), "expected one of relu"),
        (lambda: mlp(depth=1, width=[4, 5], residual=True), "equal widths"),
        (lambda: diamond(merge="max"), "sum, cat"),
        (lambda: resnet18(activation="swish"), "activation"),
    ):
        with refusal(word):
            make()
