"""Estimators: convergence to the exact values under a budget, calibrated errors, reasons for NaN."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import (
    CurvatureOperator,
    Dag,
    Node,
    ParameterOperator,
    SymmetricOperator,
    block_metrics,
    couplings,
    discarded_coupling,
    exact_blocks,
    frobenius_norms,
    gn_gaps,
    lanczos_extremes,
    resonance,
    spectral_norms,
    split_blocks,
    stable_rank,
    stable_ranks,
)
from runner.curvature.matrix_free.base import norm_of, rademacher, squares_of
from tests.curvature.cases import PAIR, X, Y, between, make, mlp, seeded


@pytest.fixture(scope="module")
def case():
    return make("diamond_cat")


@pytest.fixture(scope="module")
def exact(case):
    return split_blocks(case.dag, case.x, case.y)


@pytest.fixture(scope="module")
def operator(case):
    return CurvatureOperator(case.dag, case.x, case.y)


def test_all_pairs_of_a_node_share_its_products(case):
    operator = CurvatureOperator(case.dag, case.x, case.y)
    frobenius_norms(operator, [(v, "a0") for v in case.nodes], 30, seeded())
    assert operator.products == 30


def test_probes_are_signs_and_repeatable():
    z = rademacher((50, 4), torch.float32, seeded(3))
    assert set(z.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(z, rademacher((50, 4), torch.float32, seeded(3)))


def test_power_iteration_converges_within_its_residual(operator, exact):
    pairs = [("stem", "a0"), ("a0", "b0"), ("merge", "merge"), ("stem", "out")]
    for steps in (1, 3, 200):
        found = spectral_norms(operator, pairs, steps, seeded(2))
        for pair, estimate in found.items():
            singular = torch.linalg.svdvals(exact.total[pair])
            assert estimate.products == 2 * steps
            assert estimate.value <= float(singular[0]) * (1 + 1e-12)
            assert float((singular - estimate.value).abs().min()) <= estimate.error + 1e-14
    for pair, estimate in found.items():
        assert estimate.value == pytest.approx(float(torch.linalg.svdvals(exact.total[pair])[0]), rel=1e-9)


def test_power_iteration_stops_at_the_tolerance(operator):
    estimate = spectral_norms(operator, [("a0", "b0")], 10_000, seeded(), tolerance=1e-6)["a0", "b0"]
    assert estimate.products < 2_000
    assert estimate.error <= 1e-6 * estimate.value


def test_stable_ranks_and_couplings_agree_with_the_exact_ones(operator, exact):
    pairs = [("stem", "a0"), ("a0", "b0"), ("a0", "a0")]
    norms = {pair: resonance(block) for pair, block in exact.total.items()}
    for pair, estimate in stable_ranks(operator, pairs, 2000, 300, seeded()).items():
        assert abs(estimate.value - stable_rank(exact.total[pair])) <= 5 * estimate.error
        assert estimate.reason == "" and estimate.error < 0.2
    for (v, w), estimate in couplings(operator, pairs, 2000, seeded()).items():
        truth = norms[v, w] / math.sqrt(norms[v, v] * norms[w, w])
        assert abs(estimate.value - truth) <= 5 * estimate.error + 1e-12


def test_zero_blocks_are_nan_with_a_reason():
    """Two branches into a sum under a linear loss: no curvature between them, none within a linear branch."""
    dag = Dag(
        [
            Node("a", ("input",), torch.sin),
            Node("b", ("input",), torch.cos),
            Node("out", ("a", "b"), lambda a, b: a * a + b),
        ],
        loss=lambda output, target: output.sum(1),
    )
    x = torch.randn(2, 3, dtype=torch.float64)
    operator = CurvatureOperator(dag, x, x)
    ranks = stable_ranks(operator, [("a", "a"), ("a", "b"), ("b", "b")], generator=seeded())
    assert ranks["a", "a"].value == pytest.approx(3, rel=0.05) and ranks["a", "a"].reason == ""
    for pair in (("a", "b"), ("b", "b")):
        assert math.isnan(ranks[pair].value) and "zero" in ranks[pair].reason
    assert math.isnan(couplings(operator, [("a", "b")], generator=seeded())["a", "b"].value)
    gap = gn_gaps(dag, x, x, None, [("a", "a")], generator=seeded())["a", "a"]
    assert math.isnan(gap.gap.value) and "Gauss-Newton" in gap.gap.reason
    assert gap.tensor.value == pytest.approx(gap.total.value)


def test_gaps_from_common_probes(case, exact):
    pairs = [("stem", "stem"), ("a0", "b0")]
    found = gn_gaps(case.dag, case.x, case.y, None, pairs, 1500, seeded())
    for pair in pairs:
        truth = resonance(exact.tensor[pair]) / resonance(exact.gauss_newton[pair])
        estimate = found[pair]
        assert abs(estimate.gap.value - truth) <= 5 * estimate.gap.error
        assert abs(estimate.tensor.value - resonance(exact.tensor[pair])) <= 5 * estimate.tensor.error
        assert abs(estimate.total.value - resonance(exact.total[pair])) <= 5 * estimate.total.error
    again = gn_gaps(case.dag, case.x, case.y, None, pairs, 1500, seeded())
    assert again[pairs[0]].gap == found[pairs[0]].gap


def test_lanczos_on_one_node_and_on_an_exhausted_space(operator, exact):
    eigenvalues = torch.linalg.eigvalsh(exact.total["out", "out"])
    found = lanczos_extremes(operator, ["out"], steps=50, generator=seeded())
    assert found.largest.value == pytest.approx(float(eigenvalues[-1]), rel=1e-9)
    assert found.largest.products <= 3
    assert lanczos_extremes(operator, steps=4, generator=seeded()).largest.products == 4


# ------------------------------------------------------------------ scales, and values that are not finite


def scaled(factor):
    return lambda output, target: factor * F.cross_entropy(output, target, reduction="none")


@pytest.mark.parametrize("factor", [1e-170, 1e160])
def test_ratios_at_the_ends_of_float64(factor):
    dag = Dag.from_sequential(mlp(), loss=scaled(factor))
    operator = CurvatureOperator(dag, X, Y)
    split = split_blocks(Dag.from_sequential(mlp()), X, Y)
    norm = frobenius_norms(operator, PAIR, 200, seeded())["0", "0"]
    assert norm.value == pytest.approx(factor * resonance(split.total["0", "0"]), rel=0.3)
    assert 0 < norm.error < norm.value
    rank = stable_ranks(operator, PAIR, 200, 50, seeded())["0", "0"]
    assert abs(rank.value - stable_rank(split.total["0", "0"])) <= 4 * rank.error
    c = couplings(operator, [("0", "1")], 200, seeded())["0", "1"]
    norms = {p: resonance(split.total[p]) for p in (("0", "1"), ("0", "0"), ("1", "1"))}
    assert abs(c.value - norms["0", "1"] / math.sqrt(norms["0", "0"] * norms["1", "1"])) <= 4 * c.error
    gap = gn_gaps(dag, X, Y, None, PAIR, 200, seeded())["0", "0"].gap
    assert abs(gap.value - resonance(split.tensor["0", "0"]) / resonance(split.gauss_newton["0", "0"])) <= 4 * gap.error
    largest = lanczos_extremes(operator, ["0"], 5, seeded()).largest
    assert largest.value == pytest.approx(factor * float(torch.linalg.eigvalsh(split.total["0", "0"])[-1]), rel=1e-9)
    columns = block_metrics(split_blocks(dag, X, Y))
    assert columns["D"][0] == pytest.approx(stable_rank(split.total["0", "0"]))
    assert columns["R"][0] == pytest.approx(factor * resonance(split.total["0", "0"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_a_tensor_part_of_rounding_alone_has_no_rank(dtype, factor):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)]
    dag = Dag.from_sequential(nn.Sequential(*layers).to(dtype), loss=scaled(factor))
    operator = CurvatureOperator(dag, X.to(dtype), Y, part="tensor")
    for found in (stable_ranks(operator, PAIR, generator=seeded()), couplings(operator, PAIR, generator=seeded())):
        assert math.isnan(found["0", "0"].value) and "zero" in found["0", "0"].reason


def test_a_small_part_that_is_not_rounding_keeps_its_rank():
    """A tensor part 1e-9 of the whole, in float64."""
    torch.manual_seed(0)
    nearly = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        nearly[0].weight.mul_(1e-9)
        nearly[0].bias.fill_(1e-9)
    dag = Dag.from_sequential(nearly)
    operator = CurvatureOperator(dag, X, Y, part="tensor")
    exact = split_blocks(dag, X, Y)
    assert resonance(exact.tensor["0", "0"]) < 1e-7 * resonance(exact.total["0", "0"])
    found = stable_ranks(operator, PAIR, 100, 50, seeded())["0", "0"]
    assert abs(found.value - stable_rank(exact.tensor["0", "0"])) <= 4 * found.error


def test_probes_of_a_node_do_not_depend_on_the_other_pairs():
    operator = CurvatureOperator(Dag.from_sequential(mlp()), X, Y)
    alone = frobenius_norms(operator, [("0", "2")], generator=seeded(5))["0", "2"]
    beside = frobenius_norms(operator, [("1", "1"), ("0", "0"), ("0", "2")], generator=seeded(5))["0", "2"]
    assert alone == beside
    a = stable_ranks(operator, [("0", "2")], generator=seeded(5))["0", "2"]
    b = stable_ranks(operator, [("1", "1"), ("0", "2")], generator=seeded(5))["0", "2"]
    assert a.value == pytest.approx(b.value, rel=1e-12)


def test_values_that_are_not_finite():
    x = X.clone()
    x[1, 2] = math.nan
    for dag in (Dag.from_sequential(mlp()), between(lambda t: t.sin() ** 2)):
        first = dag.order[0]
        for measure in (exact_blocks, split_blocks):
            with pytest.raises(ValueError, match=r"input.*not finite.*example 1"):
                measure(dag, x, Y)
        operator = CurvatureOperator(dag, x, Y, part="tensor")
        pairs = [(first, first)]
        found = [
            frobenius_norms(operator, pairs)[first, first],
            stable_ranks(operator, pairs)[first, first],
            couplings(operator, pairs)[first, first],
            lanczos_extremes(operator).largest,
            gn_gaps(dag, x, Y, None, pairs)[first, first].gap,
        ]
        for estimate in found:
            assert math.isnan(estimate.value) and math.isnan(estimate.error)
            assert "not finite" in estimate.reason and "example 1" in estimate.reason
    columns = block_metrics(exact_blocks(dag, x, Y, check=False))
    assert math.isnan(columns["D"][0]) and columns["status"][0] == "block is not finite"


def test_a_second_derivative_that_is_not_finite_is_nan_with_a_reason():
    dag = between(lambda t: (t * 0).abs().add(t.abs() * 0).pow(1.5) + torch.tanh(t))
    operator = CurvatureOperator(dag, X, Y)
    for estimate in (
        frobenius_norms(operator, [("h", "h")])["h", "h"],
        stable_ranks(operator, [("h", "h")])["h", "h"],
        lanczos_extremes(operator).largest,
    ):
        assert math.isnan(estimate.value) and "not finite" in estimate.reason


@pytest.mark.parametrize("power", [-250, 0, 250])
def test_squares_are_exact_at_every_scale(power):
    vector = torch.tensor([3.0, 4.0], dtype=torch.float64) * 10.0**power
    assert norm_of(vector) == pytest.approx(5 * 10.0**power, rel=1e-14)
    assert squares_of(vector[None]).root_mean == pytest.approx(5 * 10.0**power, rel=1e-14)


# ------------------------------------------------------------------ error bars: spread over the stated error, coverage

REPEATS, PROBES = 250, 30
PAIRS = [("stem", "a0"), ("a0", "b0"), ("b0", "merge"), ("a0", "merge")]


class Dense(SymmetricOperator):
    """The blocks as an operator: hundreds of estimates in the time of one."""

    def __init__(self, blocks, nodes, sizes):
        self.blocks, self.nodes, self.sizes, self.reason = blocks, nodes, sizes, ""
        self.dtype, self.device = torch.float64, torch.device("cpu")

    def apply(self, directions):
        return {v: sum(r @ self.blocks[v, w].mT for w, r in directions.items()) for v in self.nodes}


@pytest.fixture(scope="module")
def dense(case, exact):
    return Dense(exact.total, case.nodes, CurvatureOperator(case.dag, case.x, case.y).sizes)


def calibration(estimates, truth):
    """(spread over mean stated error, share within two errors)."""
    values = torch.tensor([e.value for e in estimates], dtype=torch.float64)
    errors = torch.tensor([e.error for e in estimates], dtype=torch.float64)
    covered = ((values - truth).abs() <= 2 * errors).double().mean()
    return float(values.std() / errors.mean()), float(covered)


@pytest.mark.parametrize(("activation", "probes"), [(nn.Tanh, 4), (nn.GELU, 10), (nn.Softplus, 30)])
def test_the_error_of_a_norm_covers_with_few_probes(activation, probes):
    """Nodes with more components than there are probes: few signs often agree on a smaller one."""
    torch.manual_seed(1)
    layers = [nn.Linear(8, 40), activation(), nn.Linear(40, 32), activation(), nn.Linear(32, 3)]
    dag = Dag.from_sequential([layer.double() for layer in layers])
    exact = split_blocks(dag, torch.randn(12, 8, dtype=torch.float64), torch.arange(12) % 3, ["0", "1", "2"]).total
    sizes = {v: block.shape[0] for (v, w), block in exact.items() if v == w}
    pairs = [("0", "0"), ("0", "1"), ("1", "2"), ("0", "2")]
    dense = Dense(exact, tuple(sizes), sizes)
    found = [frobenius_norms(dense, pairs, probes, seeded(s)) for s in range(200)]
    hits = [abs(f[p].value - resonance(exact[p])) <= 1.96 * f[p].error for f in found for p in pairs]
    assert 0.90 <= sum(hits) / len(hits) <= 0.99


def test_the_error_of_a_coupling_knows_the_shared_probes(dense, exact):
    norms = {pair: resonance(block) for pair, block in exact.total.items()}
    found = [couplings(dense, PAIRS, PROBES, seeded(s)) for s in range(REPEATS)]
    for v, w in PAIRS:
        truth = norms[v, w] / math.sqrt(norms[v, v] * norms[w, w])
        ratio, covered = calibration([f[v, w] for f in found], truth)
        assert 0.8 < ratio < 1.25, (v, w, ratio)
        assert 0.89 < covered < 0.99, (v, w, covered)


@pytest.mark.slow
def test_the_error_of_a_stable_rank_covers_it(dense, exact):
    pairs = PAIRS[:2]
    found = [stable_ranks(dense, pairs, PROBES, 25, seeded(s)) for s in range(100)]
    for pair in pairs:
        ratio, covered = calibration([f[pair] for f in found], stable_rank(exact.total[pair]))
        assert 0.75 < ratio < 1.3, (pair, ratio)
        assert covered > 0.87, (pair, covered)


def test_the_error_of_a_stable_rank_covers_a_power_iteration_cut_short(dense, exact):
    """One iteration: the residual of sigma_1 is part of the error."""
    pair = ("stem", "stem")
    found = [stable_ranks(dense, [pair], 2000, 2, seeded(s))[pair] for s in range(40)]
    truth = stable_rank(exact.total[pair])
    assert sum(abs(f.value - truth) <= 2 * f.error for f in found) >= 36
    assert min(f.error for f in found) > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_eigenvalue_lies_within_the_error_of_lanczos(dtype):
    """In float32 the residual alone is too small by the rounding of the products."""
    for graph in ("chain", "residual") if dtype == torch.float32 else ("chain",):
        case = make(graph)
        truth = torch.linalg.eigvalsh(CurvatureOperator(case.dag, case.x, case.y).dense())
        dag = case.dag if dtype == torch.float64 else case.dag.to(dtype)
        operator = CurvatureOperator(dag, case.x.to(dtype), case.y)
        for steps in (1, 5, 40):
            for seed in range(6):
                found = lanczos_extremes(operator, None, steps, seeded(seed))
                for end in (found.largest, found.smallest):
                    assert float((truth - end.value).abs().min()) <= end.error, (graph, steps, seed)


def test_the_error_of_a_gap_is_calibrated(case, exact):
    pair = ("a0", "b0")
    operator = CurvatureOperator(case.dag, case.x, case.y, part="tensor")
    found = [gn_gaps(operator, [pair], probes=20, generator=seeded(s))[pair].gap for s in range(80)]
    ratio, covered = calibration(found, resonance(exact.tensor[pair]) / resonance(exact.gauss_newton[pair]))
    assert 0.75 < ratio < 1.3 and covered > 0.87


class DenseGroups:
    """A matrix over groups of parameters as an operator."""

    def __init__(self, matrix, operator):
        self.matrix, self.groups, self.sizes, self.products = matrix, operator.groups, operator.sizes, 0

    def drawn(self, vectors):
        return vectors

    def column(self, group, z):
        image = self.matrix[:, self.groups[group]] @ z.double()
        return {g: image[rows] for g, rows in self.groups.items()}


@pytest.mark.parametrize("part", ["gauss_newton", pytest.param("hessian", marks=pytest.mark.slow)])
def test_the_interval_of_the_discarded_share_covers(part):
    """As far as it is said to, with few probes and with many; in [0, 1) always."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3)]
    data = [(torch.randn(40, 8, dtype=torch.float64), torch.randint(3, (40,)))]
    operator = ParameterOperator(nn.Sequential(*layers).double(), nn.CrossEntropyLoss(), data, part=part)
    matrix = operator.dense()
    inside = sum(float(matrix[s, s].square().sum()) for s in operator.groups.values())
    truth = 1 - inside / float(matrix.square().sum())
    for probes, repeats in ((4, 300), (30, 150)):
        dense = DenseGroups(matrix, operator)
        found = [discarded_coupling(dense, probes, generator=seeded(s)) for s in range(repeats)]
        assert all(0 <= f.low <= f.value <= f.high < 1 for f in found)
        covered = sum(f.low <= truth <= f.high for f in found) / repeats
        assert 0.90 <= covered <= 0.995, (probes, covered)
