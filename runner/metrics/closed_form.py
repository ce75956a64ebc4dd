"""The two curvature measures that are known in closed form; their settings are the experiments' own."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract import kind


@dataclass(frozen=True)
class WsBoundMetric:
    """λ_sup = tr H/D + √((D − 1)(tr H²/D − (tr H/D)²)) ≥ λ_max of the loss (WS bound, Theorem 1; HSR, Eq. 5)."""

    kind: str = kind("ws_bound")


@dataclass(frozen=True)
class SpectrumMetric:
    """Every eigenvalue of the Hessian of the loss (scalar spectrum, Sections 2 and 3)."""

    kind: str = kind("spectrum")
