"""Certificates: right numbers pass with room, every injected error is caught, and the likely cause
is named."""

import math

import pytest
import torch
from scipy.sparse.linalg import aslinearoperator
from torch import nn

import runner.curvature as rc
from runner.curvature import ParameterOperator
from runner.curvature.estimators.operator import Symmetric
from runner.curvature.graphs import derivatives, products as operators
from runner.curvature.graphs.differences import GraphDifferences
from tests.bench.machine import operations
from tests.curvature.cases import MIXING, Detached, Own, Swish, X, Y, between, make, mlp
from tests.draws import seeded, tanh_net
from tests.errors import refusal

GRAPHS = [("nested_branches", "smooth"), ("attention", "smooth"), ("convolution", "relu")]


@pytest.mark.parametrize("graph, activation", GRAPHS)
def test_right_numbers_are_certified(graph, activation):
    case = make(graph, activation, batch=2)
    found = rc.verify(*case.given, generator=seeded())
    assert found.ok and not found.reasons, str(found)
    assert set(found.nodes) == set(case.nodes) and max(found.nodes.values()) < 1e-7


@pytest.mark.parametrize("part, activation", [("gauss_newton", "relu"), ("tensor", "smooth")])
def test_operators_of_every_part_are_certified(part, activation):
    case = make("residual", activation, batch=2)
    assert rc.verify(rc.CurvatureOperator(*case.given, part=part), generator=seeded()).ok


def test_float32_and_weights_hidden_in_closures_are_certified():
    case = make("diamond_cat", batch=2)
    found = rc.verify(case.dag.to(torch.float32), case.x.float(), case.y, generator=seeded())
    assert found.ok and found.tolerance == 1e-3 and max(found.nodes.values()) < 1e-4
    hidden, shift = nn.Linear(5, 5), torch.randn(5, generator=seeded())
    dag = between(lambda t: torch.tanh(hidden(t) + shift), torch.float32)
    found = rc.verify(dag, X.float(), Y, generator=seeded())
    assert found.ok and not found.reasons, "the closure's float32 weights are widened with the rest"
    lstm = nn.LSTM(5, 5, batch_first=True)
    dag = between(lambda t: lstm(t.unsqueeze(1))[0].squeeze(1), torch.float32)
    found = rc.verify(dag, X.float(), Y, generator=seeded())
    assert found.ok and found.tolerance == 1e-2 and "no float64 copy" in found.reasons[0]


def injected(monkeypatch, change):
    """The engine's products, changed."""
    right = rc.CurvatureOperator.whole

    def wrong(self, directions):
        own, _ = right(self, directions)
        changed = change(self, dict(own))
        return changed, changed

    monkeypatch.setattr(rc.CurvatureOperator, "whole", wrong)


def test_wrong_products_are_caught_at_their_node(monkeypatch):
    case, size, node = make("chain"), 1e-4, "a"
    injected(monkeypatch, lambda op, own: own | {node: own[node] * (1 + size)})
    found = rc.verify(rc.CurvatureOperator(*case.given), generator=seeded())
    assert not found.ok and "NOT certified" in str(found)
    assert found.nodes[node] == pytest.approx(size, rel=0.01)
    assert all(error < 1e-7 for v, error in found.nodes.items() if v != node)
    assert repr(node) in found.reasons[0]
    injected(monkeypatch, lambda op, own: {v: torch.zeros_like(p) for v, p in own.items()})
    found = rc.verify(rc.CurvatureOperator(between(torch.tanh), X, Y), generator=seeded())
    assert not found.ok and "they are zero" in found.reasons[0]


@pytest.mark.parametrize("name", ["cumsum", "LSTM over dimension 0"])
def test_blocks_of_examples_that_mix_are_caught_without_the_guards(name):
    """Products are those of the batch as it is, and right."""
    dag = between(MIXING[name])
    assert rc.verify(rc.CurvatureOperator(dag, X, Y, check=False), generator=seeded()).ok
    blocks = rc.exact_blocks(dag, X, Y, check=False)
    found = rc.verify(dag, X, Y, blocks=blocks, generator=seeded())
    assert not found.ok and max(found.nodes.values()) > 1e-3


