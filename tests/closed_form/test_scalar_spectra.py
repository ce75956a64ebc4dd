"""Closed-form spectra of scalar networks against a dense float64 eigensolver of the automatic
Hessian."""

import pytest
import torch
from torch.testing import assert_close

from experiments.paper_audit.checks import relative_error
from experiments.paper_audit.scalar import networks as oracle
from experiments.paper_audit.scalar.cases import random_instance
from experiments.scalar_spectrum.network import Network, relu_pairs
from experiments.scalar_spectrum.theorem6 import theorem6_outliers, triple_bounds
from experiments.scalar_spectrum.training import phase_of_slope, smallest_eigenvalue_bound
from runner.closed_form import scalar
from tests.errors import refusal

F64 = torch.float64
SIZES = [(1, 1), (1, 5), (2, 1), (2, 4), (3, 7), (6, 3), (17, 20), (40, 11)]


def assert_same_spectrum(spectrum, hessian, tolerance=1e-10):
    """Values, multiplicities, and eigenvectors (H Z = Z Λ, Zᵀ Z = I), all relative to the largest
    |eigenvalue|."""
    expected, size = torch.linalg.eigvalsh(hessian).flip(0), len(hessian)
    scale = max(float(expected.abs().max()), 1e-300)
    found, z = spectrum.expanded(), spectrum.eigenvectors()
    assert spectrum.dimension == size == len(found)
    assert float((found - expected).abs().max()) <= tolerance * scale
    assert float((z.T @ z - torch.eye(size, dtype=F64)).abs().max()) <= 1e-10
    assert float((hessian @ z - z * found).abs().max()) <= tolerance * scale
    assert float(spectrum.sharpness) == float(found[0])
    assert float(spectrum.smallest) == float(found[-1])
    square = (hessian**2).sum()
    assert abs(float(spectrum.trace() - hessian.trace())) <= 1e-10 * scale * size
    assert abs(float(spectrum.trace_of_square() - square)) <= 1e-10 * scale**2 * size


def checked_linear(w, v, x, y):
    """The spectrum of the linear network, next to its dense Hessian."""
    spectrum = scalar.linear_spectrum(w, v, x, y)
    assert_same_spectrum(spectrum, oracle.autodiff_hessian(oracle.linear_network, [v, w], x, y))
    return spectrum


def checked_relu(w, v, x, y):
    spectrum = scalar.relu_spectrum(w, v, x, y)
    assert_same_spectrum(spectrum, oracle.autodiff_hessian(oracle.relu_network, [v, w], x, y))
    return spectrum


def checked_bias(w, v, b, x, y):
    spectrum = scalar.bias_spectrum(w, v, b, x, y)
    assert_same_spectrum(spectrum, oracle.autodiff_hessian(oracle.bias_network, [w, v, b], x, y))
    return spectrum


W = torch.tensor([0.7, -1.1, 0.4, 2.0, 0.3], dtype=F64)
V = torch.tensor([1.2, 0.5, -0.8, 0.1, -0.6], dtype=F64)
DEGENERATE = {
    "equal": (W, W),
    "opposite": (W, -W),
    "parallel": (W, 2.5 * W),
    "w zero": (0 * W, V),
    "v zero": (W, 0 * W),
    "both zero": (0 * W, 0 * W),
    "nearly equal": (W, W + 1e-9 * V),
    "nearly opposite": (W, -W + 1e-9 * V),
    "orthogonal": (W, V - torch.dot(V, W) / torch.dot(W, W) * W),
}


