"""Convolutions by positions against torch's own."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from runner.models.resnet import ByPositions, Convolution
from tests.draws import normal, seeded

SHAPES = [
    ((5, 3, 1, 1), 3, 1),
    ((5, 3, 2, 2), 3, 2),
    ((5, 3, 2, 2), 1, 2),
    ((4, 3, 2, 2), 3, 1),
    ((2, 3, 4, 3), 3, 2),
]


def with_gradients(out, *leaves):
    weights = torch.arange(float(out.numel())).to(out).view_as(out)
    return out, *torch.autograd.grad(out, leaves, weights)


@pytest.mark.parametrize("shape, size, stride", SHAPES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_by_positions_has_torchs_values_and_gradients(shape, size, stride, dtype, tolerance):
    generator = seeded()
    x = torch.randn(*shape, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(7, 3, size, size, generator=generator).to(dtype).requires_grad_()
    theirs = F.conv2d(x, weight, None, stride, size // 2)
    ours = ByPositions.apply(x, weight, stride, size // 2)
    expected = with_gradients(theirs, x, weight)
    for found, wanted in zip(with_gradients(ours, x, weight), expected, strict=True):
        absolute = tolerance * float(wanted.detach().abs().max())
        assert_close(found, wanted, rtol=tolerance, atol=absolute)


@pytest.mark.parametrize("side", [2, 6])
def test_convolution_in_training_is_the_one_in_evaluation(side):
    convolution = Convolution(3, 4, 3, 1).double()
    x = normal(2, 3, side, side, generator=seeded())
    assert_close(convolution.train()(x), convolution.eval()(x), rtol=1e-12, atol=1e-12)


def test_second_derivatives_in_training_are_those_in_evaluation():
    convolution = Convolution(2, 3, 3, 1).double()
    x = normal(2, 2, 2, 2, generator=seeded()).requires_grad_()
    found = []
    for training in (False, True):
        value = convolution.train(training)(x).pow(3).sum()
        (grad,) = torch.autograd.grad(value, x, create_graph=True)
        found.append(torch.autograd.grad(grad.pow(2).sum(), [x, convolution.weight]))
    assert_close(*found, rtol=1e-10, atol=1e-10)
