"""A derivative next to differences: which steps are taken."""

import torch

from runner.curvature.function.function import Function
from runner.curvature.function.variables import Parameters
from runner.curvature.identities.comparison import Comparison
from runner.curvature.identities.derivatives import STEPS, SecondOrder
from tests.curvature.cases import X, mlp

ONE = torch.ones(1, dtype=torch.float64)


def steps(gradient):
    """The steps that are taken along a line, on which the derivative is said to be 1."""
    module, taken = mlp(), []
    function = Function(module, None, Parameters(module, None))
    at = SecondOrder(function, function.variables.values, (X, None), True)

    def end(t):
        taken.append(t)
        return [{"": gradient(t) * ONE}]

    at.compare([Comparison({"": ONE}, at.tolerance)], [{"": gradient(0.0) * ONE}], end)
    return taken[::2]


def test_one_step_is_enough_where_nothing_is_in_the_way():
    assert steps(lambda t: t) == [1e-8]


def test_a_kink_within_a_step_is_looked_at_in_smaller_ones():
    assert steps(lambda t: t + max(0.0, t - 3e-9)) == [1e-8, 1e-9]


def test_a_wrong_derivative_is_compared_at_every_step():
    assert steps(lambda t: 1.1 * t) == [*STEPS]
