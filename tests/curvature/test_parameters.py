"""Operators over parameters: one table of modules, each part against dense float64 matrices of its definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from runner.curvature import discarded_coupling, group_metrics
from runner.curvature.graph.from_module import trace_module
from runner.curvature.parameters.model import layout
from runner.curvature.parameters.operator import ParameterOperator
from runner.curvature.parameters.products import example_gradients
from tests.curvature.cases import Own
from tests.curvature.oracles import PARTS, flat_function, parameter_matrix, relative


def perceptron() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))
    return net, nn.CrossEntropyLoss(), torch.randn(7, 4).double(), torch.randint(0, 3, (7,))


def convolution() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    net = nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)
    )
    return net, nn.MSELoss(), torch.randn(6, 1, 3, 3).double(), torch.randn(6, 2).double()


def attention() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    parts = {"attend": nn.MultiheadAttention(4, 2, batch_first=True), "head": nn.Linear(4, 3)}
    net = Own(lambda m, t: m.head(m.attend(t, t, t, need_weights=False)[0].mean(1)), **parts)
    return net, nn.BCEWithLogitsLoss(), torch.randn(5, 3, 4).double(), torch.rand(5, 3).double()


MODULES: dict[str, Callable[[], tuple[nn.Module, nn.Module, Tensor, Tensor]]] = {
    f.__name__: f for f in (perceptron, convolution, attention)
}


def build(name: str) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    module, loss, x, y = MODULES[name]()
    return module.double().eval(), loss, x, y


CROSS = nn.CrossEntropyLoss()


@pytest.mark.filterwarnings(
    "ignore:memory_budget is"
)  # one byte on purpose: everything is cut as small as it goes
@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(("perceptron", part) for part in PARTS),
        ("convolution", PARTS[1]),
        ("attention", PARTS[0]),
        ("attention", PARTS[3]),
    ],
)
def test_dense_truth_however_the_data_are_cut(name, part):
    module, loss, x, y = build(name)
    expected = parameter_matrix(part, module, loss, x, y)
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    operator = ParameterOperator(module, loss, [(x, y)], part=part)
    assert operator.shape == expected.shape
    assert relative(operator.dense(), expected) < 1e-11
    v = torch.randn(len(expected), dtype=torch.float64)
    for data, budget in (
        ([(x[:2], y[:2]), (x[2:], y[2:])], 1 << 30),
        (loader, 1 << 30),
        (loader, 1),
        ([(x, y)], 1),
    ):
        operator = ParameterOperator(
            module, loss, data, part=part, memory_budget=budget, check=False
        )
        assert relative(operator @ v, expected @ v) < 1e-11


class Waits(TorchDispatchMode):
    """Counts the numbers that the host reads of tensors."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (
            torch.ops.aten._local_scalar_dense.default,
            torch.ops.aten.nonzero.default,
        )
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("part", PARTS)
def test_products_do_not_make_the_host_wait_but_for_the_weights(part, monkeypatch):
    module, loss, x, y = build("perceptron")
    operator, looks = (
        ParameterOperator(module, loss, [(x[:3], y[:3]), (x[3:], y[3:])], part=part),
        [],
    )
    monkeypatch.setattr(operator._fingerprint, "changed", lambda: looks.append(1))
    vectors = torch.randn(operator.shape[0], 3, dtype=torch.float64)
    operator @ vectors
    with Waits() as waits:
        images = operator @ vectors
        assert waits.count == 0 and len(looks) == 2  # once a call, not once a product
        float(images[0, 0])
        assert waits.count == 1


@pytest.mark.parametrize("name", ["perceptron", "convolution"])
def test_sampled_fisher_converges_to_the_exact_one(name):
    module, loss, x, y = build(name)
    exact, few, many = (
        ParameterOperator(module, loss, [(x, y)], part="fisher", samples=s).dense()
        for s in (None, 10, 1000)
    )
    assert relative(many, exact) < min(0.08, relative(few, exact) / 3)


def test_gradient_and_examples():
    module, loss, x, y = build("perceptron")
    operator = ParameterOperator(module, loss, [(x[:3], y[:3]), (x[3:], y[3:])])
    output, theta = flat_function(module, x)
    expected = torch.autograd.functional.jacobian(lambda t: loss(output(t), y), theta)
    assert torch.allclose(operator.gradient(), expected, atol=1e-13)
    rows = example_gradients(loss, output(theta), y, len(x))
    single = vmap(torch.func.grad(lambda o, t: F.cross_entropy(o[None], t[None])))(
        output(theta).detach(), y
    )
    assert torch.allclose(rows, single, atol=1e-13)


def test_inputs_by_name_and_frozen_parameters():
    torch.manual_seed(0)
    module = Own(
        lambda m, left, right: m.a(left) * m.b(right), a=nn.Linear(3, 2), b=nn.Linear(3, 2)
    ).double()
    x, y = torch.randn(4, 3).double(), torch.randn(4, 2).double()
    both = ParameterOperator(module, nn.MSELoss(), [({"left": x, "right": 2 * x}, y)]).dense()
    assert torch.allclose(both, ParameterOperator(module, nn.MSELoss(), [((x, 2 * x), y)]).dense())
    module.a.requires_grad_(False)
    one = ParameterOperator(module, nn.MSELoss(), [((x, 2 * x), y)])
    assert list(one.groups) == ["b"]
    assert torch.allclose(one.dense(), both[8:, 8:])
    assert not module.a.weight.requires_grad
    assert all(p.grad is None for p in module.parameters())


