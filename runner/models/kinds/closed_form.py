"""The two networks whose curvature is known in closed form; sizes and activations are the experiments' own settings."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract import kind


@dataclass(frozen=True)
class ThreeLayerModel:
    """x in R^M, N hidden units with bias, one logistic output, cross-entropy (WS bound, Section III; HSR, Section II).

    D = N (M + 2) + 1 parameters; runner.curvature.closed_form.three_layer.
    """

    kind: str = kind("three_layer")


@dataclass(frozen=True)
class ScalarModel:
    """f(x) = Σ_i v_i σ(w_i x), σ linear or ReLU, squared error (scalar spectrum, Section 2).

    2 m parameters, 3 m with bias; runner.curvature.closed_form.scalar.
    """

    kind: str = kind("scalar")
