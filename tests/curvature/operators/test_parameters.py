"""Operators over parameters: modules, groups and mistakes that the table of test_operators.py
leaves out."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from runner.curvature import ParameterOperator, discarded_coupling
from runner.curvature.function.groups import layout
from tests.curvature.cases import Own, with_backward
from tests.curvature.oracles import PARTS, parameter_matrix, relative
from tests.draws import normal, seeded
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()
Case = tuple[nn.Module, nn.Module, Tensor, Tensor]


def perceptron():
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))
    return net, nn.CrossEntropyLoss(), torch.randn(7, 4).double(), torch.randint(0, 3, (7,))


def cumulative():
    parts = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}
    net = Own(lambda m, t: m.b(torch.logcumsumexp(m.a(t), -1)), **parts)
    return net, nn.CrossEntropyLoss(), torch.randn(4, 3).double(), torch.arange(4) % 3


odd = with_backward(torch.sin, lambda g, t: g * t.cos())
"""A sine without a forward derivative."""


def without_forward_derivative():
    net = Own(lambda m, t: m.b(odd(m.a(t))), a=nn.Linear(3, 4), b=nn.Linear(4, 2))
    return net, nn.CrossEntropyLoss(), torch.randn(4, 3).double(), torch.randint(0, 2, (4,))


MODULES = {f.__name__: f for f in (perceptron, cumulative, without_forward_derivative)}


def build(name):
    torch.manual_seed(0)
    module, loss, x, y = MODULES[name]()
    return module.double().eval(), loss, x, y


@pytest.mark.parametrize("part", ["hessian", "gauss_newton", "empirical_fisher"])
@pytest.mark.parametrize("name", list(MODULES)[1:])
def test_dense_truth_however_the_data_are_cut(name, part):
    module, loss, x, y = build(name)
    expected = parameter_matrix(part, module, loss, x, y)
    assert relative(ParameterOperator(module, loss, (x, y), part=part).dense(), expected) < 1e-11
    v = normal(len(expected))
    for data in ([(x[:2], y[:2]), (x[2:], y[2:])], [(x, y)]):
        operator = ParameterOperator(module, loss, data, part=part, memory_budget=1, check=False)
        assert relative(operator @ v, expected @ v) < 1e-11


class Waits(TorchDispatchMode):
    """Counts the numbers that the host reads of tensors."""

    count = 0
    reads = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in self.reads
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("part", PARTS)
def test_products_do_not_make_the_host_wait(part):
    module, loss, x, y = build("perceptron")
    operator = ParameterOperator(module, loss, [(x[:3], y[:3]), (x[3:], y[3:])], part=part)
    vectors = normal(operator.shape[0], 3)
    operator @ vectors
    with Waits() as waits:
        images = operator @ vectors
        assert waits.count == 0
        float(images[0, 0])
        assert waits.count == 1


def test_inputs_by_name_and_frozen_parameters():
    parts = {"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)}
    module = Own(lambda m, left, right: m.a(left) * m.b(right), **parts).double()
    x, y = torch.randn(4, 3).double(), torch.randn(4, 2).double()
    both = ParameterOperator(module, "mse", ({"left": x, "right": 2 * x}, y)).dense()
    assert torch.allclose(both, ParameterOperator(module, "mse", [((x, 2 * x), y)]).dense())
    module.a.requires_grad_(False)
    one = ParameterOperator(module, "mse", [((x, 2 * x), y)])
    assert list(one.groups) == ["b"]
    assert torch.allclose(one.dense(), both[8:, 8:])
    assert not module.a.weight.requires_grad
    assert all(p.grad is None for p in module.parameters())


def test_groups_of_a_submodule_called_module_and_of_a_name_with_brackets():
    parts = {"module": nn.Linear(3, 2), "gain": nn.Parameter(torch.ones(3))}
    root = Own(lambda m, t: m.module(m.gain * t), **parts).double()
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 1, 0, 1])
    operator = ParameterOperator(root, CROSS, (x, y))
    members = {"module()": ("gain",), "module": ("module.weight", "module.bias")}
    assert operator.layout.members == members
    assert relative(operator.dense(), parameter_matrix("hessian", root, CROSS, x, y)) < 1e-11
    root.module.requires_grad_(False)
    assert list(ParameterOperator(root, CROSS, (x, y)).groups) == ["module()"]
    net = nn.ModuleDict({"a[0]": nn.Linear(2, 2), "a0": nn.Linear(2, 1)})
    assert layout(net, ["a[0]"]).members == {"a[0]": ("a[0].weight", "a[0].bias")}
    assert layout(net, {"all": "a*"}).size == 9


def test_groups_without_components_are_left_out_or_refused():
    parts = {"inner": nn.Linear(3, 3), "none": nn.Parameter(torch.zeros(0))}
    net, data = Own(lambda m, t: m.inner(t), **parts), (torch.randn(4, 3), torch.arange(4) % 3)
    assert tuple(ParameterOperator(net, "cross_entropy", data).groups) == ("inner",)
    with refusal("group 'none' are empty"):
        ParameterOperator(net, "cross_entropy", data, ["none", "inner"])


class Reordered:
    """Batches of the same examples in another order at each reading, with sizes in another order
    too, or of other numbers."""

    def __init__(self, x, y, shuffled):
        self.x, self.y, self.shuffled = x, y, shuffled

    def __iter__(self):
        order = torch.randperm(6) if self.shuffled else torch.arange(6)
        sizes = (torch.randperm(3) + 1).tolist() if self.shuffled else [3, 3]
        for i in order.split(sizes):
            x = self.x[i] if self.shuffled else self.x[i][:, torch.randperm(4)]
            yield x, self.y[i]


def test_a_loader_may_give_its_examples_in_another_order_but_not_change_them():
    module, loss, x, y = build("perceptron")
    same, other = (
        ParameterOperator(module, loss, Reordered(x, y, shuffled), memory_budget=64)
        for shuffled in (True, False)
    )
    same.refuse_changes()
    expected = ParameterOperator(module, loss, (x[:6], y[:6])) @ torch.ones(53).double()
    for _ in range(3):
        assert relative(same @ torch.ones(53).double(), expected) < 1e-11
    with refusal("the loss has changed since this operator was built"):
        other.refuse_changes()


turned = with_backward(torch.clone, lambda g, _: g * (1 + torch.rand(())))
"""A backward pass that draws at random."""


def turning():
    middle = Own(lambda m, t: turned(t))
    return nn.Sequential(nn.Linear(4, 5), middle, nn.Tanh(), nn.Linear(5, 3)).double()


def built(*args, loss=CROSS, **options):
    return lambda m, x, y: ParameterOperator(m, loss, [(x, y)], *args, **options)


NOTHING = Own(lambda m, t: t + m.w.sum(), w=nn.Parameter(torch.zeros(0, 4).double()))
NAMES = r"expected a loss.*\['cross_entropy', 'mse'\], found 'crossentropy'"
MISTAKES = {
    "rows": (built(loss=lambda f, t: f.sum(0)), "expected a scalar"),
    "name of a loss": (built(loss="crossentropy"), NAMES),
    "part": (built(part="fischer"), "expected part as one of"),
    "pattern": (built(["layer"]), "no parameter matches"),
    "overlap": (built(["0", "0.weight"]), "two groups"),
    "Fisher": (built(part="fisher", loss=F.multi_margin_loss), "logarithm of a density"),
    "no data": (lambda m, x, y: ParameterOperator(m, CROSS, []), "data have no batches"),
    "noise backwards": (lambda m, x, y: built()(turning(), x, y), "random"),
    "NaN": (lambda m, x, y: built()(m, x / 0, y), "not finite"),
    "NaN later": (
        lambda m, x, y: ParameterOperator(m, CROSS, [(x, y), (x / 0, y)]),
        "not finite",
    ),
    "vector": (lambda m, x, y: built()(m, x, y) @ torch.zeros(3), "expected a real tensor"),
    "array": (
        lambda m, x, y: built()(m, x, y) @ np.zeros(53),
        "expected a real tensor.*found ndarray",
    ),
    "no column": (lambda m, x, y: built()(m, x, y) @ torch.zeros(53, 0), "at least one"),
    "None": (lambda m, x, y: ParameterOperator(m, CROSS, None), "found NoneType"),
    "empty": (lambda m, x, y: built()(NOTHING, x, y), "empty"),
    "block": (lambda m, x, y: built()(m, x, y).block("0", "9"), "'9' is not one of"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_say_what_to_do(name):
    module, _, x, y = build("perceptron")
    change, message = MISTAKES[name]
    with refusal(message):
        change(module, x, y)


# ------------------------------------------------------------------ the coupling between groups


def phi(dense, groups):
    kept = sum(float(dense[s, s].square().sum()) for s in groups.values())
    return 1 - kept / float(dense.square().sum())


def test_discarded_coupling_is_exact_where_it_is_cheap_and_its_interval_lies_in_the_unit_interval():
    module, loss, x, y = build("perceptron")
    operator = ParameterOperator(module, loss, [(x, y)])
    exact, expected = discarded_coupling(operator), phi(operator.dense(), operator.groups)
    assert exact.low == exact.value == exact.high == pytest.approx(expected, rel=1e-10)
    for seed in range(4):
        for probes in (2, 8):
            generator = seeded(seed)
            found = discarded_coupling(operator, probes, generator=generator)
            assert 0 <= found.low <= found.value <= found.high < 1
            assert found.products == probes * len(operator.groups)
        assert abs(found.value - expected) < 2 * (found.high - found.low)


def test_discarded_coupling_of_nothing_is_nan_with_a_reason():
    x = torch.zeros(2, 2).double()
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).double()
    found = discarded_coupling(ParameterOperator(module, lambda o, t: 0 * (o * t).mean(), (x, x)))
    assert found.value != found.value
    assert found.reason == "the matrix is zero"
    with torch.no_grad():
        module[0].weight[0, 0] = torch.nan
    operator = ParameterOperator(module, lambda o, t: (o * o).mean(), (x, x), check=False)
    assert discarded_coupling(operator, 2).reason == "a product is not finite"
