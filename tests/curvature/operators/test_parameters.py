"""Operators over parameters: modules, groups and mistakes that the table of test_operators.py
leaves out."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from runner.curvature import ParameterOperator, inter_layer_metrics
from runner.curvature.function.groups import parameter_groups
from tests.curvature.cases import Own, with_backward
from tests.curvature.operators.test_operators import CROSS, data, halves, mlp
from tests.curvature.oracles import PARTS, parameter_matrix, relative
from tests.draws import normal
from tests.errors import refusal


class Waits(TorchDispatchMode):
    """Counts the numbers that the host reads of tensors."""

    count = 0
    reads = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in self.reads
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("part", PARTS)
def test_products_do_not_make_the_host_wait(part):
    operator = ParameterOperator(mlp(), CROSS, halves(*data()), part=part)
    vectors = normal(operator.shape[0], 3)
    operator @ vectors
    with Waits() as waits:
        images = operator @ vectors
        assert waits.count == 0
        float(images[0, 0])
        assert waits.count == 1


def test_groups_of_frozen_parameters_a_submodule_called_module_and_a_name_with_brackets():
    parts = {"module": nn.Linear(4, 3), "gain": nn.Parameter(torch.ones(4))}
    root, (x, y) = Own(lambda m, t: m.module(m.gain * t), **parts).double(), data()
    operator = ParameterOperator(root, CROSS, (x, y))
    members = {"module()": ("gain",), "module": ("module.weight", "module.bias")}
    assert operator.layout.members == members
    dense = operator.dense()
    assert relative(dense, parameter_matrix("hessian", root, CROSS, x, y)) < 1e-11
    root.module.requires_grad_(False)
    frozen, at = ParameterOperator(root, CROSS, (x, y)), operator.groups["module()"]
    assert list(frozen.groups) == ["module()"]
    assert relative(frozen.dense(), dense[at, at]) < 1e-11
    assert not root.module.weight.requires_grad
    net = nn.ModuleDict({"a[0]": nn.Linear(2, 2), "a0": nn.Linear(2, 1)})
    assert parameter_groups(net, ["a[0]"]).members == {"a[0]": ("a[0].weight", "a[0].bias")}
    assert parameter_groups(net, {"all": "a*"}).size == 9
    assert parameter_groups(net, ["**.bias"]).members == {"**.bias": ("a[0].bias", "a0.bias")}
    with refusal("no parameter matches '*.*.bias'"):
        parameter_groups(net, ["*.*.bias"])


def test_groups_without_components_are_left_out_or_refused():
    net = Own(lambda m, t: m.inner(t), inner=mlp(), none=nn.Parameter(torch.zeros(0)))
    assert "none" not in ParameterOperator(net, CROSS, data()).groups
    with refusal("group 'none' are empty"):
        ParameterOperator(net, CROSS, data(), ["none", "inner"])


class Reordered:
    """Batches of the same examples in another order at each reading, with sizes in another order
    too."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        sizes = (torch.randperm(3) + 1).tolist()
        for i in torch.randperm(6).split(sizes):
            yield self.x[i], self.y[i]


class Changing(Reordered):
    """Batches of other numbers at each reading."""

    def __iter__(self):
        for i in torch.arange(6).split(3):
            yield self.x[i][:, torch.randperm(4)], self.y[i]


def test_a_loader_may_give_its_examples_in_another_order_but_not_change_them():
    module, given, ones = mlp(), data(6), torch.ones(53).double()
    same = ParameterOperator(module, CROSS, Reordered(*given), memory_budget=64)
    same.refuse_changes()
    expected = ParameterOperator(module, CROSS, given) @ ones
    for _ in range(3):
        assert relative(same @ ones, expected) < 1e-11
    other = ParameterOperator(module, CROSS, Changing(*given), memory_budget=64)
    with refusal("the loss has changed since this operator was built"):
        other.refuse_changes()


# ------------------------------------------------------------------ mistakes


def build(*args, loss=CROSS, module=None, given=None, **options):
    return ParameterOperator(module or mlp(), loss, given or [data()], *args, **options)


def test_wrong_options_are_refused():
    with refusal("expected a scalar"):
        build(loss=lambda f, t: f.sum(0))
    with refusal(r"expected a loss.*\['cross_entropy', 'mse'\], found 'crossentropy'"):
        build(loss="crossentropy")
    with refusal("expected part as one of"):
        build(part="fischer")
    with refusal("no parameter matches"):
        build(["layer"])
    with refusal("two groups"):
        build(["0", "0.weight"])


turned = with_backward(torch.clone, lambda g, _: g * (1 + torch.rand(())))
"""A backward pass that draws at random."""


def test_wrong_modules_and_data_are_refused():
    x, y = data()
    with refusal("random"):
        middle = Own(lambda m, t: turned(t))
        build(module=nn.Sequential(nn.Linear(4, 5), middle, nn.Tanh(), nn.Linear(5, 3)).double())
    with refusal("empty"):
        nothing = nn.Parameter(torch.zeros(0, 4).double())
        build(module=Own(lambda m, t: t + m.w.sum(), w=nothing))
    with refusal("data have no batches"):
        ParameterOperator(mlp(), CROSS, [])
    with refusal("found NoneType"):
        ParameterOperator(mlp(), CROSS, None)
    with refusal("not finite"):
        build(given=[(x / 0, y)])
    with refusal("not finite"):
        build(given=[(x, y), (x / 0, y)])


def test_wrong_vectors_and_blocks_are_refused():
    operator = build()
    with refusal("expected a real tensor"):
        operator @ torch.zeros(3)
    with refusal("expected a real tensor.*found ndarray"):
        operator @ np.zeros(53)
    with refusal("at least one"):
        operator @ torch.zeros(53, 0)
    with refusal("'9' is not one of"):
        operator.block("0", "9")


# ------------------------------------------------------------------ the coupling between groups


def test_the_discarded_share_is_exact_where_it_is_cheap():
    operator = build()
    found = inter_layer_metrics(operator)
    for phi, part in ((found.phi, "hessian"), (found.phi_gauss_newton, "gauss_newton")):
        dense = operator.with_part(part).dense()
        kept = sum(float(dense[s, s].square().sum()) for s in operator.groups.values())
        assert phi.value == pytest.approx(1 - kept / float(dense.square().sum()), rel=1e-10)
        assert phi.error == 0
    one = inter_layer_metrics(operator, [(operator.nodes[0], operator.nodes[-1])]).phi
    assert math.isnan(one.value) and one.reason == "not all pairs of the nodes were asked for"


def test_the_discarded_share_of_nothing_is_nan_with_a_reason():
    module, x = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).double(), torch.zeros(2, 2).double()
    operator = ParameterOperator(module, lambda o, t: 0 * (o * t).mean(), (x, x))
    phi = inter_layer_metrics(operator).phi
    assert math.isnan(phi.value) and phi.reason == "the matrix is zero"
