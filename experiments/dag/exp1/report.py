"""The reports of Exps. 1, 1b and 1 at depth: decay fits, tests and variance components, claims,
values, figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar

import pandas as pd

from experiments.dag.alternatives import DEEP, RESONANCE, SPECTRAL_NORM
from experiments.dag.exp1 import figures as draw, values
from experiments.dag.exp1.settings import Exp1Deep, Exp1Resonance
from experiments.dag.exp1.values import log_end, log_fall
from experiments.dag.protocol import summary
from experiments.dag.protocol.authors import Results, WithAuthors
from experiments.dag.protocol.inter_layer import DEEPER, WITHOUT_NORM
from experiments.dag.protocol.summary import ENDS, first
from runner.contract import Figures, Tables, redraws
from runner.stats import Statistic
from runner.stats.tables import chosen, groups
from runner.training.streams import PUBLISHED

VARIANT = ("depth", "arch")
DYNAMICS = {
    "rho": "spectral norm\n" + r"$\rho_{\max}$ (largest)",
    "lyapunov_1": "Lyapunov exponent\n" + r"$\lambda_1$ by QR",
    "lyapunov_log_norm": "Lyapunov exponent\n" + r"$\lambda_1$ by Eq. 8",
}
"""Columns of `networks` that Table 2 holds, and the second definition of λ₁."""


class ResonanceAnalysis(WithAuthors):
    """Exp. 1; plain: the architecture that is compared with the residual one."""

    experiment: Exp1Resonance
    changes = RESONANCE
    functions = values.FUNCTIONS
    results = Results("exp1", (*VARIANT, "checkpoint"))

    plain = "plain"
    points: ClassVar[tuple[tuple[str, int, int, str], ...]] = (
        ("C", 12, 11, "plain C at the largest distance"),
    )
    """Published in words: (value, depth, distance, statement)."""
    resonance_figure = "fig3_resonance"
    coupling_figure = "fig2_coupling"
    dynamics_figure = "table2_dynamics"
    resonance_place = "Fig. 3"
    coupling_place = "Fig. 2"
    dynamics_place = "Table 2"
    printed_ends = ""
    """File of published values of R at the smallest and the largest distance."""

    def captions(self) -> Mapping[str, str]:
        each = "a panel per depth L, a line per architecture and checkpoint"
        return {
            self.coupling_figure: "Coupling C between two activations against their distance in "
            f"the network: {each}",
            self.resonance_figure: "Resonance R against distance, with the decay of the fit to "
            f"the means: {each}",
            self.dynamics_figure: "Spectral norm and Lyapunov exponents of the block Jacobians, a "
            "column per depth L",
        }

    def figures(self) -> Figures:
        distances = self.tables["distances"]
        networks = self.tables["networks"]
        paper = values.printed_values(self.experiment.claimed)
        coupling = redraws(self.coupling_place, draw.coupling, distances, self._points("C"))
        dynamics = redraws(self.dynamics_place, draw.dynamics, networks, DYNAMICS, paper)
        found = {
            self.coupling_figure: coupling,
            self.resonance_figure: redraws(
                self.resonance_place,
                draw.resonance,
                distances,
                self._points("R"),
                self.printed_ends,
            ),
            self.dynamics_figure: dynamics,
        }
        keys = {"initial": [PUBLISHED]}
        return {name: replace(figure, keys=keys) for name, figure in found.items()}

    def _points(self, value: str) -> list[tuple[int, int, float, str]]:
        """(depth, distance, number, architecture) of the values that the paper publishes in
        words."""
        found = []
        for of, depth, distance, name in self.points:
            if of == value:
                found.append((depth, distance, self.says[name].number, self.plain))
        return found

    def statistics(self) -> list[Statistic]:
        distances = self.tables["distances"]
        where = [*VARIANT, "checkpoint"]
        rows = []
        drawn = (("C", self.coupling_figure), ("R", self.resonance_figure))
        for value, figure in drawn:
            about: dict[str, Any] = {"figure": figure}
            rows += summary.decay_fits(distances, value, keys=where, **about)
            compared = distances[distances["checkpoint"] != "mid"]
            if value == "C":  # C(0) = 1 by definition
                compared = compared[compared["distance"] > 0]
            sides = {"column": "arch", "a": self.plain, "b": "residual"}
            keys = ["depth", "checkpoint", "distance"]
            rows += summary.between(compared, value, keys=keys, **sides, **about)
            keys = [*VARIANT, "distance"]
            rows += summary.through_training(compared, value, keys=keys, **about)
        return rows

    def judged(self) -> Tables:
        return values.judged(self.tables)

    def compared(self) -> Tables:
        return values.compared(self.tables, self.beside)

    def notes(self) -> list[str]:
        return without_norm_note(self.beside.get(WITHOUT_NORM, {}).get("distances"))


class SpectralNormAnalysis(ResonanceAnalysis):
    """Exp. 1b: the same analysis of spectrally normalised networks, with claims of its own.

    C is tested as in Exp. 1, but not drawn: the paper has no such figure.
    """

    changes = SPECTRAL_NORM
    results = Results("exp1b", (*VARIANT, "checkpoint"))
    plain = "plain_sn"
    points = tuple(("R", 8, d, "plateau of R") for d in (0, 7))
    resonance_figure = "figN1_resonance"
    coupling_figure = "coupling"
    dynamics_figure = "tableN2_dynamics"
    resonance_place = "Fig. N.1"
    dynamics_place = "Table N.2"

    def figures(self) -> Figures:
        drawn = super().figures()
        return {name: drawn[name] for name in (self.resonance_figure, self.dynamics_figure)}

    def notes(self) -> list[str]:
        return norms_note(self.tables["distances"], self.beside.get(DEEPER, {}).get("distances"))


class DeepAnalysis(ResonanceAnalysis):
    """Depths 16 and 32 (Appendix N.2): the same analysis, the U shape, and the published
    estimates."""

    experiment: Exp1Deep
    changes = DEEP
    results = Results("exp1_appendix", (*VARIANT, "checkpoint"))

    points = (
        ("C", 32, 31, "coupling of the ends"),
        ("R", 32, 0, "start of the U"),
        ("R", 32, 14, "bottom of the U"),
        ("R", 32, 31, "end of the U"),
    )
    resonance_figure = "tableN3_resonance"
    coupling_figure = "tableN3_coupling"
    dynamics_figure = "tableN3_dynamics"
    resonance_place = coupling_place = dynamics_place = "Table N.3"
    printed_ends = "exp1_deep"

    def judged(self) -> Tables:
        return values.judged_deep(self.tables)

    def compared(self) -> Tables:
        return values.compared_deep(self.tables, self.beside)


def norms_note(distances: pd.DataFrame, deeper: pd.DataFrame | None) -> list[str]:
    """Section 5.1's fall of the norms, in spectrally normalised networks. deeper: `distances` at L
    = 32, if any."""
    listed = []
    depths = ((12, distances), (32, deeper))
    for depth, table in depths:
        if table is None:
            continue
        for checkpoint in ENDS:
            part = chosen(first(table), depth=depth, arch="plain_sn", checkpoint=checkpoint)
            if len(part):
                fall = log_fall(part)
                spread = f"seeds {min(fall):.2f} to {max(fall):.2f}, n = {len(fall)}"
                listed.append(f"L = {depth} {checkpoint}: {orders_of(part)} ({spread})")
    text = (
        "Section 5.1 says of plain networks that norms decrease by 3 to 4 orders of magnitude at L "
        "= 12 and to 1e-14 at L = 32 (the exponent is damaged in our text). With LayerNorm, as in "
        "Exp. 1, they do not (claims there). Two kinds of networks come near it: those without "
        "LayerNorm (findings of exp1_resonance) and the spectrally normalised ones of this "
        "experiment: "
    )
    if listed:
        return [f"{text}{'; '.join(listed)}."]
    return []


def orders_of(part: pd.DataFrame) -> str:
    """How far R falls, and where to, in orders of magnitude, means over seeds."""
    return f"{fmean(log_fall(part)):.2f} orders, to 10^{fmean(log_end(part)):.1f}"


def without_norm_note(distances: pd.DataFrame | None) -> list[str]:
    """Section 5.1's fall of the norms in untrained networks without LayerNorm; distances: theirs,
    if any."""
    if distances is None:
        return []
    listed = []
    by_depth = groups(first(distances), ["depth"])
    for (depth,), part in by_depth:
        listed.append(f"L = {depth}: {orders_of(part)} (n = {part['seed'].nunique()})")
    text = (
        "Untrained plain networks without LayerNorm give nearly what Section 5.1 says of the norms "
        "(3 to 4 orders at L = 12, 1e-14 at L = 32): "
    )
    other = (
        "Spectrally normalised networks are the other explanation (findings of "
        "exp1b_spectral_norm)."
    )
    return [f"{text}{'; '.join(listed)}. {other}"]
