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
from runner.curvature.closed_form import scalar
from tests.errors import refusal

F64 = torch.float64
SIZES = [(1, 1), (1, 5), (2, 1), (2, 4), (3, 7), (6, 3), (17, 20), (40, 11)]


def assert_same_spectrum(spectrum, hessian, tolerance=1e-10):
    """Values, multiplicities, and eigenvectors (H Z = Z Λ, Zᵀ Z = I), all relative to the largest
    |eigenvalue|."""
    expected = torch.linalg.eigvalsh(hessian).flip(0)
    scale = max(float(expected.abs().max()), 1e-300)
    found = spectrum.expanded()
    assert spectrum.dimension == len(hessian) == len(found)
    assert float((found - expected).abs().max()) <= tolerance * scale
    z = spectrum.eigenvectors()
    assert float((z.T @ z - torch.eye(len(hessian), dtype=F64)).abs().max()) <= 1e-10
    assert float((hessian @ z - z * found).abs().max()) <= tolerance * scale
    assert float(spectrum.sharpness) == float(found[0])
    assert float(spectrum.smallest) == float(found[-1])
    assert abs(float(spectrum.trace() - hessian.trace())) <= 1e-10 * scale * len(hessian)
    assert abs(float(spectrum.trace_of_square() - (hessian**2).sum())) <= 1e-10 * scale**2 * len(
        hessian
    )


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
    for seed in (m * 100 + n, 1000 + m * 100 + n):
        (w, v), x, y = random_instance(seed, m, n)
        linear, relu = scalar.linear_spectrum(w, v, x, y), scalar.relu_spectrum(w, v, x, y)
        assert_same_spectrum(linear, oracle.autodiff_hessian(oracle.linear_network, [v, w], x, y))
        assert_same_spectrum(relu, oracle.autodiff_hessian(oracle.relu_network, [v, w], x, y))
        assert int(linear.select("bulk").multiplicities.sum()) == 2 * (m - 1)
        q = int((v > 0).sum())
        assert int(relu.select("bulk", "+").multiplicities.sum() if q > 1 else 0) == max(
            2 * (q - 1), 0
        )
    (w, v, b), x, y = random_instance(2000 + m * 100 + n, m, n, layers=3)
    spectrum = scalar.bias_spectrum(w, v, b, x, y)
    assert_same_spectrum(spectrum, oracle.autodiff_hessian(oracle.bias_network, [w, v, b], x, y))
    if m > 2:
        assert sorted(spectrum.select("bulk").multiplicities.tolist()) == [m - 2, m - 2, m - 1]
        assert len(spectrum.select("outlier").groups) == 5


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("data", ["random", "negated", "zero x", "zero y", "solved"])
def test_linear_degenerate_cases(kind, data):
    w, v = DEGENERATE[kind]
    _, x, y = random_instance(3, 5, 9)
    if data == "solved":  # zero residual on every sample
        y = torch.dot(w, v) * x
    x, y = (0 * x if data == "zero x" else x), {"negated": -y, "zero y": 0 * y}.get(data, y)
    hessian = oracle.autodiff_hessian(oracle.linear_network, [v, w], x, y)
    assert_same_spectrum(scalar.linear_spectrum(w, v, x, y), hessian)


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize(
    "case", ["all +", "none +", "x positive", "x negative", "x with zero", "dead", "one"]
)
def test_relu_degenerate_cells(kind, case):
    w, v = DEGENERATE[kind]
    _, x, y = random_instance(5, 5, 9)
    v = {
        "all +": v.abs(),
        "none +": -v.abs(),
        "dead": torch.cat([v[:1], 0 * v[1:3], v[3:]]),
        "one": torch.cat([v[:1].abs(), -v[1:].abs()]),
    }.get(case, v)
    x = {"x positive": x.abs(), "x negative": -x.abs()}.get(case, x)
    if case == "x with zero":
        x = torch.cat([x[:-2], torch.zeros(2, dtype=F64)])
    hessian = oracle.autodiff_hessian(oracle.relu_network, [v, w], x, y)
    assert_same_spectrum(scalar.relu_spectrum(w, v, x, y), hessian)


BIAS, DATA = ("zero", "like v", "like w", "free"), ("random", "solved", "constant x", "zero x")
PAIRS = [
    (bias, data) for i, bias in enumerate(BIAS) for j, data in enumerate(DATA) if (i + j) % 2 == 0
]


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("bias, data", PAIRS)
def test_bias_degenerate_cases(kind, bias, data):
    w, v = DEGENERATE[kind]
    free, x, y = random_instance(7, 5, 9)
    b = {"zero": torch.zeros_like(w), "like v": -0.5 * v, "like w": w, "free": free[0]}[bias]
    x = {"constant x": torch.full_like(x, 0.7), "zero x": 0 * x}.get(data, x)
    if data == "solved":
        y = torch.dot(w, v) * x + torch.dot(w, b)
    hessian = oracle.autodiff_hessian(oracle.bias_network, [w, v, b], x, y)
    assert_same_spectrum(scalar.bias_spectrum(w, v, b, x, y), hessian)


