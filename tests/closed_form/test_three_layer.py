"""Loss, gradient, Hessian, traces and bounds of the three-layer network against float64
autodiff."""

import math

import pytest
import torch
from torch.testing import assert_close

from experiments.three_layer.hsr_gradient import double_sum
from experiments.three_layer.ws_bound.measure import hidden_gram_norm_squared
from experiments.three_layer.ws_bound.portraits import numerical_hessian
from experiments.three_layer.ws_bound.theorems import (
    trace_of_square_bound,
    trace_vv_bound,
    trace_ww_bound,
)
from runner.closed_form import three_layer as tl
from runner.closed_form.three_layer.model import CHUNK_WORDS
from tests.draws import normal, seeded
from tests.errors import refusal

ACTIVATIONS = {
    "linear": lambda y: y,
    "sigmoid": lambda y: 1 / (1 + torch.exp(-y)),
    "tanh": torch.tanh,
    "softplus": lambda y: torch.log1p(torch.exp(y)),
    "gelu": lambda y: 0.5 * y * (1 + torch.erf(y / math.sqrt(2))),
}
NAMES = sorted(ACTIVATIONS)

# (M, N, I): square and skew, one unit, one sample, more samples than parameters and fewer.
SIZES = [(1, 1, 1), (2, 3, 50), (3, 1, 7), (5, 8, 40), (4, 10, 12), (10, 20, 60)]
TOLERANCE, GRADIENT_TOLERANCE = 1e-10, 1e-9


def instance(sizes, seed=0, scale=1.0, batch=()):
    """(theta, x, q) in float64 with N(0, scale²) parameters and N(0, 1) inputs."""
    inputs, hidden, samples = sizes
    generator = seeded(seed)
    dimension = inputs * hidden + 2 * hidden + 1
    theta = scale * normal(*batch, dimension, generator=generator)
    x = normal(samples, inputs, generator=generator)
    q = torch.randint(0, 2, (samples,), generator=generator).double()
    return theta, x, q


def oracle_loss(theta, x, q, activation):
    """L for one theta (D,), summed over samples."""
    inputs = x.shape[1]
    hidden = (len(theta) - 1) // (inputs + 2)
    columns = [theta[m * hidden : (m + 1) * hidden] for m in range(inputs + 1)]
    tail = theta[(inputs + 1) * hidden :]
    y = columns[0] + sum(x[:, m : m + 1] * columns[m + 1] for m in range(inputs))
    z = tail[0] + ACTIVATIONS[activation](y) @ tail[1:]
    return torch.nn.functional.binary_cross_entropy_with_logits(z, q, reduction="sum")


def oracle_hessian(theta, x, q, activation):
    return torch.func.jacrev(torch.func.jacrev(oracle_loss))(theta, x, q, activation)


def relative_error(found, expected):
    """Largest deviation relative to the largest entry of the expected tensor."""
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-300))


def value_of(function, *given):
    """A function of the package by its name; several numbers as one tensor."""
    found = getattr(tl, function)(*given)
    return torch.stack(found) if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_closed_form_against_autodiff(sizes, name):
    theta, x, q = instance(sizes, seed=sum(sizes))
    hessian = oracle_hessian(theta, x, q, name)
    square = (hessian @ hessian).trace()
    eigenvalues = torch.linalg.eigvalsh(hessian)
    mean, std = eigenvalues.mean(), eigenvalues.std(correction=0)
    spread = std * math.sqrt(len(theta) - 1)
    count = sizes[1] * (sizes[0] + 1)
    parts = [hessian[:count, :count].trace(), hessian[count:, count:].trace()]
    expected = {
        "loss": oracle_loss(theta, x, q, name),
        "gradient": torch.func.grad(oracle_loss)(theta, x, q, name),
        "hessian": hessian,
        "trace": hessian.trace(),
        "trace_of_square": square,
        "trace_of_square_double_sum": square,
        "trace_of_square_frobenius": square,
        "upper_bound": mean + spread,
        "lower_bound": mean - spread,
        "trace_parts": torch.stack(parts),
        "mean_and_std": torch.stack([mean, std]),
    }
    for function, value in expected.items():
        found = value_of(function, theta, x, q, name)
        assert relative_error(found, value) < TOLERANCE, function


