"""Report of the recovery: its figure, and what its statements read."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.attention import newton_values
from experiments.attention.alternatives import NEWTON
from experiments.attention.recovery import BLIND
from experiments.attention.settings import AttentionNewton
from experiments.judged import JudgedAnalysis
from runner.contract import Figures, Tables, redraws
from runner.report.figures import COLOURS, panels
from runner.stats.tables import chosen

OUTCOMES = (
    ("recovered", "the data", COLOURS[0], ""),
    ("wrong", "a wrong exact solution", COLOURS[1], "//"),
    ("none", "no solution", "0.85", ""),
)
"""Column, text, colour and hatch of what a start came to."""


def sizes(table: pd.DataFrame) -> list[str]:
    """Sizes by number of variables."""

    def variables(size: str) -> tuple[int, str]:
        n, d = (int(part) for part in size.split("x"))
        return n * d, size

    return sorted(set(table["size"]), key=variables)


def outcomes(setup: AttentionNewton, recovery: pd.DataFrame) -> Figure:
    """Where starts end after polishing: the data, another X with the same output, or no
    solution."""
    near = {f"{distance:g}": f"{distance:g} ‖X‖ from the data" for distance in setup.distance}
    names = {BLIND: "blind", **near}

    def panel(ax: Axes, size: str) -> None:
        by_origin = chosen(recovery, size=size).groupby("origin")
        counts = by_origin[["recovered", "wrong", "starts"]].sum().reindex(list(names)[::-1])
        counts["none"] = counts["starts"] - counts["recovered"] - counts["wrong"]
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
        ax.set_yticks(places, [names[origin] for origin in shares.index])
        ax.grid(False)

    titles = {size: f"n × d = {size.replace('x', ' × ')}" for size in sizes(recovery)}
    return panels(
        titles,
        panel,
        x="share of the starts",
        caption="Levenberg–Marquardt; starts of all seeds and problems together",
        legend_columns=3,
        width=2.4 + 2.6 * len(titles),
        height=3.2,
    )


class AttentionNewtonAnalysis(JudgedAnalysis):
    """Figure and statements of the studies, as far as they are stored."""

    experiment: AttentionNewton
    functions = newton_values.FUNCTIONS
    changes = NEWTON

    def figures(self) -> Figures:
        if "recovery" not in self.tables:
            return {}
        recovery = self.tables["recovery"]
        return {"outcomes": redraws("", outcomes, self.experiment, recovery).of(recovery, "study")}

    def judged(self) -> Tables:
        return newton_values.judged(self.tables)
