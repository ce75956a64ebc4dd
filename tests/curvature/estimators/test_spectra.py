"""Spectra of operators against dense matrices; errors by their coverage."""

import copy
import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, cg
from torch import nn

import runner.curvature as rc
from runner.curvature.estimators.bounds import (
    spectrum_moments,
    wolkowicz_styan_lower,
    wolkowicz_styan_upper,
)
from tests.curvature.estimators.test_coverage import NETWORKS
from tests.draws import normal, seeded, tanh_net, trained
from tests.errors import refusal


def symmetric(values, seed=0):
    q, _ = torch.linalg.qr(normal(len(values), len(values), generator=seeded(seed)))
    return (q * values) @ q.mT


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [4, 24], ids=["whole matrix", "search"])
def test_eigenpairs_in_half_precision_are_within_their_errors(dtype, width):
    torch.manual_seed(0)
    narrow = tanh_net(10, width, 4).to(dtype)
    data = [(torch.randn(40, 10).to(dtype), torch.randn(40, 4).to(dtype))]
    found = rc.top_eigenpairs(rc.ParameterOperator(narrow, nn.MSELoss(), data), 3)
    wide = [tuple(t.double() for t in data[0])]
    exact = rc.ParameterOperator(copy.deepcopy(narrow).double(), nn.MSELoss(), wide).dense()
    values = torch.linalg.eigvalsh(exact).flip(0)[:3]
    assert found.converged.all()
    assert ((found.values - values).abs() <= found.error).all()
    assert (found.values - values).abs().max() < torch.finfo(dtype).eps


SLOW = pytest.mark.slow
SPECTRA = {
    "even": torch.linspace(-1, 1, 150, dtype=torch.float64),
    "flat": torch.linspace(1, 2, 150, dtype=torch.float64),
    "decaying": 0.8 ** torch.arange(150, dtype=torch.float64),
    "indefinite": torch.cat(
        [torch.linspace(-1, 1, 146), torch.tensor([5.0, 8.0, -6.0, -3.0])]
    ).double(),
}
LOW_RANK = {
    "rank 13": torch.cat([torch.linspace(1, 3, 13), torch.zeros(137)]).double(),
    "rank 3": torch.cat([torch.tensor([3.0, -2.0, 1.0]), torch.zeros(147)]).double(),
    "one spike": torch.cat([torch.tensor([10.0]), torch.full((149,), 0.01)]).double(),
}
"""Gauss-Newton matrices of few examples have a lower rank than a sketch has vectors."""


SOUGHT = [(1, "largest"), (4, "smallest"), (4, "magnitude"), (100, "magnitude")]


@pytest.mark.parametrize("k, which", SOUGHT)
@pytest.mark.parametrize("name", ["flat", "decaying", "indefinite"])
def test_eigenpairs_against_the_dense_matrix(name, k, which):
    values = SPECTRA[name]
    matrix = symmetric(values)
    found = rc.top_eigenpairs(matrix, k, which, generator=seeded(1))
    assert_eigenpairs(found, matrix, values, which, 1e-8)
    assert found.vectors.shape == (150, k) and found.products >= k


def assert_eigenpairs(found, matrix, values, which, tolerance):
    """Values, orthonormal vectors and residuals, all converged."""
    key = {"largest": -values, "smallest": values, "magnitude": -values.abs()}[which]
    expected = values[key.argsort()[: len(found.values)]]
    same = (
        (found.values.abs(), expected.abs()) if which == "magnitude" else (found.values, expected)
    )  # +-t are ties
    assert torch.allclose(*same, atol=tolerance)
    vectors = found.vectors.double()
    assert torch.allclose(vectors.mT @ vectors, torch.eye(len(expected)).double(), atol=1e-6)
    residuals = (matrix.double() @ vectors - vectors * found.values).norm(dim=0)
    rounded = found.vectors.dtype != torch.float64
    assert bool((residuals <= found.residuals + (1e-5 if rounded else 1e-12)).all())
    assert bool(found.converged.all())


