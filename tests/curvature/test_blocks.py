"""Exact blocks against dense float64 autodiff of the perturbed network, on every graph of the table."""

import pytest
import torch
from torch import nn

from runner.curvature import (
    Composition,
    CurvatureOperator,
    Dag,
    Node,
    Residual,
    exact_blocks,
    gauss_newton_blocks,
    path_decomposition,
    paths,
    split_blocks,
)
from runner.curvature.exact.derivatives import evaluate
from tests.curvature.cases import ALL, Case, dense_gauss_newton, dense_hessian, make, relative_error


@pytest.mark.parametrize("graph", ["chain_layer_norm", "skip", "nested_branches", "attention", "shared_weights"])
def test_any_subset_of_nodes_gives_the_same_blocks(graph):
    case = make(graph)
    full = exact_blocks(case.dag, case.x, case.y)
    names = case.nodes
    subsets = [names[:1], names[-1:], names[1:2], (names[0], names[2]), names[1:3], (names[0], names[-2]), names[1:-1]]
    for subset in subsets:
        found = exact_blocks(case.dag, case.x, case.y, reversed(subset))
        assert set(found) == {(v, w) for v in subset for w in subset}
        assert relative_error(found, {pair: full[pair] for pair in found}) < 1e-12


@pytest.mark.parametrize("graph", ["chain", "skip", "attention"])
def test_input_is_a_node_like_any_other(graph):
    case = make(graph)
    nodes = ("input", *case.nodes)
    assert relative_error(exact_blocks(case.dag, case.x, case.y, nodes), dense_hessian(case, nodes)) < 1e-10


@pytest.mark.parametrize("graph", ["skip", "diamond_cat", "chain_layer_norm"])
def test_per_example_blocks_are_those_of_single_examples(graph):
    case = make(graph)
    for function in (exact_blocks, gauss_newton_blocks):
        found = function(case.dag, case.x, case.y, per_example=True)
        for b in range(len(case.x)):
            single = function(case.dag, case.x[b : b + 1], case.y[b : b + 1])
            assert relative_error({pair: block[b] for pair, block in found.items()}, single) < 1e-12


def test_targets_may_be_probabilities():
    case = make("chain")
    y = torch.softmax(torch.randn(3, 4, dtype=torch.float64), 1)
    found = exact_blocks(case.dag, case.x, y)
    assert relative_error(found, dense_hessian(Case("", case.dag, case.x, y), case.nodes)) < 1e-10


def test_a_repeated_parent_counts_twice():
    torch.manual_seed(0)
    dag = Dag([Node("a", ("input",), torch.tanh), Node("out", ("a", "a"), lambda a, b: a * b)], loss="mse")
    x = torch.randn(2, 3, dtype=torch.float64)
    case = Case("", dag, x, torch.zeros_like(x))
    assert relative_error(exact_blocks(dag, x, case.y), dense_hessian(case, dag.order)) < 1e-10


@pytest.mark.parametrize(
    "act",
    [nn.GELU, lambda: nn.GELU("tanh"), nn.Softplus, nn.Tanh, nn.Sigmoid, nn.ELU, nn.Mish, nn.LeakyReLU, nn.Hardtanh],
)
@pytest.mark.parametrize("norm", ["affine", "plain"])
def test_every_recognised_activation(act, norm):
    torch.manual_seed(1)
    body = nn.Sequential(
        nn.Linear(3, 4), nn.LayerNorm(4, elementwise_affine=norm == "affine"), act(), nn.Linear(4, 3), nn.Tanh()
    ).double()
    dag = Dag([Node("a", ("input",), body), Node("b", ("a",), body), Node("out", ("b",), nn.Linear(3, 2).double())])
    x = torch.randn(3, 3, dtype=torch.float64)
    case = Case("", dag, x, torch.tensor([0, 1, 1]))
    assert relative_error(exact_blocks(dag, x, case.y), dense_hessian(case, dag.order)) < 1e-10


BODIES = {
    "activation first": lambda: nn.Sequential(nn.Tanh(), nn.Linear(4, 4), nn.SiLU()),
    "norm first": lambda: nn.Sequential(nn.LayerNorm(4), nn.GELU()),
    "residual in the middle": lambda: nn.Sequential(
        nn.Linear(4, 4),
        Residual(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh()), 0.7),
        nn.Linear(4, 4),
        nn.SiLU(),
    ),
    "residual of a residual": lambda: Residual(
        nn.Sequential(Residual(nn.Sequential(nn.Linear(4, 4), nn.SiLU())), nn.Tanh()), 2.0
    ),
    "functions": lambda: Composition([nn.Linear(4, 4), torch.sin, nn.LayerNorm(4), torch.relu, nn.Identity()]),
    "nothing": lambda: nn.Sequential(),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4, bias=False), nn.Softplus()),
}


@pytest.mark.parametrize("body", BODIES)
def test_recognised_compositions(body):
    torch.manual_seed(2)
    modules = [BODIES[body]().double() for _ in range(3)]
    dag = Dag(
        [
            Node("a", ("input",), modules[0]),
            Node("b", ("a",), modules[1]),
            Node("c", ("b",), modules[2]),
            Node("out", ("c",), nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double()),
        ]
    )
    x, y = torch.randn(2, 4, dtype=torch.float64), torch.tensor([0, 2])
    assert set(evaluate(dag, x).structures) == set(dag.order), "every node is recognised"
    nodes = ("input", *dag.order)
    assert relative_error(exact_blocks(dag, x, y, nodes), dense_hessian(Case("", dag, x, y), nodes)) < 1e-10


