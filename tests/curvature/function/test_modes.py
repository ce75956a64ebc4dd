"""Convolutions in derivatives: the numbers of torch's own, and no operation more than their
formulas have."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from runner.curvature import Dag, ParameterOperator, exact_blocks
from runner.curvature.function.modes import Convolutions
from tests.bench.machine import Operations
from tests.curvature.cases import Own, X, Y, node_operator
from tests.draws import normal
from tests.errors import each_row

CASES = {
    "stride and padding": (
        torch.conv2d,
        (2, 3, 7, 7),
        (4, 3, 3, 3),
        {"stride": 2, "padding": (1, 2)},
    ),
    "groups and dilation": (F.conv2d, (2, 4, 9, 9), (6, 2, 3, 3), {"dilation": 2, "groups": 2}),
    "one dimension": (F.conv1d, (3, 2, 11), (5, 2, 4), {"stride": (3,)}),
    "three dimensions": (F.conv3d, (2, 2, 5, 5, 5), (3, 2, 2, 2, 2), {"padding": 1}),
    "named padding": (F.conv2d, (2, 3, 6, 6), (4, 3, 3, 3), {"padding": "same"}),
    "no batch": (F.conv2d, (3, 6, 6), (4, 3, 3, 3), {}),
}
of_cases = each_row("function, shape, weights, options", CASES)


def second(function, x, weight, bias, options):
    """A Hessian product of sum tanh(conv x): it passes the convolution, its adjoint, and the
    convolution again."""
    x = x.clone().requires_grad_()
    value = torch.tanh(function(x, weight, bias, **options)).square().sum()
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    return value.detach(), torch.autograd.grad(gradient, x, torch.cos(x.detach()))[0]


@of_cases
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_as_torch(function, shape, weights, options, dtype, memory):
    if memory == torch.channels_last and len(shape) != 4:
        pytest.skip("of images alone")
    x = normal(*shape).to(dtype, memory_format=memory)
    weight, bias = normal(*weights).to(dtype), normal(weights[0]).to(dtype)
    expected = second(function, x, weight, bias, options)
    with Convolutions("inputs"):
        found = second(function, x, weight.clone().requires_grad_(), bias, options)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_nothing_is_computed_for_the_weights():
    """Three convolutions: forward, adjoint, and one of each for the product; torch's own way has
    one more."""
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    counts = []
    for mode in (Convolutions("inputs"), torch.overrides.BaseTorchFunctionMode()):
        with Operations() as counted, mode:
            second(F.conv2d, x, weight, None, {})
        counts.append(counted.total / (2 * 2 * 4 * 36 * 27))
    assert counts[0] == 4
    assert counts[1] > 4.5


def assert_same_block(dag, x=X):
    """Of the first node, by an operator and by exact blocks."""
    pair = dag.order[0], dag.order[0]
    exact = exact_blocks(dag, x, Y)[pair]
    found = node_operator(dag, x, Y).block(*pair).dense()
    assert exact.any() and torch.allclose(found, exact, rtol=1e-9, atol=1e-14)


def test_weights_that_depend_on_the_input_are_differentiated():
    """A convolution whose kernel is made of its input: torch's own way, or the blocks would be
    wrong."""

    def made(m, h):
        kernels = m.kernel(h).view(-1, 1, 3, 3)
        image = h.view(1, len(h), 3, 4)
        return torch.tanh(F.conv2d(image, kernels, padding=1, groups=len(h))).view(len(h), 12)

    layers = [nn.Linear(12, 12), Own(made, kernel=nn.Linear(12, 9)), nn.Linear(12, 3)]
    assert_same_block(Dag.from_sequential(layers).to(torch.float64), normal(4, 12))


@pytest.mark.parametrize("way", ["backwards", "forwards"])
def test_convolutions_inside_of_a_derivative_that_the_network_takes(way):
    """torch.func and forward mode know functions with a backward of their own not at all: torch's
    own way is taken."""

    def slopes(m, x):
        energy = lambda h: torch.tanh(m.filters(h[None, None])).sum()  # noqa: E731
        if way == "backwards":
            return m.last(torch.func.vmap(torch.func.grad(energy))(x))
        along = torch.func.vmap(lambda h: torch.func.jvp(energy, (h,), (torch.cos(h),))[1])
        return m.last(along(x)[:, None] * x)

    taken = Own(slopes, filters=nn.Conv1d(1, 2, 3), last=nn.Linear(6, 3))
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), taken).double()
    assert_same_block(Dag.from_sequential([net[0], net[1:]]))


DIRECTIONS = {"all": (1, 1, 1), "weights": (0, 1, 0), "input": (1, 0, 0), "bias": (0, 0, 1)}


def along(function, tensors, options, moved):
    """Of sum tanh(conv(x, w, b))^2 in x, w and b: the gradient, its derivative along a direction,
    and that one's gradient, a third derivative."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    value = torch.tanh(function(*leaves, **options)).square().sum()
    first = torch.autograd.grad(value, leaves, create_graph=True)
    slope = 0
    for g, leaf, moves in zip(first, leaves, moved, strict=True):
        if moves:
            slope = slope + (g * torch.cos(leaf.detach())).sum()
    second = torch.autograd.grad(slope, leaves, create_graph=True)
    return *first, *second, *torch.autograd.grad(sum(t.square().sum() for t in second), leaves)


@pytest.mark.parametrize("moved", DIRECTIONS.values(), ids=DIRECTIONS)
@of_cases
def test_all_derivatives_over_input_weights_and_bias_are_torchs(
    function, shape, weights, options, moved
):
    tensors = normal(*shape), normal(*weights), normal(weights[0])
    expected = along(function, tensors, options, moved)
    with Convolutions("all"):
        found = along(function, tensors, options, moved)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-11, atol=1e-11 * float(b.detach().abs().max()))


@pytest.mark.parametrize("part, most", [("hessian", 6), ("gauss_newton", 4)])
def test_products_over_parameters_cost_no_more_than_their_formulas(part, most):
    """6 F and 4 F, F the operations of a forward pass, less what the first layer saves: its input
    has no gradient."""
    layers = []
    for _ in range(4):
        layers += [nn.Conv2d(6, 6, 3, padding=1), nn.Tanh()]
    net, x = nn.Sequential(*layers, nn.Flatten()), torch.randn(3, 6, 5, 5)
    data = x, torch.randint(6 * 25, (3,))
    operator = ParameterOperator(net, nn.CrossEntropyLoss(), data, part=part)
    v = torch.randn(operator.shape[0])
    operator @ v  # makes the graph
    with Operations() as forward:
        net(x)
    with Operations() as counted:
        operator @ v
    assert most - 1.5 < counted.total / forward.total <= most
