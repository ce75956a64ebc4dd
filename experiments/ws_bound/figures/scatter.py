"""Every critical point as a dot: Figs. 2, 9, 10 and 12. Data sets are pooled for the eye; tests are per data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.ws_bound.analysis import Tables, Variant, by_seed, unique_points
from experiments.ws_bound.plot_styles import STYLES
from experiments.ws_bound.rank_tests import lower_edge
from runner.report import figures as draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.ws_bound.settings import WsBound

BOUND = r"bound $\lambda_{\mathrm{sup}}$"
EIGENVALUE = r"largest eigenvalue $\lambda_1$"


def dots(ax: Axes, x: pd.Series, y: pd.Series, label: str, name: str | None = None) -> None:
    """Points in the style of a label, small enough that thousands stay readable."""
    ax.scatter(x, y, s=9, alpha=0.35, linewidths=0, label=label if name is None else name, **STYLES.point_style(label))


def seeds_text(rows: pd.DataFrame) -> str:
    """How many points of how many data sets."""
    count = rows["seed"].nunique()
    return f"{len(rows)} points, {count} data set{'s' if count > 1 else ''}"


def bound_and_eigenvalue(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 2: λ_1 against λ_sup at every critical point."""
    figure, axes = draw.new_figure(1, len(variants), sharex=True, sharey=True)
    titles = []
    for ax, variant in zip(axes[0], variants, strict=True):
        points = unique_points(tables, variant)
        for hidden, rows in reversed(list(points.groupby("hidden", sort=True))):
            ratio = (rows["lambda_sup"] / rows["lambda_max"]).median()
            dots(ax, rows["lambda_max"], rows["lambda_sup"], f"N={hidden}", f"N = {hidden}: median ratio {ratio:.3f}")
        titles.append(f"{variant.protocol}, η = {variant.rate:g}")
        draw.note(figure, f"{variant.protocol}: {seeds_text(points)}")
        ax.set_xlabel(EIGENVALUE)
    for ax in axes[0]:
        draw.log_axis(ax, "both")
    for ax in axes[0]:
        draw.identity_line(ax)
        draw.legend(ax)
    axes[0, 0].set_ylabel(BOUND)
    draw.letter(axes, titles)
    return figure


def traces(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 9: traces of H and H², closed form against numerical Hessian."""
    figure, axes = draw.new_figure(1, 2)
    keys = ["protocol", "activation", "hidden", "rate", "seed", "start"]
    for ax, column, label in (
        (axes[0, 0], "trace", r"$\mathrm{tr}\,H$"),
        (axes[0, 1], "trace_of_square", r"$\mathrm{tr}\,H^2$"),
    ):
        for variant in variants:
            both = variant.rows(tables["traces"]).merge(unique_points(tables, variant), on=keys)
            worst = (both[f"{column}_numerical"] / both[column] - 1).abs().max()
            name = f"{variant.protocol}: largest difference {worst:.1e}"
            dots(ax, both[column], both[f"{column}_numerical"], variant.protocol, name)
            draw.note(figure, f"{variant.protocol}: {seeds_text(both)}")
        draw.log_axis(ax, "both")
        draw.identity_line(ax)
        ax.set_xlabel(f"{label}, closed form")
        ax.set_ylabel(f"{label}, three-point differences")
        ax.legend(loc="lower right")
    draw.letter(axes, ["Theorem 2", "Theorem 5"])
    return figure


def norms(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 10: parameter norms against the bound, narrow network, with Spearman's ρ of each data set."""
    figure, axes = draw.new_figure(len(variants), 2, sharey="row")
    titles = []
    for row, variant in zip(axes, variants, strict=True):
        points = unique_points(tables, variant, experiment.portrait_hidden)
        for ax, column, label in zip(row, ("V_norm_sq", "W_norm_sq"), (r"$\|V\|_F^2$", r"$\|W\|_F^2$"), strict=True):
            dots(ax, points[column], points["lambda_sup"], f"N={experiment.portrait_hidden}")
            draw.log_axis(ax, "y")
            ax.set_xlabel(label)
            titles.append(f"{variant.protocol}, η = {variant.rate:g}\n{_correlations(points, column)}")
        draw.note(figure, f"{variant.protocol}: {seeds_text(points)}")
        row[0].set_ylabel(BOUND)
    draw.note(figure, "ρ: Spearman's, data set by data set")
    draw.letter(axes, titles)
    return figure


def _correlations(points: pd.DataFrame, column: str) -> str:
    values = [f"{rows[column].corr(rows['lambda_sup'], method='spearman'):+.2f}" for _, rows in by_seed(points)]
    return f"ρ {', '.join(values)}".replace("-", "−")


def hidden_gram(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 12: ||RᵀR||_F² against the bound, all points and the lower three quarters enlarged, with the tested edge."""
    figure, axes = draw.new_figure(len(variants), 2)
    titles = []
    for row, variant in zip(axes, variants, strict=True):
        points = unique_points(tables, variant, experiment.portrait_hidden)
        for ax, part in zip(row, ("all points", "enlarged"), strict=True):
            dots(ax, points["RtR_norm_sq"], points["lambda_sup"], f"N={experiment.portrait_hidden}")
            ax.set_xlabel(r"$\|R^\top R\|_F^2$")
            for _, rows in by_seed(points):
                centre, edge = lower_edge(rows)
                ax.plot(centre, edge, color="black", linewidth=0.9, marker=".", markersize=3, zorder=4)
            titles.append(f"{variant.protocol}, η = {variant.rate:g}, {part}")
        row[1].set_ylim(0, points["lambda_sup"].quantile(0.75))
        row[0].set_ylim(bottom=0)
        draw.note(figure, f"{variant.protocol}: {seeds_text(points)}")
        row[0].set_ylabel(BOUND)
    draw.note(
        figure, "black: the smallest bound in ten bins of equal counts, the edge that is tested, data set by data set"
    )
    draw.letter(axes, titles)
    return figure
