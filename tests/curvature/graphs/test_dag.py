"""Graphs: malformed ones are refused with a reason, well-formed ones are ordered and evaluated."""

import pytest
import torch
from torch import nn

from runner.curvature import Dag, Node
from tests.curvature.cases import GRAPHS, make
from tests.draws import normal
from tests.errors import refusal


def identity(*inputs):
    return inputs[0]


def refused(message, *nodes, loss="cross_entropy"):
    """A graph of nodes "name: parents" is refused."""
    pairs = [node.split(":") for node in nodes]
    with refusal(message):
        Dag([Node(name, tuple(parents.split()), identity) for name, parents in pairs], loss)


def test_malformed_graphs_are_refused():
    refused("cycle", "a: b", "b: a")
    refused("cycle", "a: a")
    refused("unknown parents", "a: input", "b: c")
    refused("named 'a'", "a: input", "a: input")
    refused("expected one output, found 2", "a: input", "b: input")
    refused("never reach", "a: input", "dead: a", "out: a")
    refused("at least one node")
    refused("loss", "a: input", loss="hinge")
    refused("no parents", "a:")
    refused("'input'", "input: a")
    with refusal("callable"):
        Node("a", ("input",), 3)


def test_mistakes_in_names_are_refused():
    dag = make("diamond_cat").dag
    with refusal("names"):
        Dag.from_sequential(nn.Sequential(nn.Tanh(), nn.Tanh()), names=["a"])
    with refusal("expected an nn.Sequential.*found Linear"):
        Dag.from_sequential(nn.Linear(2, 2))
    with refusal("unknown nodes"):
        dag.select(["stem", "nowhere"])
    with refusal("empty"):
        dag.select([])
    with refusal("unknown"):
        dag.distance("stem", "nowhere")


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
    assert dag.distance("a1", "b1") == 2
    assert dag.distance("a0", "b0") == 2
    assert dag.distance("a1", "b0") == 3
    assert dag.distance("stem", "stem") == 0
    # through attend, or else through the input
    assert make("attention").dag.distance("q", "k") == 2


def test_from_sequential_on_an_unmodified_network():
    layers = [nn.Linear(5, 4), nn.LayerNorm(4), nn.SiLU(), nn.Linear(4, 4), nn.SiLU()]
    net = nn.Sequential(*layers, nn.Linear(4, 3)).double()
    x = normal(2, 5)
    single = Dag.from_sequential(net)
    assert single.order == ("0", "1", "2", "3", "4", "5")
    assert torch.equal(single.forward(x)["5"], net(x))
    grouped = Dag.from_sequential([net[:3], net[3:5], net[5]], names=["first", "second", "head"])
    assert grouped.order == ("first", "second", "head")
    assert torch.equal(grouped.forward(x)["head"], net(x))
    for modules in (nn.ModuleList([nn.Linear(2, 2), nn.Tanh()]), [torch.tanh, torch.sigmoid]):
        assert Dag.from_sequential(modules, loss="mse").order == ("0", "1")


def test_conversion_keeps_weights_shared_and_the_original_untouched():
    dag = make("shared_weights").dag
    single = dag.to(torch.float32)
    assert single.nodes["s1"].fn is single.nodes["s3"].fn
    assert next(single.nodes["s1"].fn.parameters()).dtype == torch.float32
    assert next(dag.nodes["s1"].fn.parameters()).dtype == torch.float64
