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


def gradients(out, *leaves):
    return torch.autograd.grad(out, leaves, torch.arange(float(out.numel())).to(out).view_as(out))


@pytest.mark.parametrize("shape, size, stride", SHAPES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_by_positions_has_torchs_values_and_gradients(shape, size, stride, dtype, tolerance):
    generator = seeded()
    x, weight = (
        torch.randn(*s, generator=generator).to(dtype) for s in (shape, (7, 3, size, size))
    )
    leaves = x.requires_grad_(), weight.requires_grad_()
    expected = F.conv2d(x, weight, None, stride, size // 2)
    out = ByPositions.apply(x, weight, stride, size // 2)
    for found, wanted in zip(
        (out, *gradients(out, *leaves)), (expected, *gradients(expected, *leaves)), strict=True
    ):
        assert_close(
            found, wanted, rtol=tolerance, atol=tolerance * float(wanted.detach().abs().max())
        )


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
        (grad,) = torch.autograd.grad(
            convolution.train(training)(x).pow(3).sum(), x, create_graph=True
        )
        found.append(torch.autograd.grad(grad.pow(2).sum(), [x, convolution.weight]))
    assert_close(*found, rtol=1e-10, atol=1e-10)
