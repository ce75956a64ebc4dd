"""The counterparts of Figs. 2-7; the first stored data set where one network or one data set is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.hsr.gradient.tests_and_fits import FORMS, SIZES, Tables, Tests
from experiments.hsr.plot_styles import STYLES
from runner.report import figures as draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.hsr.gradient.settings import HsrGradient

OF = {"trace": r"\mathrm{tr}\,H", "trace_of_square": r"\mathrm{tr}\,H^2"}


def _first(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["seed"] == table["seed"].min()]


def time(tables: Tables, tests: Tests) -> Figure:
    """Fig. 2: time against D and against I by five forms, median over data sets as a line and every data set a point;
    exponents are those of the last doublings."""
    figure, axes = draw.new_figure(1, 2, width=9.6, height=4.4)
    titles = []
    for ax, (varied, symbol) in zip(axes[0], SIZES.items(), strict=True):
        rows = tables["cost"][(tables["cost"]["varied"] == varied) & (tables["cost"]["status"] == "ok")]
        for form, name in FORMS.items():
            part = rows[rows["form"] == form]
            slopes = sorted(s.slope for (n, _), s in tests.items() if n == f"exponent in {symbol}, {form}")
            if part.empty or not slopes:
                continue
            look = STYLES.style("differences" if form == "numerical" else form)
            line = part.groupby(varied)["seconds"].median() * 1e3
            ax.plot(line.index, line, label=f"{name}: {slopes[len(slopes) // 2]:.2f}", **look)
            ax.scatter(part[varied], part["seconds"] * 1e3, s=8, color=look["color"], alpha=0.5, linewidths=0)
        draw.log_axis(ax, "both")
        ax.set_xlabel("parameters $D$" if varied == "dimension" else "samples $I$")
        ax.set_ylabel("processor time (ms)")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, title="exponent", fontsize=8)
        other = rows["samples"].iloc[0] if varied == "dimension" else rows["dimension"].iloc[0]
        titles.append(f"{'I' if varied == 'dimension' else 'D'} = {other}")
    draw.note(figure, "lines: median over the seeds, small: every seed; the paper prints no times in numbers")
    draw.letter(axes, titles)
    return figure


def agreement(tables: Tables) -> Figure:
    """Fig. 3: entry by entry, analytic against numerical."""
    from matplotlib.ticker import MaxNLocator

    rows, norms = _first(tables["agreement"]), tables["difference_norms"]
    figure, axes = draw.new_figure(2, 2, width=8.0, height=5.6)
    titles = []
    panels = [(name, block) for name in ("trace", "trace_of_square") for block in ("w", "v")]
    for ax, (name, block) in zip(axes.ravel(), panels, strict=True):
        part = rows[(rows["of"] == name) & (rows["block"] == block)]
        ax.plot(part["entry"], part["numerical"], label="numerical", **(STYLES.style("numerical") | {"markersize": 8}))
        ax.plot(
            part["entry"],
            part["analytic"],
            label="analytic",
            **(STYLES.style("exact") | {"linestyle": "", "markersize": 4}),
        )
        ax.set_xlabel(f"entry of ${block}$")
        ax.set_ylabel(rf"$\partial\,{OF[name]} / \partial {block}$")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        found = norms[(norms["of"] == name) & (norms["block"] == block)]["difference_norm"]
        titles.append(f"norm of difference {found.min():.1e} to {found.max():.1e}")
    draws = len(norms[["seed", "draw"]].drop_duplicates())
    draw.note(figure, f"entries: one random network of the first seed; norms: {draws} networks, the paper's about 1e-9")
    draw.letter(axes, titles)
    draw.shared_legend(figure)
    return figure


def influence(experiment: HsrGradient, tables: Tables, tests: Tests) -> Figure:
    """Fig. 4: |delta_i| against the norm of the sample's contribution, one network, and the limit of Proposition 1."""
    rows = _first(tables["influence"])
    rows = rows[rows["start"] == rows["start"].min()]
    figure, axes = draw.new_figure(2, 4, width=12.8, height=5.6)
    titles = []
    plain = {"trace": "tr H", "pair": f"tr H², j = {experiment.fixed_sample}", "bound": "bound"}
    for column, name in enumerate(("trace", "pair", "bound")):
        for line, block in enumerate(("w", "v")):
            ax = axes[line, column]
            part = rows[(rows["of"] == name) & (rows["block"] == block)]
            ax.scatter(part["error"], part["norm"], s=16, alpha=0.7, linewidths=0, **STYLES.point_style("measured"))
            ax.set_xlabel(r"$|\delta_i|$")
            ax.set_ylabel(f"norm of sample i's part, ${block}$")
            where = f"seed={rows['seed'].iloc[0]} start={rows['start'].iloc[0]}"
            rho = tests[(f"|delta| and {name} {block}", where)].effect
            titles.append((line, column, f"{plain[name]}: ρ = {rho:.2f}"))
    limit = _first(tables["vanishing_error"])
    for line, name in enumerate(("trace", "pair")):
        ax = axes[line, 3]
        for _, part in limit[limit["of"] == name].groupby("start"):
            ax.plot(part["error"], part["norm"], color=STYLES.colour("measured"), linewidth=0.9, alpha=0.7)
        draw.log_axis(ax, "both")
        ax.set_xlabel(r"$|\delta_i|$, made to vanish")
        ax.set_ylabel("norm of sample i's part")
        titles.append((line, 3, f"Prop. 1, {plain[name].split(',')[0]}"))
    start, networks = rows["start"].iloc[0], limit["start"].nunique()
    draw.note(
        figure, f"drawn: the first seed, the network from start {start}; Prop. 1: {networks} networks of that seed"
    )
    draw.letter(axes, [text for _, _, text in sorted(titles)])
    return figure


