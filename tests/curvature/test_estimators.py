"""Estimators: convergence to the exact values under a budget, calibrated errors, reasons for NaN."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import runner.curvature as rc
from tests.curvature.cases import PAIR, X, Y, between, graph, make, mlp, seeded

PARTS = ("total", "tensor", "gauss_newton")


CASE = make("diamond_cat")
EXACT = rc.split_blocks(CASE.dag, CASE.x, CASE.y)
OPERATOR = rc.CurvatureOperator(CASE.dag, CASE.x, CASE.y)


def test_all_pairs_of_a_node_share_its_products():
    operator = rc.CurvatureOperator(CASE.dag, CASE.x, CASE.y)
    rc.frobenius_norms(operator, [(v, "a0") for v in CASE.nodes], 30, seeded())
    assert operator.products == 30


def test_power_iteration_converges_within_its_residual_and_stops_at_the_tolerance():
    pairs = [("stem", "a0"), ("a0", "b0"), ("merge", "merge"), ("stem", "out")]
    singular = {pair: torch.linalg.svdvals(EXACT.total[pair]) for pair in pairs}
    for steps in (1, 3, 200):
        found = rc.spectral_norms(OPERATOR, pairs, steps, seeded(2))
        for pair, estimate in found.items():
            assert estimate.products == 2 * steps
            assert estimate.value <= float(singular[pair][0]) * (1 + 1e-12)
            assert float((singular[pair] - estimate.value).abs().min()) <= estimate.error + 1e-14
    assert all(
        found[pair].value == pytest.approx(float(s[0]), rel=1e-9) for pair, s in singular.items()
    )
    estimate = rc.spectral_norms(OPERATOR, [("a0", "b0")], 10_000, seeded(), tolerance=1e-6)[
        "a0", "b0"
    ]
    assert estimate.products < 2_000
    assert estimate.error <= 1e-6 * estimate.value


def coupling_of(norms, v, w):
    return norms[v, w] / math.sqrt(norms[v, v] * norms[w, w])


def test_stable_ranks_couplings_and_gaps_agree_with_the_exact_ones():
    pairs = [("stem", "a0"), ("a0", "b0"), ("a0", "a0")]
    total, tensor, newton = (
        {p: rc.resonance(b) for p, b in getattr(EXACT, part).items()} for part in PARTS
    )
    for pair, estimate in rc.stable_ranks(OPERATOR, pairs, 2000, 100, seeded()).items():
        assert abs(estimate.value - rc.stable_rank(EXACT.total[pair])) <= 5 * estimate.error
        assert estimate.reason == "" and estimate.error < 0.2
    for pair, estimate in rc.couplings(OPERATOR, pairs, 1000, seeded()).items():
        assert abs(estimate.value - coupling_of(total, *pair)) <= 5 * estimate.error + 1e-12
    for pair, found in rc.gn_gaps(
        OPERATOR.dag, OPERATOR.x, OPERATOR.y, None, pairs[1:], 1000, seeded()
    ).items():
        for estimate, expected in (
            (found.gap, tensor[pair] / newton[pair]),
            (found.tensor, tensor[pair]),
            (found.total, total[pair]),
        ):
            assert abs(estimate.value - expected) <= 5 * estimate.error


def test_zero_blocks_are_nan_with_a_reason():
    """Two branches into a sum under a linear loss: no curvature between them, none within a linear branch."""
    sides = {"a": ("input", torch.sin), "b": ("input", torch.cos)}
    dag = graph(lambda output, target: output.sum(1), **sides, out=("a b", lambda a, b: a * a + b))
    x = torch.randn(2, 3, dtype=torch.float64)
    operator = rc.CurvatureOperator(dag, x, x)
    ranks = rc.stable_ranks(operator, [("a", "a"), ("a", "b"), ("b", "b")], generator=seeded())
    assert ranks["a", "a"].value == pytest.approx(3, rel=0.05) and ranks["a", "a"].reason == ""
    for pair in (("a", "b"), ("b", "b")):
        assert math.isnan(ranks[pair].value) and "zero" in ranks[pair].reason
    assert math.isnan(rc.couplings(operator, [("a", "b")], generator=seeded())["a", "b"].value)
    gap = rc.gn_gaps(dag, x, x, None, [("a", "a")], generator=seeded())["a", "a"]
    assert math.isnan(gap.gap.value) and "Gauss-Newton" in gap.gap.reason
    assert gap.tensor.value == pytest.approx(gap.total.value)


def test_lanczos_on_one_node_and_on_an_exhausted_space():
    eigenvalues = torch.linalg.eigvalsh(EXACT.total["out", "out"])
    found = rc.lanczos_extremes(OPERATOR, ["out"], steps=50, generator=seeded())
    assert found.largest.value == pytest.approx(float(eigenvalues[-1]), rel=1e-9)
    assert found.largest.products <= 3
    assert rc.lanczos_extremes(OPERATOR, steps=4, generator=seeded()).largest.products == 4


# ------------------------------------------------------------------ scales, and values that are not finite


def scaled(factor):
    return lambda output, target: factor * F.cross_entropy(output, target, reduction="none")


@pytest.mark.parametrize("factor", [1e-170, 1e160])
def test_ratios_at_the_ends_of_float64(factor):
    dag = rc.Dag.from_sequential(mlp(), loss=scaled(factor))
    operator = rc.CurvatureOperator(dag, X, Y)
    split = rc.split_blocks(rc.Dag.from_sequential(mlp()), X, Y)
    norm = rc.frobenius_norms(operator, PAIR, 200, seeded())["0", "0"]
    assert norm.value == pytest.approx(factor * rc.resonance(split.total["0", "0"]), rel=0.3)
    assert 0 < norm.error < norm.value
    rank = rc.stable_ranks(operator, PAIR, 200, 50, seeded())["0", "0"]
    assert abs(rank.value - rc.stable_rank(split.total["0", "0"])) <= 4 * rank.error
    c = rc.couplings(operator, [("0", "1")], 200, seeded())["0", "1"]
    assert (
        abs(c.value - coupling_of({p: rc.resonance(b) for p, b in split.total.items()}, "0", "1"))
        <= 4 * c.error
    )
    gap = rc.gn_gaps(dag, X, Y, None, PAIR, 200, seeded())["0", "0"].gap
    assert (
        abs(
            gap.value
            - rc.resonance(split.tensor["0", "0"]) / rc.resonance(split.gauss_newton["0", "0"])
        )
        <= 4 * gap.error
    )
    largest = rc.lanczos_extremes(operator, ["0"], 5, seeded()).largest
    assert largest.value == pytest.approx(
        factor * float(torch.linalg.eigvalsh(split.total["0", "0"])[-1]), rel=1e-9
    )
    columns = rc.block_metrics(rc.split_blocks(dag, X, Y))
    assert columns["D"][0] == pytest.approx(rc.stable_rank(split.total["0", "0"]))
    assert columns["R"][0] == pytest.approx(factor * rc.resonance(split.total["0", "0"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tensor_part_of_rounding_alone_has_no_rank(dtype):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)]
    for factor in (1e-20, 1e20):
        dag = rc.Dag.from_sequential(nn.Sequential(*layers).to(dtype), loss=scaled(factor))
        operator = rc.CurvatureOperator(dag, X.to(dtype), Y, part="tensor")
        for estimate in (rc.stable_ranks, rc.couplings):
            found = estimate(operator, PAIR, generator=seeded())["0", "0"]
            assert math.isnan(found.value) and "zero" in found.reason


def test_a_small_part_that_is_not_rounding_keeps_its_rank():
    """A tensor part 1e-9 of the whole, in float64."""
    nearly = mlp()
    with torch.no_grad():
        nearly[0].weight.mul_(1e-9)
        nearly[0].bias.fill_(1e-9)
    dag = rc.Dag.from_sequential(nearly)
    operator = rc.CurvatureOperator(dag, X, Y, part="tensor")
    exact = rc.split_blocks(dag, X, Y)
    assert rc.resonance(exact.tensor["0", "0"]) < 1e-7 * rc.resonance(exact.total["0", "0"])
    found = rc.stable_ranks(operator, PAIR, 100, 50, seeded())["0", "0"]
    assert abs(found.value - rc.stable_rank(exact.tensor["0", "0"])) <= 4 * found.error


def test_probes_of_a_node_do_not_depend_on_the_other_pairs():
    operator = rc.CurvatureOperator(rc.Dag.from_sequential(mlp()), X, Y)
    alone = rc.frobenius_norms(operator, [("0", "2")], generator=seeded(5))["0", "2"]
    beside = rc.frobenius_norms(
        operator, [("1", "1"), ("0", "0"), ("0", "2")], generator=seeded(5)
    )["0", "2"]
    assert alone == beside
    a = rc.stable_ranks(operator, [("0", "2")], generator=seeded(5))["0", "2"]
    b = rc.stable_ranks(operator, [("1", "1"), ("0", "2")], generator=seeded(5))["0", "2"]
    assert a.value == pytest.approx(b.value, rel=1e-12)


def nan_with_a_reason(estimates, reason):
    return all(
        math.isnan(e.value) and math.isnan(e.error) and reason in e.reason for e in estimates
    )


def of_operator(operator, pair):
    found = [
        estimate(operator, [pair])[pair]
        for estimate in (rc.frobenius_norms, rc.stable_ranks, rc.couplings)
    ]
    return [*found, rc.lanczos_extremes(operator).largest]


def test_values_that_are_not_finite():
    x = X.clone()
    x[1, 2] = math.nan
    for dag in (rc.Dag.from_sequential(mlp()), between(lambda t: t.sin() ** 2)):
        for measure in (rc.exact_blocks, rc.split_blocks):
            with pytest.raises(ValueError, match=r"input.*not finite.*example 1"):
                measure(dag, x, Y)
        pair = (dag.order[0], dag.order[0])
        found = of_operator(rc.CurvatureOperator(dag, x, Y, part="tensor"), pair)
        found.append(rc.gn_gaps(dag, x, Y, None, [pair])[pair].gap)
        assert nan_with_a_reason(found, "not finite") and all(
            "example 1" in e.reason for e in found
        )
    columns = rc.block_metrics(rc.exact_blocks(dag, x, Y, check=False))
    assert math.isnan(columns["D"][0]) and columns["status"][0] == "block is not finite"


def test_a_second_derivative_that_is_not_finite_is_nan_with_a_reason():
    dag = between(lambda t: (t * 0).abs().add(t.abs() * 0).pow(1.5) + torch.tanh(t))
    assert nan_with_a_reason(of_operator(rc.CurvatureOperator(dag, X, Y), ("h", "h")), "not finite")


# ------------------------------------------------------------------ error bars (of R, C and D: test_coverage.py)


def test_the_error_of_a_stable_rank_covers_a_power_iteration_cut_short():
    """One iteration: the residual of sigma_1 is part of the error."""
    pair = ("stem", "stem")
    found = [rc.stable_ranks(OPERATOR, [pair], 400, 2, seeded(s))[pair] for s in range(40)]
    truth = rc.stable_rank(EXACT.total[pair])
    assert sum(abs(f.value - truth) <= 2 * f.error for f in found) >= 36
    assert min(f.error for f in found) > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_eigenvalue_lies_within_the_error_of_lanczos(dtype):
    """In float32 the residual alone is too small by the rounding of the products."""
    for name in ("chain", "residual") if dtype == torch.float32 else ("chain",):
        case = make(name)
        truth = torch.linalg.eigvalsh(rc.CurvatureOperator(case.dag, case.x, case.y).dense())
        dag = case.dag if dtype == torch.float64 else case.dag.to(dtype)
        operator = rc.CurvatureOperator(dag, case.x.to(dtype), case.y)
        for steps in (1, 5, 40):
            for seed in range(3):
                found = rc.lanczos_extremes(operator, None, steps, seeded(seed))
                for end in (found.largest, found.smallest):
                    assert float((truth - end.value).abs().min()) <= end.error, (name, steps, seed)


class DenseGroups:
    """A matrix over groups of parameters as an operator."""

    def __init__(self, matrix, operator):
        self.matrix, self.groups, self.sizes, self.products = (
            matrix,
            operator.groups,
            operator.sizes,
            0,
        )

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
    operator = rc.ParameterOperator(
        nn.Sequential(*layers).double(), nn.CrossEntropyLoss(), data, part=part
    )
    matrix = operator.dense()
    inside = sum(float(matrix[s, s].square().sum()) for s in operator.groups.values())
    truth = 1 - inside / float(matrix.square().sum())
    for probes, repeats in ((4, 150), (30, 60)):
        dense = DenseGroups(matrix, operator)
        found = [rc.discarded_coupling(dense, probes, generator=seeded(s)) for s in range(repeats)]
        assert all(0 <= f.low <= f.value <= f.high < 1 for f in found)
        covered = sum(f.low <= truth <= f.high for f in found) / repeats
        assert 0.90 <= covered <= 0.995, (probes, covered)


def test_a_matrix_in_place_of_an_operator_is_answered_in_one_line():
    pairs = [("a", "a")]
    for measure in (
        rc.frobenius_norms,
        rc.spectral_norms,
        rc.stable_ranks,
        rc.couplings,
        rc.lanczos_extremes,
    ):
        with pytest.raises(
            ValueError, match="expected a CurvatureOperator or ParameterOperator, found Tensor"
        ):
            measure(torch.eye(3), pairs)
    with pytest.raises(ValueError, match='expected a ParameterOperator with part="hessian"'):
        rc.group_metrics(torch.eye(3))