def test_eigenpairs_that_do_not_converge_say_so():
    matrix = symmetric(torch.linspace(1, 1.001, 300, dtype=torch.float64))
    found = rc.top_eigenpairs(matrix, 3, budget=20, generator=seeded(0))
    assert len(found.values) == 3
    assert not bool(found.converged.all())
    assert found.products == 20 and not found.certain


CASES = [
    (14, "largest", torch.float32),
    (16, "smallest", torch.float64),
    (30, "largest", torch.float64),
]


@pytest.mark.parametrize("vectors, which, dtype", CASES)
def test_eigenpairs_in_little_memory(vectors, which, dtype):
    """Three pairs of a matrix of size 800 with restarts."""
    values = torch.cat([torch.linspace(-1, 1, 792), torch.tensor([5, 8, -6, -3, 3, 2, -4, 6])])
    matrix = symmetric(values.double()).to(dtype)
    budget = vectors * 800 * dtype.itemsize
    found = rc.top_eigenpairs(matrix, 3, which, memory_budget=budget, generator=seeded(1))
    tolerance = 1e-4 if dtype == torch.float32 else 1e-8
    expected = torch.linalg.eigvalsh(matrix.double())
    assert_eigenpairs(found, matrix, expected, which, tolerance)
    assert found.products > vectors and found.vectors.dtype == dtype and found.certain


REPEATED = {
    "copies at the top": ([3.0] * 5 + [2.0] * 5, (0, 1.5)),
    "low rank": ([1.0] * 12, (0, 0)),
    "both ends": ([2.0] * 3 + [-2.0] * 3, (-1, 1)),
}


LARGE = [pytest.param(name, 1000, marks=SLOW) for name in ("copies at the top", "both ends")]


@pytest.mark.parametrize(
    "name, size", [*((name, 200) for name in REPEATED), ("low rank", 1000), *LARGE]
)
def test_all_copies_of_an_eigenvalue_are_found_or_the_result_is_not_certain(name, size):
    """A Krylov space has as many vectors of an eigenvalue as its block."""
    top, bulk = REPEATED[name]
    values = torch.tensor([*top, *torch.linspace(*bulk, size - len(top))], dtype=torch.float64)
    matrix = symmetric(values)
    for k, which in [(4, "largest"), (10, "largest"), (6, "magnitude")]:
        for memory in (1 << 30, (k + 12) * 8 * size):
            found = rc.top_eigenpairs(matrix, k, which, memory_budget=memory, generator=seeded(1))
            assert found.products <= size
            if found.certain and bool(found.converged.all()):
                assert_eigenpairs(found, matrix, values, which, 1e-8)
            else:
                assert (size, memory) != (1000, 1 << 30)
    alone = rc.top_eigenpairs(matrix, 4, block=1, budget=size, generator=seeded(1))
    assert not alone.certain and "copies" in repr(alone)


def test_copies_that_one_vector_does_not_see_are_found_by_two():
    top = [8.0, 7.0, 6.0, 5.0, 4.0]
    for copies in (1, 2):
        values = torch.tensor([*top, *top[:1] * (copies - 1), *torch.linspace(-1, 1, 800)])
        matrix = symmetric(values.double())
        found = rc.top_eigenpairs(matrix, 5, generator=seeded(1))
        alone = rc.top_eigenpairs(matrix, 5, block=1, generator=seeded(1))
        assert found.certain and not alone.certain
        expected = sorted([*top, *top[:1] * (copies - 1)], reverse=True)[:5]
        assert found.values.tolist() == pytest.approx(expected, abs=1e-8)


def test_the_outputs_of_a_linear_layer_repeat_its_eigenvalues():
    """The Hessian of the head under squared error is the same matrix once for each of its ten
    outputs."""
    net = tanh_net(10, 16, 10).double()
    x = 3 * normal(40, 10)
    head = rc.ParameterOperator(net, "mse", (x, normal(40, 10)), groups=["2"])
    found = rc.top_eigenpairs(head, 12, generator=seeded(0))
    assert torch.allclose(
        found.values, torch.linalg.eigvalsh(head.dense()).flip(0)[:12], atol=1e-10
    )
    assert torch.allclose(found.values[:10], found.values[0].expand(10), atol=1e-10)


