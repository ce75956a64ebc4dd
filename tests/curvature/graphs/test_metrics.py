"""Metrics: definitions on known matrices, and on networks whose blocks the oracles confirm."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

import runner.curvature as rc
from runner.curvature.graphs import block_metrics as metrics
from tests.curvature.cases import GRAPHS, block, linear, make, relative_error
from tests.curvature.matrices import exact_metrics
from tests.curvature.oracles import assembled
from tests.draws import normal
from tests.errors import refusal


def test_definitions_on_a_known_matrix():
    matrix = torch.diag(torch.tensor([4.0, 2.0, -2.0, 0.0]))
    assert metrics.resonance(matrix) == pytest.approx(24**0.5)
    assert metrics.stable_rank(matrix) == pytest.approx(1.5)
    assert metrics.coupling(2.0, 4.0, 1.0) == pytest.approx(1.0)
    assert metrics.gn_gap(1.0, 2.0) == pytest.approx(0.5)
    assert math.isnan(metrics.stable_rank(torch.zeros(3, 2)))
    assert math.isnan(metrics.coupling(0.0, 0.0, 1.0))


@pytest.mark.parametrize("graph", GRAPHS)
def test_order_of_dimensions_and_a_gauss_newton_part_that_is_positive(graph):
    """1 <= D <= d_eff <= sqrt(rank D) (Propositions 58 and 62); of a convex loss H^GN >= 0, so its
    C is at most 1."""
    case = make(graph)
    split = rc.split_blocks(*case.given)
    columns = metrics.block_metrics(split)
    for v, w, d, d_eff in zip(*(columns[name] for name in ("v", "w", "D", "d_eff")), strict=True):
        matrix = split.total[v, w]
        if metrics.resonance(matrix) > 1e-10:
            assert d == pytest.approx(metrics.stable_rank(matrix))
            assert 1 - 1e-12 <= d <= d_eff + 1e-12
            rank = max(int(torch.linalg.matrix_rank(matrix)), 1)
            assert d_eff <= math.sqrt(rank * d) * (1 + 1e-6)
    if graph != "nested_branches":
        matrix = assembled(split.gauss_newton, case.nodes)
        assert float(torch.linalg.eigvalsh(matrix)[0]) > -1e-12 * float(matrix.abs().max())
        couplings = metrics.block_metrics(replace(split, total=split.gauss_newton))["C"]
        assert torch.tensor(couplings).nan_to_num(0).max() <= 1 + 1e-12


def test_block_metrics_columns():
    split = rc.split_blocks(*make("diamond_sum").given)
    columns = metrics.block_metrics(split, order=["a0", "a1", "b1"])
    assert columns["v"] == ["a0", "a0", "a0", "a1", "a1", "b1"]
    assert columns["w"] == ["a0", "a1", "b1", "a1", "b1", "b1"]
    assert columns["distance"] == [0, 1, 2, 0, 1, 0]
    assert set(columns["status"]) == {""}
    pairs = list(zip(columns["v"], columns["w"], strict=True))
    for i, (pair, expected) in enumerate(exact_metrics(split, pairs).items()):
        assert {name: columns[name][i] for name in expected} == pytest.approx(expected)
        tensor = float(split.tensor[pair].norm())
        assert columns["frob_tensor"][i] == pytest.approx(tensor)


def test_dead_blocks_are_nan_with_a_reason():
    """A ReLU layer whose units are all off cuts the curvature of what is before it."""
    dead = block(4, 4, nn.ReLU)
    nn.init.constant_(dead[0].bias, -100.0)
    dag = rc.Dag.from_sequential([block(3, 4, nn.ReLU), dead, linear(4, 2)])
    columns = metrics.block_metrics(rc.split_blocks(dag, normal(2, 3), torch.tensor([0, 1])))
    pairs = zip(columns["v"], columns["w"], strict=True)
    rows = {pair: i for i, pair in enumerate(pairs)}
    assert columns["status"][rows["0", "1"]] == "diagonal block is zero"
    assert math.isnan(columns["D"][rows["0", "0"]]) and math.isnan(columns["C"][rows["0", "2"]])
    assert columns["R"][rows["0", "0"]] == 0
    assert columns["status"][rows["1", "1"]] == ""


def test_jacobians_of_the_edges():
    case = make("chain")
    jacobians = metrics.block_jacobians(case.dag, case.x, ["b", "c"])
    assert set(jacobians) == {("b", "a"), ("c", "b")}
    inputs = case.dag.forward(case.x)["a"]
    for t, found in zip(inputs, jacobians["b", "a"], strict=True):
        exact = torch.autograd.functional.jacobian(case.dag.nodes["b"].fn, t)
        assert torch.allclose(found, exact, atol=1e-14)


def blocks_of(factors):
    return {(v, w): factors[v].mT @ factors[w] for v, w in product(factors, repeat=2)}


@pytest.mark.parametrize("graph", ["diamond_sum", "skip", "shared_weights"])
def test_gauss_newton_factors_give_the_blocks(graph):
    case = make(graph)
    exact = rc.gauss_newton_blocks(*case.given)
    assert relative_error(blocks_of(metrics.gauss_newton_factors(*case.given)), exact) < 1e-12


def test_a_loss_that_is_not_convex_has_no_factors():
    case = make("nested_branches", seed=2)
    with refusal("not convex"):
        metrics.gauss_newton_factors(*case.given)


def test_factors_and_metrics_in_bfloat16():
    """torch.linalg has no bfloat16: the loss Hessian is decomposed in float32."""
    case = make("chain")
    narrow = case.dag.to(torch.bfloat16), case.x.bfloat16(), case.y
    exact = metrics.gauss_newton_factors(*case.given)
    found = metrics.gauss_newton_factors(*narrow)
    assert found["a"].dtype == torch.bfloat16
    wide = {name: factor.double() for name, factor in found.items()}
    assert relative_error(blocks_of(wide), blocks_of(exact)) < 0.05
    expected, low = (rc.graph_metrics(*g, ["a"])["a", "a"].R for g in (case.given, narrow))
    assert low.value == pytest.approx(expected.value, rel=0.05, abs=3 * low.error)