def test_a_summed_loss_is_caught_without_the_guards():
    dag = rc.Dag.from_sequential(mlp(), loss=nn.CrossEntropyLoss(reduction="sum"))
    found = rc.verify(rc.CurvatureOperator(dag, X, Y, check=False), generator=seeded())
    assert not found.ok and "Is the loss a sum" in found.reasons[0]


@pytest.mark.parametrize("used", [False, True])
def test_other_weights_are_caught_without_the_guard(monkeypatch, used):
    net = mlp()
    monkeypatch.setattr(operators.Changes, "refuse", lambda self, always=True: None)
    operator = rc.CurvatureOperator(rc.Dag.from_sequential(net), X, Y, check=False)
    if used:
        operator.block("0", "0").dense()
    net[0].weight.data = 0.8 * net[0].weight.data
    found = rc.verify(operator, generator=seeded())
    assert not found.ok and "products are wrong" in found.reasons[0]


def test_backwards_without_a_second_derivative_are_caught(monkeypatch):
    found = rc.verify(between(Detached.apply), X, Y, generator=seeded())
    assert not found.ok and all("first at node 'h'" in reason for reason in found.reasons)
    for module in (derivatives, operators):
        monkeypatch.setattr(module, "refuse_cut_backwards", lambda *_: None)
    found = rc.verify(between(Swish.apply), X, Y, generator=seeded())
    assert not found.ok and len(found.reasons) == 2


def test_refusals_and_values_that_are_not_finite_are_reported_not_raised():
    x = X.clone()
    x[1, 2] = math.nan
    found = rc.verify(rc.Dag.from_sequential(mlp()), x, Y)
    assert not found.ok and "not finite" in found.reasons[0]
    found = rc.verify(rc.Dag.from_sequential(mlp()), X.float(), Y)
    assert not found.ok and "node '0' failed" in found.reasons[0]
    with refusal("needs the batch"):
        rc.verify(rc.Dag.from_sequential(mlp()))
    with refusal("expected a Dag, found Sequential"):
        rc.verify(mlp(), X, Y)


def test_tokens_are_certified_and_a_wrong_product_of_them_is_told(monkeypatch):
    lstm = nn.LSTM(3, 3, batch_first=True)  # has no float64 copy inside a closure
    layers = [nn.Embedding(7, 3), lambda h: lstm(h)[0][:, -1], nn.Linear(3, 3)]
    dag = rc.Dag.from_sequential(layers, names=["embed", "mix", "out"])
    tokens = torch.randint(0, 7, (4, 2), generator=seeded())
    assert rc.verify(dag, tokens, Y, generator=seeded()).ok
    injected(monkeypatch, lambda op, own: own | {"embed": own["embed"] + own["embed"].flip(1)})
    assert not rc.verify(dag, tokens, Y, generator=seeded()).ok


def test_a_saturated_example_is_no_false_alarm():
    """Its curvature is zero beside that of the batch: nothing that a mean could show."""
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).to(dtype)
        net[2].weight.data.mul_(3)
        x, y = torch.randn(8, 6, generator=seeded()).to(dtype), torch.arange(8) % 3
        x[2:4] *= 1000
        found = rc.verify(rc.Dag.from_sequential(net), x, y, generator=seeded())
        assert found.ok, str(found)


def test_products_of_a_gradient_that_does_not_change_are_wrong():
    theta = torch.ones(3, dtype=torch.float64)
    found = rc.verify(torch.eye(3).double(), at=theta, gradient=torch.zeros_like)
    assert not found.ok
    assert "the gradient does not change" in found.reasons[0]


