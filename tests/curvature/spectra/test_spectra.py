"""Spectra of operators against dense matrices; errors by their coverage."""

import math
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, cg
from torch import nn

import runner.curvature as rc
from runner.curvature.spectra.bounds import (
    spectrum_moments,
    wolkowicz_styan_lower,
    wolkowicz_styan_upper,
)
from tests.curvature.cases import Own
from tests.curvature.matrices import cut_short, largest, spectrum, symmetric
from tests.curvature.pairs.test_coverage import NETWORKS
from tests.draws import normal, seeded, tanh_net, trained
from tests.errors import refusal

SLOW = pytest.mark.slow
SPECTRA = {
    "even": spectrum(-1, 1, 150),
    "flat": spectrum(1, 2, 150),
    "decaying": 0.8 ** torch.arange(150, dtype=torch.float64),
    "indefinite": spectrum(-1, 1, 150, 5, 8, -6, -3),
}
LOW_RANK = {
    "rank 13": spectrum(0, 0, 150, *spectrum(1, 3, 13)),
    "rank 3": spectrum(0, 0, 150, 3, -2, 1),
    "one spike": spectrum(0.01, 0.01, 150, 10),
}
"""Gauss-Newton matrices of few examples have a lower rank than a sketch has vectors."""
TABLE = {
    **SPECTRA,
    **LOW_RANK,
    "bulk and one outlier": spectrum(1, 1, 200, 9),
    "power law": 1 / torch.arange(1, 301, dtype=torch.float64) ** 1.5,
    "two eigenvalues": spectrum(0, 0, 150, 3, -3),
}
OUTLIERS = (9.0, 8.0, 6.0, -7.0)


# ------------------------------------------------------------------------------------- eigenpairs


def assert_eigenpairs(found, matrix, values, which, tolerance):
    """Values, orthonormal vectors and residuals, all converged."""
    key = {"largest": -values, "smallest": values, "magnitude": -values.abs()}[which]
    expected, numbers = values[key.argsort()[: len(found.values)]], found.values
    if which == "magnitude":  # +-t are ties
        expected, numbers = expected.abs(), numbers.abs()
    assert torch.allclose(numbers, expected, atol=tolerance)
    vectors = found.vectors.double()
    assert torch.allclose(vectors.mT @ vectors, torch.eye(len(expected)).double(), atol=1e-6)
    residuals = (matrix.double() @ vectors - vectors * found.values).norm(dim=0)
    rounding = 1e-12 if found.vectors.dtype == torch.float64 else 1e-5
    assert (residuals <= found.residuals + rounding).all()
    assert found.converged.all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [4, 24], ids=["whole matrix", "search"])
def test_eigenpairs_in_half_precision_are_within_their_errors(dtype, width):
    net = tanh_net(10, width, 4).to(dtype)
    x, y = torch.randn(40, 10).to(dtype), torch.randn(40, 4).to(dtype)
    found = rc.top_eigenpairs(rc.ParameterOperator(net, "mse", (x, y)), 3)
    exact = rc.ParameterOperator(net.double(), "mse", (x.double(), y.double()))
    difference = (found.values - largest(exact, 3)).abs()
    assert found.converged.all()
    assert (difference <= found.error).all()
    assert difference.max() < torch.finfo(dtype).eps


SOUGHT = [(1, "largest"), (4, "smallest"), (4, "magnitude"), (100, "magnitude")]


@pytest.mark.parametrize("k, which", SOUGHT)
@pytest.mark.parametrize("name", ["flat", "decaying", "indefinite"])
def test_eigenpairs_against_the_dense_matrix(name, k, which):
    values = SPECTRA[name]
    matrix = symmetric(values)
    found = rc.top_eigenpairs(matrix, k, which)
    assert_eigenpairs(found, matrix, values, which, 1e-8)
    assert found.vectors.shape == (150, k) and found.products >= k


def test_eigenpairs_that_do_not_converge_say_so():
    found = cut_short(partial(rc.top_eigenpairs, k=3), symmetric(spectrum(1, 1.001, 300)), 20)
    assert len(found.values) == 3 and not found.converged.all() and not found.certain


CASES = [
    (14, "largest", torch.float32, 1e-4),
    (16, "smallest", torch.float64, 1e-8),
    (30, "largest", torch.float64, 1e-8),
]


