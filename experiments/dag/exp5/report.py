"""The report of Exp. 5 and its figures: attention against ReLU networks, under every choice of targets."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, ScalarFormatter

from experiments.dag.exp5 import claims
from experiments.dag.exp5.settings import Exp5Attention
from experiments.dag.protocol import summary
from experiments.dag.protocol.figures import STYLES, band, hollow, image_sets as one_set, titles
from experiments.dag.protocol.scores import chosen, printed
from experiments.dag.protocol.spread import SpreadAnalysis
from experiments.dag.protocol.summary import first, groups, over_seeds
from runner.contract import Claim, Figures
from runner.report import figures
from runner.report.formatting import label
from runner.stats import Statistic
from runner.training import CHECKPOINTS

PARTS = {"full": r"$\|H\|_F$", "gn": r"$\|H^{GN}\|_F$", "tensor": r"$\|H^T\|_F$"}
GAP = r"GN gap $\|H^T\|_F\,/\,\|H^{GN}\|_F$"
SAMPLES = ("random validation samples", "the first, as in the paper")
TIMES = {checkpoint: label(checkpoint) for checkpoint in CHECKPOINTS}


class AttentionAnalysis(SpreadAnalysis):
    """Readings of `blocks`, `networks` and `history`."""

    experiment: Exp5Attention

    reference: ClassVar[str] = "exp5_attention"

    def figures(self) -> Figures:
        blocks, networks = self.tables["blocks"], self.tables["networks"]
        paper = printed(self.experiment.claimed)
        of_paper = claims.of_paper(blocks, self.experiment.control)
        return {
            "table7_norms": lambda: norms(of_paper[of_paper["protocol"] == claims.RECOVERED], paper),
            "gap_by_protocol": lambda: by_protocol(blocks, paper),
            "loss_by_protocol": lambda: losses(self.tables["history"]),
            "value_path": lambda: value_path(blocks, networks),
            "sample_sets": lambda: sample_sets(blocks[blocks["protocol"] == claims.RECOVERED]),
            **self.further_figures(),
        }

    def statistics(self) -> list[Statistic]:
        blocks, where = self.tables["blocks"], ["protocol", "checkpoint"]
        attention = blocks[blocks["network"] == "attention"]  # the gap of the ReLU network is an exact zero
        rows = summary.through_training(attention, "gap", keys=["protocol"], figure="gap_by_protocol")
        for value in ("full", "gn"):
            figure = f"{value} through training"
            rows += summary.through_training(blocks, value, keys=["protocol", "network"], figure=figure)
        again = blocks[blocks["protocol"].isin(self.experiment.resampled)]
        for value in ("gap", "full"):
            rows += summary.variance_rows(again, value, keys=["network", *where], figure="sample_sets")
        return rows + self.further

    def claims(self) -> list[Claim]:
        return claims.claims(self.tables, self.experiment.says, self.experiment.control)

    def measured(self) -> pd.DataFrame:
        return claims.measured(self.tables)


def norms(blocks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Norm of the block and of its parts by checkpoint, mean ± std over seeds, published ones as hollow marks.

    Parts that are zero cannot be drawn: the printed 3e-8 of the ReLU network are rounding.
    """
    table = first(blocks)

    def draw(ax: Axes, network: str) -> str:
        own = table[table["network"] == network]
        zero = [text for part, text in PARTS.items() if (own[part] == 0).all()]
        for shift, (part, text) in zip((-0.06, 0.0, 0.06), PARTS.items(), strict=True):
            means = over_seeds(own[own[part] > 0], ["checkpoint"], part)
            place = means["checkpoint"].map(CHECKPOINTS.index) + shift
            ax.errorbar(place, means["mean"], yerr=means["std"].fillna(0), capsize=2, label=text, **STYLES.style(part))
            rows = chosen(paper, network=network, metric=f"frob_{part}").dropna(subset=["mean"])
            rows = rows.drop_duplicates("checkpoint")  # each published value is listed once for every protocol
            hollow(ax, [CHECKPOINTS.index(c) + shift for c in rows["checkpoint"]], rows, part)
        ax.set_xticks(range(len(CHECKPOINTS)), ["before", "halfway", "after"])
        return label(network) + (f" ({', '.join(zero)} = 0)" if zero else "")

    said = "marks and bars: mean ± sample std over the seeds"
    return figures.panels(titles(table, "network"), draw, x="training", y="norm of the block", log="y", caption=said)