def covariance(tables: Tables) -> Figure:
    """Fig. 5: gradient norm of tr H² against the covariance, scaled to 0-1 in each curve; median and quartiles."""
    rows = _first(tables["covariance"])
    ranges = list(dict.fromkeys(rows["half_range"]))
    activations = list(dict.fromkeys(rows["activation"]))
    height = 0.4 + 2.6 * len(ranges)
    figure, axes = draw.new_figure(len(ranges), len(activations), width=8.0, height=height, sharex=True)
    titles = []
    for line, half_range in zip(axes, ranges, strict=True):
        for ax, activation in zip(line, activations, strict=True):
            part = rows[(rows["half_range"] == half_range) & (rows["activation"] == activation)]
            low, high = part["q25"].min(), part["q75"].max()
            scaled = (part[["q25", "q50", "q75"]] - low) / (high - low)
            look = STYLES.style(activation)
            ax.plot(part["covariance"], scaled["q50"], **look)
            ax.fill_between(
                part["covariance"], scaled["q25"], scaled["q75"], color=look["color"], alpha=0.18, linewidth=0
            )
            ends = part.set_index(part["covariance"].abs())["q50"].groupby(level=0).mean()
            ax.set_ylabel(r"$\|\partial\,\mathrm{tr}\,H^2 / \partial\theta\|$, scaled")
            titles.append(f"{activation}, ±{half_range:g}: ×{ends.iloc[-1] / ends.iloc[0]:.2f}")
    for ax in axes[-1]:
        ax.set_xlabel("covariance of the inputs")
    draw.note(
        figure, "drawn: the first seed; line: median over the networks, band: quartiles; ±: range of the parameters"
    )
    draw.note(figure, "×: median at the largest over that at the smallest |covariance|")
    draw.letter(axes, titles)
    return figure


def terms(tables: Tables, tests: Tests) -> Figure:
    """Fig. 6: norms of both terms at random networks, first data set, with the test."""
    rows = _first(tables["terms"])
    ranges = list(dict.fromkeys(rows["half_range"]))
    figure, axes = draw.new_figure(1, len(ranges), width=4.0 * len(ranges), height=3.6)
    titles = []
    for ax, half_range in zip(axes[0], ranges, strict=True):
        part = rows[rows["half_range"] == half_range]
        names = {"mean_term": r"$\|\partial\mu\|$", "std_term": r"$\sqrt{D-1}\,\|\partial\sigma\|$"}
        draw.groups(ax, {name: part[name] for name in names}, looks=STYLES, names=names)
        draw.log_axis(ax, "y")
        test = tests[(f"std term - mean term, range {half_range:g}", f"seed={rows['seed'].iloc[0]}")]
        draw.annotate_test(ax, test)
        titles.append(f"parameters within ±{half_range:g}")
    axes[0, 0].set_ylabel("norm of the term's gradient")
    draw.note(figure, "drawn and tested: the first seed; boxes: quartiles, whiskers to 1.5 interquartile ranges")
    draw.letter(axes, titles)
    return figure


def bound_descent(experiment: HsrGradient, tables: Tables) -> Figure:
    """Fig. 7: bounds, extreme eigenvalues and the full spectrum along descent on the bound, first start."""
    rows = _first(tables["bound_descent"])
    rows = rows[rows["start"] == rows["start"].min()].sort_values("step")
    numbers = sorted(int(c[7:]) for c in rows.columns if c.startswith("lambda_") and c[7:].isdigit())
    figure, axes = draw.new_figure(1, 3, width=11.4, height=3.5)
    labels = {
        "lambda_sup": ("lambda_sup", r"$\lambda_{\mathrm{sup}}$"),
        "lambda_1": ("lambda_1", r"$\lambda_1$"),
        "lambda_2": ("lambda_2", r"$\lambda_2$"),
        "lambda_3": ("lambda_3", r"$\lambda_3$"),
        f"lambda_{numbers[-1]}": ("lambda_D", r"$\lambda_D$"),
        "lambda_inf": ("lambda_inf", r"$\lambda_{\mathrm{inf}}$"),
    }
    for ax, names in (
        (axes[0, 0], ("lambda_sup", "lambda_1", "lambda_2", "lambda_3")),
        (axes[0, 1], ("lambda_sup", "lambda_1", f"lambda_{numbers[-1]}", "lambda_inf")),
    ):
        for name in names:
            look, text = labels[name]
            ax.plot(rows["step"], rows[name], label=text, **(STYLES.style(look) | {"marker": ""}))
    for k in numbers:
        axes[0, 2].plot(rows["step"], rows[f"lambda_{k}"], color="0.35", linewidth=0.9)
    for ax in axes[0]:
        ax.set_xlabel("step")
    draw.log_axis(axes[0, 0], "y")  # all that it shows is above zero
    for ax in axes[0, 1:]:
        ax.set_yscale("symlog", linthresh=0.1)
        ax.axhline(0, color="black", linewidth=0.8)
    axes[0, 0].set_ylabel("bounds and eigenvalues")
    draw.note(figure, f"drawn: start {rows['start'].iloc[0]} of the first seed; (b), (c): linear within ±0.1")
    draw.letter(axes, ["upper bound and largest eigenvalues", "both bounds and both ends", "every eigenvalue"])
    draw.shared_legend(figure, columns=6)
    return figure