@pytest.mark.parametrize("vectors, which, dtype, tolerance", CASES)
def test_eigenpairs_in_little_memory(vectors, which, dtype, tolerance):
    """Three pairs of a matrix of size 800 with restarts."""
    matrix = symmetric(spectrum(-1, 1, 800, 5, 8, -6, -3, 3, 2, -4, 6)).to(dtype)
    found = rc.top_eigenpairs(matrix, 3, which, memory_budget=vectors * 800 * dtype.itemsize)
    expected = torch.linalg.eigvalsh(matrix.double())
    assert_eigenpairs(found, matrix, expected, which, tolerance)
    assert found.products > vectors and found.vectors.dtype == dtype and found.certain


REPEATED = {
    "copies at the top": (0, 1.5, *[3] * 5, *[2] * 5),
    "low rank": (0, 0, *[1] * 12),
    "both ends": (-1, 1, *[2] * 3, *[-2] * 3),
}
LARGE = [pytest.param(name, 1000, marks=SLOW) for name in ("copies at the top", "both ends")]


@pytest.mark.parametrize("name, size", [*product(REPEATED, [200]), ("low rank", 1000), *LARGE])
def test_all_copies_of_an_eigenvalue_are_found_or_the_result_is_not_certain(name, size):
    """A Krylov space has as many vectors of an eigenvalue as its block."""
    low, high, *top = REPEATED[name]
    values = spectrum(low, high, size, *top)
    matrix, ample = symmetric(values), 1 << 30
    for k, which in [(4, "largest"), (10, "largest"), (6, "magnitude")]:
        for memory in (ample, (k + 12) * 8 * size):
            found = rc.top_eigenpairs(matrix, k, which, memory_budget=memory)
            assert found.products <= size
            if found.certain and found.converged.all():
                assert_eigenpairs(found, matrix, values, which, 1e-8)
            else:
                assert (size, memory) != (1000, ample)
    alone = rc.top_eigenpairs(matrix, 4, block=1)
    assert not alone.certain and "copies" in repr(alone)


def test_a_third_copy_that_converges_slowly_is_found():
    """Close to the rest of the spectrum: eight steps do not show it."""
    values = (1 / torch.arange(1, 167).double()).repeat_interleave(3)
    matrix = symmetric(values)
    for seed in (0, 1):
        found = rc.top_eigenpairs(matrix, 4, "smallest", generator=seeded(seed))
        assert found.certain
        assert_eigenpairs(found, matrix, values, "smallest", 1e-8)


def test_a_search_from_earlier_vectors_costs_less_and_finds_what_has_overtaken_them():
    values = spectrum(0, 0.2, 2000, 1, 1.5)
    matrix = torch.diag(values)
    earlier, new = torch.eye(2000).double()[:, :2].T
    cold = rc.top_eigenpairs(matrix, 1)
    near = new + 0.05 * normal(2000, generator=seeded(1)) / 2000**0.5
    warm = rc.top_eigenpairs(matrix, 1, start=near, tolerance=1e-2)
    assert warm.products <= 0.6 * rc.top_eigenpairs(matrix, 1, tolerance=1e-2).products
    assert abs(warm.values - 1.5) < 1e-3 and cold.certain and not warm.certain
    for seed in range(5):
        overtaken = rc.top_eigenpairs(matrix, 1, start=earlier, generator=seeded(seed))
        assert abs(overtaken.values - 1.5) < 1e-9
    pairs = rc.top_eigenpairs(matrix, 2, start=torch.stack([earlier, new], 1))
    assert pairs.certain and pairs.values.tolist() == pytest.approx([1.5, 1])
    with refusal("finite and not zero"):
        rc.top_eigenpairs(matrix, 1, start=0 * earlier)
    with refusal("real tensor"):
        rc.top_eigenpairs(matrix, 1, start=earlier[1:])


def test_a_budget_below_the_least_number_of_vectors_is_told():
    with pytest.warns(RuntimeWarning, match="5 eigenpairs need 11 vectors"):
        rc.top_eigenpairs(symmetric(SPECTRA["indefinite"]), 5, memory_budget=8 * 150)


