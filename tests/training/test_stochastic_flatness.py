"""The bound from probes against the closed form: unbiased, differentiable, converging at the Monte-Carlo rate."""

import itertools
import math

import pytest
import torch

from runner.curvature.closed_form import three_layer as tl
from runner.curvature.matrix_free.estimators import lanczos_extremes
from runner.training.flatness.stochastic import (
    ParameterHessian,
    combine,
    sharpness_aware_gradients,
    signs,
    stochastic_bound,
)


def network(seed=0, units=3, samples=20):
    """A three-layer network as a torch module, its theta in the closed forms' order, and the loss."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    q = (torch.arange(samples) % 2).double()
    W = torch.randn(units, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    V = torch.randn(units + 1, generator=generator, dtype=torch.float64, requires_grad=True)

    def loss():
        z = V[0] + torch.sigmoid(x @ W[:, 1:].T + W[:, 0]) @ V[1:]
        return torch.nn.functional.binary_cross_entropy_with_logits(z, q, reduction="sum")

    return [W, V], loss, tl.join(W.detach(), V.detach()), (x, q)


def flat(gradients):
    W, V = gradients
    return tl.join(W.detach(), V.detach())


def unit_probes(parameters):
    """√D times the unit vectors: their means are the traces themselves, so (K, D) of them leave no chance."""
    dimension = sum(p.numel() for p in parameters)
    found = []
    for k in range(dimension):
        flat_probe = torch.zeros(dimension, dtype=torch.float64)
        flat_probe[k] = math.sqrt(dimension)
        pieces = flat_probe.split([p.numel() for p in parameters])
        found.append([piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)])
    return found


def test_unit_vectors_give_both_traces_and_their_gradients_exactly():
    parameters, loss, theta, data = network()
    estimate = stochastic_bound(loss(), parameters, unit_probes(parameters))
    torch.testing.assert_close(estimate.trace, tl.trace(theta, *data), rtol=1e-12, atol=0)
    torch.testing.assert_close(estimate.trace_of_square, tl.trace_of_square(theta, *data), rtol=1e-12, atol=0)
    for value, reference in (
        (estimate.trace, tl.trace_gradient),
        (estimate.trace_of_square, tl.trace_of_square_gradient),
    ):
        found = flat(torch.autograd.grad(value, parameters, retain_graph=True))
        torch.testing.assert_close(found, reference(theta, *data), rtol=1e-9, atol=1e-10)


def test_estimates_of_the_moments_are_unbiased():
    """The mean over every pair of sign vectors, which is the expectation itself."""
    parameters, loss, theta, data = network(units=1, samples=5)
    probes = [
        [torch.tensor(row[:3], dtype=torch.float64).view(1, 3), torch.tensor(row[3:], dtype=torch.float64)]
        for row in itertools.product((-1.0, 1.0), repeat=5)
    ]
    trace, square = tl.trace(theta, *data), tl.trace_of_square(theta, *data)
    forms, squares = [], []
    for probe in probes:
        single = stochastic_bound(loss(), parameters, [probe, probe])
        forms.append(single.trace.detach())
        squares.append(single.trace_of_square.detach())
    pairs = list(itertools.product(range(len(probes)), repeat=2))
    found = [combine(torch.stack([forms[i], forms[j]]), torch.stack([squares[i], squares[j]]), 5) for i, j in pairs]
    for values, expected in (
        ([f.trace for f in found], trace),
        ([f.trace_of_square for f in found], square),
        ([f.variance for f in found], square / 5 - (trace / 5) ** 2),
    ):
        torch.testing.assert_close(torch.stack(values).mean(), expected, rtol=1e-11, atol=1e-12)
    exact = tl.upper_bound(theta, *data)
    assert float(torch.stack([f.bound for f in found]).mean()) < float(exact), "the root biases the bound downward"


def hessian_samples(count, seed=1):
    """zᵀHz and |Hz|² of many probes from the closed-form Hessian."""
    _, _, theta, data = network()
    hessian = tl.hessian(theta, *data)
    generator = torch.Generator().manual_seed(seed)
    z = torch.randint(0, 2, (count, len(theta)), generator=generator).double() * 2 - 1
    image = z @ hessian
    return (z * image).sum(1), image.square().sum(1), float(tl.upper_bound(theta, *data)), len(theta)


def test_error_falls_at_the_monte_carlo_rate_and_bias_faster():
    forms, squares, exact, dimension = hessian_samples(256 * 1000)
    sizes, errors, biases = [4, 16, 64, 256], [], []
    for size in sizes:
        bounds = combine(forms.view(-1, size), squares.view(-1, size), dimension).bound
        errors.append(float((bounds - exact).square().mean().sqrt()))
        biases.append(float(bounds.mean() - exact))
    slopes = [math.log(b / a) / math.log(4) for a, b in itertools.pairwise(errors)]
    assert all(-0.6 < slope < -0.4 for slope in slopes[1:]), slopes
    assert biases[0] < 0 and abs(biases[2]) < abs(biases[0]) / 4
    assert errors[-1] < 0.05 * exact


def test_the_graph_gives_the_same_estimate_and_converges_to_the_closed_form():
    parameters, loss, theta, data = network()
    generator = torch.Generator().manual_seed(5)
    estimate = stochastic_bound(loss(), parameters, 200, generator)
    exact = float(tl.upper_bound(theta, *data))
    assert abs(float(estimate.bound.detach()) - exact) < 0.1 * exact
    found = flat(torch.autograd.grad(estimate.bound, parameters))
    expected = tl.upper_bound_gradient(theta, *data)
    assert float((found - expected).norm()) < 0.2 * float(expected.norm())


def test_a_given_spread_makes_the_gradient_linear_in_the_moments():
    """Hence unbiased, as these are; unless this estimate's own σ is larger, which then bounds it."""
    parameters, loss, theta, data = network()
    std = 2 * float(stochastic_bound(loss(), parameters, unit_probes(parameters)).std)
    estimate = stochastic_bound(loss(), parameters, unit_probes(parameters), spread=std)
    gradient = flat(torch.autograd.grad(estimate.bound, parameters))
    # √D e_k are no independent probes, so σ² is not the exact one; its gradient follows from the same combination.
    mean, scale = tl.mean_gradient(theta, *data), math.sqrt(len(theta) - 1) / (2 * std)
    again = stochastic_bound(loss(), parameters, unit_probes(parameters))
    variance = flat(torch.autograd.grad(again.variance, parameters))
    torch.testing.assert_close(gradient, mean + scale * variance, rtol=1e-9, atol=1e-10)
    probes = unit_probes(parameters)
    own, small = (
        flat(torch.autograd.grad(stochastic_bound(loss(), parameters, probes, spread=s).bound, parameters))
        for s in (None, 1e-6)
    )
    torch.testing.assert_close(own, small)