@pytest.mark.parametrize("m,n", SIZES)
def test_spectra_equal_dense(m, n):
    first = m * 100 + n
    for seed in (first, 1000 + first):
        (w, v), x, y = random_instance(seed, m, n)
        bulk = checked_linear(w, v, x, y).select("bulk")
        assert int(bulk.multiplicities.sum()) == 2 * (m - 1)
        relu, q = checked_relu(w, v, x, y), int((v > 0).sum())
        if q > 1:
            assert int(relu.select("bulk", "+").multiplicities.sum()) == 2 * (q - 1)
    (w, v, b), x, y = random_instance(2000 + first, m, n, layers=3)
    spectrum = checked_bias(w, v, b, x, y)
    if m > 2:
        assert sorted(spectrum.select("bulk").multiplicities.tolist()) == [m - 2, m - 2, m - 1]
        assert len(spectrum.select("outlier").groups) == 5


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("data", ["random", "negated", "zero x", "zero y", "solved"])
def test_linear_degenerate_cases(kind, data):
    w, v = DEGENERATE[kind]
    _, x, y = random_instance(3, 5, 9)
    if data == "zero x":
        x = 0 * x
    # "solved": zero residual on every sample
    targets = {"negated": -y, "zero y": 0 * y, "solved": torch.dot(w, v) * x}
    checked_linear(w, v, x, targets.get(data, y))


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("case", ["all +", "none +", "dead", "one"])
def test_relu_degenerate_weights(kind, case):
    w, v = DEGENERATE[kind]
    _, x, y = random_instance(5, 5, 9)
    weights = {
        "all +": v.abs(),
        "none +": -v.abs(),
        "dead": torch.cat([v[:1], 0 * v[1:3], v[3:]]),
        "one": torch.cat([v[:1].abs(), -v[1:].abs()]),
    }
    checked_relu(w, weights[case], x, y)


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("case", ["positive", "negative", "with zero"])
def test_relu_degenerate_inputs(kind, case):
    w, v = DEGENERATE[kind]
    _, x, y = random_instance(5, 5, 9)
    zero = torch.cat([x[:-2], torch.zeros(2, dtype=F64)])
    inputs = {"positive": x.abs(), "negative": -x.abs(), "with zero": zero}
    checked_relu(w, v, inputs[case], y)


PAIRS = [("zero", "random"), ("zero", "constant x"), ("like v", "solved"), ("like v", "zero x")]
PAIRS += [("like w", "random"), ("like w", "constant x"), ("free", "solved"), ("free", "zero x")]


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("bias, data", PAIRS)
def test_bias_degenerate_cases(kind, bias, data):
    w, v = DEGENERATE[kind]
    free, x, y = random_instance(7, 5, 9)
    b = {"zero": 0 * w, "like v": -0.5 * v, "like w": w, "free": free[0]}[bias]
    x = {"constant x": torch.full_like(x, 0.7), "zero x": 0 * x}.get(data, x)
    if data == "solved":
        y = torch.dot(w, v) * x + torch.dot(w, b)
    checked_bias(w, v, b, x, y)


def test_theorem6_equals_dense_and_stays_in_its_bounds():
    for seed in range(8):
        m = 3 + seed
        w, v, b, x, y = theorem6_instance(seed, m)
        pair, triple = theorem6_outliers(w, v, b)
        hessian = oracle.autodiff_hessian(oracle.bias_network, [w, v, b], x, y)
        r = torch.sqrt(torch.dot(w, v) ** 2 + torch.dot(w, b) ** 2)
        bulk = torch.cat([r.expand(m - 2), -r.expand(m - 2), torch.zeros(m - 1, dtype=F64)])
        found = torch.cat([pair, triple, bulk]).sort().values
        assert relative_error(found, torch.linalg.eigvalsh(hessian)) < 1e-10
        lower, upper = triple_bounds(w, v, b)
        assert lower <= triple.min() and triple.max() <= upper


def theorem6_instance(seed, m):
    """⟨v, b⟩ = 0, ‖v‖ = ‖b‖; mean x = mean y = mean xy = 0, mean x² = 1."""
    (w, v, b), x, y = random_instance(seed, m, 10, layers=3)
    b = b - torch.dot(v, b) / torch.dot(v, v) * v
    b = b * torch.linalg.vector_norm(v) / torch.linalg.vector_norm(b)
    x = x - x.mean()
    x = x / torch.sqrt((x**2).mean())
    y = y - y.mean()
    return w, v, b, x, y - (x * y).mean() * x


@refusal("use bias_spectrum")
def test_theorem6_refuses_other_weights():
    theorem6_outliers(*random_instance(0, 4, 3, layers=3)[0])


def largest_of_cells(w, v, x, y):
    pairs = relu_pairs(w, v, scalar.CellMoments.of(x, y)).values()
    return torch.stack([pair.outliers()[0] for pair in pairs]).max()


def test_larger_outliers_of_the_pairs_equal_the_sharpness_of_the_spectrum():
    for seed in range(6):
        (w, v), x, y = random_instance(seed, 1 + 3 * seed, 6)
        linear = scalar.PairProblem.of(w, v, scalar.Moments.of(x, y)).outliers()[0]
        assert_close(linear, scalar.linear_spectrum(w, v, x, y).sharpness, rtol=1e-12, atol=0)
        found = largest_of_cells(w, v, x, y)
        assert_close(found, scalar.relu_spectrum(w, v, x, y).sharpness, rtol=1e-12, atol=0)
    (w, v), x, y = random_instance(1, 4, 6)
    y = torch.where(x < 0, 100 * x, y)  # a large residual of a cell that no neuron sees
    hessian = oracle.autodiff_hessian(oracle.relu_network, [v.abs(), w], x, y)
    largest = torch.linalg.eigvalsh(hessian)[-1]
    assert relative_error(largest_of_cells(w, v.abs(), x, y), largest) < 1e-10
    assert not relu_pairs(w, 0 * v, scalar.CellMoments.of(x, y))


