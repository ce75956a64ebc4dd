"""Closed-form gradients of traces, moments and bounds of the spectrum against float64 autodiff."""

import math

import pytest
import torch

from experiments.hsr.gradient import double_sum
from runner.curvature.closed_form import three_layer as tl
from tests.curvature.three_layer_oracle import ACTIVATIONS, SIZES, instance, relative_error
from tests.curvature.three_layer_oracle import hessian as oracle_hessian

TOLERANCE = 1e-9
NAMES = sorted(ACTIVATIONS)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def moments(hessian):
    dimension = len(hessian)
    mean = hessian.trace() / dimension
    std = (hessian - mean * torch.eye(dimension, dtype=hessian.dtype)).norm() / math.sqrt(dimension)
    return mean, std, math.sqrt(dimension - 1)


SCALARS = {
    "trace_gradient": torch.trace,
    "trace_of_square_gradient": lambda h: h.square().sum(),
    "mean_gradient": lambda h: moments(h)[0],
    "std_gradient": lambda h: moments(h)[1],
    "upper_bound_gradient": lambda h: moments(h)[0] + moments(h)[1] * moments(h)[2],
    "lower_bound_gradient": lambda h: moments(h)[0] - moments(h)[1] * moments(h)[2],
}


def autodiff(theta, x, q, name, hessian=oracle_hessian):
    """{function: gradient of its scalar} by reverse mode through a Hessian."""
    leaf = theta.clone().requires_grad_()
    matrix = hessian(leaf, x, q, name)
    return {
        function: torch.autograd.grad(scalar(matrix), leaf, retain_graph=True)[0]
        for function, scalar in SCALARS.items()
    }


# Three derivatives by autograd cost I D² each way: the largest size goes through the closed-form Hessian below.
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", SIZES[:5])
def test_against_autodiff_of_the_loss(sizes, name):
    theta, x, q = instance(sizes, seed=sum(sizes))
    for function, expected in autodiff(theta, x, q, name).items():
        assert relative_error(getattr(tl, function)(theta, x, q, name), expected) < TOLERANCE, function


@pytest.mark.parametrize("name", NAMES)
def test_against_autodiff_of_the_hessian_at_a_large_size(name):
    theta, x, q = instance((10, 20, 120), scale=0.5)
    for function, expected in autodiff(theta, x, q, name, tl.hessian).items():
        assert relative_error(getattr(tl, function)(theta, x, q, name), expected) < TOLERANCE, function


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e-3, 10.0], ids=["near the origin", "saturated"])
def test_in_flat_and_sharp_places(name, scale):
    """The hidden layer nearly linear, and nearly saturated with large output weights."""
    for seed in range(5):
        theta, x, q = instance((2, 3, 50), seed=seed, scale=scale)
        for function, expected in autodiff(theta, x, q, name).items():
            assert relative_error(getattr(tl, function)(theta, x, q, name), expected) < TOLERANCE, function


def separable(margin):
    """A linear network that fits two points with logits ±margin: H and σ fall like e^−margin."""
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    q = torch.tensor([1.0, 0.0], dtype=torch.float64)
    theta = torch.tensor([0.0, 1.0, 0.0, margin], dtype=torch.float64)
    return theta, x, q


@pytest.mark.parametrize("margin", [5.0, 15.0, 30.0])
def test_as_sigma_falls_to_zero(margin):
    theta, x, q = separable(margin)
    for function, expected in autodiff(theta, x, q, "linear", tl.hessian).items():
        found = getattr(tl, function)(theta, x, q, "linear")
        assert relative_error(found, expected) < TOLERANCE, function
        assert float(found.abs().max()) < 10 * margin**3 * math.exp(-margin)


def test_where_sigma_vanishes_its_term_is_left_out():
    """At logits ±800 every entry of H underflows to 0."""
    theta, x, q = separable(800.0)
    assert not tl.hessian(theta, x, q, "linear").any()
    for function in SCALARS:
        assert torch.equal(getattr(tl, function)(theta, x, q, "linear"), torch.zeros(4, dtype=torch.float64))


def test_squares_that_underflow_do_not_lose_sigma():
    """At logits ±400 the entries of H are about 1e-170 and their squares 0; the direction is still that of ±40."""
    found = []
    for margin in (40.0, 400.0):
        theta, x, q = separable(margin)
        gradient = tl.std_gradient(theta, x, q, "linear") * math.exp(margin)
        assert gradient.isfinite().all() and gradient.abs().max() > 0
        found.append(gradient)
    # Only the entry of the output weight is free of the margin's powers: σ ~ margin² e^−margin.
    assert float(found[1][1] / found[0][1]) == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_contraction_with_any_symmetric_matrix(name):
    theta, x, q = instance((3, 4, 11))
    generator = torch.Generator().manual_seed(5)
    matrix = torch.randn(len(theta), len(theta), generator=generator, dtype=torch.float64)
    matrix = matrix + matrix.T
    leaf = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad((matrix * oracle_hessian(leaf, x, q, name)).sum(), leaf)
    assert relative_error(tl.contraction_gradient(theta, x, q, matrix, name), expected) < TOLERANCE
    with pytest.raises(ValueError, match=r"shape \(\.\.\., D, D\)"):
        tl.contraction_gradient(theta, x, q, matrix[:-1], name)


@pytest.mark.parametrize("name", NAMES)
def test_leading_dimensions_are_a_batch(name):
    theta, x, q = instance((2, 3, 9), batch=(2, 3))
    for function in SCALARS:
        whole = getattr(tl, function)(theta, x, q, name)
        single = torch.stack([getattr(tl, function)(row, x, q, name) for row in theta.flatten(0, 1)])
        torch.testing.assert_close(whole.flatten(0, 1), single, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_s_double_sums_agree(name):
    for sizes in SIZES:
        theta, x, q = instance(sizes, seed=1)
        value = double_sum.value_and_gradient(theta, x, q, name)[0]
        assert relative_error(tl.trace_of_square(theta, x, q, name), value) < TOLERANCE
        for function in ("trace_of_square_gradient", "upper_bound_gradient"):
            expected = getattr(double_sum, function)(theta, x, q, name)
            assert relative_error(getattr(tl, function)(theta, x, q, name), expected) < TOLERANCE, function
