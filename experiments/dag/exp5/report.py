"""The report of Exp. 5 and its figures: attention against ReLU networks, under every choice of
targets."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.alternatives import ATTENTION
from experiments.dag.exp5 import values
from experiments.dag.exp5.settings import Exp5Attention
from experiments.dag.protocol import summary
from experiments.dag.protocol.authors import Results, WithAuthors
from experiments.dag.protocol.drawing import STYLES, checkpoint_ticks, hollow, titles
from experiments.dag.protocol.scores import printed
from experiments.dag.protocol.summary import first, over_seeds
from runner.contract import Figures, Tables, redraws
from runner.report import figures
from runner.report.answers.labels import label
from runner.stats import Statistic
from runner.stats.tables import chosen
from runner.training import CHECKPOINTS

PARTS = {"full": r"$\|H\|_F$", "gn": r"$\|H^{GN}\|_F$", "tensor": r"$\|H^T\|_F$"}
GAP = r"GN gap $\|H^T\|_F\,/\,\|H^{GN}\|_F$"
TIMES = {checkpoint: label(checkpoint) for checkpoint in CHECKPOINTS}


class AttentionAnalysis(WithAuthors):
    """Readings of `blocks`, `networks` and `history`."""

    experiment: Exp5Attention
    changes = ATTENTION
    functions = values.FUNCTIONS
    results = Results("exp5", ("network", "checkpoint"))
    rounding = ("separation",)

    def figures(self) -> Figures:
        blocks = self.tables["blocks"]
        paper = printed(self.experiment.claimed)
        of_paper = values.of_paper(blocks, self.experiment.control)
        recovered = chosen(of_paper, protocol=values.RECOVERED)
        return {
            "table7_norms": redraws("Table 7", norms, recovered, paper).of(
                recovered, "protocol", "network"
            ),
            "gap_by_protocol": redraws("", by_protocol, blocks, paper).of(
                chosen(blocks, network="attention"), "network"
            ),
        }

    def statistics(self) -> list[Statistic]:
        blocks = self.tables["blocks"]
        # the gap of the ReLU network is an exact zero
        attention = chosen(blocks, network="attention")
        figure = "gap_by_protocol"
        rows = summary.through_training(attention, "gap", keys=["protocol"], figure=figure)
        for value in ("full", "gn"):
            keys = ["protocol", "network"]
            figure = f"{value} through training"
            rows += summary.through_training(blocks, value, keys=keys, figure=figure)
        return rows

    def judged(self) -> Tables:
        return values.judged(self.tables, self.experiment)

    def compared(self) -> Tables:
        return values.compared(self.tables, self.judged())


def norms(blocks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Norm of the block and of its parts by checkpoint, mean ± std over seeds, published ones as
    hollow marks.

    Parts that are zero cannot be drawn: the printed 3e-8 of the ReLU network are rounding.
    """
    table = first(blocks)

    def draw(ax: Axes, network: str) -> str:
        own = chosen(table, network=network)
        zero = [text for part, text in PARTS.items() if (own[part] == 0).all()]
        shifted = zip((-0.06, 0.0, 0.06), PARTS.items(), strict=True)
        for shift, (part, text) in shifted:
            means = over_seeds(own[own[part] > 0], ["checkpoint"], part)
            place = means["checkpoint"].map(CHECKPOINTS.index) + shift
            std = means["std"].fillna(0)
            ax.errorbar(place, means["mean"], yerr=std, capsize=2, label=text, **STYLES.style(part))
            rows = chosen(paper, network=network, metric=f"frob_{part}").dropna(subset=["mean"])
            # each published value is listed once for every protocol
            rows = rows.drop_duplicates("checkpoint")
            hollow(ax, [CHECKPOINTS.index(c) + shift for c in rows["checkpoint"]], rows, part)
        checkpoint_ticks(ax)
        if zero:
            return f"{label(network)} ({', '.join(zero)} = 0)"
        return label(network)

    said = "marks and bars: mean ± sample std over the seeds"
    heads = titles(table, "network")
    return figures.panels(heads, draw, x="training", y="norm of the block", log="y", caption=said)


def by_protocol(blocks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """The (Q, K) gap of every seed at every checkpoint, a panel per checkpoint, a group per choice
    of targets.

    Black bars: means; grey band: the published mean ± std; dotted: 1, where the tensor part is as
    large as the other.
    """
    table = chosen(first(blocks), network="attention")
    gaps = chosen(paper, network="attention", metric="gap")
    protocols = list(dict.fromkeys(table["protocol"]))

    def draw(ax: Axes, checkpoint: str) -> None:
        for i, protocol in enumerate(protocols):
            part = chosen(table, protocol=protocol, checkpoint=checkpoint)["gap"]
            style = STYLES.point_style(protocol)
            ax.scatter([i] * len(part), part, s=14, label=f"{label(protocol)}, a seed", **style)
            mean = [part.mean()] * 2
            ax.plot([i - 0.3, i + 0.3], mean, color="black", linewidth=1.2, label="mean over seeds")
        one = "1: tensor part as large as Gauss–Newton part"
        ax.axhline(1, color="black", linewidth=0.7, linestyle=":", label=one)
        published = chosen(gaps, checkpoint=checkpoint).head(1)
        for row in published.itertuples():
            std = 0.0 if row.std != row.std else float(row.std)
            grey: dict[str, Any] = {"color": "0.75", "alpha": 0.5, "zorder": 0}
            low = row.mean - std
            high = row.mean + std
            ax.axhspan(low, high, label="published mean ± std", **grey)
            dashed: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": "--"}
            ax.axhline(row.mean, label="published mean", zorder=1, **dashed)
        names = [label(protocol) for protocol in protocols]
        ax.set_xticks(range(len(names)), names, rotation=60, ha="right")

    return figures.panels(TIMES, draw, y=GAP, log="y", legend_columns=3, height=3.8)
