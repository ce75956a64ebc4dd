"""Norms, ratios of norms and eigenvalues from products alone, each with its error and its cost."""

from runner.curvature.matrix_free.lanczos import Extremes, lanczos_extremes
from runner.curvature.matrix_free.norms import frobenius_norms, probe_squares, spectral_norms
from runner.curvature.matrix_free.probes import Estimate, rademacher
from runner.curvature.matrix_free.ratios import GapEstimate, couplings, gn_gaps, stable_ranks

__all__ = [
    "Estimate",
    "Extremes",
    "GapEstimate",
    "couplings",
    "frobenius_norms",
    "gn_gaps",
    "lanczos_extremes",
    "probe_squares",
    "rademacher",
    "spectral_norms",
    "stable_ranks",
]