def test_groups_of_a_submodule_called_module_and_of_a_name_with_brackets():
    torch.manual_seed(0)
    root = Own(
        lambda m, t: m.module(m.gain * t), module=nn.Linear(3, 2), gain=nn.Parameter(torch.ones(3))
    ).double()
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 1, 0, 1])
    operator = ParameterOperator(root, nn.CrossEntropyLoss(), [(x, y)])
    assert operator.layout.members == {
        "module()": ("gain",),
        "module": ("module.weight", "module.bias"),
    }
    assert (
        relative(operator.dense(), parameter_matrix("hessian", root, nn.CrossEntropyLoss(), x, y))
        < 1e-11
    )
    root.module.requires_grad_(False)
    assert list(ParameterOperator(root, nn.CrossEntropyLoss(), [(x, y)]).groups) == ["module()"]
    net = nn.ModuleDict({"a[0]": nn.Linear(2, 2), "a0": nn.Linear(2, 1)})
    assert layout(net, ["a[0]"]).members == {"a[0]": ("a[0].weight", "a[0].bias")}
    assert layout(net, {"all": "a*"}).size == 9


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", [nn.MSELoss(), F.l1_loss, lambda o, t: ((o - t) ** 2).mean()])
def test_a_loss_that_compares_every_output_with_every_target_is_refused(loss):
    torch.manual_seed(0)
    net, x = (
        nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double(),
        torch.randn(6, 4).double(),
    )
    fresh = nn.Sequential(nn.Linear(4, 1)).double()
    nn.init.zeros_(fresh[0].weight)
    fitting = (lambda o, t: loss(o.squeeze(1), t)), (lambda o, t: loss(o, t[:, None]))
    for module in (net, fresh):
        for measure in (ParameterOperator, trace_module):
            with pytest.raises(
                ValueError, match=r"broadcasts the output \(\d, 1\) and the target \(\d,\)"
            ):
                measure(module, loss, (x, x[:, 0]))
            assert all(measure(module, f, (x, x[:, 0])) for f in fitting)


@pytest.mark.filterwarnings(
    "ignore:memory_budget is"
)  # one byte on purpose: everything is cut as small as it goes
def test_an_operation_without_forward_derivative_falls_back():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t.sin()

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return g * t.cos()

    torch.manual_seed(0)
    module = Own(lambda m, t: m.b(Odd.apply(m.a(t))), a=nn.Linear(3, 4), b=nn.Linear(4, 2)).double()
    x, y = torch.randn(4, 3).double(), torch.randint(0, 2, (4,))
    plain = nn.Sequential(module.a, Own(lambda m, t: t.sin()), module.b)
    for part in ("hessian", "gauss_newton"):
        expected = parameter_matrix(part, plain, nn.CrossEntropyLoss(), x, y)
        for budget in (1 << 30, 1):
            operator = ParameterOperator(
                module, nn.CrossEntropyLoss(), [(x, y)], part=part, memory_budget=budget
            )
            assert relative(operator.dense(), expected) < 1e-11


def test_progress_is_shown():
    module, loss, x, y = build("perceptron")
    seen: list[tuple[int, int]] = []
    data = [(x[:3], y[:3]), (x[3:], y[3:])]
    operator = ParameterOperator(
        module, loss, data, check=False, progress=lambda i, n: seen.append((i, n))
    )
    operator @ torch.zeros(operator.shape[0], 3)
    assert seen == [(1, 2), (2, 2)] * 3


def noisy() -> nn.Module:
    return Own(lambda m, t: m.a(t + torch.randn_like(t)), a=nn.Linear(4, 3)).double()


