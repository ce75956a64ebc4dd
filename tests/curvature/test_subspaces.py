"""Sweeps over shared subspaces against dense matrices with flat spectra, and the operations that benches count."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from runner.curvature.metrics.operations import Operations
from runner.curvature.metrics.subspaces import SharedSubspaces
from runner.curvature.metrics.tensor_part import FEW, _fitting

SIZES = {"a": 90, "b": 60, "c": 40}
PAIRS = [("a", "a"), ("a", "b"), ("a", "c"), ("b", "b"), ("b", "c"), ("c", "c")]


def matrix(seed: int) -> dict[tuple[str, str], Tensor]:
    """Blocks of a symmetric matrix with eigenvalues +-i^-0.4: stable ranks of 10 to 30."""
    torch.manual_seed(seed)
    n = sum(SIZES.values())
    basis, _ = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))
    values = torch.arange(1, n + 1, dtype=torch.float64) ** -0.4 * torch.randn(n, dtype=torch.float64).sign()
    whole = (basis * values) @ basis.mT
    rows = dict(zip(SIZES, whole.split(list(SIZES.values())), strict=True))
    return {
        (v, w): b for v, row in rows.items() for w, b in zip(SIZES, row.split(list(SIZES.values()), 1), strict=True)
    }


def swept(blocks: dict[tuple[str, str], Tensor], tolerance: float, most: int = 40):
    calls: list[int] = []

    def apply(w: str, directions: Tensor) -> dict[str, Tensor]:
        calls.append(len(directions))
        return {v: directions @ blocks[w, v] for v in SIZES}

    spaces = SharedSubspaces(apply, SIZES)
    for w, d in SIZES.items():
        z = torch.randn(12, d, dtype=torch.float64)
        spaces.know(w, z, apply(w, z))
    return spaces.sweeps(PAIRS, tolerance, most), calls[3:]


def test_standard_errors_of_sweeps_cover():
    """Asked for 3 %; sigma_1 comes from below, and 1.96 standard errors reach it in at least nine cases of ten."""
    inside, wide, cases = 0, 0, 0
    for seed in range(25):
        blocks = matrix(seed)
        found, _ = swept(blocks, 0.03)
        for pair in PAIRS:
            truth = float(torch.linalg.matrix_norm(blocks[pair], 2))
            missing = truth - found[pair].value
            assert missing > -1e-9
            assert found[pair].error <= 0.03 * found[pair].value
            cases += 1
            inside += missing <= 1.96 * found[pair].error
            wide += missing <= 0.25 * found[pair].error
    assert inside >= 0.9 * cases
    assert wide <= 0.9 * cases  # an error that always covers says too much


def test_sweeps_take_directions_together_and_end_exactly():
    blocks = matrix(1)
    found, calls = swept(blocks, 1e-8)
    for pair in PAIRS:
        assert found[pair].value == pytest.approx(float(torch.linalg.matrix_norm(blocks[pair], 2)), rel=1e-7)
    assert sum(calls) / len(calls) >= FEW - 1


def test_directions_are_cut_into_what_fits():
    assert [_fitting((1, 4, 16), count) for count in (1, 2, 3, 4, 8, 12, 16, 40)] == [1, 1, 4, 4, 4, 16, 16, 16]
    assert _fitting((16,), 3) == 16


def test_operations_of_convolutions_and_their_gradients():
    conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
    x = torch.randn(2, 3, 8, 8)
    forward = 2 * 2 * 4 * 64 * 27
    with Operations() as counted:
        conv(x).sum().backward()  # no gradient at x
    assert counted.total == 2 * forward
    with Operations() as counted:
        conv(x.requires_grad_()).sum().backward()
    assert counted.total == 3 * forward
    up = nn.ConvTranspose2d(4, 3, 2, stride=2, bias=False)
    with Operations() as counted, torch.no_grad():
        up(torch.randn(2, 4, 5, 5))
    assert counted.total == 2 * 2 * 4 * 25 * math.prod((3, 2, 2))
