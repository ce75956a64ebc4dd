"""Convolutions in derivatives: the numbers of torch's own, and no operation more than their
formulas have."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from runner.curvature import CurvatureOperator, Dag, ParameterOperator, exact_blocks
from runner.curvature.function.modes import Convolutions, Operations
from tests.curvature.cases import Own
from tests.draws import normal

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


def second(function, x, weight, bias, options):
    """A Hessian product of sum tanh(conv x): it passes the convolution, its adjoint, and the
    convolution again."""
    x = x.clone().requires_grad_()
    value = torch.tanh(function(x, weight, bias, **options)).square().sum()
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    return value.detach(), torch.autograd.grad(gradient, x, torch.cos(x.detach()))[0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_as_torch(name, dtype):
    function, shape, weights, options = CASES[name]
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(s, dtype=dtype) for s in (shape, weights, weights[:1]))
    for memory in (torch.contiguous_format, torch.channels_last):
        if memory == torch.contiguous_format or len(shape) == 4:
            there = x.to(memory_format=memory)
            expected = second(function, there, weight, bias, options)
            with Convolutions("inputs"):
                found = second(function, there, weight.clone().requires_grad_(), bias, options)
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


def test_weights_that_depend_on_the_input_are_differentiated():
    """A convolution whose kernel is made of its input: torch's own way, or the blocks would be
    wrong."""

    def made(m, h):
        kernels = m.kernel(h).view(-1, 1, 3, 3)
        image = h.view(1, len(h), 3, 4)
        return torch.tanh(F.conv2d(image, kernels, padding=1, groups=len(h))).view(len(h), 12)

    torch.manual_seed(0)
    layers = [nn.Linear(12, 12), Own(made, kernel=nn.Linear(12, 9)), nn.Linear(12, 3)]
    dag = Dag.from_sequential(layers).to(torch.float64)
    x, y = normal(4, 12), torch.tensor([0, 1, 2, 0])
    operator = CurvatureOperator(dag, x, y)
    blocks = exact_blocks(dag, x, y)
    first = dag.order[0]
    assert torch.allclose(
        operator.block(first, first).dense(), blocks[first, first], rtol=1e-9, atol=1e-14
    )


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

    torch.manual_seed(0)
    taken = Own(slopes, filters=nn.Conv1d(1, 2, 3), last=nn.Linear(6, 3))
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), taken).double()
    dag = Dag.from_sequential([net[0], net[1:]], names=["h", "out"])
    x, y = torch.randn(4, 6).double(), torch.tensor([0, 1, 2, 0])
    exact = exact_blocks(dag, x, y)["h", "h"]
    assert exact.any()
    assert torch.allclose(CurvatureOperator(dag, x, y).block("h", "h").dense(), exact, rtol=1e-10)


DIRECTIONS = {
    "all": (1, 1, 1),
    "the weights": (0, 1, 0),
    "the input": (1, 0, 0),
    "the bias": (0, 0, 1),
}


def along(function, tensors, options, moved):
    """Of sum tanh(conv(x, w, b))^2 in x, w and b: the gradient, its derivative along a direction,
    and that one's gradient, a third derivative."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    value = torch.tanh(function(*leaves, **options)).square().sum()
    first = torch.autograd.grad(value, leaves, create_graph=True)
    pairs = [
        (g, torch.cos(leaf.detach()))
        for g, leaf, moves in zip(first, leaves, moved, strict=True)
        if moves
    ]
    second = torch.autograd.grad(
        [g for g, _ in pairs], leaves, [v for _, v in pairs], create_graph=True
    )
    return *first, *second, *torch.autograd.grad(sum(t.square().sum() for t in second), leaves)


@pytest.mark.parametrize("moved", DIRECTIONS)
@pytest.mark.parametrize("name", CASES)
def test_all_derivatives_over_input_weights_and_bias_are_torchs(name, moved):
    function, shape, weights, options = CASES[name]
    torch.manual_seed(0)
    tensors = [normal(s) for s in (shape, weights, weights[:1])]
    expected = along(function, tensors, options, DIRECTIONS[moved])
    with Convolutions("all"):
        found = along(function, tensors, options, DIRECTIONS[moved])
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-11, atol=1e-11 * float(b.abs().max()))


@pytest.mark.parametrize("part, most", [("hessian", 6), ("gauss_newton", 4)])
def test_products_over_parameters_cost_no_more_than_their_formulas(part, most):
    """6 F and 4 F, F the operations of a forward pass, less what the first layer saves: its input
    has no gradient."""
    net = nn.Sequential(
        *(nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.Tanh()) for _ in range(4)), nn.Flatten()
    )
    x, y = torch.randn(3, 6, 8, 8), torch.randint(6 * 64, (3,))
    operator = ParameterOperator(net, nn.CrossEntropyLoss(), (x, y), part=part)
    v = torch.randn(operator.shape[0])
    operator @ v  # makes the graph
    with Operations() as forward:
        net(x)
    with Operations() as counted:
        operator @ v
    assert most - 1.5 < counted.total / forward.total <= most
