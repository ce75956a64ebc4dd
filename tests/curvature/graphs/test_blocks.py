"""Exact blocks against dense float64 autodiff of the perturbed network, on every graph of the
table."""

import pytest
import torch

import runner.curvature as rc
from tests.curvature.cases import (
    ALL,
    Case,
    dense_gauss_newton,
    dense_hessian,
    make,
    node_operator,
    relative_error,
)
from tests.draws import normal

PARTS = ("total", "gauss_newton", "tensor")


@pytest.mark.parametrize(
    "graph", ["chain_layer_norm", "skip", "nested_branches", "attention", "shared_weights"]
)
def test_any_subset_of_nodes_gives_the_same_blocks(graph):
    case = make(graph)
    full, names = rc.exact_blocks(*case.given), case.nodes
    subsets = [names[:1], names[-1:], names[1:2], names[1:3], names[1:-1]]
    for subset in (*subsets, (names[0], names[2]), (names[0], names[-2])):
        found = rc.exact_blocks(*case.given, reversed(subset))
        assert set(found) == {(v, w) for v in subset for w in subset}
        assert relative_error(found, {pair: full[pair] for pair in found}) < 1e-12


@pytest.mark.parametrize("graph", ["chain", "skip", "attention"])
def test_input_is_a_node_like_any_other(graph):
    case = make(graph)
    nodes, pair = ("input", *case.nodes), ("input", case.nodes[1])
    expected = dense_hessian(case, nodes)
    assert relative_error(rc.exact_blocks(*case.given, nodes), expected) < 1e-10
    found = node_operator(*case.given, pair).block(*pair).dense()
    assert relative_error({pair: found}, {pair: expected[pair]}) < 1e-10


@pytest.mark.parametrize("graph", ["skip", "diamond_cat", "chain_layer_norm"])
def test_per_example_blocks_are_those_of_single_examples(graph):
    case = make(graph)
    each, mean = (rc.split_blocks(*case.given, per_example=p) for p in (True, False))
    for part in PARTS:
        averaged = {pair: block.mean(0) for pair, block in getattr(each, part).items()}
        assert relative_error(averaged, getattr(mean, part)) < 1e-12
    for function in (rc.exact_blocks, rc.gauss_newton_blocks):
        found = function(*case.given, per_example=True)
        for b, (x, y) in enumerate(zip(case.x.split(1), case.y.split(1), strict=True)):
            single = function(case.dag, x, y)
            assert relative_error({pair: block[b] for pair, block in found.items()}, single) < 1e-12


def assert_exact(dag, x, y):
    nodes = ("input", *dag.order)
    expected = dense_hessian(Case("", dag, x, y), nodes)
    assert relative_error(rc.exact_blocks(dag, x, y, nodes), expected) < 1e-10


def test_targets_may_be_probabilities():
    case = make("chain")
    assert_exact(case.dag, case.x, torch.softmax(normal(3, 4), 1))


def test_a_repeated_parent_counts_twice():
    square = rc.Node("out", ("a", "a"), lambda a, b: a * b)
    dag = rc.Dag([rc.Node("a", ("input",), torch.tanh), square], loss="mse")
    assert_exact(dag, normal(3, 5), torch.zeros(3, 5).double())


class Reference:
    """Dense blocks of every part by the oracles."""

    def __init__(self, case):
        total, newton = dense_hessian(case, case.nodes), dense_gauss_newton(case, case.nodes)
        rest = {pair: block - newton[pair] for pair, block in total.items()}
        self.parts = {"total": total, "gauss_newton": newton, "tensor": rest}
        self.scale = max(float(b.abs().max()) for b in total.values())

    def far(self, found, part, pair):
        """Of one block, relative to the largest entry of the Hessian."""
        return float((found - self.parts[part][pair]).abs().max()) / self.scale

    def furthest(self, found, part):
        return max(self.far(found[pair], part, pair) for pair in self.parts[part])


@pytest.mark.parametrize("graph, activation", ALL)
def test_blocks_and_products_are_those_of_the_oracles(graph, activation):
    case = make(graph, activation, seed=3)
    reference, split = Reference(case), rc.split_blocks(*case.given)
    assert set(split.total) == set(reference.parts["total"])
    assert reference.furthest(rc.exact_blocks(*case.given), "total") < 1e-10
    assert reference.furthest(rc.gauss_newton_blocks(*case.given), "gauss_newton") < 1e-10
    for part in PARTS:
        assert reference.furthest(getattr(split, part), part) < 1e-10
    operator = node_operator(*case.given)
    for part, found in (("total", operator), ("gauss_newton", operator.with_part("gauss_newton"))):
        assert reference.furthest(found.blocks(), part) < 1e-10
        pair = case.nodes[0], case.nodes[-2]
        assert reference.far(found.block(*pair).dense(), part, pair) < 1e-10
    for pair, block in split.tensor.items():
        assert torch.equal(split.total[pair], split.gauss_newton[pair] + block)


@pytest.mark.parametrize("graph", ["chain", "diamond_cat", "convolution"])
def test_tensor_part_of_piecewise_linear_networks_is_exactly_zero(graph):
    case = make(graph, "relu")
    assert all(not block.any() for block in rc.split_blocks(*case.given).tensor.values())