def test_curvature_that_is_exactly_zero_is_no_false_alarm():
    net = nn.Sequential(
        nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)
    ).double()
    dag = rc.Dag.from_sequential(
        net, loss=lambda f, t: f.sum(1)
    )  # linear: the curvature is zero everywhere
    assert rc.verify(dag, X, Y, generator=seeded()).ok
    net[2].bias.data.fill_(-50)  # dead: nothing before it has any influence
    found = rc.verify(rc.Dag.from_sequential(net), X, Y, generator=seeded())
    assert found.ok, str(found)


def test_rounding_of_float32_is_no_curvature():
    """Softmax at 1 - 1e-9: its curvature is lost in float32, and in float64 it is not."""
    net = nn.Sequential(nn.Linear(3, 2)).float()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[20.5, 0.0, 0.0], [0.0, 0.0, 0.0]]))
        net[0].bias.zero_()
    x, y = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0])
    found = rc.verify(rc.CurvatureOperator(rc.Dag.from_sequential(net), x, y), generator=seeded())
    assert not found.ok
    assert rc.verify(
        rc.Dag.from_sequential(net).to(torch.float64), x.double(), y, generator=seeded()
    ).ok


def kept(m, t):
    """Holds tensors of its last computation, as attributes and inside of containers."""
    m.h = torch.tanh(m.a(t))
    m.seen["all"] = [m.h * 2]
    return m.b(m.h)


def test_graph_tensors_held_as_attributes_are_no_hindrance():
    keeps = Own(kept, a=nn.Linear(6, 5), b=nn.Linear(5, 3), seen={"all": []})
    for net in (keeps, nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 3))):
        x = X.float()
        net(x)
        between = rc.LayerOperator(net, nn.CrossEntropyLoss(), (x, Y))
        found = rc.verify(between)
        assert found.ok and not found.reasons, str(found)


def test_measured_blocks_are_certified_and_a_wrong_one_is_found():
    case = make("chain", batch=2)
    blocks = dict(rc.split_blocks(*case.given).tensor)
    assert rc.verify(*case.given, blocks=blocks, part="tensor", generator=seeded()).ok
    v, w = next(pair for pair in blocks if pair[0] != pair[1] and bool(blocks[pair].any()))
    blocks[v, w] = 1.01 * blocks[v, w]
    wrong = rc.verify(*case.given, blocks=blocks, part="tensor", generator=seeded())
    assert not wrong.ok and "blocks are wrong" in wrong.reasons[0]
    assert wrong.nodes[v] > 1e-4 > 1e-6 > max(e for u, e in wrong.nodes.items() if u not in (v, w))


def cubic(theta):
    return (theta**3).sum() + theta.prod()


@pytest.mark.parametrize(
    "form",
    [
        lambda h: h,
        lambda h: lambda v: h @ v,
        Symmetric,
        lambda h: Symmetric(aslinearoperator(h.numpy())),
    ],
)
def test_a_plain_operator_is_certified_beside_its_gradient(form):
    theta = torch.tensor([1.0, 2.0, -0.5, 0.7], dtype=torch.float64)
    right, field = torch.autograd.functional.hessian(cubic, theta), torch.func.grad(cubic)
    assert rc.verify(form(right), at=theta, gradient=field, generator=seeded()).ok
    wrong = right.clone()
    wrong[1, 2] *= 1.001
    found = rc.verify(form(wrong), at=theta, gradient=field, generator=seeded())
    assert not found.ok and "group 'all'" in found.reasons[0]


def test_a_plain_operator_needs_its_gradient_and_a_point_that_fits():
    matrix, field = torch.eye(4, dtype=torch.float64), torch.func.grad(cubic)
    with refusal("needs the gradient"):
        rc.verify(matrix)
    with refusal(r"shape \(4, 4\), and the point 3"):
        rc.verify(matrix, at=torch.ones(3).double(), gradient=field)


