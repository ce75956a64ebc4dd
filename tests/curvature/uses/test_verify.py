"""Certificates: right numbers pass with room, every injected error is caught, and the likely cause
is named."""

import math

import pytest
import torch
from scipy.sparse.linalg import aslinearoperator
from torch import nn

import runner.curvature as rc
from runner.curvature import ParameterOperator
from runner.curvature.basics.adapters import Symmetric
from runner.curvature.function.changes import Changes
from runner.curvature.graphs import derivatives
from runner.curvature.uses.differences import GraphDifferences
from tests.bench.machine import operations
from tests.curvature.cases import (
    MIXING,
    Detached,
    Own,
    Swish,
    X,
    Y,
    between,
    block,
    linear,
    make,
    mlp,
    node_operator,
)
from tests.draws import normal, seeded, tanh_net, trained
from tests.errors import refusal


def right(*given, **more):
    """A certificate without notes."""
    found = rc.verify(*given, **more)
    assert found.ok and not found.reasons, str(found)
    return found


def wrong(reason, *given, **more):
    """A certificate of wrong numbers that gives this reason first."""
    found = rc.verify(*given, **more)
    assert not found.ok and reason in found.reasons[0], str(found)
    return found


GRAPHS = [("nested_branches", "smooth"), ("attention", "smooth"), ("convolution", "relu")]


@pytest.mark.parametrize("graph, activation", GRAPHS)
def test_right_numbers_are_certified(graph, activation):
    case = make(graph, activation, batch=2)
    found = right(*case.given)
    assert set(found.nodes) == set(case.nodes) and found.value < 1e-7


@pytest.mark.parametrize("part, activation", [("gauss_newton", "relu"), ("tensor", "smooth")])
def test_products_of_every_part_are_certified(part, activation):
    assert rc.verify(*make("residual", activation, batch=2).given, part=part).ok


def test_float32_and_weights_hidden_in_closures_are_certified():
    case = make("diamond_cat", batch=2)
    found = rc.verify(case.dag.to(torch.float32), case.x.float(), case.y)
    assert found.ok and found.tolerance == 1e-3 and found.value < 1e-4
    hidden, shift = nn.Linear(5, 5), torch.randn(5)  # widened with the rest
    right(between(lambda t: torch.tanh(hidden(t) + shift), torch.float32), X.float(), Y)
    lstm = nn.LSTM(5, 5, batch_first=True)
    dag = between(lambda t: lstm(t.unsqueeze(1))[0].squeeze(1), torch.float32)
    found = rc.verify(dag, X.float(), Y)
    assert found.ok and found.tolerance == 1e-2 and "no float64 copy" in found.reasons[0]


@pytest.fixture
def inject(monkeypatch):
    """Changes the engine's products."""
    apply = rc.LayerOperator.apply

    def changed_by(change):
        def changed(self, directions):
            own = apply(self, directions)
            return own | change(own)

        monkeypatch.setattr(rc.LayerOperator, "apply", changed)

    return changed_by


def test_wrong_products_are_caught_at_their_node(inject):
    inject(lambda own: {"a": own["a"] * 1.0001})
    found = wrong("'a'", *make("chain").given)
    assert "NOT certified" in str(found)
    assert found.nodes.pop("a") == pytest.approx(1e-4, rel=0.01)
    assert max(found.nodes.values()) < 1e-7


def test_products_of_zero_are_caught(inject):
    inject(lambda own: {v: torch.zeros_like(p) for v, p in own.items()})
    wrong("they are zero", between(torch.tanh), X, Y)


@pytest.mark.parametrize("name", ["cumsum", "LSTM over dimension 0"])
def test_blocks_of_examples_that_mix_are_caught_without_the_guards(name):
    """Products are those of the batch as it is, and right."""
    dag = between(MIXING[name])
    assert rc.verify(node_operator(dag, X, Y, check=False)).ok
    found = rc.verify(dag, X, Y, blocks=rc.exact_blocks(dag, X, Y, check=False))
    assert not found.ok and found.value > 1e-3


def test_blocks_of_a_summed_loss_are_caught_without_the_guards():
    dag = rc.Dag.from_sequential(mlp(), loss=nn.CrossEntropyLoss(reduction="sum"))
    blocks = rc.exact_blocks(dag, X, Y, check=False)
    wrong("blocks are wrong", dag, X, Y, blocks=blocks)


