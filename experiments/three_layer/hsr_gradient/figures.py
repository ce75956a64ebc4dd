"""The counterparts of Figs. 2-7; the first stored data set where one network or one data set is
shown.
"""

from __future__ import annotations

from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.three_layer.drawing import STYLES, band, dots, line
from experiments.three_layer.hsr_gradient.settings import FORMS, SIZES
from experiments.three_layer.hsr_gradient.values import spectrum_columns
from experiments.three_layer.study import Study
from runner.contract import Tables
from runner.report import figures as draw
from runner.stats.tables import chosen, first_seed

OF = {"trace": r"\mathrm{tr}\,H", "trace_of_square": r"\mathrm{tr}\,H^2"}
FIXED = {"dimension": ("samples", "I"), "samples": ("dimension", "D")}
"""Varied size -> the other one and its symbol."""
SIZE_LABELS = {"dimension": "parameters $D$", "samples": "samples $I$"}


def time(study: Study) -> Figure:
    """Fig. 2: time against D and against I by five forms, median over data sets as a line and every
    data set a point; exponents are those of the last doublings.
    """
    figure, axes = draw.new_figure(1, 2, width=draw.WIDEST, height=4.4)
    titles = []
    for ax, (varied, symbol) in zip(axes[0], SIZES.items(), strict=True):
        rows = chosen(study.tables["cost"], varied=varied, status="ok")
        rows = rows.assign(milliseconds=rows["seconds"] * 1e3)
        for form, name in FORMS.items():
            part = chosen(rows, form=form)
            name = f"exponent in {symbol}, {form}"
            slopes = sorted(test.slope for test in study.rows if test.name == name)
            if part.empty or not slopes:
                continue
            exponent = slopes[len(slopes) // 2]
            look = STYLES.style("differences" if form == "numerical" else form)
            median = part.groupby(varied)["milliseconds"].median()
            ax.plot(median.index, median, label=f"{name}: {exponent:.2f}", **look)
            small = {"s": 8, "color": look["color"], "alpha": 0.5, "linewidths": 0}
            ax.scatter(part[varied], part["milliseconds"], **small)
        draw.log_axis(ax, "both")
        ax.set_xlabel(SIZE_LABELS[varied])
        ax.set_ylabel("processor time (ms)")
        ax.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=1,
            title="exponent over the last doublings",
            fontsize=8,
        )
        fixed, symbol = FIXED[varied]
        titles.append(f"{symbol} = {rows[fixed].iloc[0]}")
    caption = (
        "lines: median over the seeds, small: every seed; the paper prints no times in numbers"
    )
    draw.note(figure, caption)
    draw.letter(axes, titles)
    return figure


def agreement(tables: Tables) -> Figure:
    """Fig. 3: entry by entry, analytic against numerical."""
    rows = first_seed(tables["agreement"])
    norms = tables["difference_norms"]
    large = STYLES.style("numerical") | {"markersize": 8}
    small = STYLES.style("exact") | {"linestyle": "", "markersize": 4}

    def panel(ax: Axes, key: tuple[str, str]) -> str:
        of, block = key
        part = chosen(rows, of=of, block=block)
        ax.plot(part["entry"], part["numerical"], label="numerical", **large)
        ax.plot(part["entry"], part["analytic"], label="analytic", **small)
        ax.set_xlabel(f"entry of ${block}$")
        ax.set_ylabel(rf"$\partial\,{OF[of]} / \partial {block}$")
        sizes = chosen(norms, of=of, block=block)["difference_norm"]
        return f"norm of difference {sizes.min():.1e} to {sizes.max():.1e}"

    draws = len(norms[["seed", "draw"]].drop_duplicates())
    caption = (
        f"entries: one random network of the first seed; norms: {draws} networks, the paper's "
        "about 1e-9"
    )
    return draw.panels(
        dict.fromkeys(product(OF, ("w", "v")), ""),
        panel,
        columns=2,
        integer=True,
        caption=caption,
        width=8.0,
        height=5.8,
        sharey=False,
    )


def influence(study: Study, fixed: int) -> Figure:
    """Fig. 4: |δ_i| of a sample against the norm of its contribution to a gradient, one trained
    network; last row: the limit of Proposition 1. fixed: the sample j of a pair.
    """
    rows = first_seed(study.tables["influence"])
    rows = chosen(rows, start=rows["start"].min())
    limit = first_seed(study.tables["vanishing_error"])
    seed = rows["seed"].iloc[0]
    start = rows["start"].iloc[0]
    names = {"trace": "tr H", "pair": f"tr H², j = {fixed}", "bound": "the bound"}

    def panel(ax: Axes, key: tuple[str, str]) -> str:
        name, block = key
        if block == "limit":
            thin = line("measured", linewidth=0.9, alpha=0.7)
            for _, part in chosen(limit, of=name).groupby("start"):
                ax.plot(part["error"], part["norm"], **thin)
            draw.log_axis(ax, "both")
            ax.set_xlabel(r"$|\delta_i|$, made to vanish")
            return f"Proposition 1, {names[name].split(',')[0]}"
        part = chosen(rows, of=name, block=block)
        dots(ax, part["error"], part["norm"], "measured", s=16, alpha=0.7)
        ax.set_xlabel(r"error $|\delta_i|$ of sample $i$")
        test = study.tests[f"|delta| and {name} {block}", f"seed={seed} start={start}"]
        return f"{names[name]}, by ${block}$: ρ = {test.effect:.2f}".replace("-", "−")

    keys = [*product(names, ("w", "v")), ("trace", "limit"), ("pair", "limit")]
    figure = draw.panels(
        dict.fromkeys(keys, ""),
        panel,
        y="norm of the part of sample $i$",
        columns=2,
        legend_columns=0,
        width=7.6,
        height=10.0,
        sharey=False,
    )
    network = f"the first seed, the network from start {start}"
    draw.note(figure, f"drawn: {network}; tr H²: pairs with sample j")
    networks = limit["start"].nunique()
    draw.note(figure, f"Proposition 1: {networks} networks of that seed; ρ: Spearman's")
    return figure


