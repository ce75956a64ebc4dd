"""Bounds of softmax attention: measured quantities against autodiff, sharper constants against measured ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from runner.curvature.closed_form import attention as att
from runner.curvature.closed_form.attention import bounds


def draw(n: int, d: int, radius: float, draws: int, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((d, n), (d, n), (d, d), (d, d))
    raw = (torch.randn(draws, *shape, generator=generator, dtype=torch.float64) for shape in shapes)
    b = 2 * torch.rand(draws, n, d, generator=generator, dtype=torch.float64) - 1
    return (*(bounds.scale_to_norm(m, radius) for m in raw), b * radius**2)


def test_attention_jacobian_matches_autodiff() -> None:
    x, _, w, _, _ = (m[0] for m in draw(4, 3, 2.0, 1))
    expected = torch.func.jacrev(lambda flat: att.attention(att.unvec(flat, 3), w))(att.vec(x))
    assert (bounds.attention_jacobian(x, w) - expected).abs().max() < 1e-12


def test_case_norms_are_those_of_the_blocks() -> None:
    x, _, w, v, _ = (m[0] for m in draw(3, 2, 1.5, 1))
    expected = [0.0] * 4
    for i0, j0, i1, i2 in torch.cartesian_prod(torch.arange(3), torch.arange(2), *[torch.arange(3)] * 2).tolist():
        norm = float(torch.linalg.matrix_norm(att.hessian_block(x, w, v, (i0, j0), i1, i2), 2))
        case = att.index_case(i0, i1, i2) - 1
        expected[case] = max(expected[case], norm)
    assert bounds.case_norms(x, w, v).tolist() == pytest.approx(expected)
    alone = (m[0] for m in draw(1, 2, 1.5, 1))
    x, _, w, v, _ = alone
    assert bounds.case_norms(x, w, v).isnan().tolist() == [False, True, True, True]


@pytest.mark.parametrize("radius", [1.01, 2.0, 4.0])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (2, 3), (4, 3)])
def test_sharper_constants_hold_and_are_sharper(n: int, d: int, radius: float) -> None:
    x, y, w, v, b = draw(n, d, radius, 50)
    values = {**bounds.point_values(x, w, v, b), **bounds.pair_values(x, 0.98 * x + 0.01 * y, w, v, b)}
    assert values.keys() == bounds.BOUNDS.keys()
    for name, bound in bounds.BOUNDS.items():
        assert values[name].shape == (50,)
        constant = bound.printed(n, d, radius)
        if bound.sharper is not None:
            sharper = bound.sharper(n, d, radius)
            assert sharper <= constant
            constant = sharper
        assert values[name].max() <= constant * (1 + 1e-9), name


def test_batches_are_independent() -> None:
    x, _, w, v, b = draw(3, 2, 2.0, 4)
    together = bounds.point_values(x, w, v, b)
    alone = bounds.point_values(x[2], w[2], v[2], b[2])
    for name, value in alone.items():
        assert float(value) == pytest.approx(float(together[name][2]), rel=1e-10, abs=1e-12)
