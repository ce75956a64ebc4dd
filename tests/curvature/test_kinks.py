"""Certificates beside kinks: a kink within the step is no error of the product, and an error is no kink."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import CurvatureOperator, Dag, Node, ParameterOperator, split_blocks, verify
from runner.curvature.certificate.regions import COURSE, crossed, decisions
from runner.curvature.matrix_free.reference import FiniteDifferences
from tests.curvature.test_silent_errors import seeded


def chain(depth=4, width=8, dtype=torch.float32):
    """A chain of ReLUs and its batch."""
    torch.manual_seed(1)
    blocks = [nn.Sequential(nn.Linear(6 if i == 0 else width, width), nn.ReLU()) for i in range(depth)]
    net = nn.Sequential(*blocks, nn.Linear(width, 3)).to(dtype)
    return net, torch.randn(5, 6, generator=seeded()).to(dtype), torch.arange(5) % 3


def near_zero(net, x, example, distance, unit=3):
    """Moves a bias of the third block until one pre-activation of one example is `distance`."""
    with torch.no_grad():
        before = net[:2](x[example : example + 1])
        net[2][0].bias[unit] += distance - net[2][0](before)[0, unit]


def measured(net, x, y, part, nodes=None):
    dag = Dag.from_sequential(net)
    nodes = nodes or dag.order[:-1]
    return dag, nodes, dict(getattr(split_blocks(dag, x, y, nodes), part))


PARTS = ["total", "gauss_newton"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("distance", [1e-5, 3e-7, 3e-8])
def test_blocks_are_certified_in_a_step_that_avoids_the_kink(part, distance):
    net, x, y = chain(dtype=torch.float64)
    near_zero(net, x, 2, distance)
    dag, nodes, blocks = measured(net, x, y, part)
    dag = dag.to(torch.float64)
    reference = FiniteDifferences(dag, x, y, nodes, part)
    ones = {v: torch.ones(8, dtype=torch.float64) * reference.scales[v] for v in nodes}
    wide, narrow = (reference.difference(ones, 2, step) for step in (1e-4, 1e-9))
    assert any(float((wide[v] - narrow[v]).norm()) > 1e-3 * float(narrow[v].norm()) for v in nodes), "a kink it is"
    found = verify(dag, x, y, blocks=blocks, part=part, generator=seeded(), tolerance=1e-4)
    assert found.ok and not found.reasons and not found.kinks, str(found)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("distance", [3e-7, 0.0])
def test_a_block_wrong_by_two_thousandths_is_caught_beside_a_kink(part, distance):
    net, x, y = chain()
    near_zero(net, x, 2, distance)
    dag, _, blocks = measured(net, x, y, part, ("0",))
    blocks["0", "0"] *= 1.002
    found = verify(dag, x, y, blocks=blocks, part=part, generator=seeded())
    assert not found.ok and "blocks are wrong" in found.reasons[0], str(found)
    dag, _, blocks = measured(net, x, y, part)
    wrong = {pair: 1.002 * block for pair, block in blocks.items()}
    found = verify(dag, x, y, blocks=wrong, part=part, generator=seeded())
    assert not found.ok and "1.002 times" in found.reasons[0] and "sum" not in found.reasons[0], str(found)


@pytest.mark.parametrize("part", PARTS)
def test_a_kink_at_the_point_is_named_and_the_others_are_certified(part):
    net, x, y = chain(dtype=torch.float64)
    near_zero(net, x, 2, 0.0)
    dag, nodes, blocks = measured(net, x, y, part)
    for found in (
        verify(dag, x, y, blocks=blocks, part=part, generator=seeded()),
        verify(CurvatureOperator(dag, x, y, nodes, part=part), generator=seeded()),
    ):
        assert found.ok and found.kinks == (2,) and max(found.nodes.values()) < 1e-6, str(found)
        assert "(relu) of example 2 of 5: not certified there, certified on the other 4" in found.reasons[0]
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
    found = verify(dag, x, y, blocks=blocks, part="gauss_newton", generator=seeded())
    assert found.ok and found.kinks == (2,) and "relu, within rounding" in found.reasons[0], str(found)
    wrong = {pair: 1.002 * block for pair, block in blocks.items()}
    found = verify(dag, x, y, blocks=wrong, part="gauss_newton", generator=seeded())
    assert not found.ok and "blocks are wrong" in found.reasons[0], str(found)


def test_ties_under_a_maximum_in_every_example_leave_nothing_to_certify():
    torch.manual_seed(0)
    relu = Node("a", ("input",), nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.ReLU()))
    pool = Node("out", ("a",), nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)))
    x = torch.randn(4, 1, 6, 6, generator=seeded())
    x[:, :, :4, :4] = 0
    found = verify(Dag([relu, pool]), x, torch.arange(4) % 3, generator=seeded())
    assert not found.ok and found.kinks == (0, 1, 2, 3)
    assert "max_pool2d" in found.reasons[0] and "in all 4 examples" in found.reasons[0]


def test_products_over_parameters_are_certified_beside_a_kink():
    net, x, y = chain()
    near_zero(net, x, 2, 3e-7)
    operator = ParameterOperator(net, nn.CrossEntropyLoss(), [(x, y)])
    assert verify(operator, generator=seeded()).ok
    near_zero(net.double(), x.double(), 2, 0.0)
    found = verify(ParameterOperator(net, nn.CrossEntropyLoss(), [(x.double(), y)]), generator=seeded())
    assert not found.ok and "(relu) in the only batch" in found.reasons[0]


PIECEWISE = {
    "relu": torch.relu, "relu in place": lambda t: F.relu(t.clone(), True), "leaky": F.leaky_relu, "elu": F.elu,
    "prelu": lambda t: F.prelu(t, torch.full((1,), 0.2, dtype=t.dtype)), "selu": F.selu, "celu": F.celu,
    "abs": torch.abs, "hardtanh": lambda t: F.hardtanh(t + 1), "relu6": F.relu6,
    "threshold": lambda t: F.threshold(t, 0, 1), "hardswish": lambda t: F.hardswish(t + 3),
    "hardsigmoid": lambda t: F.hardsigmoid(t - 3), "softshrink": lambda t: F.softshrink(t + 0.5),
    "clamp": lambda t: t.clamp(min=0), "clamp by tensor": lambda t: t.clamp(0 * t),
    "where": lambda t: torch.where(t > 0, t, 0.1 * t), "mask": lambda t: t * (t > 0), "sort": lambda t: t.sort().values,
    "maximum": lambda t: torch.maximum(t, t.flip(0)), "max": lambda t: t.max(), "amax": lambda t: t.amax(0),
    "max of rows": lambda t: t.max(0).values, "topk": lambda t: t.topk(1).values,
    "max pool": lambda t: F.max_pool1d(t[None, None], 2), "l1": lambda t: F.l1_loss(t, 0 * t),
    "adaptive pool": lambda t: F.adaptive_max_pool2d(t.expand(1, 1, 2, 2), 1),
    "smooth l1": lambda t: F.smooth_l1_loss(t + 1, 0 * t), "huber": lambda t: F.huber_loss(t - 1, 0 * t),
    "floor": lambda t: t.floor() * t, "control flow": lambda t: t if t[0] > 0 else t.exp(),
}  # fmt: skip


@pytest.mark.parametrize("name", PIECEWISE)
def test_every_piecewise_operation_tells_its_side(name):
    """(u, -u) is on the other side than (-u, u), whatever the operation's place; half the way there is not."""

    def seen(u, grad=torch.func.grad):
        at = torch.tensor([u, -u], dtype=torch.float64)
        return decisions(lambda: grad(lambda t: PIECEWISE[name](t).sum())(at))

    def by_autograd(f):
        return lambda at: torch.autograd.grad(f(at.requires_grad_()), at, allow_unused=True)

    for grad in (torch.func.grad, by_autograd):
        if name == "control flow" and grad is torch.func.grad:
            continue  # torch.func refuses it
        here = seen(1e-3, grad)
        assert here is not None and crossed(here, seen(5e-4, grad)) == ""
        assert crossed(here, seen(-1e-3, grad)) != ""


def test_smooth_functions_and_unknown_ones_have_no_sides():
    t = torch.linspace(-2, 2, 8, dtype=torch.float64)
    for smooth in (torch.tanh, F.gelu, F.silu, F.softplus, lambda t: F.log_softmax(t, 0)):
        assert decisions(lambda f=smooth: torch.func.grad(lambda s: f(s).sum())(t)) == []
    assert crossed(None, []) == "" and crossed([("relu", t)], []) == COURSE
