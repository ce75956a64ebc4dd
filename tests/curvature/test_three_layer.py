"""Loss, gradient, Hessian, traces and bounds of the three-layer network against float64 autodiff."""

import math

import pytest
import torch

from runner.curvature.closed_form import three_layer as tl
from runner.curvature.closed_form.chunks import CHUNK_WORDS
from tests.curvature.three_layer_oracle import ACTIVATIONS, LARGEST, SIZES, instance, relative_error
from tests.curvature.three_layer_oracle import gradient as oracle_gradient
from tests.curvature.three_layer_oracle import hessian as oracle_hessian
from tests.curvature.three_layer_oracle import loss as oracle_loss

TOLERANCE = 1e-10
NAMES = sorted(ACTIVATIONS)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_closed_form_against_autodiff(sizes, name):
    theta, x, q = instance(sizes, seed=sum(sizes))
    hessian = oracle_hessian(theta, x, q, name)
    square = (hessian @ hessian).trace()
    eigenvalues = torch.linalg.eigvalsh(hessian)
    dimension = len(theta)
    spread = eigenvalues.std(correction=0) * math.sqrt(dimension - 1)
    count = sizes[1] * (sizes[0] + 1)
    expected = {
        "loss": oracle_loss(theta, x, q, name),
        "gradient": oracle_gradient(theta, x, q, name),
        "hessian": hessian,
        "trace": hessian.trace(),
        "trace_of_square": square,
        "trace_of_square_double_sum": square,
        "trace_of_square_frobenius": square,
        "upper_bound": eigenvalues.mean() + spread,
        "lower_bound": eigenvalues.mean() - spread,
        "trace_parts": torch.stack([hessian[:count, :count].trace(), hessian[count:, count:].trace()]),
        "mean_and_std": torch.stack([eigenvalues.mean(), eigenvalues.std(correction=0)]),
    }
    for function, value in expected.items():
        found = getattr(tl, function)(theta, x, q, name)
        found = torch.stack(found) if isinstance(found, tuple) else found
        assert relative_error(found, value) < TOLERANCE, function


@pytest.mark.parametrize("name", NAMES)
def test_largest_size(name):
    theta, x, q = instance(LARGEST, scale=0.3)
    hessian = tl.hessian(theta, x, q, name)
    # One full autodiff Hessian of 1601 parameters per activation would cost minutes: probe it with products.
    generator = torch.Generator().manual_seed(1)
    probes = torch.randn(4, len(theta), generator=generator, dtype=torch.float64)
    for probe in probes:
        _, product = torch.func.jvp(lambda t: oracle_gradient(t, x, q, name), (theta,), (probe,))
        assert relative_error(hessian @ probe, product) < TOLERANCE
    assert relative_error(tl.gradient(theta, x, q, name), oracle_gradient(theta, x, q, name)) < TOLERANCE
    assert relative_error(tl.trace(theta, x, q, name), hessian.trace()) < TOLERANCE
    square = hessian.square().sum()
    assert relative_error(tl.trace_of_square_double_sum(theta, x, q, name), square) < TOLERANCE
    assert relative_error(tl.trace_of_square_frobenius(theta, x, q, name), square) < TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_leading_dimensions_are_a_batch(name):
    theta, x, q = instance((2, 3, 9), batch=(2, 3))
    for function in (
        "loss",
        "gradient",
        "hessian",
        "trace",
        "trace_of_square",
        "upper_bound",
        "lower_bound",
        "trace_of_square_double_sum",
        "trace_of_square_bound",
    ):
        whole = getattr(tl, function)(theta, x, q, name)
        single = torch.stack([getattr(tl, function)(row, x, q, name) for row in theta.flatten(0, 1)])
        torch.testing.assert_close(whole.flatten(0, 1), single, rtol=1e-13, atol=1e-13)
    assert tl.predict(theta, x, name).shape == (2, 3, 9)
    assert tl.hidden_representation(theta, x, name).shape == (2, 3, 9, 3)
    assert tl.hidden_gram_norm_squared(theta, x, name).shape == (2, 3)
    assert tl.trace_ww_bound(theta, x, name).shape == (2, 3)


@pytest.mark.parametrize("function", ["hessian", "traces", "upper_bound", "upper_bound_gradient"])
def test_batches_larger_than_a_chunk(function):
    theta, x, q = instance((2, 10, 50), batch=(7, 30))
    assert 210 * theta.shape[-1] * 50 > CHUNK_WORDS, "the batch must not fit into one chunk"
    whole, rows = getattr(tl, function)(theta, x, q), theta.flatten(0, 1)
    for k in (0, 100, 209):
        parts = getattr(tl, function)(rows[k], x, q)
        pairs = zip(whole, parts, strict=True) if isinstance(parts, tuple) else [(whole, parts)]
        for found, expected in pairs:
            torch.testing.assert_close(found.flatten(0, 1)[k], expected, rtol=1e-12, atol=1e-12)


def test_hessian_is_symmetric_and_bounds_enclose_the_spectrum():
    theta, x, q = instance((2, 3, 50), batch=(200,), scale=3.0)
    for name in NAMES:
        hessian = tl.hessian(theta, x, q, name)
        torch.testing.assert_close(hessian, hessian.mT, rtol=1e-12, atol=1e-12)
        eigenvalues = torch.linalg.eigvalsh(hessian)
        slack = 1e-12 * eigenvalues.abs().amax(-1)
        assert (eigenvalues[:, -1] <= tl.upper_bound(theta, x, q, name) + slack).all()
        assert (eigenvalues[:, 0] >= tl.lower_bound(theta, x, q, name) - slack).all()