def test_other_weights_are_caught_without_the_guard(monkeypatch):
    net = mlp()
    monkeypatch.setattr(Changes, "refuse", lambda self, always=True: None)
    operator = node_operator(rc.Dag.from_sequential(net), X, Y, check=False)
    operator @ torch.ones(operator.shape[0])
    net[0].weight.data = 0.8 * net[0].weight.data
    wrong("products are wrong", operator)


def test_backwards_without_a_second_derivative_are_caught(monkeypatch):
    found = rc.verify(between(Detached.apply), X, Y)
    assert not found.ok and all("first at node 'h'" in reason for reason in found.reasons)
    monkeypatch.setattr(derivatives, "refuse_cut_backwards", lambda *_: None)
    found = rc.verify(between(Swish.apply), X, Y)
    assert not found.ok and len(found.reasons) == 2


def test_refusals_and_values_that_are_not_finite_are_reported_not_raised():
    x, dag = X.clone(), rc.Dag.from_sequential(mlp())
    x[1, 2] = math.nan
    wrong("not finite", dag, x, Y)
    wrong("node '0' failed", dag, X.float(), Y)


def cubic(theta):
    return (theta**3).sum() + theta.prod()


def test_mistakes_are_refused():
    matrix, gradient = torch.eye(4).double(), torch.func.grad(cubic)
    with refusal("needs the batch"):
        rc.verify(rc.Dag.from_sequential(mlp()))
    with refusal("expected a Dag, found Sequential"):
        rc.verify(mlp(), X, Y)
    with refusal("needs the gradient"):
        rc.verify(matrix)
    with refusal(r"shape \(4, 4\), and the point 3"):
        rc.verify(matrix, at=torch.ones(3).double(), gradient=gradient)


def test_tokens_are_certified_and_a_wrong_product_of_them_is_told(inject):
    lstm = nn.LSTM(3, 3, batch_first=True)  # has no float64 copy inside a closure
    layers = [nn.Embedding(7, 3), lambda h: lstm(h)[0][:, -1], nn.Linear(3, 3)]
    given = rc.Dag.from_sequential(layers), torch.randint(0, 7, (4, 2)), Y
    assert rc.verify(*given).ok
    inject(lambda own: {"0": own["0"] + own["0"].flip(1)})
    assert not rc.verify(*given).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saturated_example_is_no_false_alarm(dtype):
    """Its curvature is zero beside that of the batch: nothing that a mean could show."""
    net = nn.Sequential(block(6, 5, nn.ReLU), linear(5, 3)).to(dtype)
    net[1].weight.data.mul_(3)
    x = normal(8, 6).to(dtype)
    x[2:4] *= 1000
    found = rc.verify(rc.Dag.from_sequential(net), x, torch.arange(8) % 3)
    assert found.ok, str(found)


def test_products_of_a_gradient_that_does_not_change_are_wrong():
    theta = torch.ones(3, dtype=torch.float64)
    reason = "the gradient does not change"
    wrong(reason, torch.eye(3).double(), at=theta, gradient=torch.zeros_like)


def test_curvature_that_is_exactly_zero_is_no_false_alarm():
    layers = [block(6, 5, nn.ReLU), block(5, 5, nn.ReLU), linear(5, 3)]
    assert rc.verify(rc.Dag.from_sequential(layers, loss=lambda f, t: f.sum(1)), X, Y).ok
    nn.init.constant_(layers[1][0].bias, -50)  # dead: nothing before it has any influence
    assert rc.verify(rc.Dag.from_sequential(layers), X, Y).ok


def test_rounding_of_float32_is_no_curvature():
    """Softmax at 1 - 1e-9: its curvature is lost in float32, and in float64 it is not."""
    net = nn.Sequential(nn.Linear(3, 2))
    for p in net.parameters():
        nn.init.zeros_(p)
    net[0].weight.data[0, 0] = 20.5
    dag, x, y = rc.Dag.from_sequential(net), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0])
    assert not rc.verify(dag, x, y, generator=seeded()).ok
    assert rc.verify(dag.to(torch.float64), x.double(), y).ok


def kept(m, t):
    """Holds tensors of its last computation, as attributes and inside of containers."""
    m.h = torch.tanh(m.a(t))
    m.seen["all"] = [m.h * 2]
    return m.b(m.h)


def test_graph_tensors_held_as_attributes_are_no_hindrance():
    keeps = Own(kept, a=nn.Linear(6, 5), b=nn.Linear(5, 3), seen={"all": []})
    for net in (keeps, nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 3))):
        net(X.float())
        right(rc.LayerOperator(net, "cross_entropy", (X.float(), Y)))


