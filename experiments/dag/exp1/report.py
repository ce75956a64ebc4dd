"""The reports of Exp. 1 and 1b: decay fits, tests and variance components, claims, values, figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.dag.exp1 import claims, deep_claims, deep_figures, spectral_norm_claims
from experiments.dag.protocol import comparisons, figures
from experiments.dag.protocol.spread import SpreadAnalysis
from experiments.dag.protocol.summary import first, groups, over_seeds
from runner import stats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp1.deep import Exp1Deep
    from experiments.dag.exp1.resonance import Exp1Resonance
    from runner.contract.analysis import Tables
    from runner.contract.experiment import Claim
    from runner.stats import Statistic

VARIANT = ("depth", "arch")
DYNAMICS = {"rho": r"$\rho_{\max}$", "lyapunov_1": r"$\lambda_1$ (QR)", "lyapunov_log_norm": r"$\lambda_1$ (Eq. 8)"}
"""Columns of `networks` that Table 2 holds, and the second reading of λ₁."""


class ResonanceAnalysis(SpreadAnalysis):
    """Exp. 1; plain: the architecture that stands against the residual one."""

    experiment: Exp1Resonance

    reference: ClassVar[str] = "exp1_resonance"
    plain: ClassVar[str] = "plain"
    resonance_figure: ClassVar[str] = "fig3_resonance"
    coupling_figure: ClassVar[str] = "fig2_coupling"
    dynamics_figure: ClassVar[str] = "table2_dynamics"

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        distances, networks, pairs = self.tables["distances"], self.tables["networks"], self.tables["pairs"]
        deepest = pairs[pairs["depth"] == pairs["depth"].max()]
        of: dict[str, Any] = {"panel": "depth", "variant": "arch"}
        return {
            self.coupling_figure: lambda: figures.decay(distances, "C", **of),
            self.resonance_figure: lambda: figures.decay(
                distances, "R", log=True, fits=self._fit_texts(distances), **of
            ),
            "remark38_examples": lambda: figures.decay(distances, "R_examples", log=True, **of),
            "stable_rank": lambda: figures.decay(distances, "D", **of),
            self.dynamics_figure: lambda: figures.against(
                networks, DYNAMICS, x="depth", variant="arch", text="depth $L$"
            ),
            "coupling_map": lambda: figures.pair_maps(deepest, "C", variant="arch"),
            "spread": lambda: figures.spread(distances, "R", checkpoint="final", **of),
            "training": lambda: figures.learning_curves(self.tables["history"], **of),
            **self.spread_figures(),
        }

    def quantities(self, tables: Tables) -> pd.DataFrame:
        """R and C at distance 0 and at the longest, the dynamics and the test accuracy."""
        import pandas as pd

        columns = [*VARIANT, "distance", "metric", "checkpoint", "seed", "images", "value"]
        far = tables["distances"].groupby("depth")["distance"].transform("max")
        ends = tables["distances"][tables["distances"]["distance"].isin([0]) | (tables["distances"]["distance"] == far)]
        parts = [ends.assign(metric=name, value=ends[name])[columns] for name in ("R", "C")]
        networks = tables["networks"].assign(distance=float("nan"))
        names = (*DYNAMICS, "test_accuracy")
        return pd.concat([*parts, *(networks.assign(metric=n, value=networks[n])[columns] for n in names)])

    def _fit_texts(self, distances: pd.DataFrame) -> dict[tuple[Any, ...], str]:
        """Decay rate and R² of the fit to the means, by depth, architecture and checkpoint."""
        texts = {}
        for keys, part in groups(first(distances), [*VARIANT, "checkpoint"]):
            means = over_seeds(part, ["distance"], "R")
            fit = stats.log_linear(means["distance"], means["mean"], name="")
            texts[keys] = f"b = {round(fit.decay, 3) + 0.0:.3f}, R² = {fit.r2:.2f}"  # no minus before a rounded zero
        return texts

    def statistics(self) -> list[Statistic]:
        distances, networks = self.tables["distances"], self.tables["networks"]
        where = [*VARIANT, "checkpoint"]
        against: dict[str, Any] = {"column": "arch", "a": self.plain, "b": "residual"}
        rows: list[Statistic] = []
        for value, figure in (("C", self.coupling_figure), ("R", self.resonance_figure)):
            rows += comparisons.decay_fits(distances, value, keys=where, figure=figure)
            compared = distances[distances["checkpoint"] != "mid"]
            keys = ["depth", "checkpoint", "distance"]
            rows += comparisons.between(compared, value, keys=keys, figure=figure, **against)
            rows += comparisons.through_training(compared, value, keys=[*VARIANT, "distance"], figure=figure)
            rows += comparisons.variance_rows(compared, value, keys=[*where, "distance"], figure="spread")
        for value in DYNAMICS:
            rows += comparisons.variance_rows(networks, value, keys=where, figure=self.dynamics_figure)
        return rows + self.spread_statistics()

    def claims(self) -> list[Claim]:
        return claims.claims(self.tables)

    def measured(self) -> pd.DataFrame:
        return self.rounded(claims.measured(self.tables))

    def notes(self) -> list[str]:
        return claims.notes(self.tables, self.plain) + self.spread_notes()


class SpectralNormAnalysis(ResonanceAnalysis):
    """Exp. 1b: the same readings of spectrally normalised networks, and claims of its own."""

    reference: ClassVar[str] = "exp1b_spectral_norm"
    plain: ClassVar[str] = "plain_sn"
    resonance_figure: ClassVar[str] = "figN1_resonance"
    coupling_figure: ClassVar[str] = "coupling"
    dynamics_figure: ClassVar[str] = "tableN2_dynamics"

    def claims(self) -> list[Claim]:
        return spectral_norm_claims.claims(self.tables)


class DeepAnalysis(ResonanceAnalysis):
    """Depths 16 and 32 (Appendix N.2): the same readings, the U shape, and the published estimates."""

    experiment: Exp1Deep

    reference: ClassVar[str] = "exp1_deep"
    resonance_figure: ClassVar[str] = "tableN3_resonance"
    coupling_figure: ClassVar[str] = "tableN3_coupling"
    dynamics_figure: ClassVar[str] = "tableN3_dynamics"

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        distances = self.tables["distances"]
        return {
            **super().figures(),
            "u_shape": lambda: deep_figures.u_shape(distances),
            "estimates": lambda: deep_figures.estimates(distances, self.tables["estimates"]),
        }

    def claims(self) -> list[Claim]:
        return deep_claims.claims(self.tables)

    def measured(self) -> pd.DataFrame:
        return deep_claims.measured(self.tables)

    def notes(self) -> list[str]:
        return deep_claims.notes(self.tables)
