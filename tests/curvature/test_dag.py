"""Graphs: malformed ones are refused with a reason, well-formed ones are ordered and evaluated."""

import pytest
import torch
from torch import nn

from runner.curvature import Dag, Node, exact_blocks
from tests.curvature.cases import GRAPHS, make


def identity(*inputs):
    return inputs[0]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("a", ("b",)), ("b", ("a",))], "cycle"),
        ([("a", ("a",))], "cycle"),
        ([("a", ("input",)), ("b", ("c",))], "unknown parents"),
        ([("a", ("input",)), ("a", ("input",))], "named 'a'"),
        ([("a", ("input",)), ("b", ("input",))], "expected one output, found 2"),
        ([("a", ("input",)), ("dead", ("a",)), ("out", ("a",))], "never reach"),
        ([], "at least one node"),
    ],
)
def test_malformed_graphs_are_refused(nodes, message):
    with pytest.raises(ValueError, match=message):
        Dag([Node(name, parents, identity) for name, parents in nodes])


def test_malformed_nodes_are_refused():
    with pytest.raises(ValueError, match="no parents"):
        Node("a", (), identity)
    with pytest.raises(ValueError, match="'input'"):
        Node("input", ("a",), identity)
    with pytest.raises(ValueError, match="callable"):
        Node("a", ("input",), 3)
    with pytest.raises(ValueError, match="own parameters"):
        Node("a", ("input",), nn.Linear(1, 1), {"w": torch.ones(1)})
    with pytest.raises(ValueError, match="loss"):
        Dag([Node("a", ("input",), identity)], loss="hinge")


def test_a_single_name_is_one_parent():
    assert Node("a", "input", identity).parents == ("input",)


@pytest.mark.parametrize("graph", GRAPHS)
def test_order_is_topological_and_ends_at_the_output(graph):
    dag = make(graph).dag
    seen = {"input"}
    for name in dag.order:
        assert seen.issuperset(dag.nodes[name].parents)
        seen.add(name)
    assert dag.order[-1] == dag.output
    assert not dag.children[dag.output]


def test_selection_is_ordered_and_checked():
    dag = make("diamond_cat").dag
    assert dag.select(["merge", "stem"]) == ("stem", "merge")
    assert dag.select(["stem", "input"]) == ("input", "stem")
    with pytest.raises(ValueError, match="unknown nodes"):
        dag.select(["stem", "nowhere"])
    with pytest.raises(ValueError, match="empty"):
        dag.select([])


def test_distance_is_the_shortest_undirected_path():
    dag = make("diamond_sum").dag
    assert dag.distance("a1", "b1") == 2
    assert dag.distance("a0", "b0") == 2
    assert dag.distance("a1", "b0") == 3
    assert dag.distance("stem", "stem") == 0
    branches = make("attention").dag
    assert branches.distance("q", "k") == 2, "through attend, or else through the input"
    with pytest.raises(ValueError, match="unknown"):
        dag.distance("a1", "nowhere")


def test_perturbations_are_added_to_outputs():
    case = make("skip")
    shift = torch.randn(4, dtype=torch.float64)
    plain = case.dag.forward(case.x)
    shifted = case.dag.forward(case.x, {"a": shift})
    assert torch.equal(shifted["a"], plain["a"] + shift)
    assert not torch.allclose(shifted["out"], plain["out"])


def test_from_sequential_on_an_unmodified_network():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(5, 4), nn.LayerNorm(4), nn.SiLU(), nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 3)
    ).double()
    x, y = torch.randn(2, 5, dtype=torch.float64), torch.tensor([0, 2])
    single = Dag.from_sequential(net)
    assert single.order == ("0", "1", "2", "3", "4", "5")
    assert torch.equal(single.forward(x)["5"], net(x))
    grouped = Dag.from_sequential(net, names=["first", "second", "head"], group=[3, 2, 1])
    assert grouped.order == ("first", "second", "head")
    fine, coarse = exact_blocks(single, x, y, ["2", "4"]), exact_blocks(grouped, x, y, ["first", "second"])
    assert torch.allclose(fine["2", "4"], coarse["first", "second"], rtol=1e-12, atol=1e-15)
    with pytest.raises(ValueError, match="adding up to 6"):
        Dag.from_sequential(net, group=[3, 2])
    with pytest.raises(ValueError, match="names"):
        Dag.from_sequential(net, names=["a"])


def test_from_sequential_names_of_a_module_list():
    net = nn.ModuleList([nn.Linear(2, 2), nn.Tanh()])
    assert Dag.from_sequential(net, loss="mse").order == ("0", "1")
    assert Dag.from_sequential([torch.tanh, torch.sigmoid], loss="mse").order == ("0", "1")


def test_conversion_keeps_weights_shared_and_the_original_untouched():
    case = make("shared_weights")
    single = case.dag.to(torch.float32)
    assert single.nodes["s1"].fn is single.nodes["s3"].fn
    assert next(single.nodes["s1"].fn.parameters()).dtype == torch.float32
    assert next(case.dag.nodes["s1"].fn.parameters()).dtype == torch.float64
    shared = torch.ones(2, dtype=torch.float64)
    scaled = Dag(
        [
            Node("a", ("input",), lambda h, w: h * w, {"w": shared}),
            Node("b", ("a",), lambda h, w: h * w, {"w": shared}),
        ],
        loss="mse",
    ).to(torch.float32)
    assert scaled.nodes["a"].params["w"] is scaled.nodes["b"].params["w"]
    assert scaled.nodes["a"].params["w"].dtype == torch.float32


def test_a_node_must_return_one_row_per_example():
    dag = Dag([Node("a", ("input",), lambda h: h.sum(1)), Node("out", ("a",), identity)], loss="mse")
    with pytest.raises(ValueError, match="one row per example"):
        exact_blocks(dag, torch.ones(2, 3), torch.ones(2))