def by_protocol(blocks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """The (Q, K) gap of every seed at every checkpoint, a panel per checkpoint, a group per choice of targets.

    Black bars: means; grey band: the published mean ± std; dotted: 1, where the tensor part is as large as the other.
    """
    table = first(blocks)
    table = table[table["network"] == "attention"]
    protocols = list(dict.fromkeys(table["protocol"]))

    def draw(ax: Axes, checkpoint: str) -> None:
        for i, protocol in enumerate(protocols):
            part = table[(table["protocol"] == protocol) & (table["checkpoint"] == checkpoint)]
            ax.scatter([i] * len(part), part["gap"], s=14, **STYLES.point_style(protocol))
            ax.plot([i - 0.3, i + 0.3], [part["gap"].mean()] * 2, color="black", linewidth=1.2)
        ax.axhline(1, color="black", linewidth=0.7, linestyle=":")
        for row in chosen(paper, network="attention", metric="gap", checkpoint=checkpoint).head(1).itertuples():
            std = 0.0 if row.std != row.std else float(row.std)
            ax.axhspan(row.mean - std, row.mean + std, color="0.75", alpha=0.5, zorder=0)
            ax.axhline(row.mean, color="black", linewidth=0.9, linestyle="--", zorder=1)
        ax.set_xticks(range(len(protocols)), [label(p) for p in protocols], rotation=60, ha="right")

    said = "every seed a point; dashed line and band: published mean ± std"
    return figures.panels(TIMES, draw, y=GAP, log="y", caption=said)


def losses(history: pd.DataFrame) -> Figure:
    """Test loss against the epoch, mean ± std over seeds: a panel per network, a line per choice of targets."""

    def draw(ax: Axes, network: str) -> None:
        for (protocol,), part in groups(history[history["network"] == network], ["protocol"]):
            band(ax, over_seeds(part, ["epoch"], "test_loss"), label(protocol), STYLES.point_style(protocol))

    said = "bands: mean ± sample std over the seeds"
    return figures.panels(titles(history, "network"), draw, x="epoch", y="test MSE", log="y", caption=said)


def value_path(blocks: pd.DataFrame, networks: pd.DataFrame) -> Figure:
    """‖H^GN‖ and the gap against ‖W_Vᵀ w‖, one point per seed, targets and checkpoint, with the slopes of theory."""
    keys = ["protocol", "seed", "checkpoint"]
    paths = networks[networks["network"] == "attention"][[*keys, "value_path"]]
    table = first(blocks)
    table = table[table["network"] == "attention"].merge(paths, on=keys)
    if table.empty:
        raise figures.NothingToDraw("expected rows of attention, found none")
    start = table[table["checkpoint"] == "init"]

    def draw(ax: Axes, key: tuple[str, int]) -> None:
        value, slope = key
        for (protocol,), part in groups(table, ["protocol"]):
            style = STYLES.point_style(protocol)
            ax.scatter(part["value_path"], part[value], s=13, alpha=0.8, label=label(protocol), **style)
        x = np.geomspace(table["value_path"].min(), table["value_path"].max(), 20)
        y = start[value].mean() * (x / start["value_path"].mean()) ** slope
        ax.plot(x, y, color="black", linewidth=1, linestyle=":", label="theory: slope 2 in (a), −1 in (b)")
        ax.set_ylabel({"gn": PARTS["gn"], "gap": GAP}[value])

    said = "theory: through the mean before training, as if W_Q, W_K and the residual stayed as they are there"
    heads = {("gn", 2): "", ("gap", -1): ""}
    figure = figures.panels(heads, draw, x=r"$\|W_V^\top w\|_2$", log="both", sharey=False, caption=said)
    for ax in figure.axes:
        ax.xaxis.set_major_locator(FixedLocator([0.2, 0.5, 1, 2]))
        ax.xaxis.set_major_formatter(ScalarFormatter())
        ax.xaxis.set_minor_formatter(NullFormatter())
    return figure


def sample_sets(blocks: pd.DataFrame) -> Figure:
    """The (Q, K) gap on every set of validation samples, a point per set and seed; a diamond: the paper's."""
    table = blocks[blocks["network"] == "attention"]
    seeds = list(dict.fromkeys(table["seed"]))

    def draw(ax: Axes, checkpoint: str) -> None:
        part = table[table["checkpoint"] == checkpoint]
        for i, seed in enumerate(seeds):
            own = part[part["seed"] == seed].assign(mean=lambda t: t["gap"], std=0.0)
            one_set(
                ax,
                i,
                own,
                STYLES.colour("recovered"),
                jitter=0,
                texts=("random validation samples", "the first, as in the paper"),
            )
        ax.set_xticks(range(len(seeds)), [str(s) for s in seeds])
        ax.set_ylim(bottom=0)

    return figures.panels(TIMES, draw, x="training seed", y=GAP, sharey=False)
