"""The networks are the ones that the papers define."""

import math
from functools import partial

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


def made(architecture, **settings):
    """The network of seed 0 in float64, and a function of the values that a stage gives by its
    definition: Linear, then LayerNorm if it has one."""
    network = architecture(**settings, generator=seeded()).double()

    def layer(name, h):
        block = network.stages[name]
        z = h @ block.linear.weight.T + block.linear.bias
        if block.norm is None:
            return z
        centred = z - z.mean(1, keepdim=True)
        z = centred / torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-5)
        return z * block.norm.weight + block.norm.bias

    return network, layer


def count(network):
    return sum(p.numel() for p in network.parameters())


def test_plain_network_by_hand():
    network, layer = made(mlp, inputs=7, outputs=3, depth=2, width=5, activation="silu")
    x = h = normal(4, 7, generator=seeded(1))
    for name in ("projection", "block0", "block1"):
        z = layer(name, h)
        h = z * torch.sigmoid(z)
    assert network.stages["head"].norm is None
    assert_close(network(x), layer("head", h))
    assert network.measured == ("block0", "block1")
    assert list(network.activations(x)) == ["projection", "block0", "block1", "head"]


def test_residual_network_by_hand():
    network, layer = made(mlp, inputs=7, outputs=3, depth=4, width=5, residual=True)
    normed = [name for name, stage in network.stages.items() if stage.norm is not None]
    assert normed == ["projection"]  # it keeps LayerNorm, the blocks have none
    x = normal(4, 7, generator=seeded(1))
    h = layer("projection", x).relu()
    for i in range(4):
        h = h + 0.5 * layer(f"block{i}", h).relu()  # 4^-1/2
    assert_close(network(x), layer("head", h))


@pytest.mark.parametrize("merge, extra", [("sum", 0), ("cat", 2 * 32 * 32 + 32)])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_diamond_by_hand(merge, extra, k):
    network, layer = made(diamond, branch_depth=k, merge=merge)
    block = 32 * 32 + 32 + 64
    assert count(network) == 3072 * 32 + 32 + 64 + 2 * k * block + extra + 32 * 10 + 10
    x, ends = normal(4, 3072, generator=seeded(1)), []
    for branch in "ab":
        h = layer("stem", x).relu()
        for i in range(k):
            h = layer(f"{branch}{i}", h).relu()
        ends.append(h)
    if merge == "sum":
        h = (ends[0] + ends[1]) / math.sqrt(2)
    else:
        assert network.stages["merge"].norm is None
        h = layer("merge", torch.cat(ends, 1)).relu()
    assert_close(network(x), layer("head", h))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_distances_in_a_diamond(k):
    dag = network(f"diamond-sum-{k}").to_dag()
    for i in range(k):
        for j in range(k):
            assert graph_distance(k, i, j) == 2 * k - i - j
            through_merge = 2 + (k - 1 - i) + (k - 1 - j)
            through_stem = i + j + 2
            assert dag.distance(f"a{i}", f"b{j}") == min(through_merge, through_stem)


def test_bottleneck_is_at_block_half_depth():
    network, _ = made(bottleneck_mlp, narrow=4, width=32, depth=6, inputs=10, outputs=7)
    values = network.activations(normal(2, 10))
    assert list(values) == ["projection", *(f"block{i}" for i in range(6)), "head"]
    assert [value.shape[1] for value in values.values()] == [32, 32, 32, 32, 4, 32, 32, 7]
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
    ours, theirs = SpectralLinear(6, 4).double(), nn.Linear(6, 4).double()
    theirs.load_state_dict({"weight": ours.weight.detach(), "bias": ours.bias.detach()})
    nn.utils.parametrizations.spectral_norm(theirs)
    weight = theirs.parametrizations.weight
    norm = weight[0]
    norm._u.copy_(ours.u)
    norm._v.copy_(ours.v)
    x = normal(3, 6, generator=seeded())
    for mode in (True, True, False, True):
        a, b = ours.train(mode)(x), theirs.train(mode)(x)
        assert_close(a, b, rtol=1e-10, atol=1e-12)
        (g,) = torch.autograd.grad(a.square().sum(), ours.weight)
        (h,) = torch.autograd.grad(b.square().sum(), weight.original)
        assert_close(g, h, rtol=1e-8, atol=1e-10)
        assert_close(ours.u, norm._u, rtol=1e-10, atol=1e-12)