def covariance(tables: Tables) -> Figure:
    """Fig. 5: gradient norm of tr H² against the covariance, scaled to 0-1 in each curve; median
    and quartiles.
    """
    rows = first_seed(tables["covariance"])

    def panel(ax: Axes, key: tuple[float, str]) -> str:
        half_range, activation = key
        part = chosen(rows, half_range=half_range, activation=activation)
        low = part["q25"].min()
        high = part["q75"].max()
        scaled = (part[["q25", "q50", "q75"]] - low) / (high - low)
        middle = scaled["q50"]
        band(ax, part["covariance"], middle, scaled["q25"], scaled["q75"], activation, activation)
        by_size = part["q50"].groupby(part["covariance"].abs()).mean()
        rise = by_size.iloc[-1] / by_size.iloc[0]
        return f"{activation}, parameters within ±{half_range:g}:\nends / middle = {rise:.2f}"

    activations = rows["activation"].unique()
    keys = list(product(rows["half_range"].unique(), activations))
    columns = len(activations)
    figure = draw.panels(
        dict.fromkeys(keys, ""),
        panel,
        x="covariance of the inputs",
        y="gradient norm\n" + r"$\|\partial\,\mathrm{tr}\,H^2 / \partial\theta\|$, scaled",
        columns=columns,
        legend_columns=0,
        width=8.0,
        height=0.4 + 2.8 * len(keys) / columns,
        sharex=True,
        sharey=False,
    )
    draw.note(figure, "drawn: the first seed; line: median over the networks, band: quartiles")
    ratio = "median at the largest over that at the smallest |covariance|"
    draw.note(figure, f"ends / middle: {ratio}")
    return figure


def terms(study: Study) -> Figure:
    """Fig. 6: norms of both terms at random networks, first data set, with the test."""
    rows = first_seed(study.tables["terms"])
    seed = rows["seed"].iloc[0]
    names = {"mean_term": r"$\|\partial\mu\|$", "std_term": r"$\sqrt{D-1}\,\|\partial\sigma\|$"}

    def panel(ax: Axes, half_range: float) -> None:
        part = chosen(rows, half_range=half_range)
        norms = {name: part[name] for name in names}
        draw.groups(ax, norms, looks=STYLES, names=names)
        draw.log_axis(ax, "y")
        test = study.tests[f"std term - mean term, range {half_range:g}", f"seed={seed}"]
        draw.annotate_test(ax, test)

    titles = {r: f"parameters within ±{r:g}" for r in rows["half_range"].unique()}
    caption = "drawn and tested: the first seed; μ, σ: mean and standard deviation of the spectrum"
    return draw.panels(
        titles,
        panel,
        y="norm of the term's gradient",
        caption=caption,
        sharey=False,
        legend_columns=0,
        width=4.0 * len(titles),
        height=3.6,
    )


def bound_descent(tables: Tables) -> Figure:
    """Fig. 7: bounds, extreme eigenvalues and the full spectrum along descent on the bound, first
    start.
    """
    rows = first_seed(tables["bound_descent"])
    rows = chosen(rows, start=rows["start"].min()).sort_values("step")
    spectrum = spectrum_columns(rows)
    last = spectrum[-1]
    labels = {
        "lambda_sup": r"bound $\lambda_{\mathrm{sup}}$",
        "lambda_1": r"$\lambda_1$",
        "lambda_2": r"$\lambda_2$",
        "lambda_3": r"$\lambda_3$",
        last: r"$\lambda_D$",
        "lambda_inf": r"lower bound $\lambda_{\mathrm{inf}}$",
    }
    shown = {
        "upper bound and largest eigenvalues": ("lambda_sup", "lambda_1", "lambda_2", "lambda_3"),
        "both bounds and both ends": ("lambda_sup", "lambda_1", last, "lambda_inf"),
        "every eigenvalue": (),
    }

    def panel(ax: Axes, title: str) -> None:
        names = shown[title]
        steps = rows["step"]
        for name in names:
            look = line("lambda_D" if name == last else name)
            ax.plot(steps, rows[name], label=labels[name], **look)
        if not names:
            ax.plot(steps, rows[spectrum], color="0.35", linewidth=0.9)
        if "lambda_3" in names:
            draw.log_axis(ax)  # all that it shows is above zero
        else:
            ax.set_yscale("symlog", linthresh=0.1)
            ax.axhline(0, color="black", linewidth=0.8)

    start = rows["start"].iloc[0]
    return draw.panels(
        dict(zip(shown, shown, strict=True)),
        panel,
        x="step",
        y="bounds and eigenvalues",
        legend_columns=6,
        caption=f"drawn: start {start} of the first seed; (b), (c): linear within ±0.1",
        sharey=False,
        width=draw.WIDEST,
        height=3.6,
    )
