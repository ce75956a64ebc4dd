"""Report of the recovery: its figure and claims."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.attention import newton_claims
from experiments.attention.alternatives import NEWTON
from experiments.attention.contest import CONTINUED
from experiments.attention.settings import AttentionNewton
from runner.contract import Analysis, Claim, Figures
from runner.report.figures import COLOURS, panels
from runner.stats.tables import chosen

NAMES = {
    "full": "Newton",
    "line search": "Newton, line search",
    "truncated CG": "Newton, truncated CG",
    "l-bfgs": "L-BFGS",
    "levenberg-marquardt": "Levenberg–Marquardt",
}
"""Methods as a reader knows them."""
OUTCOMES = (
    ("recovered", "the data", COLOURS[0], ""),
    ("wrong", "a wrong exact solution", COLOURS[1], "//"),
    ("none", "no solution", "0.85", ""),
)
"""Column, text, colour and hatch of what a blind start came to."""


def name(method: str) -> str:
    """A method with its continuation as a reader knows it."""
    base = method.removesuffix(CONTINUED)
    return NAMES[base] + method.removeprefix(base)


def outcomes(setup: AttentionNewton, contest: pd.DataFrame) -> Figure:
    """Where blind starts end after polishing: the data, another X with the same output, or no
    solution."""
    blind = chosen(contest, origin="blind")

    def panel(ax: Axes, size: str) -> None:
        by_method = chosen(blind, size=size).groupby("method")
        sums = by_method[["recovered", "wrong", "starts"]].sum()
        counts = sums.reindex(setup.method[::-1])
        not_recovered = counts["starts"] - counts["recovered"]
        counts["none"] = not_recovered - counts["wrong"]
        shares = counts.div(counts["starts"], axis=0)
        left = np.zeros(len(shares))
        places = range(len(shares))
        for column, text, colour, hatch in OUTCOMES:
            share = shares[column].to_numpy()
            ax.barh(
                places,
                share,
                left=left,
                label=text,
                color=colour,
                hatch=hatch,
                edgecolor="white",
            )
            left = left + share
        names = [name(method) for method in shares.index]
        ax.set_yticks(places, names)
        ax.grid(False)

    titles = {size: f"n × d = {size.replace('x', ' × ')}" for size in newton_claims.sizes(contest)}
    return panels(
        titles,
        panel,
        x="share of blind starts",
        caption="blind starts of all seeds and problems together",
        legend_columns=3,
        width=2.4 + 2.6 * len(titles),
        height=4.2,
    )


class AttentionNewtonAnalysis(Analysis):
    """Readings of the studies' tables, as far as they are stored."""

    experiment: AttentionNewton
    alternatives = NEWTON

    def figures(self) -> Figures:
        if "contest" not in self.tables:
            return {}
        contest = self.tables["contest"]
        return {"outcomes": partial(outcomes, self.experiment, contest)}

    def claims(self) -> list[Claim]:
        return newton_claims.claims(self.experiment, self.tables)
