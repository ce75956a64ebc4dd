"""The counterparts of Figs. 2-7; the first stored data set where one network or one data set is
shown.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.three_layer.drawing import STYLES, band, dots, line
from experiments.three_layer.hsr_gradient.settings import FORMS, SIZES, HsrGradient
from experiments.three_layer.study import Tests
from runner.contract import Tables
from runner.report import figures as draw
from runner.stats.tables import chosen, first_seed

OF = {"trace": r"\mathrm{tr}\,H", "trace_of_square": r"\mathrm{tr}\,H^2"}


def time(tables: Tables, tests: Tests) -> Figure:
    """Fig. 2: time against D and against I by five forms, median over data sets as a line and every
    data set a point; exponents are those of the last doublings.
    """
    figure, axes = draw.new_figure(1, 2, width=draw.WIDEST, height=4.4)
    titles = []
    for ax, (varied, symbol) in zip(axes[0], SIZES.items(), strict=True):
        rows = chosen(tables["cost"], varied=varied, status="ok")
        for form, name in FORMS.items():
            part = chosen(rows, form=form)
            slopes = sorted(
                s.slope for (n, _), s in tests.items() if n == f"exponent in {symbol}, {form}"
            )
            if part.empty or not slopes:
                continue
            look = STYLES.style("differences" if form == "numerical" else form)
            median = part.groupby(varied)["seconds"].median() * 1e3
            ax.plot(median.index, median, label=f"{name}: {slopes[len(slopes) // 2]:.2f}", **look)
            ax.scatter(
                part[varied],
                part["seconds"] * 1e3,
                s=8,
                color=look["color"],
                alpha=0.5,
                linewidths=0,
            )
        draw.log_axis(ax, "both")
        ax.set_xlabel("parameters $D$" if varied == "dimension" else "samples $I$")
        ax.set_ylabel("processor time (ms)")
        ax.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=1,
            title="exponent over the last doublings",
            fontsize=8,
        )
        fixed, symbol = ("samples", "I") if varied == "dimension" else ("dimension", "D")
        titles.append(f"{symbol} = {rows[fixed].iloc[0]}")
    draw.note(
        figure,
        "lines: median over the seeds, small: every seed; the paper prints no times in numbers",
    )
    draw.letter(axes, titles)
    return figure


def agreement(tables: Tables) -> Figure:
    """Fig. 3: entry by entry, analytic against numerical."""
    rows = first_seed(tables["agreement"])
    norms = tables["difference_norms"]

    def panel(ax: Axes, key: tuple[str, str]) -> str:
        part, found = (chosen(t, of=key[0], block=key[1]) for t in (rows, norms))
        analytic = STYLES.style("exact") | {"linestyle": "", "markersize": 4}
        ax.plot(
            part["entry"],
            part["numerical"],
            label="numerical",
            **(STYLES.style("numerical") | {"markersize": 8}),
        )
        ax.plot(part["entry"], part["analytic"], label="analytic", **analytic)
        ax.set_xlabel(f"entry of ${key[1]}$")
        ax.set_ylabel(rf"$\partial\,{OF[key[0]]} / \partial {key[1]}$")
        least = found["difference_norm"].min()
        most = found["difference_norm"].max()
        return f"norm of difference {least:.1e} to {most:.1e}"

    draws = len(norms[["seed", "draw"]].drop_duplicates())
    caption = (
        f"entries: one random network of the first seed; norms: {draws} networks, the paper's "
        "about 1e-9"
    )
    keys = [(name, block) for name in OF for block in ("w", "v")]
    return draw.panels(
        dict.fromkeys(keys, ""),
        panel,
        columns=2,
        integer=True,
        caption=caption,
        width=8.0,
        height=5.8,
        sharey=False,
    )


def influence(experiment: HsrGradient, tables: Tables, tests: Tests) -> Figure:
    """Fig. 4: |δ_i| of a sample against the norm of its contribution to a gradient, one trained
    network; last row: the limit of Proposition 1.
    """
    rows = first_seed(tables["influence"])
    limit = first_seed(tables["vanishing_error"])
    rows = chosen(rows, start=rows["start"].min())
    seed = rows["seed"].iloc[0]
    start = rows["start"].iloc[0]
    names = {"trace": "tr H", "pair": f"tr H², j = {experiment.fixed_sample}", "bound": "the bound"}

    def panel(ax: Axes, key: tuple[str, str]) -> str:
        name, block = key
        if block == "limit":
            for _, part in chosen(limit, of=name).groupby("start"):
                ax.plot(part["error"], part["norm"], **line("measured", linewidth=0.9, alpha=0.7))
            draw.log_axis(ax, "both")
            ax.set_xlabel(r"$|\delta_i|$, made to vanish")
            return f"Proposition 1, {names[name].split(',')[0]}"
        part = chosen(rows, of=name, block=block)
        dots(ax, part["error"], part["norm"], "measured", s=16, alpha=0.7)
        ax.set_xlabel(r"error $|\delta_i|$ of sample $i$")
        rho = tests[(f"|delta| and {name} {block}", f"seed={seed} start={start}")].effect
        return f"{names[name]}, by ${block}$: ρ = {rho:.2f}".replace("-", "−")

    keys = [(name, block) for name in names for block in ("w", "v")] + [
        ("trace", "limit"),
        ("pair", "limit"),
    ]
    y = "norm of the part of sample $i$"
    figure = draw.panels(
        dict.fromkeys(keys, ""),
        panel,
        y=y,
        columns=2,
        legend_columns=0,
        width=7.6,
        height=10.0,
        sharey=False,
    )
    draw.note(
        figure, f"drawn: the first seed, the network from start {start}; tr H²: pairs with sample j"
    )
    draw.note(
        figure, f"Proposition 1: {limit['start'].nunique()} networks of that seed; ρ: Spearman's"
    )
    return figure


def covariance(tables: Tables) -> Figure:
    """Fig. 5: gradient norm of tr H² against the covariance, scaled to 0-1 in each curve; median
    and quartiles.
    """
    rows = first_seed(tables["covariance"])

    def panel(ax: Axes, key: tuple[float, str]) -> str:
        part = chosen(rows, half_range=key[0], activation=key[1])
        low = part["q25"].min()
        high = part["q75"].max()
        scaled = (part[["q25", "q50", "q75"]] - low) / (high - low)
        band(ax, part["covariance"], scaled["q50"], scaled["q25"], scaled["q75"], key[1], key[1])
        ends = part.set_index(part["covariance"].abs())["q50"].groupby(level=0).mean()
        rise = ends.iloc[-1] / ends.iloc[0]
        return f"{key[1]}, parameters within ±{key[0]:g}:\nends / middle = {rise:.2f}"

    keys = [
        (r, a) for r in dict.fromkeys(rows["half_range"]) for a in dict.fromkeys(rows["activation"])
    ]
    columns = rows["activation"].nunique()
    y = "gradient norm\n" + r"$\|\partial\,\mathrm{tr}\,H^2 / \partial\theta\|$, scaled"
    figure = draw.panels(
        dict.fromkeys(keys, ""),
        panel,
        x="covariance of the inputs",
        y=y,
        columns=columns,
        legend_columns=0,
        width=8.0,
        height=0.4 + 2.8 * len(keys) / columns,
        sharex=True,
        sharey=False,
    )
    draw.note(figure, "drawn: the first seed; line: median over the networks, band: quartiles")
    draw.note(
        figure,
        "ends / middle: median at the largest over that at the smallest |covariance|",
    )
    return figure


def terms(tables: Tables, tests: Tests) -> Figure:
    """Fig. 6: norms of both terms at random networks, first data set, with the test."""
    rows = first_seed(tables["terms"])
    names = {"mean_term": r"$\|\partial\mu\|$", "std_term": r"$\sqrt{D-1}\,\|\partial\sigma\|$"}

    def panel(ax: Axes, half_range: float) -> None:
        part = chosen(rows, half_range=half_range)
        draw.groups(ax, {name: part[name] for name in names}, looks=STYLES, names=names)
        draw.log_axis(ax, "y")
        draw.annotate_test(
            ax,
            tests[(f"std term - mean term, range {half_range:g}", f"seed={rows['seed'].iloc[0]}")],
        )

    titles = {r: f"parameters within ±{r:g}" for r in dict.fromkeys(rows["half_range"])}
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
    every = [c for c in rows.columns if c.startswith("lambda_") and c[7:].isdigit()]
    last = max(every, key=lambda c: int(c[7:]))
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
        for name in shown[title]:
            ax.plot(
                rows["step"],
                rows[name],
                label=labels[name],
                **line("lambda_D" if name == last else name),
            )
        for name in () if shown[title] else every:
            ax.plot(rows["step"], rows[name], color="0.35", linewidth=0.9)
        if "lambda_inf" in shown[title] or not shown[title]:
            ax.set_yscale("symlog", linthresh=0.1)
            ax.axhline(0, color="black", linewidth=0.8)
        else:
            draw.log_axis(ax)  # all that it shows is above zero

    caption = (
        f"drawn: start {rows['start'].iloc[0]} of the first seed; (b), (c): linear within ±0.1"
    )
    return draw.panels(
        {title: title for title in shown},
        panel,
        x="step",
        y="bounds and eigenvalues",
        legend_columns=6,
        caption=caption,
        sharey=False,
        width=draw.WIDEST,
        height=3.6,
    )
