"""How things would be if confirmed statements on scalar networks were false."""

from __future__ import annotations

from runner.contract import Alternative, Alternatives
from runner.stats.alternatives import exchanged, scaled, shifted, to_power

ALTERNATIVES: Alternatives = (
    Alternative(
        "eigenvalues grow with another power of the density",
        to_power(1.01, "eigenvalue"),
        ("relu_closed_form", "density"),
    ),
    Alternative(
        "eigenvalues differ from those of a dense solver by 1e-6",
        shifted(1e-6, "dense_error"),
        ("bias_closed_form", "closed_form_in_training"),
    ),
    Alternative(
        "the smallest eigenvalue is three times it", scaled(3.0, "smallest"), ("smallest_bound",)
    ),
    Alternative(
        "tr H is a hundredth larger", scaled(1.01, "trace"), ("rank_one", "phases_corrected")
    ),
    Alternative(
        "the second outlier has the opposite sign",
        scaled(-1.0, "second"),
        ("starts_negative", "damping"),
    ),
    Alternative(
        "eigenvalues of pair and triple are shifted by 1e-6",
        shifted(1e-6, "theorem", "gap"),
        ("theorem6",),
    ),
    Alternative("one more eigenvalue is zero", shifted(1, "zeros"), ("theorem6_multiplicities",)),
    Alternative(
        "the bounds are a tenth as wide", scaled(0.1, "lower", "upper"), ("triple_bounds",)
    ),
    Alternative(
        "sharpness is a fifth larger",
        scaled(1.2, "sharpness", "last"),
        ("settled_below_threshold", "climbs", "oscillates"),
    ),
    Alternative("residuals are larger by 1e-6", shifted(1e-6, "residual"), ("live_meter",)),
    Alternative(
        "runs that diverge and that settle exchange their places",
        exchanged("status", "diverged", "settled"),
        ("divergence",),
    ),
)