def test_a_budget_below_the_least_number_of_vectors_is_told():
    matrix = symmetric(SPECTRA["indefinite"])
    with pytest.warns(RuntimeWarning, match="5 eigenpairs need 11 vectors"):
        rc.top_eigenpairs(matrix, 5, memory_budget=8 * 150, generator=seeded(1))


def test_stated_errors_of_a_network_trained_in_float32_contain_eigenvalues_of_float64():
    """It fits its first two examples to 4e-7, so that products of these alone are rounding."""
    torch.manual_seed(4)
    net = nn.Sequential(
        nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3)
    )
    x, loss = torch.randn(120, 10), nn.CrossEntropyLoss()
    y = x[:, :3].argmax(1)
    trained(net, x, y, 200)
    operator = rc.ParameterOperator(net, loss, (x, y))
    found = rc.top_eigenpairs(
        operator, 5, memory_budget=10 * 4 * operator.shape[0], generator=seeded(1)
    )
    assert found.products > 20 and bool(found.converged.all())
    matrix = rc.ParameterOperator(net.double(), loss, (x.double(), y)).dense()
    expected = torch.linalg.eigvalsh((matrix + matrix.mT) / 2).flip(0)[:5]
    assert bool(((found.low <= expected) & (expected <= found.high)).all())
    assert bool((found.error <= 1e-4 * expected[0]).all())


def test_the_view_for_scipy():
    matrix, b = symmetric(SPECTRA["flat"]), np.arange(150.0)
    solution, status = cg(rc.as_linear_operator(matrix), b, rtol=1e-10)
    assert status == 0 and np.allclose(matrix.numpy() @ solution, b, atol=1e-6)


TABLE = {
    **SPECTRA,
    **LOW_RANK,
    "bulk and one outlier": torch.cat([torch.tensor([9.0]), torch.ones(199)]).double(),
    "power law": 1 / torch.arange(1, 301, dtype=torch.float64) ** 1.5,
    "two eigenvalues": torch.cat([torch.tensor([3.0, -3.0]), torch.zeros(148)]).double(),
}
"""Spectra with their exact numbers."""


class Known:
    """A diagonal matrix: vectors on the sphere see nothing but the spectrum."""

    dtype, device, sizes = torch.float64, torch.device("cpu"), None

    def __init__(self, values):
        self.values, self.shape = values, (len(values), len(values))

    def __matmul__(self, v):
        return self.values[:, None] * v if v.dim() == 2 else self.values * v


FEW = [(name, 4) for name in TABLE]
MANY = [(n, m) for n in TABLE for m in (12, 60, 148) if m < len(TABLE[n])]


@pytest.mark.parametrize("name, products", [*FEW, *(pytest.param(*c, marks=SLOW) for c in MANY)])
def test_intervals_of_the_trace_and_of_the_bound_cover(name, products):
    """93 to 97 %, less four standard deviations of a share of 150 repeats, from 4 products on."""
    values, repeats, generator = TABLE[name], 150, seeded(3)
    trace, rounding = float(values.sum()), 1e-13 * float(values.abs().sum())
    bound = float(wolkowicz_styan_upper(len(values), values.sum(), values.square().sum()))
    traces = bounds = 0
    for _ in range(repeats):
        found = rc.trace_estimate(Known(values), products, generator=generator)
        assert found.products <= products and found.low <= found.value <= found.high
        traces += found.low - rounding <= trace <= found.high + rounding
        if products <= 60:
            found = rc.upper_bound_estimate(Known(values), products, generator=generator)
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


