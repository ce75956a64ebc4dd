"""Both operators of a user's network: modules as users write them against dense float64 oracles,
and their laws."""

import time
from itertools import count

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runner.curvature import (
    LayerOperator,
    ParameterOperator,
    inter_layer_metrics,
    verify,
)
from runner.curvature.pairs import metrics as between
from tests.curvature.cases import Own, with_backward
from tests.curvature.module_cases import MODULES, hessian_by_hooks, make_module
from tests.curvature.oracles import PARTS, flat_gradient, parameter_matrix, relative
from tests.draws import normal, seeded, tanh_net
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()


def mlp():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3)).double()


def data(n=7):
    return normal(n, 4), torch.arange(n) % 3


def halves(x, y):
    return [(x[:3], y[:3]), (x[3:], y[3:])]


@pytest.mark.parametrize("name", MODULES)
def test_blocks_between_layers_agree_with_hooks(name):
    case = make_module(name)
    options = {k: v for k, v in case.options.items() if k in ("output", "batch_dim")}
    layers = case.nodes
    if "language" in name:
        # the oracle takes the output of "wpe" for one with examples
        layers = ["wte", "ln1", "attn", "mlp", "head"]
    check = name != "unusual"  # it stops gradients on purpose
    operator = LayerOperator(*case.problem, layers, check=check, **options)
    expected, found = hessian_by_hooks(case, operator.nodes), operator.blocks()
    assert set(found) == set(expected)
    scale = max(float(block.norm()) for block in expected.values())
    for pair, block in expected.items():
        assert float((found[pair] - block).norm()) <= 1e-11 * scale, pair
    for key, text in operator.checks.items():
        assert key == "reached" or "inconclusive" not in text


def cumulative():
    parts = {"a": nn.Linear(4, 3), "b": nn.Linear(3, 3)}
    return Own(lambda m, t: m.b(torch.logcumsumexp(m.a(t), -1)), **parts).double()


odd = with_backward(torch.sin, lambda g, t: g * t.cos())
"""A sine without a forward derivative."""


def without_forward_derivative():
    parts = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 3)}
    return Own(lambda m, t: m.b(odd(m.a(t))), **parts).double()


KINDS = [(ParameterOperator, mlp), (ParameterOperator, cumulative), (LayerOperator, mlp)]
KINDS += [(ParameterOperator, without_forward_derivative)]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind, make", KINDS)
def test_the_matrix_however_the_data_are_cut(kind, make, part):
    module, (x, y) = make(), data(5)
    expected = kind(module, CROSS, (x, y), part=part).dense()
    if kind is ParameterOperator:
        assert relative(expected, parameter_matrix(part, module, CROSS, x, y)) < 1e-11
    assert float((expected - expected.mT).norm()) < 1e-12 * float(expected.norm())
    loader, v = DataLoader(TensorDataset(x, y), batch_size=4), normal(len(expected), 5)
    for given, budget in ((halves(x, y), 1 << 30), (loader, 1 << 30), (loader, 1), ([(x, y)], 1)):
        operator = kind(module, CROSS, given, part=part, memory_budget=budget)
        assert relative(operator @ v, expected @ v) < 1e-11
        assert relative(operator @ v[:, 0], expected @ v[:, 0]) < 1e-11
        assert "4 weights" in operator.checks


def test_several_vectors_at_once_one_after_the_other_and_unused_variables():
    module = Own(lambda m, t: m.used(t), used=nn.GroupNorm(2, 4), unused=nn.Linear(4, 2)).double()
    x, y = data()
    operator = ParameterOperator(module, CROSS, (x, y % 2))
    v = normal(operator.shape[0], 6)
    alone = torch.stack([operator @ column for column in v.mT], 1)
    for _ in range(2):
        assert relative(operator @ v, alone) < 1e-13
    assert not (operator @ v)[operator.groups["unused"]].any()
    assert "not reached by the examples compared: unused" in repr(operator)


def test_how_several_vectors_go_does_not_depend_on_the_load(monkeypatch):
    """Nothing is chosen by elapsed time: clocks that run backwards change no bit and no word."""
    v, module, batch = normal(53, 6), mlp(), data()

    def measured():
        operator = ParameterOperator(module, CROSS, batch, part="gauss_newton")
        products = [operator @ v[:, 0] for _ in range(8)]
        return torch.stack([*products, *(operator @ v).mT]), repr(operator)

    expected, text = measured()
    ticks = count(0.0, -1.0)
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, lambda: next(ticks))
    found, again = measured()
    assert torch.equal(found, expected) and again == text and "vectors together" in text


