"""H = GN + T: both parts against the oracles, and the structural zeros of T."""

import pytest
import torch

from runner.curvature import exact_blocks, gauss_newton_blocks, split_blocks
from tests.curvature.cases import ALL, dense_gauss_newton, dense_hessian, make, relative_error


@pytest.mark.parametrize(("graph", "activation"), ALL)
def test_parts_are_those_of_the_oracles(graph, activation):
    case = make(graph, activation, seed=3)
    split = split_blocks(case.dag, case.x, case.y)
    total, gauss_newton = dense_hessian(case, case.nodes), dense_gauss_newton(case, case.nodes)
    assert relative_error(split.total, total) < 1e-10
    assert relative_error(split.gauss_newton, gauss_newton) < 1e-10
    scale = max(float(b.abs().max()) for b in total.values())
    for pair, block in split.tensor.items():
        assert float((block - (total[pair] - gauss_newton[pair])).abs().max()) < 1e-10 * scale
        assert torch.equal(split.total[pair], split.gauss_newton[pair] + block)


def test_split_is_what_the_single_functions_return():
    case = make("nested_branches")
    split = split_blocks(case.dag, case.x, case.y)
    for found, expected in (
        (split.total, exact_blocks(case.dag, case.x, case.y)),
        (split.gauss_newton, gauss_newton_blocks(case.dag, case.x, case.y)),
    ):
        assert all(torch.equal(found[pair], expected[pair]) for pair in expected)


@pytest.mark.parametrize("graph", ["chain", "diamond_cat", "convolution"])
def test_tensor_part_of_piecewise_linear_networks_is_exactly_zero(graph):
    case = make(graph, "relu")
    assert all(not block.any() for block in split_blocks(case.dag, case.x, case.y).tensor.values())


def test_tensor_part_vanishes_at_the_last_nonlinear_node_and_not_before():
    case = make("chain")
    tensor = split_blocks(case.dag, case.x, case.y).tensor
    for v in case.nodes:
        assert not tensor[v, "out"].any()
        assert not tensor[v, "c"].any()
    assert tensor["a", "a"].any() and tensor["a", "b"].any() and tensor["b", "b"].any()


@pytest.mark.parametrize("graph", ["residual", "attention", "skip"])
def test_blocks_are_symmetric(graph):
    case = make(graph)
    split = split_blocks(case.dag, case.x, case.y)
    for blocks in (split.total, split.gauss_newton, split.tensor):
        for (v, w), block in blocks.items():
            assert torch.allclose(block, blocks[w, v].mT, rtol=0, atol=1e-14)


def test_per_example_parts_average_to_the_mean():
    case = make("diamond_sum")
    mean, single = (split_blocks(case.dag, case.x, case.y, per_example=p) for p in (False, True))
    for part in ("total", "gauss_newton", "tensor"):
        averaged = {pair: block.mean(0) for pair, block in getattr(single, part).items()}
        assert relative_error(averaged, getattr(mean, part)) < 1e-12
