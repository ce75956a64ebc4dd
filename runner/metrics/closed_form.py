"""The two curvature measures that are known in closed form; their settings are the experiments' own."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract.schema import kind, one_of


@dataclass(frozen=True)
class WsBoundMetric:
    """λ_sup = tr H/D + √((D − 1)(tr H²/D − (tr H/D)²)) ≥ λ_max of the loss (WS bound, Theorem 1; HSR, Eq. 5)."""

    kind: str = kind("ws_bound")

    def __post_init__(self) -> None:
        one_of("metric.kind", self.kind, ("ws_bound",))


@dataclass(frozen=True)
class SpectrumMetric:
    """Every eigenvalue of the Hessian of the loss (scalar spectrum, Sections 2 and 3)."""

    kind: str = kind("spectrum")

    def __post_init__(self) -> None:
        one_of("metric.kind", self.kind, ("spectrum",))