def test_hooks_and_overrides_are_not_taken_for_the_plain_module():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x) ** 2

    torch.manual_seed(0)
    hooked = nn.Linear(4, 4).double()
    hooked.register_forward_hook(lambda module, inputs, output: torch.sin(output))
    in_place = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)).double()
    dag = Dag(
        [Node("a", ("input",), Doubled(4, 4).double()), Node("b", ("a",), hooked), Node("out", ("b",), in_place)],
        loss="mse",
    )
    x = torch.randn(2, 4, dtype=torch.float64)
    assert not evaluate(dag, x).structures
    y = torch.zeros_like(x)
    nodes = ("input", *dag.order)
    assert relative_error(exact_blocks(dag, x, y, nodes), dense_hessian(Case("", dag, x, y), nodes)) < 1e-10


@pytest.mark.parametrize(("graph", "activation"), ALL)
def test_parts_are_those_of_the_oracles(graph, activation):
    case = make(graph, activation, seed=3)
    split = split_blocks(case.dag, case.x, case.y)
    total, gauss_newton = dense_hessian(case, case.nodes), dense_gauss_newton(case, case.nodes)
    assert set(split.total) == {(v, w) for v in case.nodes for w in case.nodes}
    for found in (split.total, exact_blocks(case.dag, case.x, case.y)):
        assert relative_error(found, total) < 1e-10
    for found in (split.gauss_newton, gauss_newton_blocks(case.dag, case.x, case.y)):
        assert relative_error(found, gauss_newton) < 1e-10
    scale = max(float(b.abs().max()) for b in total.values())
    for pair, block in split.tensor.items():
        assert float((block - (total[pair] - gauss_newton[pair])).abs().max()) < 1e-10 * scale
        assert torch.equal(split.total[pair], split.gauss_newton[pair] + block)


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


def test_per_example_parts_average_to_the_mean():
    case = make("diamond_sum")
    mean, single = (split_blocks(case.dag, case.x, case.y, per_example=p) for p in (False, True))
    for part in ("total", "gauss_newton", "tensor"):
        averaged = {pair: block.mean(0) for pair, block in getattr(single, part).items()}
        assert relative_error(averaged, getattr(mean, part)) < 1e-12


@pytest.mark.parametrize("graph", ["chain", "skip", "nested_branches", "attention", "shared_weights"])
def test_terms_add_up_to_the_block(graph):
    case = make(graph)
    exact = dense_hessian(case, case.nodes)
    scale = max(float(block.abs().max()) for block in exact.values())
    pairs = [(v, w) for i, v in enumerate(case.nodes) for w in case.nodes[i:]]
    for v, w in pairs:
        terms = path_decomposition(case.dag, case.x, case.y, v, w)
        assert float((sum(t.block for t in terms) - exact[v, w]).abs().max()) < 1e-10 * scale


def test_loss_terms_add_up_to_gauss_newton():
    case = make("nested_branches")
    exact = gauss_newton_blocks(case.dag, case.x, case.y)
    terms = [t for t in path_decomposition(case.dag, case.x, case.y, "s", "a") if t.from_loss]
    assert torch.allclose(sum(t.block for t in terms), exact["s", "a"], atol=1e-12)
    assert len(terms) == len(paths(case.dag, "s", "out")) * len(paths(case.dag, "a", "out"))


def test_paths_of_a_graph():
    dag = make("nested_branches").dag
    assert paths(dag, "a", "m") == [("a", "a1", "am", "m"), ("a", "a2", "am", "m"), ("a", "m")]
    assert paths(dag, "a", "a") == [("a",)]
    assert paths(dag, "m", "a") == []
    assert len(paths(dag, "input", "out")) == 5
    with pytest.raises(ValueError, match="unknown"):
        paths(dag, "a", "nowhere")


def test_resonance_is_subadditive_over_paths():
    """Corollary 67."""
    case = make("skip")
    terms = path_decomposition(case.dag, case.x, case.y, "a", "b")
    total = float(torch.linalg.matrix_norm(sum(t.block for t in terms)))
    assert total <= sum(t.resonance for t in terms)
    assert {t.source for t in terms} >= {"out", "c"} and all(t.path_v[0] == "a" and t.path_w[0] == "b" for t in terms)


def test_too_many_paths_are_refused():
    nodes = [Node("h0", ("input",), torch.tanh)]
    for i in range(12):
        nodes.append(Node(f"s{i}", (f"h{i}",), torch.sin))
        nodes.append(Node(f"h{i + 1}", (f"h{i}", f"s{i}"), lambda a, b: a + b))
    case = make("chain")
    with pytest.raises(ValueError, match="more than max_pairs"):
        path_decomposition(Dag(nodes, loss="mse"), case.x, case.x, "h0", "h0")


# ------------------------------------------------------------------ matrix-free blocks against the exact ones

PARTS = ("total", "gauss_newton", "tensor")


@pytest.mark.parametrize(("graph", "activation"), ALL)
def test_dense_blocks_are_the_exact_ones(graph, activation):
    case = make(graph, activation)
    split = split_blocks(case.dag, case.x, case.y)
    scale = max(float(block.abs().max()) for block in split.total.values())
    for part in PARTS:
        operator, blocks = CurvatureOperator(case.dag, case.x, case.y, part=part), getattr(split, part)
        whole = torch.cat([torch.cat([blocks[v, w] for w in operator.nodes], 1) for v in operator.nodes])
        assert float((operator.dense() - whole).abs().max()) < 1e-11 * scale
        v, w = operator.nodes[0], operator.nodes[-2]
        assert operator.block(v, w).shape == tuple(blocks[v, w].shape)
        assert float((operator.block(v, w).dense() - blocks[v, w]).abs().max()) < 1e-11 * scale


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