@pytest.mark.slow
def test_the_default_is_nearly_as_good_as_the_best_method():
    for name, products in (("decaying", 18), ("even", 18), ("indefinite", 60)):
        values, total, errors = SPECTRA[name], float(SPECTRA[name].sum()), {}
        for method in ("auto", "hutchinson", "hutch++"):
            estimates = [
                rc.trace_estimate(Known(values), products, method, generator=seeded(s))
                for s in range(60)
            ]
            errors[method] = math.fsum((e.value - total) ** 2 for e in estimates) ** 0.5
        assert errors.pop("auto") <= 1.3 * min(errors.values()), name


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_every_estimate_scales_with_the_operator(scale):
    matrix = symmetric(SPECTRA["indefinite"])
    both = matrix, scale * matrix
    pairs, scaled = (rc.top_eigenpairs(m, 3, generator=seeded(0)) for m in both)
    assert torch.allclose(scaled.values / scale, pairs.values, rtol=1e-9)
    assert bool(scaled.converged.all())
    for method in ("hutchinson", "hutch++"):
        one, other = (rc.trace_estimate(m, 60, method, generator=seeded(0)) for m in both)
        assert other.value / scale == pytest.approx(one.value, rel=1e-8)
        assert other.error / scale == pytest.approx(one.error, rel=1e-8)
    low, high = (rc.upper_bound_estimate(m, 20, generator=seeded(0)) for m in both)
    assert high.value / scale == pytest.approx(low.value, rel=1e-9)
    assert high.high / scale == pytest.approx(low.high, rel=1e-6)
    density = rc.spectral_density(scale * matrix, 3, 40, generator=seeded(0))
    assert float(torch.trapezoid(density.density, density.grid)) == pytest.approx(1, abs=0.01)
    one, other = (rc.diagonal_estimate(m, 20, generator=seeded(0)) for m in both)
    assert torch.allclose(other.value / scale, one.value, rtol=1e-9)


@pytest.mark.parametrize("size", [20, 150])
def test_of_a_zero_operator(size):
    zero = torch.zeros(size, size, dtype=torch.float64)
    pairs = rc.top_eigenpairs(zero, 2, generator=seeded(0))
    assert not pairs.values.any() and bool(pairs.converged.all()) and pairs.reason == ""
    for method in ("hutchinson", "hutch++", "auto"):
        found = rc.trace_estimate(zero, 60, method, generator=seeded(0))  # type: ignore[arg-type]
        assert (found.value, found.error, found.reason) == (0.0, 0.0, "")
    assert rc.upper_bound_estimate(zero, 21, generator=seeded(0)).high == 0


def test_sketches_win_where_the_spectrum_decays():
    values, expected = SPECTRA["decaying"], float(SPECTRA["decaying"].sum())

    def worst(method):
        runs = (
            rc.trace_estimate(Known(values), 60, method, generator=seeded(s)) for s in range(10)
        )
        return max(abs(run.value - expected) for run in runs)

    assert worst("hutch++") < worst("hutchinson") / 8
    assert rc.trace_estimate(Known(values), 60, generator=seeded(0)).method == "hutch++"
    even = rc.trace_estimate(Known(SPECTRA["even"]), 60, generator=seeded(0))
    assert even.method == "hutchinson"


def test_the_diagonals_and_their_intervals():
    matrix, repeats = symmetric(SPECTRA["indefinite"]), 40
    exact = rc.diagonal_estimate(matrix, 150)
    assert torch.allclose(exact.value, matrix.diagonal())
    assert torch.allclose(exact.square.value, (matrix @ matrix).diagonal())
    for products in (4, 30):
        covered = torch.zeros(2)
        for seed in range(repeats):
            found = rc.diagonal_estimate(matrix, products, generator=seeded(seed))
            for i, (one, truth) in enumerate(((found, exact), (found.square, exact.square))):
                inside = (one.low <= truth.value) & (truth.value <= one.high)
                covered[i] += float(inside.double().mean()) / repeats
        assert bool((covered > 0.92).all()) and bool((covered < 0.985).all()), covered


OUTLIERS = torch.tensor([6.0, 8.0, 9.0, -7.0]).double()


def smoothed(found, values):
    """The density of these eigenvalues with the bandwidth of an estimate."""
    bells = torch.exp(-(((found.grid[:, None] - values) / found.bandwidth) ** 2) / 2)
    return bells.mean(1) / (found.bandwidth * math.sqrt(2 * math.pi))


