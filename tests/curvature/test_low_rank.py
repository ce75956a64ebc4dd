"""Low-rank factors: exact errors, bounds, recursive updates, Gauss-Newton factors of all pairs."""

import pytest
import torch

from runner.curvature import (
    assemble,
    block_jacobians,
    exact_blocks,
    gauss_newton_blocks,
    gauss_newton_factors,
    inter_layer_metrics,
    pull_back,
    rank_for_accuracy,
    truncate,
    truncation_bound,
)
from runner.curvature.metrics.low_rank import LowRank
from tests.curvature.cases import ALL, make, relative_error


@pytest.mark.parametrize(("graph", "activation"), ALL[:6])
def test_truncation_error_and_its_bound(graph, activation):
    """Theorem 93: the error is that of the best approximation and at most sqrt(d_min - r) sigma_{r+1}."""
    case = make(graph, activation)
    for block in exact_blocks(case.dag, case.x, case.y).values():
        values = torch.linalg.svdvals(block)
        for rank in range(len(values) + 2):
            low, error = truncate(block, rank)
            assert low.rank == min(rank, len(values))
            assert float(torch.linalg.matrix_norm(low.dense() - block)) == pytest.approx(error, abs=1e-13)
            assert error <= truncation_bound(values, rank) * (1 + 1e-12) + 1e-15
    assert truncation_bound(values, len(values)) == 0
    with pytest.raises(ValueError, match="at least 0"):
        truncate(block, -1)


def test_rank_for_accuracy_is_the_smallest_that_the_bound_allows():
    values = torch.tensor([1.0, 0.1, 0.01, 0.0], dtype=torch.float64)
    assert rank_for_accuracy(values, 0.2) == 1
    assert rank_for_accuracy(values, 0.1) == 2
    assert rank_for_accuracy(values, 1e-9) == 3
    assert rank_for_accuracy(values, 10.0) == 0
    for epsilon in (0.5, 0.15, 0.02):
        k = rank_for_accuracy(values, epsilon)
        assert truncate(torch.diag(values), k)[1] <= epsilon


def test_recursive_update_is_exact_at_full_rank():
    """Proposition 92 for a node with two children: sum over pairs of children of D^T H D."""
    case = make("diamond_cat")
    blocks = gauss_newton_blocks(case.dag, case.x, case.y, per_example=True)
    jacobians = block_jacobians(case.dag, case.x)
    children = ("a0", "b0")
    factors = {(u, w): truncate(blocks[u, w][0], 3)[0] for u in children for w in children}
    down = {u: jacobians[u, "stem"][0] for u in children}
    found = pull_back(factors, down, down, rank=4)
    assert torch.allclose(found.dense(), blocks["stem", "stem"][0], atol=1e-12)
    cut = pull_back(factors, down, down, rank=1)
    assert cut.rank == 1
    _, error = truncate(blocks["stem", "stem"][0], 1)
    assert float(torch.linalg.matrix_norm(cut.dense() - blocks["stem", "stem"][0])) == pytest.approx(error)


def test_numbers_stored():
    low = LowRank(torch.zeros(5, 2), torch.zeros(2), torch.zeros(7, 2))
    assert low.numbers == 26


@pytest.mark.parametrize("graph", ["chain_layer_norm", "skip", "attention", "shared_weights"])
def test_gauss_newton_factors_are_exact(graph):
    case = make(graph)
    found = gauss_newton_factors(case.dag, case.x, case.y)
    assert found.error == 0
    assert relative_error(found.blocks(), gauss_newton_blocks(case.dag, case.x, case.y)) < 1e-12


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_truncated_gauss_newton_factors(rank):
    case = make("diamond_sum")
    exact = assemble(gauss_newton_blocks(case.dag, case.x, case.y), case.nodes)
    found = gauss_newton_factors(case.dag, case.x, case.y, rank=rank)
    matrix = assemble(found.blocks(), case.nodes)
    assert float(torch.linalg.matrix_norm(matrix - exact)) == pytest.approx(found.error)
    assert int(torch.linalg.matrix_rank(matrix, rtol=1e-10)) <= rank
    eigenvalues = torch.linalg.eigvalsh(exact)
    assert found.error == pytest.approx(float(eigenvalues[: len(exact) - rank].norm()))


def test_a_loss_that_is_not_convex_has_no_factors():
    case = make("nested_branches", seed=2)
    with pytest.raises(ValueError, match="not convex"):
        gauss_newton_factors(case.dag, case.x, case.y)


@pytest.mark.parametrize("rank", [None, 5])
def test_factors_and_metrics_in_bfloat16(rank):
    """torch.linalg has no bfloat16: the loss Hessian is decomposed in float32."""
    case = make("chain")
    narrow, x = case.dag.to(torch.bfloat16), case.x.bfloat16()
    exact = gauss_newton_factors(case.dag, case.x, case.y, rank=rank)
    found = gauss_newton_factors(narrow, x, case.y, rank=rank)
    assert next(iter(found.factors.values())).dtype == torch.bfloat16
    assert relative_error({k: b.double() for k, b in found.blocks().items()}, exact.blocks()) < 0.05
    pair = (case.nodes[0], case.nodes[0])
    wide, low = (inter_layer_metrics(d, z, case.y, pairs=[pair])[pair] for d, z in ((case.dag, case.x), (narrow, x)))
    assert low.R.value == pytest.approx(wide.R.value, rel=0.05, abs=3 * low.R.error)