def test_stated_errors_of_a_network_trained_in_float32_contain_eigenvalues_of_float64():
    """It fits its first two examples to 4e-7, so that products of these alone are rounding."""
    torch.manual_seed(4)
    layers = [nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3)]
    net, x = nn.Sequential(*layers), torch.randn(120, 10)
    y = x[:, :3].argmax(1)
    trained(net, x, y, 200)
    operator = rc.ParameterOperator(net, "cross_entropy", (x, y))
    found = rc.top_eigenpairs(operator, 5, memory_budget=10 * 4 * operator.shape[0])
    assert found.products > 20 and found.converged.all()
    expected = largest(rc.ParameterOperator(net.double(), "cross_entropy", (x.double(), y)), 5)
    assert ((found.low <= expected) & (expected <= found.high)).all()
    assert (found.error <= 1e-4 * expected[0]).all()


# ------------------------------------------------------------------------------- traces and bounds


FEW = list(product(TABLE, [4]))
MANY = [
    pytest.param(name, products, marks=SLOW)
    for name, products in product(TABLE, (12, 60, 148))
    if products < len(TABLE[name])
]


@pytest.mark.parametrize("name, products", FEW + MANY)
def test_intervals_of_the_trace_and_of_the_bound_cover(name, products):
    """93 to 97 %, less four standard deviations of a share of 150 repeats, from 4 products on."""
    values, repeats, generator = TABLE[name], 150, seeded(3)
    matrix, trace = torch.diag(values), float(values.sum())
    rounding = 1e-13 * float(values.abs().sum())
    bound = float(wolkowicz_styan_upper(len(values), trace, values.square().sum()))
    traces = bounds = 0
    for _ in range(repeats):
        found = rc.trace_estimate(matrix, products, generator=generator)
        assert found.products <= products and found.low <= found.value <= found.high
        traces += found.low - rounding <= trace <= found.high + rounding
        if products <= 60:
            found = rc.upper_bound_estimate(matrix, products, generator=generator)
            bounds += found.low <= bound <= found.high
    assert traces >= 0.88 * repeats, traces / repeats
    assert products > 60 or bounds >= 0.86 * repeats, bounds / repeats


@pytest.mark.parametrize("method", ["hutch++", "auto"])
@pytest.mark.parametrize("name", ["rank 13", "rank 3"])
def test_a_sketch_that_holds_the_range_gives_the_trace_itself(name, method):
    values = LOW_RANK[name]
    for seed in range(5):
        found = rc.trace_estimate(symmetric(values), 60, method, generator=seeded(seed))
        assert found.value == pytest.approx(float(values.sum()), rel=1e-12)


def errors_of(name, products, method, repeats):
    """Of the estimated trace, for so many seeds."""
    values, errors = SPECTRA[name], []
    for seed in range(repeats):
        found = rc.trace_estimate(torch.diag(values), products, method, generator=seeded(seed))
        errors.append(found.value - float(values.sum()))
    return torch.tensor(errors)


@SLOW
@pytest.mark.parametrize("name, products", [("decaying", 18), ("even", 18), ("indefinite", 60)])
def test_the_default_is_nearly_as_good_as_the_best_method(name, products):
    methods = ("auto", "hutchinson", "hutch++")
    auto, *others = (float(errors_of(name, products, m, 60).norm()) for m in methods)
    assert auto <= 1.3 * min(others)


def test_sketches_win_where_the_spectrum_decays():
    sketched, plain = (errors_of("decaying", 60, m, 10).abs() for m in ("hutch++", "hutchinson"))
    assert sketched.max() < plain.max() / 8
    for name, method in (("decaying", "hutch++"), ("even", "hutchinson")):
        assert rc.trace_estimate(torch.diag(SPECTRA[name])).method == method


# ---------------------------------------------------------------------------------------- density


def smoothed(found, values):
    """The density of these eigenvalues with the bandwidth of an estimate."""
    bells = torch.exp(-(((found.grid[:, None] - values) / found.bandwidth) ** 2) / 2)
    return bells.mean(1) / (found.bandwidth * math.sqrt(2 * math.pi))


def inside_band(found, expected, slack):
    """Whether the density is in its band, at each point."""
    slack = slack * expected.max()
    return (found.low - slack <= expected) & (expected <= found.high + slack)


def area(density):
    return float(torch.trapezoid(density.density, density.grid))


def test_density_against_the_eigenvalues():
    values = spectrum(-1, 1, 800, *OUTLIERS)
    found = rc.spectral_density(torch.diag(values), 12, 60)
    assert inside_band(found, smoothed(found, values), 1e-3).double().mean() > 0.9
    assert found.outliers == pytest.approx(OUTLIERS, abs=1e-6)
    assert torch.allclose(found.weights.sum(1), torch.ones(12).double())
    assert found.products == 12 * 60
    found = rc.spectral_density(3 * torch.eye(20).double(), 2, 5)
    assert torch.allclose(found.nodes, torch.full_like(found.nodes, 3.0))
    assert area(found) == pytest.approx(1, abs=1e-3)