def test_density_against_the_eigenvalues():
    values = torch.cat([torch.linspace(-1, 1, 796, dtype=torch.float64), OUTLIERS])
    found = rc.spectral_density(Known(values), 12, 60, generator=seeded(0))
    expected = smoothed(found, values)
    slack = 1e-3 * expected.max()
    inside = (found.low - slack <= expected) & (expected <= found.high + slack)
    assert float(inside.double().mean()) > 0.9
    assert found.outliers == pytest.approx((9.0, 8.0, 6.0, -7.0), abs=1e-6)
    assert torch.allclose(found.weights.sum(1), torch.ones(12, dtype=torch.float64))
    assert found.products == 12 * 60
    found = rc.spectral_density(3 * torch.eye(20, dtype=torch.float64), 2, 5, generator=seeded(0))
    assert torch.allclose(found.nodes, torch.full_like(found.nodes, 3.0))
    assert float(torch.trapezoid(found.density, found.grid)) == pytest.approx(1, abs=1e-3)


def parameter_spectrum(network):
    """Eigenvalues of the Hessian in all parameters of a network of test_coverage."""
    dag, x, y, _ = NETWORKS[network]()
    module = nn.Module()
    module.parts = nn.ModuleList(
        node.fn for node in dag.nodes.values() if isinstance(node.fn, nn.Module)
    )
    module.forward = lambda x: dag.forward(x)[dag.output]
    return torch.linalg.eigvalsh(
        rc.ParameterOperator(module, lambda f, y: dag.loss.value(f, y).mean(), (x, y)).dense()
    )


EVERY = [("wide", 10, 30), ("wide", 4, 60), *product(NETWORKS, (2, 5), (20,))]
BANDS = [("decaying", 4, 20), ("indefinite", 6, 20)]


@pytest.mark.parametrize(
    "name, probes, steps", [*BANDS, *(pytest.param(*case, marks=SLOW) for case in EVERY)]
)
def test_the_band_of_the_density_covers(name, probes, steps):
    """Point by point, where there is any density, on average; also where few steps see a flat
    bulk."""
    spectra = {**SPECTRA, "wide": torch.linspace(1, 2, 2000, dtype=torch.float64)}
    values = spectra[name] if name in spectra else parameter_spectrum(name)
    if probes * steps >= len(values):
        pytest.skip("exact")
    covered, generator = [], seeded(2)
    for _ in range(12):
        found = rc.spectral_density(Known(values), probes, steps, points=150, generator=generator)
        assert found.products == probes * steps
        expected = smoothed(found, values)
        slack = 1e-6 * expected.max()
        inside = (found.low - slack <= expected) & (expected <= found.high + slack)
        covered.append(float(inside[expected > 1e-3 * expected.max()].double().mean()))
    assert sum(covered) / len(covered) >= 0.91


def test_a_density_that_is_affordable_is_exact():
    values = SPECTRA["indefinite"]
    found = rc.spectral_density(symmetric(values), 4, 40)
    assert found.products == 150 and torch.equal(found.low, found.high)
    assert torch.allclose(found.density, smoothed(found, values), atol=1e-12)


def test_the_density_in_little_memory_adds_up_the_copies_of_eigenvalues():
    """120 steps are six times what the outliers need: without reorthogonalisation each of them
    comes back."""
    matrix = symmetric(torch.cat([torch.linspace(-1, 1, 396, dtype=torch.float64), OUTLIERS]))
    whole, little = (
        rc.spectral_density(matrix, 3, 120, memory_budget=b, generator=seeded(0))
        for b in (1 << 30, 0)
    )
    assert little.outliers == pytest.approx((9.0, 8.0, 6.0, -7.0), abs=1e-6)
    assert int((little.weights[0] > 0).sum()) < 120  # copies were there
    assert torch.allclose(little.weights.sum(1), torch.ones(3, dtype=torch.float64))
    assert torch.allclose(little.density, whole.density, atol=0.02 * float(whole.density.max()))


