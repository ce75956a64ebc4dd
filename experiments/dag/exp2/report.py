"""The report of Exp. 2 and its figures, with the published values as black hollow marks."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.alternatives import BOTTLENECK
from experiments.dag.exp2 import values
from experiments.dag.exp2.settings import DESCRIBED, Exp2Bottleneck
from experiments.dag.protocol import summary
from experiments.dag.protocol.authors import Results, WithAuthors
from experiments.dag.protocol.drawing import (
    BARS,
    error_line,
    hollow,
    titles,
)
from experiments.dag.protocol.summary import ENDS, first, over_seeds
from runner.contract import Figures, Tables, redraws
from runner.report.answers.labels import label
from runner.report.figures import panels
from runner.stats import Statistic
from runner.stats.tables import chosen

WIDTH = "width $d_u$ of the narrow layer"


class BottleneckAnalysis(WithAuthors):
    """D, C and R across the narrow layer by its width, ranks, and the spread over sets of
    images."""

    experiment: Exp2Bottleneck
    changes = BOTTLENECK
    functions = values.FUNCTIONS
    results = Results("exp2_unified", ("depth", "d_u", "checkpoint"))

    def figures(self) -> Figures:
        far = self.tables["far"]
        classes = self.experiment.dataset.classes
        return {"fig4_stable_rank": redraws("Fig. 4", stable_rank, far, classes)}

    def statistics(self) -> list[Statistic]:
        far = self.tables["far"]
        about = {"figure": "fig4_stable_rank", "where": "Section 5.2"}
        rows = []
        for value in ("D", "C", "R"):
            rows += summary.through_training(far, value, keys=["depth", "d_u"], **about)
        return rows

    def judged(self) -> Tables:
        return values.judged(self.tables, self.experiment.dataset.classes)

    def compared(self) -> Tables:
        classes = self.experiment.dataset.classes
        return values.compared(self.tables, classes, self.beside.get(DESCRIBED, {}))


def stable_rank(far: pd.DataFrame, classes: int) -> Figure:
    """D_far against d_u: a panel per depth, estimates as published with ± std over seeds; dotted:
    min(d_u, K−1)."""
    table = first(far)
    paper = chosen(values.printed_values(), metric="D_far")

    def draw(ax: Axes, depth: int) -> None:
        _lines(ax, chosen(table, depth=depth), "D_estimate", chosen(paper, depth=depth))
        _bound(ax, sorted(set(far["d_u"])), classes)

    y = r"stable rank $D_{\mathrm{far}}$"
    return panels(titles(table, "depth"), draw, x=WIDTH, y=y, log="y", caption=BARS)


def _lines(ax: Axes, table: pd.DataFrame, value: str, paper: pd.DataFrame) -> None:
    """Lines of both checkpoints, and the published marks of those that are measured."""
    for checkpoint in ENDS:
        part = chosen(table, checkpoint=checkpoint)
        if len(part):
            means = over_seeds(part, ["d_u"], value).sort_values("d_u")
            error_line(ax, means, "d_u", checkpoint, checkpoint, text=f"ours, {label(checkpoint)}")
            rows = chosen(paper, checkpoint=checkpoint)
            hollow(ax, list(rows["d_u"]), rows, checkpoint)
    _log2(ax, sorted(set(table["d_u"])))


def _bound(ax: Axes, widths: list[int], classes: int) -> None:
    bounds = [min(d, classes - 1) for d in widths]
    ax.plot(widths, bounds, ":", color="black", label=r"$\min(d_u, K-1)$")
    _log2(ax, widths)


def _log2(ax: Axes, widths: list[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths, [str(w) for w in widths])
    ax.minorticks_off()
