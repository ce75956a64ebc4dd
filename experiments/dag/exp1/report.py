"""The reports of Exp. 1 and 1b: decay fits, tests and variance components, claims, values, figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.dag.exp1 import claims, deep_claims, deep_figures, notes, spectral_norm_claims
from experiments.dag.protocol import comparisons, figures
from experiments.dag.protocol.companions import DEEPER, WITHOUT_NORM
from experiments.dag.protocol.printed import mark, printed
from experiments.dag.protocol.spread import SpreadAnalysis
from experiments.dag.protocol.summary import first, groups, over_seeds
from runner import stats
from runner.report import figures as drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp1.settings import Exp1Deep, Exp1Resonance
    from runner.contract import Claim, Tables
    from runner.stats import Statistic

VARIANT = ("depth", "arch")
DYNAMICS = {"rho": r"$\rho_{\max}$", "lyapunov_1": r"$\lambda_1$ (QR)", "lyapunov_log_norm": r"$\lambda_1$ (Eq. 8)"}
"""Columns of `networks` that Table 2 holds, and the second reading of λ₁."""


PRINTED = {"rho": "rho_max", "lyapunov_1": "lyapunov_1"}
"""Of them, those that the tables print -> metric of the reference file."""
TITLES = ("largest block Jacobian", "exponent by QR, as printed", "exponent by Eq. 8")


class ResonanceAnalysis(SpreadAnalysis):
    """Exp. 1; plain: the architecture that stands against the residual one."""

    experiment: Exp1Resonance

    reference: ClassVar[str] = "exp1_resonance"
    plain: ClassVar[str] = "plain"
    points: ClassVar[tuple[tuple[str, int, int, str], ...]] = (("C", 12, 11, "plain C at the largest distance"),)
    """Printed in words: (value, depth, distance, statement)."""
    resonance_figure: ClassVar[str] = "fig3_resonance"
    coupling_figure: ClassVar[str] = "fig2_coupling"
    dynamics_figure: ClassVar[str] = "table2_dynamics"
    bars: ClassVar[str] = "± sample standard deviation over seeds"

    def captions(self) -> Mapping[str, str]:
        each = "a panel per depth L, a line per architecture and checkpoint"
        return {
            self.coupling_figure: f"Coupling C between two activations against their distance in the network: {each}",
            self.resonance_figure: f"Resonance R against distance, with the decay of the fit to the means: {each}",
            "remark38_examples": f"The mean over images of the norms of single images, beside R of the mean: {each}",
            "stable_rank": f"Stable rank D of the block against distance: {each}",
            self.dynamics_figure: "Spectral radius and Lyapunov exponents of the Jacobian chain against depth L",
            "spread": "Standard deviation of R relative to its mean, between trainings and between image sets of one",
            "training": "Test accuracy against the epoch, mean ± std over seeds: a panel per depth L",
            "coupling_map": "C of every pair of measured nodes at the largest depth, mean over seeds",
        }

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        distances, networks, pairs = self.tables["distances"], self.tables["networks"], self.tables["pairs"]
        deepest = pairs[pairs["depth"] == pairs["depth"].max()]
        of: dict[str, Any] = {"panel": "depth", "variant": "arch"}
        return {
            self.coupling_figure: lambda: self._with_points(figures.decay(distances, "C", **of), "C"),
            self.resonance_figure: lambda: self._with_points(
                figures.decay(distances, "R", log=True, fits=self._fit_texts(distances), **of), "R"
            ),
            "remark38_examples": lambda: figures.decay(distances, "R_examples", log=True, **of),
            "stable_rank": lambda: figures.decay(distances, "D", **of),
            self.dynamics_figure: lambda: figures.against(
                networks,
                DYNAMICS,
                x="depth",
                variant="arch",
                text="depth $L$",
                titles=TITLES,
                paper=figures.Paper(printed(self.experiment.claimed), PRINTED),
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

    def _with_points(self, figure: Figure, value: str) -> Figure:
        """The figure with the single values that the paper prints of it in words (`points`)."""
        depths = list(dict.fromkeys(first(self.tables["distances"])["depth"]))
        for of, depth, distance, name in self.points:
            if of == value and depth in depths:
                mark(figure.axes[depths.index(depth)], distance, self.experiment.says[name].number, self.plain)
                drawing.note(figure, "black hollow marks: printed in the paper's words")
        return figure

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
            if value == "C":  # C(0) = 1 by definition
                compared = compared[compared["distance"] > 0]
            keys = ["depth", "checkpoint", "distance"]
            rows += comparisons.between(compared, value, keys=keys, figure=figure, **against)
            rows += comparisons.through_training(compared, value, keys=[*VARIANT, "distance"], figure=figure)
            rows += comparisons.variance_rows(compared, value, keys=[*where, "distance"], figure="spread")
        for value in DYNAMICS:
            rows += comparisons.variance_rows(networks, value, keys=where, figure=self.dynamics_figure)
        return rows + self.spread_statistics()

    def claims(self) -> list[Claim]:
        return claims.claims(self.tables, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return self.rounded(claims.measured(self.tables))

    def notes(self) -> list[str]:
        without_norm = notes.without_norm_note(self.beside.get(WITHOUT_NORM, {}).get("distances"))
        return [*notes.notes(self.tables, self.plain), *without_norm, *self.spread_notes()]


class SpectralNormAnalysis(ResonanceAnalysis):
    """Exp. 1b: the same readings of spectrally normalised networks, and claims of its own."""

    reference: ClassVar[str] = "exp1b_spectral_norm"
    plain: ClassVar[str] = "plain_sn"
    points: ClassVar[tuple[tuple[str, int, int, str], ...]] = tuple(("R", 8, d, "plateau of R") for d in (0, 7))
    resonance_figure: ClassVar[str] = "figN1_resonance"
    coupling_figure: ClassVar[str] = "coupling"
    dynamics_figure: ClassVar[str] = "tableN2_dynamics"

    def claims(self) -> list[Claim]:
        return spectral_norm_claims.claims(self.tables, self.experiment.says)

    def notes(self) -> list[str]:
        deeper = self.beside.get(DEEPER, {}).get("distances")
        small = notes.small_blocks_note(self.tables["pairs"])
        return [*notes.norms_note(self.tables["distances"], deeper), *small, *super().notes()]


class DeepAnalysis(ResonanceAnalysis):
    """Depths 16 and 32 (Appendix N.2): the same readings, the U shape, and the published estimates."""

    experiment: Exp1Deep

    reference: ClassVar[str] = "exp1_deep"
    points: ClassVar[tuple[tuple[str, int, int, str], ...]] = (
        ("C", 32, 31, "coupling of the ends"),
        ("R", 32, 0, "start of the U"),
        ("R", 32, 14, "bottom of the U"),
        ("R", 32, 31, "end of the U"),
    )
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
        return deep_claims.claims(self.tables, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return deep_claims.measured(self.tables)

    def notes(self) -> list[str]:
        return deep_claims.notes(self.tables)