PARAMETERS = rc.ParameterOperator(
    tanh_net(2, 2, 3), nn.CrossEntropyLoss(), [(torch.ones(3, 2), torch.arange(3))]
)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: rc.top_eigenpairs(m, 0), "k as a whole number of at least 1"),
        (lambda m: rc.top_eigenpairs(m, 2.0), "k as a whole number"),
        (lambda m: rc.top_eigenpairs(m, 100_000), "k of at most"),
        (lambda m: rc.trace_estimate(m, 20.0), "products as a whole number"),
        (lambda m: rc.trace_estimate(m[:0, :0]), "expected a symmetric operator"),
        (lambda m: rc.spectral_density(m.triu()), "differs from its transpose"),
        (lambda m: rc.discarded_coupling(m), "expected an operator with groups"),
        (lambda m: rc.discarded_coupling(PARAMETERS, probes=1), "probes as a whole number of at"),
        (lambda m: rc.top_eigenpairs(m, 1, "biggest"), "which must be one of"),
        (lambda m: rc.top_eigenpairs(m, 1, tolerance=math.nan), "a tolerance of at least 0"),
        (lambda m: rc.spectral_density(m, 1), "probes as a whole number of at least 2"),
        (lambda m: rc.trace_estimate(m, 3), "at least 4 products"),
        (lambda m: rc.trace_estimate(m, 60, "magic"), "method must be"),
        (lambda m: rc.upper_bound_estimate(m, 2), "probes as a whole number of at least 4"),
        (lambda m: rc.top_eigenpairs(m[:3], 1), "expected a symmetric operator"),
        (lambda m: rc.top_eigenpairs(3.0, 1), "expected an operator"),
    ],
)
def test_mistakes_say_what_to_do(call, message):
    with refusal(message):
        call(symmetric(SPECTRA["flat"]))


@pytest.mark.parametrize("size", [20, 150])
def test_a_product_that_is_not_finite_gives_nan_with_a_reason(size):
    matrix = symmetric(torch.linspace(1, 2, size, dtype=torch.float64))
    matrix[3, 3] = math.nan
    traces = [
        rc.trace_estimate(matrix, 60, m, generator=seeded(0))
        for m in ("hutchinson", "hutch++", "auto")
    ]  # type: ignore[arg-type]
    for found in (*traces, rc.upper_bound_estimate(matrix, 21, generator=seeded(0))):
        assert math.isnan(found.value) and "finite" in found.reason
    pairs = rc.top_eigenpairs(matrix, 2, generator=seeded(0))
    assert (
        bool(pairs.values.isnan().all())
        and not bool(pairs.converged.any())
        and "finite" in pairs.reason
    )
    density = rc.spectral_density(matrix, 2, 10, generator=seeded(0))
    assert bool(density.density.isnan().all()) and "finite" in density.reason


# ----------------------------------------------------------- bounds of arbitrary symmetric matrices


@pytest.mark.parametrize("dimension", [1, 2, 5, 40])
def test_bounds_enclose_every_eigenvalue(dimension):
    spectra = normal(500, dimension, generator=seeded()) ** 3
    sums, slack = (spectra.sum(-1), spectra.square().sum(-1)), 1e-7
    assert (wolkowicz_styan_upper(dimension, *sums) >= spectra.amax(-1) - slack).all()
    assert (wolkowicz_styan_lower(dimension, *sums) <= spectra.amin(-1) + slack).all()
    mean, std = spectrum_moments(dimension, *sums)
    assert (spectra.amax(-1) >= mean + std / math.sqrt(max(dimension - 1, 1)) - slack).all()


def test_equality_for_one_eigenvalue_apart_from_the_rest():
    for rest in (0.0, 2.0):
        spectrum = torch.full((7,), rest, dtype=torch.float64)
        spectrum[0] = 5.0
        upper = wolkowicz_styan_upper(7, spectrum.sum(), spectrum.square().sum())
        assert float(upper) == pytest.approx(5.0, rel=1e-14)
        lower = wolkowicz_styan_lower(7, -spectrum.sum(), spectrum.square().sum())
        assert float(lower) == pytest.approx(-5.0, rel=1e-14)


def test_rounding_never_makes_the_variance_negative():
    value = torch.tensor(0.1, dtype=torch.float64)
    mean, std = spectrum_moments(3, 3 * value, 3 * value * value * (1 - 1e-15))
    assert float(std) == 0.0 and float(mean) == pytest.approx(0.1)
    with refusal("at least 1"):
        spectrum_moments(0, value, value)