def test_nearly_perfect_fit_keeps_its_digits():
    """At |z| = 60 the loss and its Hessian are about e^-60: p − q in floating point would be exactly zero."""
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    q = torch.tensor([1.0, 0.0], dtype=torch.float64)
    theta = tl.join(torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.tensor([0.0, 60.0], dtype=torch.float64))
    assert float(tl.loss(theta, x, q, "linear")) == pytest.approx(2 * math.exp(-60), rel=1e-12, abs=0)
    assert float(tl.gradient(theta, x, q, "linear")[-1]) == pytest.approx(-2 * math.exp(-60), rel=1e-12, abs=0)
    assert 0 < float(tl.upper_bound(theta, x, q, "linear")) < 1e-20


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_the_activation(name):
    y = torch.linspace(-6, 6, 241, dtype=torch.float64)
    found = tl.get_activation(name).derivatives(y, 3)
    function = ACTIVATIONS[name]
    for order in range(4):
        torch.testing.assert_close(found[order], torch.func.vmap(function)(y), rtol=1e-10, atol=1e-12)
        function = torch.func.grad(function)


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_suprema(name):
    activation = tl.get_activation(name)
    y = torch.cat([torch.linspace(-8, 8, 400001, dtype=torch.float64), torch.tensor([40.0, -40.0]).double()])
    f, f1, f2 = activation.derivatives(y, 2)
    assert float(f1.abs().max()) == pytest.approx(activation.sup_slope, rel=1e-9)
    assert float(f2.abs().max()) == pytest.approx(activation.sup_bend, rel=1e-9, abs=1e-15)
    if math.isfinite(activation.sup_abs):
        assert float(f.abs().max()) == pytest.approx(activation.sup_abs, rel=1e-12)
    else:
        assert float(f.abs().max()) >= 40


def test_split_and_join_are_inverse_and_ordered_as_in_the_paper():
    theta = torch.arange(13, dtype=torch.float64)
    parameters = tl.split(theta, 2)
    assert parameters.W.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert parameters.V.tolist() == [9, 10, 11, 12]
    assert torch.equal(tl.join(*parameters), theta)
    assert tl.parameter_count(2, 3) == 13 and tl.hidden_width(13, 2) == 3


def test_hidden_gram_is_that_of_the_representation():
    for sizes in ((2, 3, 9), (2, 9, 3)):
        theta, x, _ = instance(sizes, batch=(4,))
        r = tl.hidden_representation(theta, x, "tanh")
        expected = (r @ r.mT).square().sum((-2, -1))
        torch.testing.assert_close(tl.hidden_gram_norm_squared(theta, x, "tanh"), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("of", ["loss", "gradient"])
def test_numerical_hessian_converges_with_the_square_of_the_step(of):
    theta, x, q = instance((2, 3, 50))
    exact = tl.hessian(theta, x, q)
    errors = [
        float((tl.numerical_hessian(theta, x, q, step=step, of=of) - exact).norm()) for step in (4e-2, 2e-2, 1e-2)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_trace_bounds_hold(name):
    theta, x, q = instance((2, 3, 50), batch=(300,), scale=3.0)
    ww, vv = tl.trace_parts(theta, x, q, name)
    assert (vv <= tl.trace_vv_bound(50, 3, name)).all()
    assert (ww <= tl.trace_ww_bound(theta, x, name)).all()
    square = tl.trace_of_square(theta, x, q, name)
    assert (square >= 0).all() and (square <= tl.trace_of_square_bound(theta, x, q, name)).all()


def test_limits_of_normalized_data():
    assert tl.normalized_input_trace(50, 2) == 150
    assert tl.normalized_input_gram(50, 2) == 22500
    assert tl.hidden_gram_supremum(50, 3, "tanh") == 40000
    assert tl.hidden_gram_supremum(50, 3, "gelu") == math.inf
    assert tl.trace_vv_bound(50, 3, "sigmoid") == 50
    assert tl.trace_vv_bound(50, 3, "softplus") == math.inf


def test_mistakes_name_what_was_expected():
    theta, x, q = instance((2, 3, 9))
    for arguments, pattern in [
        ((theta[:-1], x, q), r"D = M N \+ 2 N \+ 1.*found D = 12"),
        ((theta, x[:, 0], q), r"x of shape \(I, M\)"),
        ((theta, x, q[:-1]), r"q of shape \(9,\)"),
        ((theta, x, q[:, None]), r"q of shape \(9,\)"),
        ((theta, x.float(), q), "one floating dtype"),
        ((theta, x, q.long()), "one floating dtype"),
        ((theta[0], x, q), "found a scalar"),
        ((theta, x, q, "sigmoyd"), "did you mean 'sigmoid'"),
    ]:
        for function in (tl.loss, tl.gradient, tl.hessian, tl.trace, tl.trace_of_square, tl.upper_bound):
            with pytest.raises(ValueError, match=pattern):
                function(*arguments)
    with pytest.raises(ValueError, match="positive step"):
        tl.numerical_hessian(theta, x, q, step=0.0)
    with pytest.raises(ValueError, match="of='loss'"):
        tl.numerical_hessian(theta, x, q, of="trace")
    with pytest.raises(ValueError, match="at least 1"):
        tl.trace_vv_bound(0, 3)
    with pytest.raises(ValueError, match="bias first"):
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
    exact = (spectrum / scale).mean(-1) + math.sqrt(12) * (spectrum / scale).std(-1, correction=0)
    assert relative_error(upper / scale, exact) < TOLERANCE
    assert torch.equal(tl.upper_bound(theta[2], x, q), upper[2])
    mixed = torch.stack([theta[0], instance((2, 3, 9))[0]])
    assert relative_error(tl.upper_bound(mixed, x, q), torch.stack([tl.upper_bound(t, x, q) for t in mixed])) < 1e-13
