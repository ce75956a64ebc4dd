"""Figures of Exp. 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import chosen, hollow
from experiments.dag.protocol.summary import first, groups, over_seeds
from runner.report import figures
from runner.report.plot_style import COLOURS, MARKERS
from runner.training import CHECKPOINTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAMES = {"attention": "attention", "relu_mlp": "ReLU network"}
PARTS = {"full": r"$\|H\|_F$", "gn": r"$\|H^{GN}\|_F$", "tensor": r"$\|H^T\|_F$"}
GAP = r"GN-gap $\|H^T\|_F\,/\,\|H^{GN}\|_F$"


def look(protocol: str, protocols: Sequence[str]) -> dict[str, Any]:
    """Colour and marker of a protocol by its place among all of them: seven hashed styles would not differ enough."""
    i = list(protocols).index(protocol) % len(COLOURS)
    return {"color": COLOURS[i], "marker": MARKERS[i]}


def norms(blocks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Norm of the block and of its parts by checkpoint, mean ± std over seeds, printed ones as hollow marks.

    Parts that are zero cannot be drawn: the printed 3e-8 of the ReLU network are rounding.
    """
    table = first(blocks)
    networks = list(dict.fromkeys(table["network"]))
    figure, axes = figures.new_figure(1, len(networks), sharey=True)
    titles = []
    for ax, network in zip(axes[0], networks, strict=True):
        zero = []
        for shift, (part, text) in zip((-0.06, 0.0, 0.06), PARTS.items(), strict=True):
            means = over_seeds(table[table["network"] == network], ["checkpoint"], part).set_index("checkpoint")
            kept = [(i, c) for i, c in enumerate(CHECKPOINTS) if c in means.index and means.loc[c, "mean"] > 0]
            zero += [text] * (not kept)
            ax.errorbar(
                [i + shift for i, _ in kept],
                [means.loc[c, "mean"] for _, c in kept],
                yerr=[0 if means.loc[c, "n"] < 2 else means.loc[c, "std"] for _, c in kept],
                capsize=2,
                label=text,
                **STYLES.style(part),
            )
            rows = chosen(paper, network=network, metric=f"frob_{part}").dropna(subset=["mean"])
            rows = rows.drop_duplicates("checkpoint")  # each printed value stands once for every protocol
            hollow(ax, [CHECKPOINTS.index(c) + shift for c in rows["checkpoint"]], rows, part)
        ax.set_xticks(range(len(CHECKPOINTS)), CHECKPOINTS)
        figures.log_axis(ax)
        titles.append(NAMES[network] + (f" ({', '.join(zero)} = 0)" if zero else ""))
    axes[0, 0].set_ylabel("norm of the block")
    figures.letter(axes, titles)
    figures.shared_legend(figure)
    figures.note(figure, "marks and bars: mean ± sample std over the seeds")
    return figure


