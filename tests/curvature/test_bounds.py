"""Wolkowicz–Styan bounds of arbitrary symmetric matrices."""

import math

import pytest
import torch

from runner.curvature.spectra.bounds import spectrum_moments, wolkowicz_styan_lower, wolkowicz_styan_upper


def _spectra(dimension, count=500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dimension, generator=generator, dtype=torch.float64) ** 3


@pytest.mark.parametrize("dimension", [1, 2, 5, 40])
def test_bounds_enclose_every_eigenvalue(dimension):
    spectra = _spectra(dimension)
    sums = spectra.sum(-1), spectra.square().sum(-1)
    slack = 1e-7
    assert (wolkowicz_styan_upper(dimension, *sums) >= spectra.amax(-1) - slack).all()
    assert (wolkowicz_styan_lower(dimension, *sums) <= spectra.amin(-1) + slack).all()
    mean, std = spectrum_moments(dimension, *sums)
    if dimension > 1:
        assert (spectra.amax(-1) >= mean + std / math.sqrt(dimension - 1) - slack).all()


def test_equality_for_one_eigenvalue_apart_from_the_rest():
    for rest in (0.0, 2.0):
        spectrum = torch.full((7,), rest, dtype=torch.float64)
        spectrum[0] = 5.0
        upper = wolkowicz_styan_upper(7, spectrum.sum(), spectrum.square().sum())
        assert float(upper) == pytest.approx(5.0, rel=1e-14)
        lower = wolkowicz_styan_lower(7, -spectrum.sum(), spectrum.square().sum())
        assert float(lower) == pytest.approx(-5.0, rel=1e-14)


def test_rounding_never_makes_the_variance_negative():
    value = torch.tensor(0.1, dtype=torch.float64)
    mean, std = spectrum_moments(3, 3 * value, 3 * value * value * (1 - 1e-15))
    assert float(std) == 0.0 and float(mean) == pytest.approx(0.1)


def test_dimension_must_be_positive():
    with pytest.raises(ValueError, match="at least 1"):
        spectrum_moments(0, torch.tensor(0.0), torch.tensor(0.0))
