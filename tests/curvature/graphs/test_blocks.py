"""Exact blocks against dense float64 autodiff of the perturbed network, on every graph of the
table."""

import pytest
import torch

import runner.curvature as rc
from runner.curvature.estimators.factors import OutputFactors, Perturbed, TensorPart
from tests.curvature.cases import ALL, Case, dense_gauss_newton, dense_hessian, make, relative_error
from tests.curvature.oracles import blocks_of
from tests.draws import normal
from tests.errors import refusal


@pytest.mark.parametrize(
    "graph", ["chain_layer_norm", "skip", "nested_branches", "attention", "shared_weights"]
)
def test_any_subset_of_nodes_gives_the_same_blocks(graph):
    case = make(graph)
    full = rc.exact_blocks(*case.given)
    names = case.nodes
    subsets = [
        names[:1],
        names[-1:],
        names[1:2],
        (names[0], names[2]),
        names[1:3],
        (names[0], names[-2]),
        names[1:-1],
    ]
    for subset in subsets:
        found = rc.exact_blocks(*case.given, reversed(subset))
        assert set(found) == {(v, w) for v in subset for w in subset}
        assert relative_error(found, {pair: full[pair] for pair in found}) < 1e-12


@pytest.mark.parametrize("graph", ["chain", "skip", "attention"])
def test_input_is_a_node_like_any_other(graph):
    case = make(graph)
    nodes = ("input", *case.nodes)
    expected = dense_hessian(case, nodes)
    assert relative_error(rc.exact_blocks(*case.given, nodes), expected) < 1e-10
    operator = rc.CurvatureOperator(*case.given, ["input", case.nodes[1]])
    pair = ("input", case.nodes[1])
    assert relative_error({pair: operator.block(*pair).dense()}, {pair: expected[pair]}) < 1e-10


@pytest.mark.parametrize("graph", ["skip", "diamond_cat", "chain_layer_norm"])
def test_per_example_blocks_are_those_of_single_examples(graph):
    case = make(graph)
    each, mean = (rc.split_blocks(*case.given, per_example=p) for p in (True, False))
    for part in PARTS:
        averaged = {pair: block.mean(0) for pair, block in getattr(each, part).items()}
        assert relative_error(averaged, getattr(mean, part)) < 1e-12
    for function in (rc.exact_blocks, rc.gauss_newton_blocks):
        found = function(*case.given, per_example=True)
        for b in range(len(case.x)):
            single = function(case.dag, case.x[b : b + 1], case.y[b : b + 1])
            assert relative_error({pair: block[b] for pair, block in found.items()}, single) < 1e-12


def assert_exact(dag, x, y, nodes=None):
    """Of exact blocks, by default with the input among the nodes."""
    nodes = nodes or ("input", *dag.order)
    assert (
        relative_error(rc.exact_blocks(dag, x, y, nodes), dense_hessian(Case("", dag, x, y), nodes))
        < 1e-10
    )


def test_targets_may_be_probabilities_and_a_repeated_parent_counts_twice():
    case = make("chain")
    assert_exact(case.dag, case.x, torch.softmax(normal(3, 4), 1))
    dag = rc.Dag(
        [rc.Node("a", ("input",), torch.tanh), rc.Node("out", ("a", "a"), lambda a, b: a * b)],
        loss="mse",
    )
    assert_exact(dag, case.x, torch.zeros_like(case.x))


PARTS = ("total", "gauss_newton", "tensor")


@pytest.mark.parametrize("graph, activation", ALL)
def test_blocks_products_and_factors_are_those_of_the_oracles(graph, activation):
    case = make(graph, activation, seed=3)
    nodes, split = case.nodes, rc.split_blocks(*case.given)
    total, gauss_newton = dense_hessian(case, nodes), dense_gauss_newton(case, nodes)
    expected = {
        "total": total,
        "gauss_newton": gauss_newton,
        "tensor": {p: total[p] - gauss_newton[p] for p in total},
    }
    scale = max(float(b.abs().max()) for b in total.values())

    def far(found, part):
        return (
            max(float((found[pair] - block).abs().max()) for pair, block in expected[part].items())
            / scale
        )

    assert set(split.total) == set(total)
    assert far(rc.exact_blocks(*case.given), "total") < 1e-10
    assert far(rc.gauss_newton_blocks(*case.given), "gauss_newton") < 1e-10
    for part in PARTS:
        assert far(getattr(split, part), part) < 1e-10
        operator = rc.CurvatureOperator(*case.given, part=part)
        assert (
            far(blocks_of(operator.dense(), {v: [operator.sizes[v]] for v in operator.nodes}), part)
            < 1e-10
        )
        v, w = nodes[0], nodes[-2]
        assert (
            float((operator.block(v, w).dense() - expected[part][v, w]).abs().max()) < 1e-10 * scale
        )
    assert all(
        torch.equal(split.total[p], split.gauss_newton[p] + block)
        for p, block in split.tensor.items()
    )
    network = Perturbed.of(case.dag, case.x, nodes)
    factors = OutputFactors(network, case.dag.loss.hessian(network.output.detach(), case.y))
    tensor = TensorPart(*case.given, network, 0.0, 1 << 30)
    for w in nodes:
        eye = torch.eye(tensor.sizes[w], dtype=torch.float64)
        smooth, bent = factors.apply({w: eye}), tensor.apply({w: eye})
        for v in nodes:
            newton, rest = factors.scale * smooth[v].mT, tensor.scale * bent[v].mT
            assert float((newton - gauss_newton[v, w]).abs().max()) <= 1e-11 * scale
            assert float((newton + rest - total[v, w]).abs().max()) <= 1e-11 * scale
            square = float(gauss_newton[v, w].square().sum())
            assert factors.scale**2 * factors.square(v, w) == pytest.approx(
                square, rel=1e-9, abs=1e-24 * scale**2
            )


@pytest.mark.parametrize("graph", ["chain", "diamond_cat", "convolution"])
def test_tensor_part_of_piecewise_linear_networks_is_exactly_zero(graph):
    case = make(graph, "relu")
    assert all(not block.any() for block in rc.split_blocks(*case.given).tensor.values())


def test_mistakes_are_refused():
    case = make("chain")
    with refusal("part"):
        rc.CurvatureOperator(*case.given, part="half")
    operator = rc.CurvatureOperator(*case.given, ["a", "b"])
    with refusal("needs an operator with part"):
        operator.apply_parts({"a": torch.ones(2, 4, dtype=torch.float64)})