def parameter_spectrum(network):
    """Eigenvalues of the Hessian in all parameters of a network of test_coverage."""
    dag, x, y, _ = NETWORKS[network]()
    functions = [node.fn for node in dag.nodes.values()]
    parts = nn.ModuleList(fn for fn in functions if isinstance(fn, nn.Module))
    module = Own(lambda m, x: dag.forward(x)[dag.output], parts=parts)
    operator = rc.ParameterOperator(module, lambda f, y: dag.loss.value(f, y).mean(), (x, y))
    return torch.linalg.eigvalsh(operator.dense())


BANDS = [("decaying", 4, 20), ("indefinite", 6, 20)]
EVERY = [("wide", 10, 30), ("wide", 4, 60), *product(NETWORKS, (2, 5), (20,))]


@pytest.mark.parametrize(
    "name, probes, steps", [*BANDS, *(pytest.param(*case, marks=SLOW) for case in EVERY)]
)
def test_the_band_of_the_density_covers(name, probes, steps):
    """Point by point, where there is any density, on average; also where few steps see a flat
    bulk."""
    spectra = {**SPECTRA, "wide": spectrum(1, 2, 2000)}
    values = parameter_spectrum(name) if name in NETWORKS else spectra[name]
    if probes * steps >= len(values):
        pytest.skip("exact")
    covered, generator, matrix = [], seeded(2), torch.diag(values)
    for _ in range(12):
        found = rc.spectral_density(matrix, probes, steps, points=150, generator=generator)
        assert found.products == probes * steps
        expected = smoothed(found, values)
        inside = inside_band(found, expected, 1e-6)
        covered.append(inside[expected > 1e-3 * expected.max()].double().mean())
    assert sum(covered) / len(covered) >= 0.91


def test_a_density_that_is_affordable_is_exact():
    values = SPECTRA["indefinite"]
    found = rc.spectral_density(symmetric(values), 4, 40)
    assert found.products == 150 and torch.equal(found.low, found.high)
    assert torch.allclose(found.density, smoothed(found, values), atol=1e-12)


def test_the_density_in_little_memory_adds_up_the_copies_of_eigenvalues():
    """120 steps are six times what the outliers need: without reorthogonalisation each of them
    comes back."""
    matrix = symmetric(spectrum(-1, 1, 400, *OUTLIERS))
    whole = rc.spectral_density(matrix, 3, 120)
    little = rc.spectral_density(matrix, 3, 120, memory_budget=0)
    assert little.outliers == pytest.approx(OUTLIERS, abs=1e-6)
    assert int((little.weights[0] > 0).sum()) < 120  # copies were there
    assert torch.allclose(little.weights.sum(1), torch.ones(3).double())
    assert torch.allclose(little.density, whole.density, atol=0.02 * float(whole.density.max()))


# --------------------------------------------------------------- scales, zero, what is not finite


ESTIMATES = {
    "eigenpairs": partial(rc.top_eigenpairs, k=3),
    "hutchinson": partial(rc.trace_estimate, method="hutchinson"),
    "hutch++": partial(rc.trace_estimate, method="hutch++"),
    "trace": rc.trace_estimate,
    "bound": partial(rc.upper_bound_estimate, probes=21),
    "density": partial(rc.spectral_density, probes=3, steps=40),
}
EACH = pytest.mark.parametrize("name", ESTIMATES)


def numbers(found):
    """Values and the ends of their intervals."""
    rows = [torch.as_tensor(n, dtype=torch.float64) for n in (found.value, found.low, found.high)]
    return torch.stack(rows)


@EACH
@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_every_estimate_scales_with_the_operator(name, scale):
    matrix = symmetric(SPECTRA["indefinite"])
    found, scaled = (ESTIMATES[name](m) for m in (matrix, scale * matrix))
    if name == "density":
        assert area(scaled) == pytest.approx(1, abs=0.01)
    else:
        assert torch.allclose(numbers(scaled) / scale, numbers(found), rtol=1e-6)
        assert torch.allclose(numbers(scaled)[0] / scale, numbers(found)[0], rtol=1e-9)