def by_protocol(blocks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """The (Q, K) gap of every seed at every checkpoint, a panel per checkpoint, a group per protocol.

    Black bars: means; grey band: the printed mean ± std; dotted: 1, where the tensor part is as large as the other.
    """
    table = first(blocks)
    table = table[table["network"] == "attention"]
    figure, axes = figures.new_figure(1, len(CHECKPOINTS), sharey=True)
    protocols = list(dict.fromkeys(table["protocol"]))
    for ax, checkpoint in zip(axes[0], CHECKPOINTS, strict=True):
        for i, protocol in enumerate(protocols):
            part = table[(table["protocol"] == protocol) & (table["checkpoint"] == checkpoint)]
            ax.scatter([i] * len(part), part["gap"], s=14, **look(protocol, protocols))
            ax.plot([i - 0.3, i + 0.3], [part["gap"].mean()] * 2, color="black", linewidth=1.2)
        ax.axhline(1, color="black", linewidth=0.7, linestyle=":")
        for row in chosen(paper, network="attention", metric="gap", checkpoint=checkpoint).head(1).itertuples():
            std = 0.0 if row.std != row.std else float(row.std)
            ax.axhspan(row.mean - std, row.mean + std, color="0.75", alpha=0.5, zorder=0)
            ax.axhline(row.mean, color="black", linewidth=0.9, linestyle="--", zorder=1)
        ax.set_xticks(range(len(protocols)), [p.replace("_", " ") for p in protocols], rotation=60, ha="right")
        figures.log_axis(ax)
    axes[0, 0].set_ylabel(GAP)
    figures.letter(axes, list(CHECKPOINTS))
    figures.note(figure, "every seed a point; dashed line and band: printed mean ± std")
    return figure


def losses(history: pd.DataFrame) -> Figure:
    """Test loss against the epoch, mean ± std over seeds: a panel per network, a line per protocol."""
    networks = list(dict.fromkeys(history["network"]))
    protocols = list(dict.fromkeys(history["protocol"]))
    figure, axes = figures.new_figure(1, len(networks), sharey=True)
    for ax, network in zip(axes[0], networks, strict=True):
        for (protocol,), part in groups(history[history["network"] == network], ["protocol"]):
            means = over_seeds(part, ["epoch"], "test_loss")
            style = look(protocol, protocols)
            ax.plot(means["epoch"], means["mean"], markevery=5, label=protocol.replace("_", " "), **style)
            std = means["std"].fillna(0)
            low = (means["mean"] - std).clip(lower=1e-3 * means["mean"])
            ax.fill_between(means["epoch"], low, means["mean"] + std, color=style["color"], alpha=0.15, linewidth=0)
        ax.set_xlabel("epoch")
        figures.log_axis(ax)
    axes[0, 0].set_ylabel("test MSE")
    figures.letter(axes, [NAMES[n] for n in networks])
    figures.shared_legend(figure)
    return figure


def value_path(blocks: pd.DataFrame, networks: pd.DataFrame) -> Figure:
    """‖H^GN‖ and the gap against ‖W_Vᵀ w‖, one point per seed, protocol and checkpoint, with the slopes of theory."""
    import numpy as np
    from matplotlib.ticker import FixedLocator, NullFormatter, ScalarFormatter

    keys = ["protocol", "seed", "checkpoint"]
    paths = networks[networks["network"] == "attention"][[*keys, "value_path"]]
    table = first(blocks)
    table = table[table["network"] == "attention"].merge(paths, on=keys)
    if table.empty:
        raise figures.NothingToDraw("expected rows of attention, found none")
    figure, axes = figures.new_figure(1, 2)
    for ax, value, text, slope in zip(axes[0], ("gn", "gap"), (PARTS["gn"], GAP), (2, -1), strict=True):
        for (protocol,), part in groups(table, ["protocol"]):
            ax.scatter(
                part["value_path"],
                part[value],
                s=13,
                alpha=0.8,
                label=protocol.replace("_", " "),
                **look(protocol, list(dict.fromkeys(table["protocol"]))),
            )
        start = table[table["checkpoint"] == "init"]
        x = np.geomspace(table["value_path"].min(), table["value_path"].max(), 20)
        y = start[value].mean() * (x / start["value_path"].mean()) ** slope
        ax.plot(x, y, color="black", linewidth=1, linestyle=":", label="theory: slope 2 in (a), −1 in (b)")
        ax.set_xlabel(r"$\|W_V^\top w\|_2$")
        ax.set_ylabel(text)
        figures.log_axis(ax, "both")
        ax.xaxis.set_major_locator(FixedLocator([0.2, 0.5, 1, 2]))
        ax.xaxis.set_major_formatter(ScalarFormatter())
        ax.xaxis.set_minor_formatter(NullFormatter())
    figures.letter(axes)
    figures.note(figure, "theory: through the mean at init, as if W_Q, W_K and the residual stayed as they are at init")
    figures.shared_legend(figure, columns=4)
    return figure


def sample_sets(blocks: pd.DataFrame) -> Figure:
    """The (Q, K) gap on every set of validation samples, a point per set and seed, first set marked."""
    table = blocks[blocks["network"] == "attention"]
    figure, axes = figures.new_figure(1, len(CHECKPOINTS))
    seeds = list(dict.fromkeys(table["seed"]))
    for ax, checkpoint in zip(axes[0], CHECKPOINTS, strict=True):
        part = table[table["checkpoint"] == checkpoint]
        for i, seed in enumerate(seeds):
            own = part[part["seed"] == seed]
            random, paper = own[own["images"] != 0]["gap"], own[own["images"] == 0]["gap"]
            ax.scatter(
                [i] * len(random),
                random,
                s=13,
                alpha=0.6,
                linewidths=0,
                color=STYLES.colour("random"),
                label="random validation samples" if i == 0 else None,
            )
            ax.scatter(
                [i] * len(paper),
                paper,
                s=26,
                marker="D",
                color="black",
                label="the first, as in the paper" if i == 0 else None,
            )
        ax.set_xticks(range(len(seeds)), [str(s) for s in seeds])
        ax.set_xlabel("training seed")
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel(GAP)
    figures.letter(axes, list(CHECKPOINTS))
    figures.shared_legend(figure)
    return figure
