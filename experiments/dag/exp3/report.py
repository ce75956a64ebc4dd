"""The reports of Exps. 3 and 3b (the gap by activation and the curvature of the activation) and of
its estimates."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pandas as pd

from experiments.dag.alternatives import GAP, LAYER_NORM, STOCHASTIC
from experiments.dag.exp3 import draws, figures as draw, values
from experiments.dag.exp3.draws import PAPER_PROBES, TEXT_PROBES
from experiments.dag.exp3.settings import Exp3GnGap, Exp3Stochastic
from experiments.dag.protocol import summary
from experiments.dag.protocol.authors import Results, WithAuthors
from experiments.dag.protocol.inter_layer import ROUNDING
from experiments.dag.protocol.scores import paired, printed, with_columns
from experiments.dag.protocol.summary import ENDS, global_gaps, long_format
from experiments.judged import JudgedAnalysis
from runner.contract import Claim, Figures, Statement, Tables, Verdict, redraws
from runner.stats import Statistic
from runner.stats.tables import chosen

CHECKPOINTS_OF_N6 = {
    "discrepancy at init": ("init",),
    "discrepancy at the end": ("final",),
    "below 1 %": ENDS,
}
"""Statement -> the checkpoints of Table N.6 of which it speaks."""


class GapAnalysis(WithAuthors):
    """Exp. 3: networks without LayerNorm."""

    experiment: Exp3GnGap
    changes = GAP
    functions = values.FUNCTIONS
    results = Results("exp3", ("activation", "checkpoint"))

    gap_figure = "fig5_gap_and_curvature"
    parts_figure = "tableN5_parts"

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """GN-gap over all pairs by activation, seed, checkpoint and set of images."""
        if "gaps" in self.tables:
            return self.tables["gaps"]
        return global_gaps(self.tables["distances"], ["activation"])

    @cached_property
    def paper(self) -> pd.DataFrame:
        """The printed values."""
        return printed(self.experiment.claimed)

    def figures(self) -> Figures:
        tables = self.tables
        return {
            self.gap_figure: redraws(
                "Fig. 5", draw.gap_and_curvature, self.gaps, tables["networks"], self.paper
            ),
            self.parts_figure: redraws("Table N.5", draw.parts, tables["distances"], self.paper),
        }

    def statistics(self) -> list[Statistic]:
        distances = self.tables["distances"]
        keys = ["activation"]
        rows = values.correlations(self.gaps, self.tables["networks"], self.gap_figure)
        rows += summary.through_training(self.gaps, "gap", keys=keys, figure="tables 4, 5")
        for value in ("gn", "tensor"):
            keys_of_fit = [*keys, "checkpoint"]
            rows += summary.decay_fits(distances, value, keys=keys_of_fit, figure=self.parts_figure)
        return rows

    def judged(self) -> Tables:
        found = values.judged(self.tables, self.gaps)
        if "networks" in found:
            found["networks"] = values.with_printed_accuracy(found["networks"], self.tables)
        return found

    def claims(self) -> list[Claim]:
        """As of every DAG experiment; the authors' largest ‖H^T‖_F of piecewise linear networks is
        shown, but not compared, since our text damages the exponent of its limit."""
        found = {claim.name: claim for claim in super().claims()}
        if values.ZERO_TENSOR in found:
            rows = values.piecewise_linear(pd.DataFrame(self.results.rows(by_distance=True)))
            found[values.ZERO_TENSOR] = replace(
                found[values.ZERO_TENSOR],
                authors="not comparable",
                authors_value=float(rows["tensor"].max()),
            )
        return list(found.values())

    def compared(self) -> Tables:
        return values.compared(self.tables, self.judged(), self.beside.get(ROUNDING, {}))


class LayerNormAnalysis(GapAnalysis):
    """Exp. 3b: networks with LayerNorm.

    Fits and ranks are those of Exp. 3, but not drawn: Fig. 5 and Table N.5 are of networks without
    LayerNorm.
    """

    changes = LAYER_NORM
    results = Results("exp3_ln", ("activation", "checkpoint"))
    gap_figure = "gap_and_curvature"
    parts_figure = "parts"

    def figures(self) -> Figures:
        return {}

    def judged(self) -> Tables:
        return values.judged(self.tables, self.gaps)


class StochasticGapAnalysis(JudgedAnalysis):
    """Readings of `draws` and of the error that theory predicts for them."""

    experiment: Exp3Stochastic
    changes = STOCHASTIC
    functions = draws.FUNCTIONS

    @cached_property
    def draws(self) -> pd.DataFrame:
        """Every estimate next to the exact gap."""
        return self.tables["draws"]

    def figures(self) -> Figures:
        return {"tableN6_discrepancy": redraws("Table N.6", draw.discrepancies, self.draws)}

    def statistics(self) -> list[Statistic]:
        return draws.rates(self.draws)

    def claims(self) -> list[Claim]:
        """The claims; what is said of the authors' own Table N.6 is true of it or false."""
        made = []
        for claim in super().claims():
            if claim.name in CHECKPOINTS_OF_N6:
                claim = in_their_table(claim, self.says[claim.name])
            made.append(claim)
        return made

    def judged(self) -> Tables:
        names = {"init": "discrepancy at init", "final": "discrepancy at the end"}
        limits = {checkpoint: self.says[name].high for checkpoint, name in names.items()}
        return draws.judged(self.draws, limits)

    def compared(self) -> Tables:
        return {"first_draw": first_draw(self.tables)}


