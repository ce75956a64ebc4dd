"""Parametric blocks against dense autodiff in the parameters, with and without weight sharing."""

import copy

import pytest
import torch
from torch import nn

from runner.curvature import Dag, Node, ParameterOperator, parameter_hessian, parametric_blocks, parametric_terms
from tests.curvature.cases import make
from tests.curvature.oracles import flat_function

MODULE_GRAPHS = ["chain", "chain_layer_norm", "residual", "diamond_cat", "shared_weights", "attention"]


class Network(nn.Module):
    """The mean loss of all module nodes as one network; `copies` gives every node parameters of its own."""

    def __init__(self, case, copies: bool):
        super().__init__()
        self.case = case
        fns = {name: node.fn for name, node in case.dag.nodes.items() if isinstance(node.fn, nn.Module)}
        self.fns = nn.ModuleDict({name: copy.deepcopy(fn) if copies else fn for name, fn in fns.items()})

    def forward(self, x, y):
        dag, values = self.case.dag, {"input": x}
        for name in dag.order:
            fn = self.fns[name] if name in self.fns else dag.nodes[name].fn
            values[name] = fn(*(values[p] for p in dag.nodes[name].parents))
        return dag.loss.per_example(values[dag.output], y).mean()


def dense(case, copies: bool):
    """Hessian of the mean loss in all parameters, and their sizes by name."""
    network = Network(case, copies)
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    loss, flat = flat_function(network, (case.x, case.y), sizes)
    return torch.autograd.functional.hessian(loss, flat), {k.removeprefix("fns."): n for k, n in sizes.items()}


CASES = [*((graph, "smooth") for graph in MODULE_GRAPHS), ("chain_layer_norm", "relu")]


@pytest.mark.parametrize(("graph", "activation"), CASES)
def test_blocks_of_node_parameters(graph, activation):
    case = make(graph, activation)
    expected, sizes = dense(case, copies=True)
    found = parametric_blocks(case.dag, case.x, case.y)
    spans, start = {}, 0
    for name, size in sizes.items():
        spans.setdefault(name.split(".")[0], []).append(torch.arange(start, start + size))
        start += size
    rows = {v: torch.cat(r) for v, r in spans.items()}
    assert {v for v, _ in found} == set(rows)
    last = list(rows)[-1]
    (part,) = parametric_blocks(case.dag, case.x, case.y, [last]).values()
    assert torch.allclose(part, found[last, last], atol=1e-15)
    scale = float(expected.abs().max())
    for (v, w), found_block in found.items():
        difference = found_block - expected[rows[v]][:, rows[w]]
        assert float(difference.abs().max()) < 1e-10 * scale


@pytest.mark.parametrize("graph", ["chain", "diamond_cat", "shared_weights", "attention"])
def test_hessian_in_all_distinct_parameters(graph):
    case = make(graph)
    expected, sizes = dense(case, copies=False)
    found = parameter_hessian(case.dag, case.x, case.y)
    order = torch.cat([torch.arange(found.spans[name].start, found.spans[name].stop) for name in sizes])
    assert len(order) == sum(sizes.values()) == len(found.matrix)
    difference = found.matrix[order][:, order] - expected
    assert float(difference.abs().max()) < 1e-10 * float(expected.abs().max())
    if graph == "shared_weights":  # the cell of three nodes appears once
        assert [name for name in found.spans if name.startswith("s")] == ["s1.0.weight", "s1.0.bias"]


def test_parameters_of_plain_functions():
    torch.manual_seed(0)
    weight = torch.randn(3, 3, dtype=torch.float64)
    x, y = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)

    def layer(h, w):
        return torch.tanh(h @ w)

    dag = Dag([Node("a", ("input",), layer, {"w": weight}), Node("b", ("a",), layer, {"w": weight})], loss="mse")
    expected = torch.autograd.functional.hessian(
        lambda flat: (layer(layer(x, flat.view(3, 3)), flat.view(3, 3)) - y).square().mean(1).mean(), weight.flatten()
    )
    found = parameter_hessian(dag, x, y)
    assert list(found.spans) == ["a.w"]
    assert torch.allclose(found.matrix, expected, atol=1e-12)


def test_a_parameter_that_is_not_used_has_zero_rows():
    weight, idle = torch.ones(3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    dag = Dag([Node("a", ("input",), lambda h, w, idle: torch.sin(h * w), {"w": weight, "idle": idle})], loss="mse")
    x = torch.randn(2, 3, dtype=torch.float64)
    matrix = parameter_hessian(dag, x, torch.zeros_like(x)).matrix
    assert matrix.shape == (5, 5) and not matrix[3:].any() and matrix[:3, :3].any()


def test_terms_have_their_places():
    case = make("chain")
    terms = parametric_terms(case.dag, case.x, case.y)
    assert terms["b", "b"].own.abs().max() > 0 and not terms["a", "b"].own.any()
    assert not terms["a", "c"].below.any() and terms["a", "c"].above.any(), "a lies above c"
    assert terms["c", "a"].below.any() and not terms["c", "a"].above.any()
    assert not terms["b", "b"].below.any()


def test_piecewise_linear_networks_keep_the_mixed_terms():
    """Remark 16: H[theta_v, theta_w] is not its Gauss-Newton part although the inter-layer tensor part is zero."""
    case = make("chain", "relu")
    terms = parametric_terms(case.dag, case.x, case.y)
    assert terms["a", "b"].above.abs().max() > 1e-3 * terms["a", "b"].routed.abs().max()
    assert not terms["a", "a"].own.any()


def test_nodes_without_parameters_are_refused():
    case = make("skip")
    with pytest.raises(ValueError, match=r"\['d', 'out'\] have no parameters"):
        parametric_blocks(case.dag, case.x, case.y, ["a", "d", "out"])
    with pytest.raises(ValueError, match="no node has parameters"):
        parametric_blocks(Dag([Node("a", ("input",), torch.tanh)], loss="mse"), case.x, case.x)


class Scaling(nn.Module):
    """Scales its input in place."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(1, 2, 3))

    def forward(self, x):
        return x.mul_(self.scale)


@pytest.mark.parametrize("first", [nn.Embedding(5, 3), Scaling()])
def test_a_first_node_of_indices_or_one_that_works_in_place(first):
    torch.manual_seed(0)
    net = nn.Sequential(first, nn.Tanh(), nn.Linear(3, 2)).double()
    x = torch.tensor([1, 2, 1, 4]) if isinstance(first, nn.Embedding) else torch.randn(4, 3, dtype=torch.float64)
    y = torch.randn(4, 2, dtype=torch.float64)
    found = parameter_hessian(Dag.from_sequential(net, loss="mse"), x, y)
    assert torch.allclose(found.matrix, ParameterOperator(net, "mse", (x, y)).dense(), atol=1e-12)


def test_a_module_may_stand_twice_in_a_chain():
    act = nn.Tanh()
    dag = Dag.from_sequential(nn.Sequential(nn.Linear(3, 3), act, nn.Linear(3, 2), act), loss="mse")
    assert dag.order == ("0", "1", "2", "3")