def test_vectors_go_one_at_a_time_where_sizes_or_torch_allow_no_more():
    given, several = (mlp(), CROSS, data()), normal(53, 6)
    expected = ParameterOperator(*given) @ several
    little = ParameterOperator(*given)
    little.multiplication.graphs.planned = little.planned._replace(width=1)
    assert relative(little @ several, expected) < 1e-13
    assert "one vector at a time (sizes)" in repr(little)
    wrong = ParameterOperator(*given)
    graphs = wrong.multiplication.graphs
    right = graphs.apply
    graphs.apply = lambda rows, batched, *out: right(rows, batched, *out) * (1 + batched)
    assert relative(wrong @ several, expected) < 1e-13
    assert "one vector at a time (their products differ)" in repr(wrong)


TEXTS = ("53 x 53", "part='hessian'", "2 batches, 7 examples", "weighed by examples", "graph kept")


def test_repr_gradient_and_groups():
    module, (x, y) = mlp(), data()
    operator = ParameterOperator(module, CROSS, halves(x, y))
    for text in (*TEXTS, "0 1 2 3 4"):
        assert text in repr(operator)
    expected = flat_gradient(CROSS(module(x), y), module.parameters())
    assert relative(operator.gradient(), expected) < 1e-13
    assert list(operator.groups) == ["0", "2", "3"] and operator.groups["2"] == slice(25, 35)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", [ParameterOperator, LayerOperator])
def test_verify_certifies_what_is_right_and_nothing_else(kind, part):
    operator = kind(mlp(), CROSS, halves(*data()), part=part)
    found = verify(operator)
    assert found.ok and found.value < 1e-6 and found.gradients <= 30
    right = operator._of_rows
    operator._of_rows = lambda rows: right(rows) * (1 + 1e-4)
    wrong = verify(operator)
    assert not wrong.ok and "products are wrong" in wrong.reasons[0] and wrong.gradients <= 45


def test_a_float32_network_of_relus_is_decided_in_a_float64_copy():
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    x, y = data(20)
    operator = ParameterOperator(module, CROSS, (x.float(), y))
    assert all("right" in text for text in operator.checks.values())
    assert verify(operator).ok


def test_complex_outputs_of_layers_are_perturbed_as_pairs():
    def forward(m, t):
        return m.last(torch.fft.irfft(m.spectrum(m.first(t)), n=4).tanh())

    spectrum = Own(lambda m, t: torch.fft.rfft(t))
    parts = {"first": nn.Linear(4, 4), "spectrum": spectrum, "last": nn.Linear(4, 3)}
    operator = LayerOperator(Own(forward, **parts).double(), CROSS, data(), ["spectrum", "last"])
    assert operator.sizes == {"spectrum": 6, "last": 3}
    assert verify(operator).ok


def filtered(m, t):
    """By complex numbers that are kept as pairs."""
    spectrum = torch.fft.fft(m.first(t + m.shift)) * torch.view_as_complex(m.pairs)
    return m.last(torch.view_as_real(spectrum.tanh()).flatten(1))


@pytest.mark.parametrize("part", PARTS)
def test_pairs_at_an_odd_place_of_the_vector_are_read_as_complex_numbers(part):
    shift, pairs = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(4, 2))
    parts = {"first": nn.Linear(3, 4), "last": nn.Linear(8, 2)}
    module = Own(filtered, shift=shift, pairs=pairs, **parts).double()
    x, y = normal(5, 3), torch.arange(5) % 2
    operator = ParameterOperator(module, CROSS, (x, y), ["shift", "pairs", "last"], part)
    n = operator.shape[0]
    together = operator.dense()
    alone = torch.stack([operator @ column for column in torch.eye(n).double()], 1)
    assert n % 2 and relative(alone, together) < 1e-12 and "vectors together" in repr(operator)
    v = normal(n + 1)[1:]
    assert relative(operator @ v, together @ v) < 1e-12
    assert verify(operator).ok


# ------------------------------------------------------------------ torch.func inside a network


