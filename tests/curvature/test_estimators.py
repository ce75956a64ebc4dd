"""Estimators: convergence to the exact values under a budget, calibrated errors, reasons for NaN."""

import math

import pytest
import torch

from runner.curvature import (
    CurvatureOperator,
    assemble,
    couplings,
    frobenius_norms,
    gn_gaps,
    lanczos_extremes,
    resonance,
    spectral_norms,
    split_blocks,
    stable_rank,
    stable_ranks,
)
from runner.curvature.matrix_free.estimators import probe_squares, rademacher
from tests.curvature.cases import make


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


def test_hutchinson_converges_and_its_standard_error_covers(operator, exact):
    """800 estimates of 25 probes each: nearly unbiased, and within 2 standard errors about 95 times in 100."""
    pair, probes, repeats = ("a0", "merge"), 25, 800
    truth = resonance(exact.total[pair])
    squares = probe_squares(operator, [pair], probes * repeats, seeded())[pair].view(repeats, probes)
    values = squares.mean(1).sqrt()
    errors = squares.std(1) / math.sqrt(probes) / (2 * values)
    assert float(values.mean()) == pytest.approx(truth, rel=0.02)
    covered = float(((values - truth).abs() <= 2 * errors).double().mean())
    assert 0.88 < covered < 0.99
    assert float(squares.mean().sqrt()) == pytest.approx(truth, rel=0.01)


def test_hutchinson_estimate_of_all_pairs(operator, exact):
    pairs = list(exact.total)
    found = frobenius_norms(operator, pairs, 300, seeded(1))
    for pair in pairs:
        truth, estimate = resonance(exact.total[pair]), found[pair]
        assert abs(estimate.value - truth) <= 5 * estimate.error + 1e-12
        assert estimate.products == 300
    with pytest.raises(ValueError, match="2 probes"):
        frobenius_norms(operator, pairs, 1)


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


def test_lanczos_finds_the_extremes(operator, exact, case):
    matrix = assemble(exact.total, case.nodes)
    eigenvalues = torch.linalg.eigvalsh(matrix)
    full = lanczos_extremes(operator, steps=len(matrix), generator=seeded())
    assert full.largest.value == pytest.approx(float(eigenvalues[-1]), rel=1e-9)
    assert full.smallest.value == pytest.approx(float(eigenvalues[0]), rel=1e-6)
    for steps in (2, 4, 6):
        part = lanczos_extremes(operator, steps=steps, generator=seeded())
        assert part.largest.products == steps
        assert part.largest.value <= float(eigenvalues[-1]) * (1 + 1e-12)
        assert part.smallest.value >= float(eigenvalues[0]) - 1e-12
        for end in (part.largest, part.smallest):
            assert float((eigenvalues - end.value).abs().min()) <= end.error + 1e-14


def test_lanczos_on_one_node_and_on_an_exhausted_space(operator, exact):
    eigenvalues = torch.linalg.eigvalsh(exact.total["out", "out"])
    found = lanczos_extremes(operator, ["out"], steps=50, generator=seeded())
    assert found.largest.value == pytest.approx(float(eigenvalues[-1]), rel=1e-9)
    assert found.largest.products <= 3
