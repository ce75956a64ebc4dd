"""Graphs: malformed ones are refused with a reason, well-formed ones are ordered and evaluated."""

import pytest
import torch
from torch import nn

from runner.curvature import Dag, Node, exact_blocks
from tests.curvature.cases import GRAPHS, make
from tests.draws import normal
from tests.errors import refusal


def identity(*inputs):
    return inputs[0]


def graph(*nodes, loss="cross_entropy"):
    return Dag([Node(name, parents, identity) for name, parents in nodes], loss)


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda: graph(("a", ("b",)), ("b", ("a",))), "cycle"),
        (lambda: graph(("a", ("a",))), "cycle"),
        (lambda: graph(("a", ("input",)), ("b", ("c",))), "unknown parents"),
        (lambda: graph(("a", ("input",)), ("a", ("input",))), "named 'a'"),
        (lambda: graph(("a", ("input",)), ("b", ("input",))), "expected one output, found 2"),
        (lambda: graph(("a", ("input",)), ("dead", ("a",)), ("out", ("a",))), "never reach"),
        (lambda: graph(), "at least one node"),
        (lambda: graph(("a", ("input",)), loss="hinge"), "loss"),
        (lambda: Node("a", (), identity), "no parents"),
        (lambda: Node("input", ("a",), identity), "'input'"),
        (lambda: Node("a", ("input",), 3), "callable"),
        (lambda: Dag.from_sequential(nn.Sequential(nn.Tanh(), nn.Tanh()), names=["a"]), "names"),
        (lambda: Dag.from_sequential(nn.Linear(2, 2)), "expected an nn.Sequential.*found Linear"),
        (lambda: make("diamond_cat").dag.select(["stem", "nowhere"]), "unknown nodes"),
        (lambda: make("diamond_cat").dag.select([]), "empty"),
        (lambda: make("diamond_sum").dag.distance("a1", "nowhere"), "unknown"),
    ],
)
def test_mistakes_are_refused(made, message):
    with refusal(message):
        made()


@pytest.mark.parametrize("graph", GRAPHS)
def test_order_is_topological_and_ends_at_the_output(graph):
    dag = make(graph).dag
    seen = {"input"}
    for name in dag.order:
        assert seen.issuperset(dag.nodes[name].parents)
        seen.add(name)
    assert dag.order[-1] == dag.output
    assert not dag.children[dag.output]


def test_selection_is_ordered_and_a_single_name_is_one_parent():
    dag = make("diamond_cat").dag
    assert dag.select(["merge", "stem"]) == ("stem", "merge")
    assert dag.select(["stem", "input"]) == ("input", "stem")
    assert Node("a", "input", identity).parents == ("input",)


def test_distance_is_the_shortest_undirected_path():
    dag = make("diamond_sum").dag
    distances = {("a1", "b1"): 2, ("a0", "b0"): 2, ("a1", "b0"): 3, ("stem", "stem"): 0}
    assert {pair: dag.distance(*pair) for pair in distances} == distances
    assert make("attention").dag.distance("q", "k") == 2, (
        "through attend, or else through the input"
    )


def test_from_sequential_on_an_unmodified_network():
    net = nn.Sequential(
        nn.Linear(5, 4), nn.LayerNorm(4), nn.SiLU(), nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 3)
    ).double()
    x, y = normal(2, 5), torch.tensor([0, 2])
    single = Dag.from_sequential(net)
    assert single.order == ("0", "1", "2", "3", "4", "5")
    assert torch.equal(single.forward(x)["5"], net(x))
    grouped = Dag.from_sequential([net[:3], net[3:5], net[5]], names=["first", "second", "head"])
    assert grouped.order == ("first", "second", "head")
    fine, coarse = (
        exact_blocks(single, x, y, ["2", "4"]),
        exact_blocks(grouped, x, y, ["first", "second"]),
    )
    assert torch.allclose(fine["2", "4"], coarse["first", "second"], rtol=1e-12, atol=1e-15)
    for modules in (nn.ModuleList([nn.Linear(2, 2), nn.Tanh()]), [torch.tanh, torch.sigmoid]):
        assert Dag.from_sequential(modules, loss="mse").order == ("0", "1")


def test_conversion_keeps_weights_shared_and_the_original_untouched():
    case = make("shared_weights")
    single = case.dag.to(torch.float32)
    assert single.nodes["s1"].fn is single.nodes["s3"].fn
    assert next(single.nodes["s1"].fn.parameters()).dtype == torch.float32
    assert next(case.dag.nodes["s1"].fn.parameters()).dtype == torch.float64