NETWORKS = {
    "linear": (oracle.linear_network, scalar.linear_spectrum),
    "relu": (oracle.relu_network, scalar.relu_spectrum),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_equal_autodiff(kind):
    for seed in range(4):
        (w, v), x, y = random_instance(seed, 5, 7)
        in_w, in_v = Network(kind, x, y).gradient(w, v)
        expected = oracle.autodiff_gradient(NETWORKS[kind][0], [v, w], x, y)
        assert relative_error(torch.cat([in_v, in_w]), expected) < 1e-12


@pytest.mark.parametrize("kind", NETWORKS)
def test_million_neurons_top_eigenpair_has_no_residual(kind):
    size = 10**6
    (w, v), x, y = random_instance(11, size, 20)
    w, v, network = w / 1e3, v / 1e3, Network(kind, x, y)
    spectrum = NETWORKS[kind][1](w, v, x, y)
    top = spectrum.select("outlier").eigenvectors()[:, 0]

    def flat_gradient(theta):
        in_w, in_v = network.gradient(theta[size:], theta[:size])
        return torch.cat([in_v, in_w])

    _, product = torch.func.jvp(flat_gradient, (torch.cat([v, w]),), (top,))
    residual = torch.linalg.vector_norm(product - spectrum.sharpness * top)
    assert float(residual / spectrum.sharpness) < 1e-10
    assert spectrum.dimension == 2 * size


def smallest_bound(network, w, v, x, y):
    loss = oracle.autodiff_loss(network, [v, w], x, y)(torch.cat([v, w]))
    return smallest_eigenvalue_bound(loss, (x**2).mean())


def test_smallest_eigenvalue_bound_holds_and_is_attained():
    for seed in range(10):
        (w, v), x, y = random_instance(seed, 4, 3)
        for network, spectrum in NETWORKS.values():
            assert spectrum(w, v, x, y).smallest >= smallest_bound(network, w, v, x, y)
    y = (torch.dot(w, v) - 0.5) * x  # residual proportional to x: Cauchy–Schwarz is an equality
    smallest = scalar.linear_spectrum(w, v, x, y).smallest
    expected = smallest_bound(oracle.linear_network, w, v, x, y)
    assert_close(smallest, expected, rtol=1e-12, atol=0)


PHASES = {-0.4: "early", 0.2: "early", 0.4: "late", 0.9: "late", 1.1: "divergent"}


@pytest.mark.parametrize("target", [1.5, -1.5])
@pytest.mark.parametrize("share", PHASES)
def test_phases_tell_the_sign_of_the_second_outlier(share, target):
    (w, v), x, _ = random_instance(2, 6, 8)
    w, expected = w * share * target / torch.dot(w, v), PHASES[share]
    assert phase_of_slope(share * target, target) == expected
    outliers = scalar.linear_spectrum(w, v, x, target * x).select("outlier").expanded()
    trace = (x**2).mean() * (torch.dot(w, w) + torch.dot(v, v))
    assert (outliers[1] > 0) == (expected == "late") == (outliers[0] < trace)


def test_phases_without_correlation():
    assert phase_of_slope(0.1, 0.0) == "divergent"
    assert phase_of_slope(0.0, 0.0) == "late"


LINEAR, RELU, BIAS = scalar.linear_spectrum, scalar.relu_spectrum, scalar.bias_spectrum
SHAPES = [(LINEAR, 3, 4, 2, 2), (LINEAR, 3, 3, 2, 1), (LINEAR, 3, 3, 0, 0)]
SHAPES += [(RELU, 0, 0, 2, 2), (BIAS, 3, 3, 2, 2, 2)]


@pytest.mark.parametrize("case", SHAPES)
@refusal(r"expected .* found")
def test_wrong_shapes_are_named(case):
    spectrum, *sizes = case
    spectrum(*map(torch.ones, sizes))


def test_float32_arguments_are_computed_in_float64():
    (w, v), x, y = random_instance(0, 4, 5)
    given = [t.float() for t in (w, v, x, y)]
    single = scalar.linear_spectrum(*given)
    double = scalar.linear_spectrum(*(t.double() for t in given))
    assert torch.equal(single.eigenvalues, double.eigenvalues)
    assert single.eigenvalues.dtype == F64