def laplacian(m, x):
    """Of a network as function of its input, next to its slope (a PINN)."""
    value = lambda t: m.net(t).sum()  # noqa: E731
    bent = torch.vmap(lambda t: torch.func.hessian(value)(t).trace())(x)
    return torch.cat([torch.vmap(torch.func.grad(value))(x), bent.unsqueeze(1)], 1)


FUNCTIONS = {
    "laplacian": laplacian,
    "jacobian": lambda m, x: torch.vmap(torch.func.jacrev(m.net))(x).flatten(1),
    "forward": lambda m, x: torch.func.jvp(m.net, (x,), (torch.ones_like(x),))[1],
}


@pytest.mark.parametrize("kind, given", [(ParameterOperator, None), (LayerOperator, ["net.0"])])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_networks_with_torch_func_inside_are_measured(name, kind, given):
    module = Own(FUNCTIONS[name], net=tanh_net(3, 4, 3)).double()
    x = normal(6, 3)
    operator = kind(module, "mse", (x, torch.ones_like(module(x))), given)
    for part in PARTS:
        assert verify(operator.with_part(part)).ok
    found = inter_layer_metrics(operator)
    node = operator.nodes[0]
    assert found[node, node].gap.value > 0
    expected = operator.dense()[operator.groups[node], operator.groups[node]]
    assert abs(found[node, node].R.value / float(expected.norm()) - 1) < 1e-11


# ------------------------------------------------------------------ between layers


def deep():
    return LayerOperator(tanh_net(4, 40, 35, 3).double(), CROSS, data(8))


def test_metrics_between_layers_of_exact_blocks_are_those_of_dense_ones():
    operator = deep()
    whole, smooth = operator.blocks(), operator.with_part("gauss_newton").blocks()
    exact = inter_layer_metrics(operator)
    norms = {pair: float(block.norm()) for pair, block in whole.items()}
    assert list(exact) == [(v, w) for i, v in enumerate("024") for w in "024"[i:]]
    for (v, w), found in exact.items():
        block, flat = whole[v, w], smooth[v, w]
        assert abs(found.R.value / norms[v, w] - 1) < 1e-11
        assert abs(found.C.value - norms[v, w] / (norms[v, v] * norms[w, w]) ** 0.5) < 1e-11
        spectral = float(torch.linalg.matrix_norm(block, 2))
        assert abs(found.D.value / (norms[v, w] / spectral) ** 2 - 1) < 1e-10
        gap = float((block - flat).norm() / flat.norm())
        assert abs(found.gap.value - gap) < 1e-10 * max(gap, 1)
        assert found.R.error == 0 and found.method == "exact blocks"
    assert list(inter_layer_metrics(operator, [("0", "4")])) == [("0", "4")]


def test_intervals_of_metrics_between_layers_cover_the_exact_ones(monkeypatch):
    operator = deep()
    exact = inter_layer_metrics(operator)
    for name in ("FEW_COLUMNS", "WITHOUT_FACTORS", "SWEPT"):
        monkeypatch.setattr(between, name, 0)
    inside = []
    for seed in range(12):
        found = inter_layer_metrics(operator, relative_error=0.2, generator=seeded(seed))
        for pair, each in found.items():
            for name in ("R", "C", "D", "gap"):
                one, truth = getattr(each, name), getattr(exact[pair], name).value
                if one.error > 0:
                    inside.append(one.low <= truth <= one.high)
    assert sum(inside) > 0.9 * len(inside) > 100


def test_metrics_between_groups_need_a_hessian():
    operator = ParameterOperator(mlp(), CROSS, data())
    found = inter_layer_metrics(operator)
    assert len(found) == 6 and found["0", "3"].R.error == 0
    with refusal("expected an operator with part='hessian'"):
        inter_layer_metrics(operator.with_part("gauss_newton"))
    with refusal(r"expected pairs \(v, w\) of the operator's nodes"):
        inter_layer_metrics(operator, [("0", "9")])


class Failing(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Failing.calls += 1
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        raise KeyError("a fault of the user's")


def test_an_error_that_is_not_of_a_part_of_the_batch_ends_the_build():
    """Other ways to cut the batch would not mend it."""
    net = Own(lambda m, x: Failing.apply(m.first(x)), first=nn.Linear(3, 2))
    with pytest.raises(KeyError, match="fault of the user"):
        ParameterOperator(net, "mse", (torch.ones(4, 3), torch.ones(4, 2)))
    assert Failing.calls == 1