def test_measured_blocks_are_certified_and_a_wrong_one_is_found():
    case = make("chain", batch=2)
    blocks = dict(rc.split_blocks(*case.given).tensor)
    right(*case.given, blocks=blocks, part="tensor")
    blocks["a", "b"] = 1.01 * blocks["a", "b"]
    nodes = wrong("blocks are wrong", *case.given, blocks=blocks, part="tensor").nodes
    assert nodes["a"] > 1e-4 > 1e-6 > max(nodes["c"], nodes["out"])


FORMS = [
    lambda h: h,
    lambda h: lambda v: h @ v,
    Symmetric,
    lambda h: Symmetric(aslinearoperator(h.numpy())),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_plain_operator_is_certified_beside_its_gradient(form):
    theta = torch.tensor([1.0, 2.0, -0.5, 0.7], dtype=torch.float64)
    point = {"at": theta, "gradient": torch.func.grad(cubic)}
    hessian = torch.autograd.functional.hessian(cubic, theta)
    assert rc.verify(form(hessian), **point).ok
    hessian[1, 2] *= 1.001
    wrong("group 'all'", form(hessian), **point)


@pytest.mark.slow
def test_fitted_examples_are_no_false_alarm():
    """One less a probability has few digits: neighbouring steps may agree by accident."""
    net = tanh_net(10, 16, 4)
    x, y = torch.randn(32, 10), torch.randint(0, 4, (32,))
    while nn.functional.cross_entropy(net(x), y) > 2e-5:
        trained(net, x, y, 500)
    dag = rc.Dag.from_sequential(net.double())
    for seed in range(12):
        found = rc.verify(dag, x.double(), y, generator=seeded(seed))
        assert found.ok, (seed, str(found))


# ------------------------------------------------------------------------------------------ kinks


def chain(distance, dtype=torch.float32, unit=3):
    """ReLUs, and a batch; one pre-activation in node "2" of example 2 has this distance from 0."""
    torch.manual_seed(1)
    blocks = [block(i, 8, nn.ReLU) for i in (6, 8, 8, 8)]
    net = nn.Sequential(*blocks, linear(8, 3)).to(dtype)
    x = torch.randn(5, 6, generator=seeded()).to(dtype)
    with torch.no_grad():
        layer = net[2][0]
        layer.bias[unit] += distance - layer(net[:2](x[2:3]))[0, unit]
    return net, x, torch.arange(5) % 3


def measured(net, x, y, part, nodes=("0", "1", "2", "3")):
    """What is verified, and its blocks."""
    dag = rc.Dag.from_sequential(net)
    blocks = dict(getattr(rc.split_blocks(dag, x, y, nodes), part))
    return (dag, x, y), {"blocks": blocks, "part": part}


@pytest.mark.parametrize("part, distance", [("total", 1e-5), ("gauss_newton", 3e-7)])
def test_blocks_are_certified_in_a_step_that_avoids_the_kink(part, distance):
    given, measurement = measured(*chain(distance, torch.float64), part)
    differences = GraphDifferences(*given, ("0", "1", "2", "3"), part, None)
    wide, narrow = (differences.at(step).value["0"][2] for step in (1e-3, 1e-9))
    assert (wide - narrow).norm() > 1e-3 * narrow.norm(), "a kink it is"
    found = right(*given, **measurement, tolerance=1e-4)
    assert not found.kinks


@pytest.mark.parametrize(
    "part, distance, nodes, reason",
    [
        ("total", 3e-7, ("0",), "blocks are wrong"),
        ("gauss_newton", 0.0, ("0", "1", "2", "3"), "nothing can be told of node"),
    ],
)
def test_blocks_wrong_by_two_thousandths_are_not_certified_near_a_kink(
    part, distance, nodes, reason
):
    given, measurement = measured(*chain(distance), part, nodes)
    scaled = {pair: 1.002 * block for pair, block in measurement["blocks"].items()}
    found = wrong(reason, *given, blocks=scaled, part=part)
    assert "sum" not in found.reasons[0]


def inconclusive(*given, **more):
    """A certificate that names the kink in example 2 of 5, and calls nothing wrong."""
    found = rc.verify(*given, **more)
    assert found.verdict == "inconclusive" and not found.ok and found.inconclusive, str(found)
    assert found.kinks == (2,) and "of example 2 of 5" in found.reasons[-1]
    assert "wrong" not in str(found)
    return found


def test_a_kink_at_the_point_is_named_and_leaves_it_inconclusive():
    given, measurement = measured(*chain(0.0, torch.float64), "total")
    inconclusive(*given, **measurement)
    inconclusive(*given, nodes=["0", "1", "2", "3"])


def test_a_float32_network_on_the_other_side_than_its_float64_copy_is_told():
    """A pre-activation below the rounding of float32: its own sign is not that of the copy."""
    for attempt in range(40):
        net, x, y = chain(1e-9 * (-1) ** attempt, unit=attempt % 8)
        wide = net.double()[:3](x.double())[2] > 0
        if not torch.equal(wide, net.float()[:3](x)[2] > 0):
            break
    else:
        raise AssertionError("no such network")
    given, measurement = measured(net, x, y, "gauss_newton")
    inconclusive(*given, **measurement)


def test_ties_under_a_maximum_in_every_example_leave_nothing_to_certify():
    layers = [nn.Conv2d(1, 3, 3, bias=False), nn.ReLU()]
    pool = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3))
    x = torch.randn(4, 1, 6, 6)
    x[:, :, :4, :4] = 0
    dag = rc.Dag.from_sequential([nn.Sequential(*layers), pool])
    found = wrong("nothing can be told", dag, x, torch.arange(4) % 3)
    assert "all 4 examples" in found.reasons[1]
    assert found.kinks == (0, 1, 2, 3) and found.verdict == "inconclusive"