VALUES = ("loss", "gradient", "hessian", "trace", "trace_of_square", "upper_bound")


@pytest.mark.parametrize("name", NAMES)
def test_leading_dimensions_are_a_batch(name):
    theta, x, q = instance((2, 3, 9), batch=(2, 3))
    for function in (*VALUES, "lower_bound", "trace_of_square_double_sum", *SCALARS):
        whole = value_of(function, theta, x, q, name)
        single = [value_of(function, row, x, q, name) for row in theta.flatten(0, 1)]
        assert_close(whole.flatten(0, 1), torch.stack(single), rtol=1e-12, atol=1e-12)
    assert tl.predict(theta, x, name).shape == (2, 3, 9)
    assert tl.hidden_representation(theta, x, name).shape == (2, 3, 9, 3)
    assert hidden_gram_norm_squared(theta, x, name).shape == (2, 3)


@pytest.mark.parametrize("function", ["hessian", "traces", "upper_bound", "upper_bound_gradient"])
def test_batches_larger_than_a_chunk(function):
    theta, x, q = instance((2, 10, 50), batch=(7, 30))
    assert 210 * theta.shape[-1] * 50 > CHUNK_WORDS, "the batch must not fit into one chunk"
    whole, rows = value_of(function, theta, x, q), theta.flatten(0, 1)
    if function == "traces":
        whole = whole.movedim(0, -1)
    for k in (0, 100, 209):
        expected = value_of(function, rows[k], x, q)
        assert_close(whole.flatten(0, 1)[k], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_the_activation_and_their_suprema(name):
    activation, function = tl.get_activation(name), ACTIVATIONS[name]
    y = torch.linspace(-6, 6, 241, dtype=torch.float64)
    for found in activation.derivatives(y, 3):
        assert_close(found, torch.func.vmap(function)(y), rtol=1e-10, atol=1e-12)
        function = torch.func.grad(function)
    ends = torch.tensor([40.0, -40.0]).double()
    y = torch.cat([torch.linspace(-8, 8, 400001, dtype=torch.float64), ends])
    f, f1, f2 = (float(d.abs().max()) for d in activation.derivatives(y, 2))
    assert f1 == pytest.approx(activation.sup_slope, rel=1e-9)
    assert f2 == pytest.approx(activation.sup_bend, rel=1e-9, abs=1e-15)
    if math.isfinite(activation.sup_abs):
        assert f == pytest.approx(activation.sup_abs, rel=1e-12)
    else:
        assert f >= 40


def test_split_and_join_are_inverse_and_ordered_as_in_the_paper():
    theta = torch.arange(13, dtype=torch.float64)
    parameters = tl.split(theta, 2)
    assert parameters.W.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert parameters.V.tolist() == [9, 10, 11, 12]
    assert torch.equal(tl.join(*parameters), theta)
    assert tl.parameter_count(2, 3) == 13 and tl.hidden_width(13, 2) == 3


def test_numerical_hessian_converges_with_the_square_of_the_step():
    given = instance((2, 3, 50))
    far = []
    for step in (4e-2, 2e-2, 1e-2):
        far.append(float((numerical_hessian(*given, step=step) - tl.hessian(*given)).norm()))
    assert [far[0] / far[1], far[1] / far[2]] == pytest.approx([4, 4], rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_trace_bounds_hold(name):
    theta, x, q = instance((2, 3, 50), batch=(300,), scale=3.0)
    ww, vv = tl.trace_parts(theta, x, q, name)
    assert (vv <= trace_vv_bound(50, 3, name)).all()
    assert (ww <= trace_ww_bound(theta, x, name)).all()
    square = tl.trace_of_square(theta, x, q, name)
    assert (square >= 0).all() and (square <= trace_of_square_bound(theta, x, q, name)).all()


def test_limits_of_the_hidden_gram():
    assert trace_vv_bound(50, 3, "sigmoid") == 50 and trace_vv_bound(50, 3, "softplus") == math.inf
    for sizes in ((2, 3, 9), (2, 9, 3)):
        theta, x, _ = instance(sizes, batch=(4,))
        r = tl.hidden_representation(theta, x, "tanh")
        expected = (r @ r.mT).square().sum((-2, -1))
        assert_close(hidden_gram_norm_squared(theta, x, "tanh"), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("function", VALUES)
def test_mistakes_name_what_was_expected(function):
    def refused(message, *given):
        with refusal(message):
            value_of(function, *given)

    theta, x, q = instance((2, 3, 9))
    refused(r"D = M N \+ 2 N \+ 1.*found D = 12", theta[:-1], x, q)
    refused(r"x of shape \(I, M\)", theta, x[:, 0], q)
    refused(r"q of shape \(9,\)", theta, x, q[:-1])
    refused(r"q of shape \(9,\)", theta, x, q[:, None])
    refused("one floating dtype", theta, x.float(), q)
    refused("one floating dtype", theta, x, q.long())
    refused("labels q between 0 and 1", theta, x, -1 - q)
    refused("found a scalar", theta[0], x, q)
    refused("did you mean 'sigmoid'", theta, x, q, "sigmoyd")


@refusal("bias first")
def test_weights_without_a_row_of_biases_are_refused():
    tl.join(torch.zeros(3, 3), torch.zeros(3))


@pytest.mark.parametrize("bias", [-350.0, -380.0, -700.0, 380.0])
def test_bounds_hold_at_every_scale(bias):
    """A saturated output takes H far below the least number whose square is a float64."""
    theta, x, q = instance((2, 3, 9), batch=(5,))
    theta[:, 9] = bias
    q = torch.full_like(q, float(bias > 0))
    spectrum = torch.linalg.eigvalsh(tl.hessian(theta, x, q))
    upper, lower = tl.upper_bound(theta, x, q), tl.lower_bound(theta, x, q)
    assert bool((spectrum[:, -1] > 0).all())
    assert bool((upper >= spectrum[:, -1]).all()) and bool((lower <= spectrum[:, 0]).all())
    scale = spectrum.abs().amax()
    spectrum = spectrum / scale
    exact = spectrum.mean(-1) + math.sqrt(12) * spectrum.std(-1, correction=0)
    assert relative_error(upper / scale, exact) < TOLERANCE
    assert torch.equal(tl.upper_bound(theta[2], x, q), upper[2])
    mixed = torch.stack([theta[0], instance((2, 3, 9))[0]])
    single = torch.stack([tl.upper_bound(t, x, q) for t in mixed])
    assert relative_error(tl.upper_bound(mixed, x, q), single) < 1e-13


# ------------------------------------------------------------------ gradients of scalars of H


def mean_and_std(hessian):
    dimension = len(hessian)
    mean = hessian.trace() / dimension
    centred = hessian - mean * torch.eye(dimension, dtype=hessian.dtype)
    return mean, centred.norm() / math.sqrt(dimension)


def upper_bound(hessian):
    mean, std = mean_and_std(hessian)
    return mean + std * math.sqrt(len(hessian) - 1)


SCALARS = {
    "trace_gradient": torch.trace,
    "trace_of_square_gradient": lambda h: h.square().sum(),
    "mean_gradient": lambda h: mean_and_std(h)[0],
    "std_gradient": lambda h: mean_and_std(h)[1],
    "upper_bound_gradient": upper_bound,
}


def assert_gradients(theta, x, q, name, hessian=oracle_hessian):
    """Of every scalar, next to reverse mode through a Hessian."""
    leaf = theta.clone().requires_grad_()
    matrix = hessian(leaf, x, q, name)
    for function, scalar in SCALARS.items():
        (expected,) = torch.autograd.grad(scalar(matrix), leaf, retain_graph=True)
        found = value_of(function, theta, x, q, name)
        assert relative_error(found, expected) < GRADIENT_TOLERANCE, function


# Three derivatives by autograd cost I D² each way: the largest size goes through the closed-form
# Hessian.
@pytest.mark.parametrize("name", NAMES)
def test_gradients_against_autodiff(name):
    """Also where the hidden layer is nearly linear, and nearly saturated with large output
    weights."""
    for sizes in SIZES[:3]:
        assert_gradients(*instance(sizes, seed=sum(sizes)), name)
    assert_gradients(*instance((10, 20, 120), scale=0.5), name, tl.hessian)
    for scale in (1e-3, 10.0):
        for seed in range(2):
            assert_gradients(*instance((2, 3, 50), seed=seed, scale=scale), name)


def separable(margin):
    """A linear network that fits two points with logits ±margin: H and σ fall like e^−margin."""
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    q = torch.tensor([1.0, 0.0], dtype=torch.float64)
    theta = torch.tensor([0.0, 1.0, 0.0, margin], dtype=torch.float64)
    return theta, x, q, "linear"


def test_nearly_perfect_fit_keeps_its_digits():
    """At |z| = 60 the loss and its Hessian are about e^-60: p − q in floating point would be
    exactly zero."""
    given = separable(60.0)
    assert float(tl.loss(*given)) == pytest.approx(2 * math.exp(-60), rel=1e-12, abs=0)
    assert float(tl.gradient(*given)[-1]) == pytest.approx(-2 * math.exp(-60), rel=1e-12, abs=0)
    assert 0 < float(tl.upper_bound(*given)) < 1e-20


@pytest.mark.parametrize("margin", [5.0, 15.0, 30.0])
def test_as_sigma_falls_to_zero(margin):
    given = separable(margin)
    assert_gradients(*given, tl.hessian)
    for function in SCALARS:
        largest = float(value_of(function, *given).abs().max())
        assert largest < 10 * margin**3 * math.exp(-margin)


def test_where_sigma_vanishes_its_term_is_left_out():
    """At logits ±800 every entry of H underflows to 0."""
    given = separable(800.0)
    assert not tl.hessian(*given).any()
    for function in SCALARS:
        assert value_of(function, *given).tolist() == [0, 0, 0, 0]


def test_squares_that_underflow_do_not_lose_sigma():
    """At logits ±400 the entries of H are about 1e-170 and their squares 0; the direction is still
    that of ±40."""
    found = []
    for margin in (40.0, 400.0):
        gradient = tl.std_gradient(*separable(margin)) * math.exp(margin)
        assert gradient.isfinite().all() and gradient.abs().max() > 0
        found.append(gradient)
    # Only the entry of the output weight is free of the margin's powers: σ ~ margin² e^−margin.
    assert float(found[1][1] / found[0][1]) == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_contraction_with_any_symmetric_matrix(name):
    theta, x, q = instance((3, 4, 11))
    matrix = normal(len(theta), len(theta), generator=seeded(5))
    matrix = matrix + matrix.T
    leaf = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad((matrix * oracle_hessian(leaf, x, q, name)).sum(), leaf)
    found = tl.contraction_gradient(theta, x, q, matrix, name)
    assert relative_error(found, expected) < GRADIENT_TOLERANCE


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", SIZES)
def test_the_paper_s_double_sums_agree(sizes, name):
    given = (*instance(sizes, seed=1), name)
    value, gradient = double_sum.value_and_gradient(*given)
    sums = {"trace_of_square": value, "trace_of_square_gradient": gradient}
    sums["upper_bound_gradient"] = double_sum.upper_bound_gradient(*given)
    for function, expected in sums.items():
        found = value_of(function, *given)
        assert relative_error(found, expected) < GRADIENT_TOLERANCE, function
