"""How things would be if confirmed statements on scalar networks were false."""

from __future__ import annotations

from runner.stats.alternatives import exchanged, scaled, shifted, to_power

CHANGES = {
    "eigenvalues grow with another power of the density": to_power(1.01, "eigenvalue"),
    "eigenvalues differ from those of a dense solver by 1e-6": shifted(1e-6, "dense_error"),
    "the smallest eigenvalue is three times it": scaled(3.0, "smallest"),
    "tr H is a hundredth larger": scaled(1.01, "trace"),
    "the second outlier has the opposite sign": scaled(-1.0, "second"),
    "eigenvalues of pair and triple are shifted by 1e-6": shifted(1e-6, "theorem", "gap"),
    "one more eigenvalue is zero": shifted(1, "zeros"),
    "the bounds are a tenth as wide": scaled(0.1, "lower", "upper"),
    "sharpness is a fifth larger": scaled(1.2, "sharpness", "last"),
    "residuals are larger by 1e-6": shifted(1e-6, "residual"),
    "runs that diverge and that settle exchange their places": exchanged(
        "status", "diverged", "settled"
    ),
}