def test_a_multi_class_module_in_single_precision():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    parameters = list(module.parameters())
    loss = torch.nn.functional.cross_entropy(module(x), y)
    sizes, shapes = [p.numel() for p in parameters], [p.shape for p in parameters]
    names = [n for n, _ in module.named_parameters()]

    def whole(vector):
        pieces = {n: v.view(s) for n, v, s in zip(names, vector.split(sizes), shapes, strict=True)}
        return torch.nn.functional.cross_entropy(torch.func.functional_call(module, pieces, (x,)), y)

    hessian = torch.func.hessian(whole)(torch.cat([p.detach().reshape(-1) for p in parameters]))
    estimate = stochastic_bound(loss, parameters, 64, torch.Generator().manual_seed(1))
    square = float(hessian.square().sum())
    assert abs(float(estimate.trace_of_square.detach()) - square) < 0.5 * square
    estimate.bound.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in parameters)
    ends = lanczos_extremes(
        ParameterHessian(torch.nn.functional.cross_entropy(module(x), y), parameters),
        steps=60,
        generator=torch.Generator().manual_seed(0),
    )
    values = torch.linalg.eigvalsh(hessian)
    assert ends.largest.value == pytest.approx(float(values[-1]), rel=1e-3)
    assert ends.smallest.value == pytest.approx(float(values[0]), rel=1e-2)


def test_a_linear_loss_has_no_curvature():
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    estimate = stochastic_bound((2 * weight).sum(), [weight], 3)
    assert float(estimate.bound.detach()) == 0 and estimate.std == 0


def test_sharpness_aware_gradients_leave_the_parameters():
    parameters, loss, theta, data = network()
    gradient = tl.gradient(theta, *data)
    moved = theta + 0.3 * gradient / gradient.norm()
    found = flat(sharpness_aware_gradients(loss, parameters, 0.3))
    torch.testing.assert_close(found, tl.gradient(moved, *data), rtol=1e-10, atol=1e-12)
    assert torch.equal(flat(parameters), theta)


def test_what_cannot_be_used_is_refused():
    parameters, loss, _, _ = network()
    with pytest.raises(ValueError, match="at least 2 probes"):
        stochastic_bound(loss(), parameters, 1)
    with pytest.raises(ValueError, match="scalar loss"):
        stochastic_bound(parameters[0] * 2, parameters)
    with pytest.raises(ValueError, match="radius"):
        sharpness_aware_gradients(loss, parameters, -1.0)


def test_probes_repeat_with_their_generator():
    parameters, _, _, _ = network()
    first, second = (signs(parameters, torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert set(first[0].flatten().tolist()) == {-1.0, 1.0}
