"""Matrix-free blocks against the exact ones: products, adjoints, dense, every part, every graph."""

import pytest
import torch

from runner.curvature import CurvatureOperator, split_blocks
from tests.curvature.cases import ALL, make

PARTS = ("total", "gauss_newton", "tensor")


@pytest.mark.parametrize(("graph", "activation"), ALL)
def test_dense_blocks_are_the_exact_ones(graph, activation):
    case = make(graph, activation)
    split = split_blocks(case.dag, case.x, case.y)
    scale = max(float(block.abs().max()) for block in split.total.values())
    for part in PARTS:
        operator = CurvatureOperator(case.dag, case.x, case.y, part=part)
        for (v, w), block in getattr(split, part).items():
            found = operator.block(v, w)
            assert found.shape == tuple(block.shape)
            assert float((found.dense() - block).abs().max()) < 1e-11 * scale


@pytest.mark.parametrize("part", PARTS)
def test_one_pass_gives_every_node_and_mixes_directions(part):
    case = make("nested_branches")
    exact = getattr(split_blocks(case.dag, case.x, case.y), part)
    operator = CurvatureOperator(case.dag, case.x, case.y, part=part)
    directions = {w: torch.randn(4, operator.sizes[w], dtype=torch.float64) for w in ("s", "am", "out")}
    found = operator.apply(directions)
    for v in case.nodes:
        expected = sum(r @ exact[v, w].mT for w, r in directions.items())
        assert torch.allclose(found[v], expected, rtol=0, atol=1e-10)
    assert operator.products == 4


def test_a_small_memory_budget_gives_the_same_products():
    case = make("attention")
    whole = CurvatureOperator(case.dag, case.x, case.y)
    cut = CurvatureOperator(case.dag, case.x, case.y, memory_budget=1)
    assert cut.simultaneous == 1 < whole.simultaneous
    r = {"q": torch.randn(3, 6, dtype=torch.float64)}
    a, b = whole.apply(r), cut.apply(r)
    assert all(torch.allclose(a[v], b[v], rtol=0, atol=1e-13) for v in a)


def test_the_input_can_be_a_node():
    case = make("chain")
    nodes = ["input", "b"]
    exact = split_blocks(case.dag, case.x, case.y, nodes).total["input", "b"]
    assert torch.allclose(
        CurvatureOperator(case.dag, case.x, case.y, nodes).block("input", "b").dense(), exact, atol=1e-14
    )


def test_mistakes_are_refused():
    case = make("chain")
    with pytest.raises(ValueError, match="part"):
        CurvatureOperator(case.dag, case.x, case.y, part="half")
    operator = CurvatureOperator(case.dag, case.x, case.y, ["a", "b"])
    with pytest.raises(ValueError, match="needs an operator with part"):
        operator.apply_parts({"a": torch.ones(2, 4, dtype=torch.float64)})
