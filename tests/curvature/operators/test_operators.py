"""Both operators of a user's network: modules as users write them against dense float64 oracles,
and their laws."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runner.curvature import (
    LayerOperator,
    ParameterOperator,
    as_linear_operator,
    inter_layer_metrics,
    verify,
)
from runner.curvature.operators import between
from tests.curvature.cases import Own
from tests.curvature.module_cases import MODULES, hessian_by_hooks, make_module
from tests.curvature.oracles import PARTS, flat_gradient, parameter_matrix, relative
from tests.draws import normal, seeded
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3)).double()


def data(n=7):
    generator = seeded(1)
    return torch.randn(n, 4, generator=generator).double(), torch.arange(n) % 3


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
    expected = hessian_by_hooks(case, operator.nodes)
    found = operator.blocks()
    assert set(found) == set(expected)
    scale = max(float(block.norm()) for block in expected.values())
    for pair, block in expected.items():
        assert float((found[pair] - block).norm()) <= 1e-11 * scale, pair
    assert all(
        "inconclusive" not in text for key, text in operator.checks.items() if key != "reached"
    )


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", [ParameterOperator, LayerOperator])
def test_the_matrix_however_the_data_are_cut(kind, part):
    module, (x, y) = mlp(), data()
    whole = kind(module, CROSS, (x, y), part=part)
    expected = whole.dense()
    if kind is ParameterOperator:
        assert relative(expected, parameter_matrix(part, module, CROSS, x, y)) < 1e-11
    assert float((expected - expected.mT).norm()) < 1e-12 * float(expected.norm())
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    cut = [(x[:2], y[:2]), (x[2:], y[2:])]
    v = normal(len(expected), 5)
    for given, budget in ((cut, 1 << 30), (loader, 1 << 30), (loader, 1), ([(x, y)], 1)):
        operator = kind(module, CROSS, given, part=part, memory_budget=budget)
        assert relative(operator @ v, expected @ v) < 1e-11
        assert relative(operator @ v[:, 0], expected @ v[:, 0]) < 1e-11
        assert "4 weights" in operator.checks


def test_several_vectors_at_once_one_after_the_other_and_unused_variables():
    module = Own(lambda m, t: m.used(t), used=nn.GroupNorm(2, 4), unused=nn.Linear(4, 2)).double()
    x, y = data()
    operator = ParameterOperator(module, CROSS, (x, y.fmod(2)))
    v = normal(operator.shape[0], 6)
    alone = torch.stack([operator @ column for column in v.mT], 1)
    assert relative(operator @ v, alone) < 1e-13
    assert relative(operator @ v, alone) < 1e-13
    assert not (operator @ v)[operator.groups["unused"]].any()
    assert "not reached by the examples compared: unused" in repr(operator)


def test_linearize_gives_the_products_of_two_backward_passes(monkeypatch):
    module, (x, y) = mlp(), data()
    operator = ParameterOperator(module, CROSS, [(x, y)], part="gauss_newton")
    v = normal(operator.shape[0], 6)
    ways = operator.multiplication
    expected, ways.count, ways.seconds = operator @ v, 10, 1e9
    found = operator @ v
    assert ways.linear == "linearize" and "linearize" in repr(operator)
    assert relative(found, expected) < 1e-12
    assert relative(operator @ v, expected) < 1e-12


def test_repr_gradient_groups_and_adapters():
    module, (x, y) = mlp(), data()
    operator = ParameterOperator(module, CROSS, [(x[:3], y[:3]), (x[3:], y[3:])])
    for text in (
        "53 x 53",
        "part='hessian'",
        "2 batches, 7 examples",
        "weighed by examples",
        "graph kept",
        "0 1 2 3 4",
    ):
        assert text in repr(operator)
    loss = CROSS(module(x), y)
    expected = flat_gradient(loss, module.parameters())
    assert relative(operator.gradient(), expected) < 1e-13
    assert list(operator.groups) == ["0", "2", "3"] and operator.groups["2"] == slice(25, 35)
    values = eigsh(as_linear_operator(operator), 3, return_eigenvectors=False)
    top = np.linalg.eigvalsh(operator.dense().numpy())
    assert np.allclose(sorted(np.abs(values))[-1], np.abs(top).max())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", [ParameterOperator, LayerOperator])
def test_verify_certifies_what_is_right_and_nothing_else(kind, part):
    module, (x, y) = mlp(), data()
    operator = kind(module, CROSS, [(x[:3], y[:3]), (x[3:], y[3:])], part=part)
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
    module = Own(
        lambda m, t: m.last(torch.fft.irfft(m.spectrum(m.first(t)), n=4).tanh()),
        first=nn.Linear(4, 4),
        spectrum=Own(lambda m, t: torch.fft.rfft(t)),
        last=nn.Linear(4, 3),
    ).double()
    operator = LayerOperator(module, CROSS, data(), ["spectrum", "last"])
    assert operator.sizes == {"spectrum": 6, "last": 3}
    assert verify(operator).ok


# ------------------------------------------------------------------ between layers


def deep():
    torch.manual_seed(0)
    parts = nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 35), nn.Tanh(), nn.Linear(35, 3)
    return nn.Sequential(*parts).double()


def test_metrics_between_layers_are_those_of_dense_blocks(monkeypatch):
    module, (x, y) = deep(), data(8)
    operator = LayerOperator(module, CROSS, (x, y))
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
    for name in ("FEW_COLUMNS", "WITHOUT_FACTORS", "SWEPT"):
        monkeypatch.setattr(between, name, 0)
    inside = total = 0
    for seed in range(12):
        generator = seeded(seed)
        found = inter_layer_metrics(operator, relative_error=0.2, generator=generator)
        for pair, each in found.items():
            for name in ("R", "C", "D", "gap"):
                one, truth = getattr(each, name), getattr(exact[pair], name).value
                total += one.error > 0
                inside += one.error > 0 and one.low <= truth <= one.high
    assert inside > 0.9 * total > 100


def test_metrics_between_groups_need_a_hessian():
    module, (x, y) = mlp(), data()
    found = inter_layer_metrics(ParameterOperator(module, CROSS, (x, y)))
    assert len(found) == 6 and found["0", "3"].R.error == 0
    with refusal("expected an operator with part='hessian'"):
        inter_layer_metrics(ParameterOperator(module, CROSS, (x, y), part="fisher"))
    with refusal(r"expected pairs \(v, w\) of the operator's nodes"):
        inter_layer_metrics(ParameterOperator(module, CROSS, (x, y)), [("0", "9")])
