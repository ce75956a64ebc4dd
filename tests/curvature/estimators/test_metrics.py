"""Metrics: definitions on known matrices, and on networks whose blocks the oracles confirm."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

import runner.curvature as rc
from runner.curvature.estimators import blocks as metrics
from tests.curvature.cases import GRAPHS, block, linear, make, relative_error
from tests.curvature.oracles import assembled
from tests.draws import normal
from tests.errors import refusal


def diagonal(*values):
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def test_definitions_on_a_known_matrix():
    matrix = diagonal(4.0, 2.0, -2.0, 0.0)
    assert metrics.resonance(matrix) == pytest.approx(24**0.5)
    assert metrics.stable_rank(matrix) == pytest.approx(1.5)
    assert metrics.coupling(2.0, 4.0, 1.0) == pytest.approx(1.0)
    assert metrics.gn_gap(diagonal(1.0), diagonal(2.0)) == pytest.approx(0.5)
    zero = torch.zeros(3, 2)
    undefined = (metrics.stable_rank(zero), metrics.coupling(0.0, 0.0, 1.0))
    assert all(map(math.isnan, undefined))


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
            assert d_eff <= math.sqrt(max(int(torch.linalg.matrix_rank(matrix)), 1) * d) * (
                1 + 1e-6
            )
    if graph != "nested_branches":
        matrix = assembled(split.gauss_newton, case.nodes)
        assert float(torch.linalg.eigvalsh(matrix)[0]) > -1e-12 * float(matrix.abs().max())
        smooth = replace(split, total=split.gauss_newton)
        couplings = metrics.block_metrics(smooth)["C"]
        assert max(c for c in couplings if not math.isnan(c)) <= 1 + 1e-12


def test_block_metrics_columns():
    case = make("diamond_sum")
    split = rc.split_blocks(*case.given)
    columns = metrics.block_metrics(split, order=["a0", "a1", "b1"])
    assert list(zip(columns["v"], columns["w"], columns["distance"], strict=True)) == [
        ("a0", "a0", 0),
        ("a0", "a1", 1),
        ("a0", "b1", 2),
        ("a1", "a1", 0),
        ("a1", "b1", 1),
        ("b1", "b1", 0),
    ]
    total, tensor, newton = (
        part["a0", "b1"] for part in (split.total, split.tensor, split.gauss_newton)
    )
    expected = {
        "R": metrics.resonance(total),
        "D": metrics.stable_rank(total),
        "frob_tensor": metrics.resonance(tensor),
        "gap": metrics.gn_gap(tensor, newton),
    }
    assert {name: columns[name][2] for name in expected} == pytest.approx(expected)
    assert columns["C"][0] == pytest.approx(1.0)
    assert set(columns["status"]) == {""}


def test_dead_blocks_are_nan_with_a_reason():
    """A ReLU layer whose units are all off cuts the curvature of what is before it."""
    dead = block(4, 4, nn.ReLU)
    with torch.no_grad():
        dead[0].bias.fill_(-100.0)
    dag = rc.Dag.from_sequential(
        [block(3, 4, nn.ReLU), dead, linear(4, 2)], names=["a", "b", "out"]
    )
    columns = metrics.block_metrics(rc.split_blocks(dag, normal(2, 3), torch.tensor([0, 1])))
    rows = dict(zip(zip(columns["v"], columns["w"], strict=True), range(6), strict=True))
    assert columns["status"][rows["a", "b"]] == "diagonal block is zero"
    assert math.isnan(columns["D"][rows["a", "a"]]) and math.isnan(columns["C"][rows["a", "out"]])
    assert columns["R"][rows["a", "a"]] == 0
    assert columns["status"][rows["b", "b"]] == ""


def test_jacobians_of_the_edges():
    case = make("chain")
    jacobians = metrics.block_jacobians(case.dag, case.x, ["b", "c"])
    assert set(jacobians) == {("b", "a"), ("c", "b")}
    values = case.dag.forward(case.x)
    for b in range(len(case.x)):
        exact = torch.autograd.functional.jacobian(case.dag.nodes["b"].fn, values["a"][b])
        assert torch.allclose(jacobians["b", "a"][b], exact, atol=1e-14)


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
    narrow, x = case.dag.to(torch.bfloat16), case.x.bfloat16()
    exact = metrics.gauss_newton_factors(*case.given)
    found = metrics.gauss_newton_factors(narrow, x, case.y)
    assert next(iter(found.values())).dtype == torch.bfloat16
    assert (
        relative_error({k: b.double() for k, b in blocks_of(found).items()}, blocks_of(exact))
        < 0.05
    )
    pair = (case.nodes[0], case.nodes[0])
    wide, low = (
        rc.inter_layer_metrics(d, z, case.y, pairs=[pair])[pair]
        for d, z in ((case.dag, case.x), (narrow, x))
    )
    assert low.R.value == pytest.approx(wide.R.value, rel=0.05, abs=3 * low.R.error)