def test_theorem6_equals_dense_and_stays_in_its_bounds():
    for seed in range(8):
        w, v, b, x, y = theorem6_instance(seed, m=3 + seed)
        pair, triple = theorem6_outliers(w, v, b)
        values = torch.linalg.eigvalsh(
            oracle.autodiff_hessian(oracle.bias_network, [w, v, b], x, y)
        )
        r = torch.sqrt(torch.dot(w, v) ** 2 + torch.dot(w, b) ** 2)
        m = len(w)
        bulk = torch.cat([r.expand(m - 2), -r.expand(m - 2), torch.zeros(m - 1, dtype=F64)])
        found = torch.cat([pair, triple, bulk]).sort().values
        assert relative_error(found, values) < 1e-10
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


def test_theorem6_refuses_other_weights():
    (w, v, b), _, _ = random_instance(0, 4, 3, layers=3)
    with refusal("use bias_spectrum"):
        theorem6_outliers(w, v, b)


def largest_of_cells(w, v, x, y):
    return torch.stack(
        [p.outliers()[0] for p in relu_pairs(w, v, scalar.CellMoments.of(x, y)).values()]
    ).max()


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
    assert (
        relative_error(largest_of_cells(w, v.abs(), x, y), torch.linalg.eigvalsh(hessian)[-1])
        < 1e-10
    )
    assert not relu_pairs(w, 0 * v, scalar.CellMoments.of(x, y))


def test_gradients_equal_autodiff():
    for seed in range(4):
        (w, v), x, y = random_instance(seed, 5, 7)
        for kind, network in (("linear", oracle.linear_network), ("relu", oracle.relu_network)):
            in_w, in_v = Network(kind, x, y).gradient(w, v)
            expected = oracle.autodiff_gradient(network, [v, w], x, y)
            assert relative_error(torch.cat([in_v, in_w]), expected) < 1e-12


@pytest.mark.parametrize("network", ["linear", "relu"])
def test_million_neurons_top_eigenpair_has_no_residual(network):
    (w, v), x, y = random_instance(11, 10**6, 20)
    w, v = w / 1e3, v / 1e3
    spectrum = (scalar.linear_spectrum if network == "linear" else scalar.relu_spectrum)(w, v, x, y)
    top = spectrum.select("outlier").eigenvectors()[:, 0]
    trained = Network(network, x, y)

    def flat_gradient(theta):
        in_w, in_v = trained.gradient(theta[len(v) :], theta[: len(v)])
        return torch.cat([in_v, in_w])

    _, product = torch.func.jvp(flat_gradient, (torch.cat([v, w]),), (top,))
    assert (
        float(torch.linalg.vector_norm(product - spectrum.sharpness * top) / spectrum.sharpness)
        < 1e-10
    )
    assert spectrum.dimension == 2 * 10**6


def test_smallest_eigenvalue_bound_holds_and_is_attained():
    def bound(network):
        loss = oracle.autodiff_loss(network, [v, w], x, y)(torch.cat([v, w]))
        return smallest_eigenvalue_bound(loss, (x**2).mean())

    for seed in range(10):
        (w, v), x, y = random_instance(seed, 4, 3)
        assert scalar.linear_spectrum(w, v, x, y).smallest >= bound(oracle.linear_network)
        assert scalar.relu_spectrum(w, v, x, y).smallest >= bound(oracle.relu_network)
    y = (torch.dot(w, v) - 0.5) * x  # residual proportional to x: Cauchy–Schwarz is an equality
    smallest = scalar.linear_spectrum(w, v, x, y).smallest
    assert_close(smallest, bound(oracle.linear_network), rtol=1e-12, atol=0)


@pytest.mark.parametrize("target", [1.5, -1.5])
def test_phases_tell_the_sign_of_the_second_outlier(target):
    (w, v), x, _ = random_instance(2, 6, 8)
    y = target * x
    slope = torch.dot(w, v)
    for share, expected in [
        (-0.4, "early"),
        (0.2, "early"),
        (0.4, "late"),
        (0.9, "late"),
        (1.1, "divergent"),
    ]:
        scaled = w * share * target / slope
        assert phase_of_slope(share * target, target) == expected
        outliers = scalar.linear_spectrum(scaled, v, x, y).select("outlier").expanded()
        trace = (x**2).mean() * (torch.dot(scaled, scaled) + torch.dot(v, v))
        assert (outliers[1] > 0) == (expected == "late") == (outliers[0] < trace)


def test_phases_without_correlation():
    assert phase_of_slope(0.1, 0.0) == "divergent"
    assert phase_of_slope(0.0, 0.0) == "late"


@pytest.mark.parametrize(
    "call",
    [
        lambda t: scalar.linear_spectrum(t(3), t(4), t(2), t(2)),
        lambda t: scalar.linear_spectrum(t(3), t(3), t(2), t(1)),
        lambda t: scalar.relu_spectrum(t(0), t(0), t(2), t(2)),
        lambda t: scalar.bias_spectrum(t(3), t(3), t(2), t(2), t(2)),
        lambda t: scalar.linear_spectrum(t(3), t(3), t(0), t(0)),
    ],
)
def test_wrong_shapes_are_named(call):
    with refusal(r"expected .* found"):
        call(torch.ones)


def test_float32_arguments_are_computed_in_float64():
    (w, v), x, y = random_instance(0, 4, 5)
    single = scalar.linear_spectrum(w.float(), v.float(), x.float(), y.float())
    double = scalar.linear_spectrum(
        w.float().double(), v.float().double(), x.float().double(), y.float().double()
    )
    assert torch.equal(single.eigenvalues, double.eigenvalues)
    assert single.eigenvalues.dtype == F64
