"""The references of the audit against second opinions: finite differences, closed forms and the
engine."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.testing import assert_close

from experiments.paper_audit import three_layer
from experiments.paper_audit.attention import bounds, recovery
from experiments.paper_audit.attention.terms import (
    all_same,
    by_x1,
    derivative,
    f00,
    h0,
    m1,
    points,
    s,
    same1,
    v1,
    w1,
    z1,
)
from experiments.paper_audit.checks import equality, relative_error
from experiments.paper_audit.dag import oracle as dag
from experiments.paper_audit.dag.instances import (
    by_hand,
    chain,
    piecewise_linear,
    relative_error as block_error,
    smooth,
)
from experiments.paper_audit.dag.parameter_oracle import parameter_blocks
from experiments.paper_audit.scalar import cases as scalar, networks
from runner.closed_form import attention as att, three_layer as tl
from runner.curvature import ParameterOperator, exact_blocks, split_blocks
from tests.errors import refusal


def test_relative_error_does_not_hide_shapes_or_nan():
    assert relative_error(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    with refusal("expected shape"):
        relative_error(torch.ones(2), torch.ones(3))


def test_equality_reports_the_first_failure():
    def capped(c):
        return torch.tensor([min(c, 2.0)])

    found = equality([1.0, 2.0, 3.0], lambda c: torch.tensor([c]), capped)
    assert found.agreement == "fails" and found.instances == 3
    assert found.witness is not None and found.witness["instance"] == "3.0"


@pytest.mark.parametrize(
    "case", [*by_hand(), *smooth(), *piecewise_linear()], ids=lambda case: case.name
)
def test_blocks_agree_with_the_engine(case):
    """Two programs: the audit's differentiates the perturbed network twice, the engine routes
    curvature."""
    found = dag.mean(dag.exact(case))
    assert block_error(exact_blocks(case.dag, case.x, case.y), found) < 1e-9
    gn = split_blocks(case.dag, case.x, case.y).gauss_newton
    assert block_error(gn, dag.mean(dag.gauss_newton(case))) < 1e-9


def test_parameter_blocks_agree_with_the_engine():
    case = chain(0, widths=(2, 3, 2))
    layers = {v: node.fn for v, node in case.dag.nodes.items()}
    network = nn.Sequential(*layers.values())
    operator = ParameterOperator(network, "cross_entropy", (case.x, case.y))
    vectors = {v: parameters_to_vector(layer.parameters()) for v, layer in layers.items()}
    parameters = dag.Flat(vectors)
    found = parameters.blocks(operator.dense())
    assert block_error(found, parameter_blocks(case)) < 1e-9


def test_block_error_sees_a_wrong_block():
    exact = dag.mean(dag.exact(chain(0)))
    wrong = dict(exact) | {("h1", "h1"): 1.001 * exact["h1", "h1"]}
    assert block_error(wrong, exact) == pytest.approx(1e-3, rel=1e-6)


def test_three_layer_oracle_agrees_with_the_closed_forms():
    for instance in three_layer.instances():
        arguments = (instance.theta, instance.x, instance.q, instance.name)
        gradient, hessian = tl.gradient(*arguments), tl.hessian(*arguments)
        assert_close(instance.gradient, gradient, rtol=1e-10, atol=1e-12)
        assert_close(instance.hessian, hessian, rtol=1e-10, atol=1e-12)


def test_scalar_oracle_agrees_with_finite_differences():
    (w, v), x, y = scalar.random_instance(0, 3, 4)
    loss = networks.autodiff_loss(networks.relu_network, [v, w], x, y)
    theta, step = torch.cat([v, w]), 1e-4

    def second(a, b):
        above = loss(theta + a + b) - loss(theta + a - b)
        below = loss(theta - a + b) - loss(theta - a - b)
        return (above - below) / 4 / step**2

    steps = step * torch.eye(6, dtype=torch.float64)
    entries = [second(a, b) for a, b in itertools.product(steps, repeat=2)]
    found = networks.autodiff_hessian(networks.relu_network, [v, w], x, y)
    assert_close(found, torch.stack(entries).view(6, 6), rtol=0, atol=1e-6)


def test_attention_oracle_agrees_with_finite_differences():
    for t in points(all_same):
        shift = torch.zeros_like(t.x)
        shift[t.k.j2, t.k.i2] = 1e-6
        above, below = replace(t, x=t.x + shift), replace(t, x=t.x - shift)
        estimate = (z1(above) - z1(below)) / 2e-6
        assert abs(float(estimate - derivative(z1, t, 2))) < 1e-7


wrong_lemma_b16 = s * f00 * w1 - s * z1 + f00 * h0 * w1 + m1 + f00 * v1
"""Its first sign is turned."""


def test_a_wrong_sign_in_an_attention_lemma_is_caught_and_described():
    """A wrong sign in Lemma B.16 is reported with an instance to recompute by hand."""
    found = by_x1(s, same1, wrong_lemma_b16)()
    assert found.agreement == "fails" and found.witness is not None
    assert found.witness["instance"].startswith("d = 1, X = (1.0, 0.0)")


@pytest.mark.parametrize("n, d", [(1, 2), (4, 3)])
def test_minimiser_of_theorem_j_1_tells_the_column_sums_alone(n, d):
    """As the errata say of X* at the admissible γ: to first order, a column is V Bᵀ1 / (n γ)."""
    x, _, w, v, _ = (m[0] for m in bounds.draw(n, d, 2.0, 1, frobenius=True))
    _, minimiser, _ = recovery.regularised(n, d)
    gamma = recovery.admissible_gamma(n, d, 2.0)
    column = v @ att.outputs(x, w, v).sum(0) / (n * gamma)
    expected = att.vec(column[:, None].expand(d, n))
    assert_close(minimiser, expected, rtol=1e-3, atol=0)