TOKENS = normal(5, 8, 16, generator=seeded(1))


@pytest.mark.parametrize(
    "architecture, parameters",
    [(attention_regressor, 785), (positionwise_mlp, 833), (flat_mlp, 865)],
)
def test_sizes_of_table_7(architecture, parameters):
    network, _ = made(architecture)
    assert count(network) == network.parameter_count == parameters
    assert network(TOKENS).shape == (5, 1)


def test_attention_by_hand():
    network, _ = made(attention_regressor)
    q, k, v = (TOKENS @ network.stages[name].weight.T for name in "qkv")
    attended, head = F.scaled_dot_product_attention(q, k, v), network.stages["head"].linear
    assert_close(network(TOKENS), attended.mean(1) @ head.weight.T + head.bias)


def test_controls_of_attention_by_hand():
    control, _ = made(positionwise_mlp)
    permuted = TOKENS[:, torch.randperm(8, generator=seeded(2))]
    # position by position, then the mean
    assert_close(control(permuted), control(TOKENS))
    flat, layer = made(flat_mlp)
    value = TOKENS.flatten(1)
    for name in flat.measured:
        value = layer(name, value).relu()
    assert_close(flat(TOKENS), layer("head", value))


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
    first, second = (residual.stages[name][0] for name in ("layer1", "layer2"))
    deviation = second.conv1.weight.std().item()
    assert deviation == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)  # 2/fan_out
    assert isinstance(first.shortcut, nn.Identity)
    assert second.shortcut[0].weight.shape == (128, 64, 1, 1)


def test_resnet_block_by_hand():
    block = resnet18(activation="silu", generator=seeded()).eval().stages["layer2"][0]
    x = torch.randn(2, 64, 8, 8, generator=seeded(1))
    h = F.silu(block.norm1(F.conv2d(x, block.conv1.weight, stride=2, padding=1)))
    h = block.norm2(F.conv2d(h, block.conv2.weight, padding=1))
    short = block.shortcut[1](F.conv2d(x, block.shortcut[0].weight, stride=2))
    assert_close(block(x), F.silu(h + short))


def test_default_torch_initialisation_from_the_stream():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b, c = (mlp(depth=3, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())  # the global stream is untouched
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.stages["block0"].linear.weight, c.stages["block0"].linear.weight)
    # uniform within 1/√fan_in, weights and biases alike
    for name, fan_in in (("projection", 3072), ("block1", 64)):
        for p in a.stages[name].linear.parameters():
            assert 0.9 * fan_in**-0.5 < p.abs().max() <= fan_in**-0.5
    weight = a.stages["projection"].linear.weight
    assert weight.std().item() == pytest.approx((3 * 3072) ** -0.5, rel=0.02)


NETWORKS = {name: (partial(network, name), (6, 7)) for name in ARCHITECTURES} | {
    "attention": (partial(attention_regressor, width=4), (6, 3, 4)),
    "control": (partial(positionwise_mlp, width=4), (6, 3, 4)),
    "flat control": (partial(flat_mlp, inputs=12, width=4), (6, 3, 4)),
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


@pytest.mark.parametrize(
    "architecture, settings, words",
    [
        (mlp, {"width": [4, 4], "depth": 3}, "expected 4 widths"),
        (mlp, {"activation": "rleu"}, "expected one of relu"),
        (mlp, {"depth": 1, "width": [4, 5], "residual": True}, "equal widths"),
        (diamond, {"merge": "max"}, "sum, cat"),
        (resnet18, {"activation": "swish"}, "activation"),
    ],
)
def test_mistakes_are_refused(architecture, settings, words):
    with refusal(words):
        architecture(**settings)
