"""Bounds of the attention paper."""

import pytest
import torch

from experiments.attention import bounds
from runner.closed_form import attention as att
from tests.draws import normal, seeded


def draw(n, d, radius, draws):
    generator = seeded()
    shapes = ((d, n), (d, n), (d, d), (d, d))
    raw = (normal(draws, *shape, generator=generator) for shape in shapes)
    b = 2 * torch.rand(draws, n, d, generator=generator, dtype=torch.float64) - 1
    return (*(bounds.scale_to_norm(m, radius) for m in raw), b * radius**2)


def draw_one(n, d, radius):
    """x, w and v of one draw."""
    x, _, w, v, _ = (m[0] for m in draw(n, d, radius, 1))
    return x, w, v


def test_attention_jacobian_matches_autodiff():
    x, w, _ = draw_one(4, 3, 2.0)
    expected = torch.func.jacrev(lambda flat: att.attention(att.unvec(flat, 3), w))(att.vec(x))
    assert (bounds.attention_jacobian(x, w) - expected).abs().max() < 1e-12


def test_case_norms_are_those_of_the_blocks():
    x, w, v = draw_one(3, 2, 1.5)
    expected = [0.0] * 4
    blocks = att.output_hessians(x, w, v).unflatten(-2, (3, 2)).unflatten(-1, (3, 2))
    norms = torch.linalg.matrix_norm(blocks.transpose(-3, -2), 2)
    for i0, j0, i1, i2 in torch.cartesian_prod(*map(torch.arange, (3, 2, 3, 3))).tolist():
        case = 2 * (i1 != i0) + (i2 != i0)  # of Definition E.2
        expected[case] = max(expected[case], float(norms[i0, j0, i1, i2]))
    assert bounds.case_norms(x, w, v).tolist() == pytest.approx(expected)
    alone = bounds.case_norms(*draw_one(1, 2, 1.5))
    assert alone.isnan().tolist() == [False, True, True, True]


@pytest.mark.parametrize("radius", [1.01, 2.0, 4.0])
@pytest.mark.parametrize("n, d", [(1, 1), (2, 1), (2, 3), (4, 3)])
def test_sharper_constants_hold_and_are_sharper(n, d, radius):
    x, y, w, v, b = draw(n, d, radius, 50)
    near = 0.98 * x + 0.01 * y
    for name, bound in bounds.BOUNDS.items():
        values = bounds.left_side(name, x, near, w, v, b)
        assert values.shape == (50,)
        constant = printed = bound.printed(n, d, radius)
        if bound.sharper is not None:
            constant = bound.sharper(n, d, radius)
        assert constant <= printed and values.max() <= constant * (1 + 1e-9), name


def test_batches_are_independent():
    x, _, w, v, b = draw(3, 2, 2.0, 4)
    names = [name for name, bound in bounds.BOUNDS.items() if bound.over == "point"]
    for name in names:
        alone = bounds.point_value(name, x[2], w[2], v[2], b[2])
        together = bounds.point_value(name, x, w, v, b)[2]
        assert float(alone) == pytest.approx(float(together), rel=1e-10, abs=1e-12)
