"""The user's model around a measurement: left as it was, guarded, the same in every gradient mode,
and not changed."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import runner.curvature as rc
from runner.curvature import LayerOperator, ParameterOperator
from runner.curvature.graphs import block_metrics as metrics
from tests.curvature.cases import X, Y, between, mlp, node_operator, scaled
from tests.curvature.module_cases import classes
from tests.draws import normal, seeded
from tests.errors import refusal


class Counting(nn.Module):
    """Counts its calls in a buffer and in a number, and keeps its last input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))
        self.layer, self.calls = nn.Linear(5, 5).double(), 0

    def forward(self, h):
        self.seen += 1
        self.calls += 1
        self.last = h
        return torch.tanh(self.layer(h)) * h


def norms(blocks):
    return [float(block.norm()) for block in blocks.values()]


def product(dag, x):
    return float(node_operator(dag, x, Y).block("h", "out").dense().norm())


def interaction(dag, x):
    return rc.graph_metrics(dag, x, Y, generator=seeded())["h", "out"].R.value


MEASURED = {
    "exact_blocks": lambda dag, x: norms(rc.exact_blocks(dag, x, Y)),
    "split_blocks": lambda dag, x: norms(rc.split_blocks(dag, x, Y).tensor),
    "node_operator": product,
    "graph_metrics": interaction,
    "block_jacobians": lambda dag, x: norms(metrics.block_jacobians(dag, x)),
    "gauss_newton_factors": lambda dag, x: norms(metrics.gauss_newton_factors(dag, x, Y)),
}


@pytest.mark.parametrize("name", MEASURED)
def test_every_measurement_is_the_same_in_every_gradient_mode_and_keeps_buffers(name):
    module = Counting()
    dag = between(module)
    expected = MEASURED[name](dag, X)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert MEASURED[name](dag, X.clone()) == pytest.approx(expected, rel=1e-10)
    assert float(module.seen) == 0  # what it keeps in attributes is the user's


@pytest.mark.parametrize("name", sorted({*MEASURED} - {"node_operator"}))
def test_every_measurement_of_a_graph_is_guarded_and_leaves_the_model_as_it_was(name):
    measured, plain = MEASURED[name], between(torch.tanh)
    norm, mean = nn.BatchNorm1d(5).double(), torch.zeros(5, dtype=torch.float64)
    norm.weight.requires_grad_(False)
    for refused in (
        norm,
        lambda t: norm(t),
        lambda t: t.cumsum(0).sin(),
        lambda t: F.dropout(t, 0.5),
        lambda t: F.batch_norm(t, mean, torch.ones_like(mean), training=True),
    ):
        dag, state = between(refused), torch.get_rng_state()
        with refusal("'a'"):
            measured(dag, X)
        assert torch.equal(torch.get_rng_state(), state)
    with refusal("not finite"):
        measured(plain, X / 0)
    with refusal("expected a tensor for x"):
        measured(plain, X.tolist())
    with torch.autocast("cpu", dtype=torch.bfloat16), refusal("autocast"):
        measured(plain, X)
    assert not norm.running_mean.any() and int(norm.num_batches_tracked) == 0
    assert norm.training and not norm.weight.requires_grad and norm.bias.requires_grad


def test_parameters_are_measured_alike_in_inference_mode():
    dag, operator = rc.Dag.from_sequential(mlp()), ParameterOperator(mlp(), "cross_entropy", (X, Y))

    def interactions():
        return [m.R.value for m in rc.inter_layer_metrics(operator).values()]

    expected = interactions()
    with torch.inference_mode():
        assert interactions() == pytest.approx(expected)
        assert rc.verify(operator, generator=seeded()).ok
        assert rc.verify(dag, X, Y, generator=seeded()).ok


class Restless(nn.Module):
    """Changes buffers in place, and draws or counts its calls where it is told to."""

    def __init__(self, how):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.embed, self.head, self.how, self.calls = nn.Embedding(7, 4), nn.Linear(4, 2), how, 0

    def forward(self, t):
        self.calls += 1
        self.seen += len(t)
        h = torch.tanh(self.embed(t).mean(1))
        noise = torch.rand(()) if self.how == "random" else 0
        return self.head(h) * (1 + self.calls * (self.how == "state")) + noise * h[:, :2]


@pytest.mark.parametrize("kind", [LayerOperator, ParameterOperator])
@pytest.mark.parametrize("how", ["", "random", "state", "name"])
def test_measuring_leaves_the_module_as_it_was(how, kind):
    module = Restless(how).double()
    module.head.bias.requires_grad_(False)
    weights, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    data, layers = (classes(8, 7).view(4, 2), classes(4, 2)), ["embed", "head"]
    if how:
        with refusal("draws at random|from one call to the next|nearest|no parameter|differ"):
            kind(module, "cross_entropy", data, ["hed"] if how == "name" else layers)
    else:
        operator = kind(module, "cross_entropy", data)
        operator.dense()
        assert rc.verify(operator, generator=seeded()).ok
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(module.state_dict()[k], v) for k, v in weights.items())
    assert not any(m._forward_hooks for m in module.modules())
    assert all(p.grad is None for p in module.parameters())
    assert not module.head.bias.requires_grad and module.head.weight.requires_grad
    assert module.training


# ---------------------------------------------------------------- weights changed under an operator


def load(net):
    net.load_state_dict({k: 0.8 * v for k, v in net.state_dict().items()})


def step(net):
    optimiser = torch.optim.SGD(net.parameters(), 0.5)
    F.cross_entropy(net(X), Y).backward()
    optimiser.step()


def replace_data(net):
    net[0].weight.data = 0.8 * net[0].weight.data


def permute(net):
    net[0].weight.data = net[0].weight.data.flip(0)


def replace_parameter(net):
    net[0].weight = nn.Parameter(0.8 * net[0].weight.detach())


def scale_in_place(net):
    net[0].weight.data.mul_(0.8)


def permute_in_place(net):
    net[0].weight.data.copy_(net[0].weight.data.flip(0))


CHEAP = (load, step, replace_data, permute, replace_parameter)
"""What every product can tell; nothing cheap tells of changes in place on data."""


@pytest.mark.parametrize("change", [*CHEAP, scale_in_place, permute_in_place])
@pytest.mark.parametrize("used", [False, True])
def test_an_operator_refuses_other_weights(change, used):
    net = mlp()
    between = node_operator(rc.Dag.from_sequential(net), X, Y)
    inside = ParameterOperator(net, "cross_entropy", (X, Y))
    if used:
        assert bool(between.block("0", "0").dense().any())
        assert bool((inside @ torch.ones(inside.shape[0])).any())
    change(net)
    for operator in (between, inside):
        with refusal("the loss has changed since this operator was built"):
            rc.trace_estimate(operator)
        if change in CHEAP:
            with refusal("the loss has changed"):
                operator @ torch.ones(operator.shape[0])


def test_an_operator_refuses_other_weights_in_a_closure():
    w = normal(5, 5)
    operator = node_operator(between(lambda t: torch.tanh(t @ w)), X, Y)
    operator.block("h", "h").dense()
    w.mul_(2)
    with refusal("has changed"):
        rc.trace_estimate(operator)


def test_an_operator_refuses_other_data():
    x = X.clone()
    operator = node_operator(between(torch.tanh), x, Y)
    x += 1
    with refusal("the loss has changed"):
        operator.block("h", "h").dense()


def test_an_operator_refuses_another_function():
    module = scaled().double()
    operator = node_operator(between(module), X, Y)
    module.scale = 2.0
    with refusal("has changed"):
        operator.dense()