def test_matrices_of_whole_numbers_are_taken_as_real_and_complex_ones_refused():
    counts = torch.diag(torch.arange(1, 101))
    assert rc.top_eigenpairs(counts, 2, generator=seeded()).values.tolist() == pytest.approx(
        [100, 99]
    )
    assert rc.trace_estimate(counts, 20, generator=seeded()).value == pytest.approx(5050, rel=0.1)
    for matrix in (torch.eye(3, dtype=torch.complex64), np.eye(3) * 1j):
        with refusal("found complex numbers"):
            rc.top_eigenpairs(matrix, 1)


def test_the_interval_of_a_negative_bound_has_its_order():
    noise = normal(200, 200, generator=seeded())
    spectrum = 0.001 * (noise + noise.mT) / 2 - torch.eye(200, dtype=torch.float64)
    exact = rc.upper_bound_estimate(spectrum, 200)
    found = rc.upper_bound_estimate(spectrum, 10, generator=seeded())
    assert exact.low == exact.value == exact.high < 0
    assert found.low < found.value < found.high and found.low < exact.value < found.high


def test_a_bandwidth_is_positive():
    with refusal("bandwidth above 0"):
        rc.spectral_density(torch.eye(5), 4, 3, bandwidth=0.0)


def test_products_that_are_right_are_given_at_any_scale():
    """A tiny first column is no tiny matrix, and products for scipy are not squared."""
    assert rc.trace_estimate(torch.diag(torch.tensor([1e-160, 1.0, 2.0]).double())).value == 3
    tiny = rc.as_linear_operator(1e-200 * torch.eye(100, dtype=torch.float64))
    assert float(tiny.matvec(np.ones(100)).max()) == 1e-200


def test_an_operator_of_scipy_in_float32_is_given_float32():
    matrix = torch.diag(torch.arange(1.0, 41.0))
    operator = LinearOperator(
        (40, 40),
        matvec=lambda v: (matrix @ torch.from_numpy(np.ascontiguousarray(v))).numpy(),
        dtype=np.float32,
    )
    assert float(rc.top_eigenpairs(operator, 1).values[0]) == pytest.approx(40, rel=1e-5)


@pytest.mark.parametrize("size", [20, 200])
def test_a_product_that_is_not_finite_later_is_told(size):
    """From the third product on, of a dense solver and of Lanczos."""

    class Fading:
        shape, dtype, seen = (size, size), torch.float64, 0

        def __matmul__(self, v):
            self.seen += 1
            return torch.arange(1.0, size + 1).double() * v * (math.nan if self.seen > 2 else 1)

    found = rc.top_eigenpairs(Fading(), 2, generator=seeded())
    assert found.reason == "a product is not finite"
    assert not bool(found.converged.any())
    assert bool(found.values.isnan().all())


def test_an_operator_may_use_the_memory_of_its_result_again():
    diagonal, buffer = (
        torch.linspace(1, 2, 50, dtype=torch.float64),
        torch.zeros(50, dtype=torch.float64),
    )
    found = rc.trace_estimate(Own(diagonal, lambda v: torch.mul(diagonal, v, out=buffer)), 50)
    assert found.value == pytest.approx(75, rel=1e-12)


class Own:
    """An operator of one's own."""

    def __init__(self, like, matvec, dtype=torch.float64):
        self.shape, self.matvec, self.dtype = (len(like), len(like)), matvec, dtype


def test_an_operator_that_says_whole_numbers_is_given_real_ones():
    matrix = normal(20, 20, generator=seeded())
    matrix = matrix + matrix.mT
    found = rc.top_eigenpairs(Own(matrix, matrix.__matmul__, torch.int64), 1)
    assert float(found.values[0]) == pytest.approx(
        float(torch.linalg.eigvalsh(matrix).abs().max()), rel=1e-6
    )


@pytest.mark.parametrize(
    "kind", [lambda m: m.numpy(), lambda m: csr_matrix(m.numpy()), lambda m: m]
)
def test_matrices_that_are_not_symmetric_are_refused_however_they_are_kept(kind):
    shift = torch.diag(torch.ones(19, dtype=torch.float64), 1)
    with refusal("differs from its transpose"):
        rc.spectral_density(kind(shift))
    assert rc.spectral_density(kind(shift + shift.mT)).nodes.numel()