def in_their_table(claim: Claim, says: Statement) -> Claim:
    """A claim with its verdict on the authors' networks: their largest discrepancy at the
    checkpoints of the statement, to the two printed digits."""
    theirs = their_discrepancies()
    percent = theirs[theirs["checkpoint"].isin(CHECKPOINTS_OF_N6[claim.name])]["percent"]
    largest = float(percent.abs().max())
    verdict: Verdict = "confirmed" if round(largest, 2) <= says.high else "refuted"
    return replace(claim, authors=verdict, authors_value=largest)


def their_discrepancies() -> pd.DataFrame:
    """activation, checkpoint, percent: the authors' estimate less their exact gap, of smooth
    activations; each is a mean over their seeds."""
    keys = ["activation", "checkpoint"]
    gaps = {}
    for file in ("exp3", "exp3_appendix"):
        rows = pd.DataFrame(Results(file, tuple(keys)).rows(by_distance=False))
        gaps[file] = rows.set_index(keys)["gap"]
    percent = 100 * (gaps["exp3_appendix"] / gaps["exp3"] - 1)
    return values.smooth(percent.reset_index(name="percent"))


def first_draw(tables: Tables) -> pd.DataFrame:
    """Table N.6 from the first draw of 100 probes, as published, and of the 30 that the text names.

    percent: discrepancies of the means over seeds, without sign. Only the exact gaps can be the
    published numbers to the digit: the probes are others, and all draws of a network say how far
    estimates of it scatter.
    """
    draws = tables["draws"]
    draws = draws[draws["probes"].isin((PAPER_PROBES, TEXT_PROBES))]
    keys = ["activation", "checkpoint", "probes"]
    means = draws.groupby([*keys, "draw"])[["gap_exact", "gap_stochastic"]].transform("mean")
    exact_means = means["gap_exact"]
    scale = exact_means.where(exact_means > 0)
    above = means["gap_stochastic"] >= means["gap_exact"]
    shift = (draws["gap_stochastic"] - draws["gap_exact"]) / scale
    draws = draws.assign(percent=100 * shift.where(above, -shift), signed=100 * shift)
    scatter = draws.groupby([*keys, "seed"])[["gap_stochastic", "signed"]].var()
    variances = scatter.groupby(keys).mean()
    noise = (2 * variances) ** 0.5
    noise = noise.rename(columns={"signed": "percent"})
    noise.columns.name = "metric"
    spread = noise.stack().rename("probe_std").reset_index()
    names = {name: name for name in ("gap_exact", "gap_stochastic", "percent")}
    table = chosen(draws, draw=0)
    found = paired(long_format(table, keys, names), tables, ["activation"])
    found = found.merge(spread, on=[*keys, "metric"], how="left")
    exact = found["metric"] == "gap_exact"
    start = found["paired"] & (found["checkpoint"] == "init")
    noise_of = found["probe_std"].where(start)
    deviation = found["rounding_std"].where(exact, noise_of)
    known = found.assign(paired=found["paired"] & exact, rounding_std=deviation)
    return with_columns(table, known, keys)