@EACH
@pytest.mark.parametrize("size", [20, 150])
def test_of_a_zero_operator(name, size):
    found = ESTIMATES[name](torch.zeros(size, size).double())
    assert found.reason == ""
    assert name == "density" or not numbers(found).any()
    assert name != "eigenpairs" or found.converged.all()


@EACH
@pytest.mark.parametrize("size", [20, 150])
def test_a_product_that_is_not_finite_gives_nan_with_a_reason(name, size):
    matrix = symmetric(spectrum(1, 2, size))
    matrix[3, 3] = math.nan
    found = ESTIMATES[name](matrix)
    assert numbers(found).isnan().all() and "finite" in found.reason
    assert name != "eigenpairs" or not found.converged.any()


@pytest.mark.parametrize("size", [20, 200])
def test_a_product_that_is_not_finite_later_is_told(size):
    """From the third product on, of a dense solver and of Lanczos."""
    diagonal, seen = spectrum(1, 2, size), []

    def fading(v):
        seen.append(v)
        return diagonal * v * (1 if len(seen) < 3 else math.nan)

    found = rc.top_eigenpairs(SimpleNamespace(size=size, matvec=fading), 2)
    assert found.reason == "a product is not finite"
    assert found.values.isnan().all() and not found.converged.any()


# ----------------------------------------------------------- bounds of arbitrary symmetric matrices


@pytest.mark.parametrize("dimension", [1, 2, 5, 40])
def test_bounds_enclose_every_eigenvalue(dimension):
    spectra = normal(500, dimension, generator=seeded()) ** 3
    sums, slack = (spectra.sum(-1), spectra.square().sum(-1)), 1e-7
    assert (wolkowicz_styan_upper(dimension, *sums) >= spectra.amax(-1) - slack).all()
    assert (wolkowicz_styan_lower(dimension, *sums) <= spectra.amin(-1) + slack).all()
    mean, std = spectrum_moments(dimension, *sums)
    assert (spectra.amax(-1) >= mean + std / math.sqrt(max(dimension - 1, 1)) - slack).all()


@pytest.mark.parametrize("rest", [0.0, 2.0])
def test_equality_for_one_eigenvalue_apart_from_the_rest(rest):
    values = spectrum(rest, rest, 7, 5)
    trace, square = values.sum(), values.square().sum()
    assert float(wolkowicz_styan_upper(7, trace, square)) == pytest.approx(5, rel=1e-14)
    assert float(wolkowicz_styan_lower(7, -trace, square)) == pytest.approx(-5, rel=1e-14)


def test_rounding_never_makes_the_variance_negative():
    value = torch.tensor(0.1, dtype=torch.float64)
    mean, std = spectrum_moments(3, 3 * value, 3 * value * value * (1 - 1e-15))
    assert float(std) == 0.0 and float(mean) == pytest.approx(0.1)


def test_the_interval_of_a_negative_bound_has_its_order():
    noise = normal(200, 200, generator=seeded())
    matrix = 0.001 * (noise + noise.mT) / 2 - torch.eye(200)
    exact, found = rc.upper_bound_estimate(matrix, 200), rc.upper_bound_estimate(matrix, 10)
    assert exact.low == exact.value == exact.high < 0
    assert found.low < found.value < found.high and found.low < exact.value < found.high


# ---------------------------------------------------------------- operators of users, and mistakes


def test_matrices_of_whole_numbers_are_taken_as_real():
    counts = torch.diag(torch.arange(1, 101))
    assert rc.top_eigenpairs(counts, 2).values.tolist() == pytest.approx([100, 99])
    assert rc.trace_estimate(counts, 20).value == pytest.approx(5050, rel=0.1)


def test_the_view_for_scipy():
    matrix, b = symmetric(SPECTRA["flat"]), np.arange(150.0)
    solution, status = cg(rc.as_linear_operator(matrix), b, rtol=1e-10)
    assert status == 0 and np.allclose(matrix.numpy() @ solution, b, atol=1e-6)


def test_products_that_are_right_are_given_at_any_scale():
    """A tiny first column is no tiny matrix, and products for scipy are not squared."""
    assert rc.trace_estimate(torch.diag(torch.tensor([1e-160, 1.0, 2.0]).double())).value == 3
    tiny = rc.as_linear_operator(1e-200 * torch.eye(100, dtype=torch.float64))
    assert float(tiny.matvec(np.ones(100)).max()) == 1e-200


