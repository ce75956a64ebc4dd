"""Figures of the spread: what rounding moves, what the paper's ± consists of, how typical its seeds are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.report.figures import new_figure, note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from runner.stats import Statistic

SHORT = {"depth": "L=", "distance": "d="}
"""Keys whose values say nothing alone -> what stands before them."""
MOST = 28
"""Rows of a figure; all others stand in stats.csv."""


def rounding(rows: Sequence[Statistic]) -> Figure:
    """What rounding moves after training, beside the spread of seeds, both relative to the mean.

    Filled: root mean square difference of one seed's value between two trainings whose inputs differ by 1e-7. Hollow:
    standard deviation over the seeds.
    """
    shown = [s for s in rows if s.std > 0 and s.mean and "init" not in s.group][:MOST]
    figure, ((ax,),) = new_figure(width=7, height=1.2 + 0.24 * len(shown))
    y = range(len(shown))
    ax.plot([s.std / abs(s.mean) for s in shown], y, "o", label="rounding")
    spread = [s.std / s.statistic / abs(s.mean) if s.statistic > 0 else float("nan") for s in shown]
    ax.plot(spread, y, "o", markerfacecolor="none", color="black", label="spread of seeds")
    ax.set_xscale("log")
    ax.set_yticks(y, [short(s) for s in shown], fontsize=7)
    ax.invert_yaxis()
    ax.set_xlabel("relative to the mean")
    ax.legend(fontsize=8)
    note(figure, f"beside them {max(s.n_a for s in rows)} seeds again, inputs changed by 1e-7")
    return figure


def components(rows: Sequence[Statistic]) -> Figure:
    """Shares of variance: initial network, data order, both together (the paper's ±), and the set of images.

    Networks crossed with orders, each measured on the same random sets of images; intervals stand in stats.csv.
    """
    groups: dict[tuple[str, str], dict[str, Statistic]] = {}
    for s in rows:
        groups.setdefault((s.name.split(":")[0], s.group), {})[s.label_a] = s
    shown = {k: v for k, v in list(groups.items())[:MOST] if any(s.std > 0 for s in v.values())}
    figure, ((ax,),) = new_figure(width=7, height=1.4 + 0.26 * len(shown))
    left = [0.0] * len(shown)
    for source in dict.fromkeys(s.label_a for s in rows):
        widths = [parts[source].effect for parts in shown.values()]
        hatch = "//" if source == "set of images" else None
        ax.barh(range(len(shown)), widths, left=left, label=source, hatch=hatch, edgecolor="white")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    ax.set_yticks(range(len(shown)), [short(next(iter(parts.values()))) for parts in shown.values()], fontsize=7)
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the variance")
    figure.legend(*ax.get_legend_handles_labels(), fontsize=7, ncols=4, loc="outside lower center")
    note(figure, "beside them networks of some seeds with the orders of others (numbers in stats.csv)")
    return figure


def further_seeds(rows: Sequence[Statistic]) -> Figure:
    """Where the printed means fall among further seeds, in units of the 95 % prediction interval's half width.

    Marks between the dashed lines are means that five further seeds of the named streams would give.
    """
    shown = sorted(rows, key=lambda s: -abs(s.effect))[:MOST]
    figure, ((ax,),) = new_figure(width=7, height=1.2 + 0.24 * len(shown))
    x = [(s.shift - s.mean) / (0.5 * (s.shift_high - s.shift_low)) for s in shown]
    ax.plot(x, range(len(shown)), "o", markerfacecolor="none", color="black")
    for at in (-1, 1):
        ax.axvline(at, linestyle="--", linewidth=0.8)
    ax.axvline(0, linewidth=0.8, color="grey")
    ax.set_yticks(range(len(shown)), [short(s) for s in shown], fontsize=7)
    ax.invert_yaxis()
    ax.set_xlabel("printed mean − mean of the further seeds, in half widths of the interval")
    note(figure, f"shown are {max(s.n_a for s in rows)} further seeds, of named streams")
    return figure


def short(s: Statistic) -> str:
    """'test_acc_percent, relu final' or 'R, L=8 plain_sn d=7 final' of a statistic."""
    pairs = [part.rpartition("=") for part in s.group.split(" ")]
    return f"{s.name.split(':')[0]}, " + " ".join(SHORT.get(key, "") + value for key, _, value in pairs)