@pytest.mark.slow
def test_fitted_examples_are_no_false_alarm():
    """One less a probability has few digits: neighbouring steps may agree by accident."""
    net = tanh_net(10, 16, 4)
    x, y = torch.randn(32, 10), torch.randint(0, 4, (32,))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    loss = torch.tensor(1.0)
    while float(loss.detach()) > 2e-5:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    net, x = net.double(), x.double()
    for seed in range(12):
        found = rc.verify(rc.Dag.from_sequential(net), x, y, generator=seeded(seed))
        assert found.ok, (seed, str(found))


def chain(dtype=torch.float32):
    """A chain of ReLUs and its batch."""
    torch.manual_seed(1)
    blocks = [nn.Sequential(nn.Linear(i, 8), nn.ReLU()) for i in (6, 8, 8, 8)]
    net = nn.Sequential(*blocks, nn.Linear(8, 3)).to(dtype)
    return net, torch.randn(5, 6, generator=seeded()).to(dtype), torch.arange(5) % 3


def near_zero(net, x, example, distance, unit=3):
    """Moves a bias of the third block until one pre-activation of one example is `distance`."""
    with torch.no_grad():
        before = net[:2](x[example : example + 1])
        net[2][0].bias[unit] += distance - net[2][0](before)[0, unit]


def measured(net, x, y, part, nodes=None):
    dag = rc.Dag.from_sequential(net)
    nodes = nodes or dag.order[:-1]
    return dag, nodes, dict(getattr(rc.split_blocks(dag, x, y, nodes), part))


@pytest.mark.parametrize("part, distance", [("total", 1e-5), ("gauss_newton", 3e-7)])
def test_blocks_are_certified_in_a_step_that_avoids_the_kink(part, distance):
    net, x, y = chain(dtype=torch.float64)
    near_zero(net, x, 2, distance)
    dag, nodes, blocks = measured(net, x, y, part)
    differences = GraphDifferences(dag, x, y, nodes, part, seeded())
    wide, narrow = (differences.at(step).value for step in (1e-3, 1e-9))
    apart = [float((wide[v][2] - narrow[v][2]).norm() / narrow[v][2].norm()) for v in nodes]
    assert max(apart) > 1e-3, "a kink it is"
    found = rc.verify(dag, x, y, blocks=blocks, part=part, generator=seeded(), tolerance=1e-4)
    assert found.ok and not found.reasons and not found.kinks, str(found)


@pytest.mark.parametrize(
    "part, distance, nodes, reason",
    [("total", 3e-7, ("0",), "blocks are wrong"), ("gauss_newton", 0.0, None, "1.002 times")],
)
def test_blocks_wrong_by_two_thousandths_are_caught_beside_a_kink(part, distance, nodes, reason):
    net, x, y = chain()
    near_zero(net, x, 2, distance)
    dag, _, blocks = measured(net, x, y, part, nodes)
    wrong = {pair: 1.002 * block for pair, block in blocks.items()}
    found = rc.verify(dag, x, y, blocks=wrong, part=part, generator=seeded())
    assert not found.ok and reason in found.reasons[0] and "sum" not in found.reasons[0], str(found)


def test_a_kink_at_the_point_is_named_and_the_others_are_certified():
    net, x, y = chain(dtype=torch.float64)
    near_zero(net, x, 2, 0.0)
    part = "total"
    dag, nodes, blocks = measured(net, x, y, part)
    for found in (
        rc.verify(dag, x, y, blocks=blocks, part=part, generator=seeded()),
        rc.verify(rc.CurvatureOperator(dag, x, y, nodes, part=part), generator=seeded()),
    ):
        assert found.ok and found.kinks == (2,) and max(found.nodes.values()) < 1e-6, str(found)
        assert (
            "of example 2 of 5: not certified there, certified on the other 4" in found.reasons[0]
        )
        assert "wrong" not in str(found)


