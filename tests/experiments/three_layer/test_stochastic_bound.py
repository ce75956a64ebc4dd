"""The bound from probes against the closed form: unbiased moments, converging at the Monte-Carlo
rate."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from experiments.three_layer.lanczos import bound_from_probes, largest_after, largest_eigenvalue
from experiments.three_layer.stochastic_bound import (
    ParameterHessian,
    combine,
    hessian_vector_product,
    signs,
)
from runner.curvature.closed_form import three_layer as tl
from tests.curvature.oracles import parameter_matrix
from tests.draws import seeded, tanh_net
from tests.experiments.three_layer.problem import problem


def test_estimates_of_the_moments_are_unbiased():
    """The mean over every pair of sign vectors, which is the expectation itself."""
    args = problem(units=1, samples=5, starts=None)
    probes = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=5)), dtype=torch.float64)
    image = probes @ tl.hessian(*args)
    forms, squares = (probes * image).sum(1), image.square().sum(1)
    every = torch.arange(len(probes))
    pairs = torch.cartesian_prod(every, every)
    found = combine(forms[pairs], squares[pairs], 5)
    trace, square = tl.trace(*args), tl.trace_of_square(*args)
    assert_close(found.trace.mean(), trace, rtol=1e-11, atol=1e-12)
    assert_close(found.variance.mean(), square / 5 - (trace / 5) ** 2, rtol=1e-11, atol=1e-12)
    assert found.bound.mean() < tl.upper_bound(*args), "the root biases the bound downward"


def test_the_hessian_of_a_multi_class_module_in_single_precision():
    module, loss = tanh_net(4, 5, 3), torch.nn.functional.cross_entropy
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    named = dict(module.named_parameters())
    hessian = parameter_matrix("hessian", module, loss, x, y, named)
    operator = ParameterHessian(loss(module(x), y), list(named.values()))
    rows = torch.randn(2, len(hessian))
    images = operator.apply({"parameters": rows})["parameters"]
    assert_close(images, rows @ hessian, rtol=1e-4, atol=1e-5)
    values, generator = torch.linalg.eigvalsh(hessian.double()), seeded()
    top = float(values[-1])
    assert largest_after(operator, 40, generator) == pytest.approx(top, rel=1e-3)
    largest = largest_eigenvalue(operator, 1e-4, generator)
    assert largest.converged and abs(largest.value - top) <= 2 * largest.residual + 1e-6
    deviation = float(values.std(correction=0))
    exact = float(values.mean()) + (len(values) - 1) ** 0.5 * deviation
    bound = bound_from_probes(operator, 400, generator)
    assert bound.low < exact < bound.high and bound.high - bound.low < exact


def test_a_linear_loss_has_no_curvature():
    weight = torch.ones(3, requires_grad=True)
    gradients = torch.autograd.grad((2 * weight).sum(), [weight], create_graph=True)
    assert not hessian_vector_product(gradients, [weight], signs([weight]), graph=True)[0].any()


def test_probes_repeat_with_their_generator():
    parameters = [torch.zeros(3, 4), torch.zeros(50)]
    first, second = (signs(parameters, seeded(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert set(first[1].tolist()) == {-1.0, 1.0}
