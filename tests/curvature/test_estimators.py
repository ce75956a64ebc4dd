"""Estimators: convergence to the exact values under a budget, calibrated errors, reasons for NaN."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import (
    CurvatureOperator,
    Dag,
    block_metrics,
    couplings,
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
from tests.curvature.cases import PAIR, X, Y, between, make, mlp


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
    from runner.curvature import Dag, Node

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