def test_an_operator_of_scipy_in_float32_is_given_float32():
    def matvec(v):
        assert v.dtype == np.float32
        return np.arange(1, 41, dtype=np.float32) * v.ravel()

    operator = LinearOperator((40, 40), matvec, dtype=np.float32)
    assert float(rc.top_eigenpairs(operator, 1).values[0]) == pytest.approx(40, rel=1e-5)


def test_an_operator_may_use_the_memory_of_its_result_again():
    diagonal, buffer = spectrum(1, 2, 50), torch.zeros(50).double()
    operator = SimpleNamespace(size=50, matvec=lambda v: torch.mul(diagonal, v, out=buffer))
    assert rc.trace_estimate(operator, 50).value == pytest.approx(75, rel=1e-12)


def test_an_operator_that_says_whole_numbers_is_given_real_ones():
    matrix = symmetric(SPECTRA["flat"])
    operator = SimpleNamespace(size=150, matvec=matrix.__matmul__, dtype=torch.int64)
    assert float(rc.top_eigenpairs(operator, 1).values[0]) == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("kind", [torch.Tensor.numpy, csr_matrix, torch.Tensor.clone])
def test_matrices_that_are_not_symmetric_are_refused_however_they_are_kept(kind):
    shift = torch.diag(torch.ones(19, dtype=torch.float64), 1)
    with refusal("differs from its transpose"):
        rc.spectral_density(kind(shift))
    assert rc.spectral_density(kind(shift + shift.mT)).nodes.numel()


ESTIMATORS = (
    *(rc.trace_estimate, rc.spectral_density, rc.upper_bound_estimate),
    lambda operator: rc.top_eigenpairs(operator, 2),
)


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_products_that_are_not_of_a_symmetric_matrix_are_refused(estimate):
    shifted = symmetric(SPECTRA["flat"]) + torch.diag(torch.ones(149, dtype=torch.float64), 1)
    with refusal("expected a symmetric .* differ"):
        estimate(SimpleNamespace(size=150, matvec=shifted.__matmul__))


@pytest.mark.parametrize("scale", [1.0, 1e-40])
def test_rounding_in_the_null_space_is_no_skew(scale):
    """The first vectors that are multiplied together are orthogonal to the one of the sketch."""
    values = torch.zeros(150).double()
    values[0] = 3 * scale
    for seed in range(5):
        found = rc.trace_estimate(symmetric(values), 4, "hutch++", generator=seeded(seed))
        assert found.value == pytest.approx(3 * scale)


def test_mistakes_of_eigenpairs_say_what_to_do():
    matrix = torch.eye(150)
    with refusal("k as a whole number of at least 1"):
        rc.top_eigenpairs(matrix, 0)
    with refusal("k as a whole number"):
        rc.top_eigenpairs(matrix, 2.0)
    with refusal("k of at most"):
        rc.top_eigenpairs(matrix, 100_000)
    with refusal("which must be one of"):
        rc.top_eigenpairs(matrix, 1, "biggest")
    with refusal("a tolerance of at least 0"):
        rc.top_eigenpairs(matrix, 1, tolerance=math.nan)
    with refusal("expected a symmetric operator"):
        rc.top_eigenpairs(matrix[:3], 1)
    with refusal("expected an operator"):
        rc.top_eigenpairs(3.0, 1)
    for imaginary in (torch.eye(3, dtype=torch.complex64), np.eye(3) * 1j):
        with refusal("found complex numbers"):
            rc.top_eigenpairs(imaginary, 1)


def test_mistakes_of_other_estimates_say_what_to_do():
    matrix = torch.eye(150)
    with refusal("products as a whole number"):
        rc.trace_estimate(matrix, 20.0)
    with refusal("at least 4 products"):
        rc.trace_estimate(matrix, 3)
    with refusal("method must be"):
        rc.trace_estimate(matrix, 60, "magic")
    with refusal("expected a symmetric operator"):
        rc.trace_estimate(matrix[:0, :0])
    with refusal("probes as a whole number of at least 4"):
        rc.upper_bound_estimate(matrix, 2)
    with refusal("probes as a whole number of at least 2"):
        rc.spectral_density(matrix, 1)
    with refusal("bandwidth above 0"):
        rc.spectral_density(matrix, 4, 3, bandwidth=0.0)
    with refusal("at least 1"):
        spectrum_moments(0, matrix, matrix)
    with refusal("expected a LayerOperator or a ParameterOperator"):
        rc.inter_layer_metrics(matrix)