# ------------------------------------------------------------------------------ over parameters


def test_products_over_parameters_are_certified_near_a_kink_and_open_at_it():
    net, x, y = chain(3e-7)
    assert right(ParameterOperator(net, "cross_entropy", (x, y))).value < 1e-3
    net, x, y = chain(0.0, torch.float64)
    found = rc.verify(ParameterOperator(net, "cross_entropy", (x, y)))
    assert found.verdict == "inconclusive" and "wrong" not in str(found)


def test_the_gradients_that_are_allowed_end_the_search():
    net, x, y = chain(1.0, torch.float64)
    operator = ParameterOperator(net, "cross_entropy", (x, y))
    of_rows = operator._of_rows
    operator._of_rows = lambda rows: 1.01 * of_rows(rows)
    cheap = wrong("1.01 times", operator, gradients=1)
    assert cheap.gradients < wrong("1.01 times", operator).gradients


@pytest.mark.parametrize("graph", ["chain", "attention", "convolution", "residual"])
def test_a_certificate_costs_at_most_sixty_gradients(graph):
    """By operations, the exact blocks included."""
    case = make(graph)
    one = 3 * operations(lambda: case.dag.forward(case.x))
    assert 0 < operations(lambda: rc.verify(*case.given)) <= 60 * one


def test_a_certificate_of_parameters_costs_at_most_sixty_gradients():
    net, x, y = tanh_net(8, 32, 32, 5), torch.randn(16, 8), torch.arange(16) % 5
    operator = ParameterOperator(net, "cross_entropy", (x, y))
    most = 60 * operations(operator.gradient)
    assert 0 < operations(lambda: rc.verify(operator)) <= most
    dag = rc.Dag.from_sequential(net)
    most = 60 * 3 * operations(lambda: dag.forward(x))
    assert 0 < operations(lambda: rc.verify(dag, x, y)) <= most


@pytest.mark.parametrize("classes, seed", [(2, 21), (2, 25), (3, 13)])
def test_a_direction_without_curvature_is_certified(classes, seed):
    """Equal shifts of all logits, as signs of these seeds are, change no probability: they would
    show nothing."""
    torch.manual_seed(seed)
    net = tanh_net(6, 4, classes).double()
    data = torch.randn(9, 6).double(), torch.arange(9) % classes
    operator = ParameterOperator(net, nn.CrossEntropyLoss(), data, groups=["2.bias"])
    assert rc.verify(operator, generator=seeded(seed)).ok


def test_a_stop_gives_the_certificate_so_far():
    theta, calls = torch.tensor([1.0, 2.0], dtype=torch.float64), []

    def gradient(t):
        calls.append(t)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return 3 * t.square()

    with pytest.raises(KeyboardInterrupt) as stopped:
        rc.verify(torch.diag(12 * theta), at=theta, gradient=gradient)
    found = stopped.value.partial
    assert not found.ok and found.gradients == 6 and found.value == pytest.approx(1.0)
    assert found.reasons == ("it was stopped before every node agreed",)
