"""Convolutions with fixed weights: the same numbers as torch's own, without the second derivative of the weights."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from runner.curvature import CurvatureOperator, Dag, exact_blocks
from runner.curvature.graph.modes import FixedConvolutions, Operations
from tests.curvature.cases import Own

CASES = {
    "stride and padding": (torch.conv2d, (2, 3, 7, 7), (4, 3, 3, 3), {"stride": 2, "padding": (1, 2)}),
    "groups and dilation": (F.conv2d, (2, 4, 9, 9), (6, 2, 3, 3), {"dilation": 2, "groups": 2}),
    "one dimension": (F.conv1d, (3, 2, 11), (5, 2, 4), {"stride": (3,)}),
    "three dimensions": (F.conv3d, (2, 2, 5, 5, 5), (3, 2, 2, 2, 2), {"padding": 1}),
    "named padding": (F.conv2d, (2, 3, 6, 6), (4, 3, 3, 3), {"padding": "same"}),
    "no batch": (F.conv2d, (3, 6, 6), (4, 3, 3, 3), {}),
}


def second(function, x, weight, bias, options):
    """A Hessian product of sum tanh(conv x): it passes the convolution, its adjoint, and the convolution again."""
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
            with FixedConvolutions():
                found = second(function, there, weight.clone().requires_grad_(), bias, options)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_nothing_is_computed_for_the_weights():
    """Three convolutions: forward, adjoint, and one of each for the product; torch's own way has one more."""
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    counts = []
    for mode in (FixedConvolutions(), torch.overrides.BaseTorchFunctionMode()):
        with Operations() as counted, mode:
            second(F.conv2d, x, weight, None, {})
        counts.append(counted.total / (2 * 2 * 4 * 36 * 27))
    assert counts[0] == 4
    assert counts[1] > 4.5


def test_weights_that_depend_on_the_input_are_differentiated():
    """A convolution whose kernel is made of its input: torch's own way, or the blocks would be wrong."""

    def made(m, h):
        kernels = m.kernel(h).view(-1, 1, 3, 3)
        image = h.view(1, len(h), 3, 4)
        return torch.tanh(F.conv2d(image, kernels, padding=1, groups=len(h))).view(len(h), 12)

    torch.manual_seed(0)
    layers = [nn.Linear(12, 12), Own(made, kernel=nn.Linear(12, 9)), nn.Linear(12, 3)]
    dag = Dag.from_sequential(layers).to(torch.float64)
    x, y = torch.randn(4, 12, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    operator = CurvatureOperator(dag, x, y)
    blocks = exact_blocks(dag, x, y)
    first = dag.order[0]
    assert torch.allclose(operator.block(first, first).dense(), blocks[first, first], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("way", ["backwards", "forwards"])
def test_convolutions_inside_of_a_derivative_that_the_network_takes(way):
    """torch.func and forward mode know functions with a backward of their own not at all: torch's own way is taken."""

    def slopes(m, x):
        energy = lambda h: torch.tanh(m.filters(h[None, None])).sum()  # noqa: E731
        if way == "backwards":
            return m.last(torch.func.vmap(torch.func.grad(energy))(x))
        along = torch.func.vmap(lambda h: torch.func.jvp(energy, (h,), (torch.cos(h),))[1])
        return m.last(along(x)[:, None] * x)

    torch.manual_seed(0)
    taken = Own(slopes, filters=nn.Conv1d(1, 2, 3), last=nn.Linear(6, 3))
    dag = Dag.from_sequential(
        nn.Sequential(nn.Linear(6, 6), nn.Tanh(), taken).double(), names=["h", "out"], group=[1, 2]
    )
    x, y = torch.randn(4, 6).double(), torch.tensor([0, 1, 2, 0])
    exact = exact_blocks(dag, x, y)["h", "h"]
    assert exact.any()
    assert torch.allclose(CurvatureOperator(dag, x, y).block("h", "h").dense(), exact, rtol=1e-10)