class Turning(torch.autograd.Function):
    """A backward pass that draws at random."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * (1 + torch.rand(()))


TURNING = nn.Sequential(
    nn.Linear(4, 5), Own(lambda m, t: Turning.apply(t)), nn.Tanh(), nn.Linear(5, 3)
).double()


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_loader_may_give_its_examples_in_another_order_but_not_change_them(shuffled):
    module, loss, x, y = build("perceptron")

    class Loader:
        def __iter__(self):
            order = torch.randperm(6)
            for i in order.split(3) if shuffled else torch.arange(6).split(3):
                yield (x[i] if shuffled else x[i][:, torch.randperm(4)]), y[i]

    with pytest.warns(RuntimeWarning, match="exceeded"):
        build_one = lambda: ParameterOperator(module, loss, Loader(), memory_budget=64)  # noqa: E731
        if shuffled:
            assert build_one().shape[0] > 0
        else:
            torch.manual_seed(0)
            with pytest.raises(ValueError, match="differ from one reading to the next"):
                build_one()


def built(*args, loss=CROSS, **options):
    return lambda m, x, y: ParameterOperator(m, loss, [(x, y)], *args, **options)


MISTAKES = {
    "sum": (built(loss=nn.CrossEntropyLoss(reduction="sum")), "reduction='mean'"),
    "rows": (built(loss=lambda f, t: f.sum(0)), "expected a scalar"),
    "name of a loss": (
        built(loss="crossentropy"),
        r"expected a loss.*\['cross_entropy', 'mse'\], found 'crossentropy'",
    ),
    "part": (built(part="fischer"), "part must be one of"),
    "pattern": (built(["layer"]), "no parameter matches"),
    "overlap": (built(["0", "0.weight"]), "two groups"),
    "Fisher": (built(part="fisher", loss=F.multi_margin_loss), "Fisher matrix is known"),
    "no data": (lambda m, x, y: ParameterOperator(m, CROSS, []), "data are empty"),
    "noise": (lambda m, x, y: built()(noisy(), x, y), "random"),
    "noise backwards": (lambda m, x, y: built()(TURNING, x, y), "module is random"),
    "training": (lambda m, x, y: built()(nn.Sequential(nn.Dropout(0.5), m), x, y), "training mode"),
    "NaN": (lambda m, x, y: built()(m, x / 0, y), "not finite"),
    "NaN later": (
        lambda m, x, y: ParameterOperator(m, CROSS, [(x, y), (x / 0, y)]).dense(),
        "not finite",
    ),
    "gradient": (
        lambda m, x, y: ParameterOperator(m, CROSS, [(x, y), (x / 0, y)]).gradient(),
        "not finite",
    ),
    "vector": (lambda m, x, y: built()(m, x, y) @ torch.zeros(3), "expected a tensor"),
    "array": (lambda m, x, y: built()(m, x, y) @ np.zeros(53), "expected a tensor.*found ndarray"),
    "no column": (lambda m, x, y: built()(m, x, y) @ torch.zeros(53, 0), "at least one"),
    "None": (lambda m, x, y: ParameterOperator(m, CROSS, None), "found NoneType"),
    "empty": (
        lambda m, x, y: built()(Own(lambda m, t: t + m.w.sum(), w=nn.Parameter(x[:0])), x, y),
        "are empty",
    ),
    "block": (lambda m, x, y: built()(m, x, y).block("0", "9"), "'9' is not one of"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_say_what_to_do(name):
    module, _, x, y = build("perceptron")
    change, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        change(module, x, y)


def phi(dense: Tensor, groups: dict[str, slice]) -> float:
    return 1 - sum(float(dense[s, s].square().sum()) for s in groups.values()) / float(
        dense.square().sum()
    )


def test_discarded_coupling_is_exact_where_it_is_cheap_and_its_interval_lies_in_the_unit_interval():
    module, loss, x, y = build("perceptron")
    operator = ParameterOperator(module, loss, [(x, y)])
    exact, expected = discarded_coupling(operator), phi(operator.dense(), operator.groups)
    assert exact.low == exact.value == exact.high == pytest.approx(expected, rel=1e-10)
    for seed in range(4):
        for probes in (2, 8):
            found = discarded_coupling(
                operator, probes, generator=torch.Generator().manual_seed(seed)
            )
            assert 0 <= found.low <= found.value <= found.high < 1
            assert found.products == probes * len(operator.groups)
        assert abs(found.value - expected) < 2 * (found.high - found.low)


def test_discarded_coupling_of_nothing_is_nan_with_a_reason():
    x = torch.zeros(2, 2).double()
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).double()
    operator = ParameterOperator(module, lambda o, t: 0 * (o * t).mean(), [(x, x)])
    found = discarded_coupling(operator)
    assert found.value != found.value
    assert found.reason == "the matrix is zero"
    with torch.no_grad():
        module[0].weight[0, 0] = torch.nan
    operator = ParameterOperator(module, lambda o, t: (o * o).mean(), [(x, x)], check=False)
    operator._unchecked = False
    assert discarded_coupling(operator, 2).reason == "a product is not finite"


def test_group_metrics_against_dense_blocks():
    module, loss, x, y = build("perceptron")
    operator = ParameterOperator(module, loss, [(x, y)])
    h, gn = operator.dense(), operator.with_part("gauss_newton").dense()
    exact = group_metrics(operator)
    rough = group_metrics(operator, probes=12, generator=torch.Generator().manual_seed(0))
    for (g, w), m in exact.items():
        rows, columns = operator.groups[g], operator.groups[w]
        block, smooth = h[rows, columns], gn[rows, columns]
        r = [float(h[a, b].norm()) for a, b in ((rows, columns), (rows, rows), (columns, columns))]
        assert m.R.value == pytest.approx(r[0])
        assert m.C.value == pytest.approx(r[0] / (r[1] * r[2]) ** 0.5)
        assert m.D.value == pytest.approx(
            float((block.norm() / torch.linalg.matrix_norm(block, 2)) ** 2)
        )
        assert m.gap.value == pytest.approx(float((block - smooth).norm() / smooth.norm()))
        for name in ("R", "C", "D", "gap"):
            estimate = getattr(rough[g, w], name)
            assert abs(estimate.value - getattr(m, name).value) <= 5 * estimate.error + 1e-6