def test_a_float32_network_on_the_other_side_than_its_float64_copy_is_told():
    """A pre-activation below the rounding of float32: its own sign is not that of the copy."""
    for attempt in range(40):
        net, x, y = chain()
        near_zero(net, x, 2, 1e-9 * (-1) ** attempt, unit=attempt % 8)
        wide = net.double()[:3](x.double())[2] > 0
        if bool((wide != (net.float()[:3](x)[2] > 0)).any()):
            break
    else:
        raise AssertionError("no such network")
    dag, _, blocks = measured(net, x, y, "gauss_newton")
    found = rc.verify(dag, x, y, blocks=blocks, part="gauss_newton", generator=seeded())
    assert found.ok and found.kinks == (2,) and "of example 2 of 5" in found.reasons[0], str(found)
    wrong = {pair: 1.002 * block for pair, block in blocks.items()}
    found = rc.verify(dag, x, y, blocks=wrong, part="gauss_newton", generator=seeded())
    assert not found.ok and "blocks are wrong" in found.reasons[0], str(found)


def test_ties_under_a_maximum_in_every_example_leave_nothing_to_certify():
    relu = rc.Node("a", ("input",), nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.ReLU()))
    pool = rc.Node("out", ("a",), nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)))
    x = torch.randn(4, 1, 6, 6, generator=seeded())
    x[:, :, :4, :4] = 0
    found = rc.verify(rc.Dag([relu, pool]), x, torch.arange(4) % 3, generator=seeded())
    assert not found.ok and found.kinks == (0, 1, 2, 3)
    assert "in all 4 examples" in found.reasons[0]


def test_products_over_parameters_are_certified_beside_a_kink():
    net, x, y = chain()
    near_zero(net, x, 2, 3e-7)
    operator = ParameterOperator(net, nn.CrossEntropyLoss(), [(x, y)])
    assert rc.verify(operator, generator=seeded()).ok
    near_zero(net.double(), x.double(), 2, 0.0)
    found = rc.verify(
        ParameterOperator(net, nn.CrossEntropyLoss(), [(x.double(), y)]), generator=seeded()
    )
    assert found.ok and max(found.nodes.values()) < 1e-6


def test_the_gradients_that_are_allowed_end_the_search():
    net, x, y = chain(dtype=torch.float64)
    operator = ParameterOperator(net, nn.CrossEntropyLoss(), (x, y))
    right = operator._of_rows
    operator._of_rows = lambda rows: 1.01 * right(rows)
    cheap = rc.verify(operator, generator=seeded(), gradients=1)
    thorough = rc.verify(operator, generator=seeded())
    assert not cheap.ok and cheap.gradients < thorough.gradients
    assert "1.01 times" in cheap.reasons[0] and "1.01 times" in thorough.reasons[0]


@pytest.mark.parametrize("graph", ["chain", "attention", "convolution", "residual", "wide"])
def test_a_certificate_costs_at_most_sixty_gradients(graph):
    """By operations, the exact blocks and the products of parameters included."""
    if graph == "wide":
        net = tanh_net(8, 32, 32, 5)
        data = torch.randn(16, 8), torch.arange(16) % 5
        operator = ParameterOperator(net, "cross_entropy", data)
        dag, (x, y) = rc.Dag.from_sequential(net), data
        assert operations(lambda: rc.verify(operator, generator=seeded())) <= 60 * operations(
            operator.gradient
        )
    else:
        case = make(graph)
        dag, x, y = case.given
    one = 3 * operations(lambda: dag.forward(x))
    assert 0 < operations(lambda: rc.verify(dag, x, y, generator=seeded())) <= 60 * one


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

    def gradient(t: torch.Tensor) -> torch.Tensor:
        calls.append(t)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return 3 * t.square()

    with pytest.raises(KeyboardInterrupt) as stopped:
        rc.verify(torch.diag(12 * theta), at=theta, gradient=gradient)
    found = stopped.value.partial
    assert not found.ok and found.gradients == 6 and found.value == pytest.approx(1.0)
    assert found.reasons == ("it was stopped before every node agreed",)
