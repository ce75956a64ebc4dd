"""Measured values beside the paper's, and findings in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.printed import unchecked
from experiments.ws_bound.analysis import Tables, Variant, by_seed, split_low_high, unique_points, variants, where_led

if TYPE_CHECKING:
    import pandas as pd

    from experiments.ws_bound.settings import WsBound


FITTED = "rate and stop ratio were chosen by these numbers"
STEP = "the step of the differences was chosen by this number"
UNPRINTED = "the learning rate of the search is not printed"


def measured(experiment: WsBound, tables: Tables) -> pd.DataFrame:
    """Values for experiments/reference/ws_bound.csv: metric, protocol, hidden, seed, value."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for variant in variants(experiment, tables, paper_only=True):
        about = {"protocol": variant.protocol, "calibrated": FITTED if variant.protocol == "fitted" else ""}
        about["comparable"] = "" if variant.protocol == "fitted" else f"{UNPRINTED}; shown at {variant.rate:g}"
        for row in _counts(experiment, tables, variant):
            own = {"calibrated": STEP} if about["calibrated"] and row["metric"] == "hessian_error_mean" else {}
            rows.append(about | own | row)
    return pd.DataFrame(rows, columns=["metric", "protocol", "hidden", "seed", "value", "calibrated", "comparable"])


def _counts(experiment: WsBound, tables: Tables, variant: Variant) -> Iterator[dict[str, Any]]:
    copied = ("converged", "unique", "lambda_sup_smallest", "lambda_sup_second_smallest", "hessian_error_mean")
    for row in variant.rows(tables["search"]).to_dict("records"):
        for metric in copied:
            yield {"metric": metric, "hidden": row["hidden"], "seed": row["seed"], "value": row[metric]}
    narrow = experiment.portrait_hidden
    for seed, rows in by_seed(unique_points(tables, variant, narrow)):
        low, high = split_low_high(rows, experiment.low_share)
        yield {"metric": "low_group", "hidden": narrow, "seed": seed, "value": len(low)}
        yield {"metric": "high_group", "hidden": narrow, "seed": seed, "value": len(high)}
    if "hessian_entries" in tables:
        for seed, rows in by_seed(variant.rows(tables["hessian_entries"], narrow)):
            yield {"metric": "hessian_size", "hidden": narrow, "seed": seed, "value": int(rows["row"].max()) + 1}


def notes(experiment: WsBound, tables: Tables) -> list[str]:
    """Findings for the report."""
    if "search" not in tables:
        return []
    found = [_where_they_lead(experiment, tables), _nearest_rate(tables), _stability(tables), _lost(tables)]
    for variant in variants(experiment, tables, paper_only=True):
        points = unique_points(tables, variant, experiment.portrait_hidden)
        if not points.empty:
            relative = (points["hessian_error"] / points["trace_of_square"] ** 0.5).median()
            found.append(
                f"{variant.group}: the numerical Hessian's mean error {points['hessian_error'].mean():.3g} is that of "
                f"differences with h = {experiment.difference_step:g} (relative {relative:.2g})."
            )
    return [line for line in found if line] + unchecked("ws_bound")


def _where_they_lead(experiment: WsBound, tables: Tables) -> str:
    """Whether the ends are critical points."""
    if "polished" not in tables:
        return ""
    rows, lines = where_led(tables), []
    for (protocol, activation, hidden), part in rows.groupby(["protocol", "activation", "hidden"], sort=False):
        kinds = ", ".join(f"{n} {kind}" for kind, n in part["kind"].value_counts().items())
        lines.append(f"{protocol} {activation}, N = {hidden}: {kinds}")
    told = rows[(rows["kind"] == "degenerate") & (rows["gradient"] > experiment.polish_tolerance)]
    rounded = (
        f" Of the degenerate {len(told)} have a gradient that is the rounding of the point: whether the valley goes on "
        "there float64 cannot tell."
        if len(told)
        else ""
    )
    keys = ["protocol", "activation", "hidden", "rate", "seed", "start"]
    both = tables["critical_points"][[*keys, "lambda_sup"]].merge(rows, on=keys, suffixes=("_before", ""))
    own = both[(both["hidden"] == experiment.portrait_hidden) & (both["kind"] != "unfinished")]
    ranks = [
        f"{protocol} {part['lambda_sup_before'].corr(part['lambda_sup'], method='spearman'):.2f}"
        for protocol, part in own[own["activation"] == "sigmoid"].groupby("protocol")
    ]
    return (
        "Where the ends of the search lead when they are not stopped (infinity: the infimum along the way is not "
        f"attained): {'; '.join(lines)}.{rounded} Rank correlation of the bound before and after, sigmoid: "
        f"{', '.join(ranks)}."
    )


def _nearest_rate(tables: Tables) -> str:
    scan = tables["search"][tables["search"]["protocol"] == "printed"]
    if scan.empty:
        return ""
    share = (scan["converged"] / scan["starts"]).groupby([scan["rate"], scan["hidden"]]).mean().unstack()
    lines = "; ".join(
        f"η = {rate:g}: " + ", ".join(f"{value:.2f} at N = {hidden}" for hidden, value in row.items())
        for rate, row in share.iterrows()
    )
    return f"Printed stop rule, share of starts that converge (published: 0.92 at N = 3, 0.91 at N = 10): {lines}."


def _stability(tables: Tables) -> str:
    scan = tables["search"]
    scan = scan[scan["protocol"] == "printed"]
    if scan.empty:
        return ""
    beyond, converged = int(scan["beyond_limit"].sum()), int(scan["converged"].sum())
    fast = scan[scan["rate"] == scan["rate"].max()]
    hovering = (fast["lambda_max_not_converged"] / fast["stability_limit"]).median()
    return (
        f"Gradient descent is unstable where λ₁ > 2/η. Of {converged} points that converge in the scan {beyond} lie "
        f"beyond (they meet the stop rule in passing), and at the largest rate the starts that do not converge hover "
        f"at {hovering:.2f} times 2/η: large rates take the sharp points out of what can be found."
    )


def _lost(tables: Tables) -> str:
    points = tables["critical_points"]
    counts = points["status"].value_counts()
    listed = ", ".join(f"{int(n)} {status}" for status, n in counts.items() if status != "ok")
    return f"Left out of every statistic: {listed or 'no start'} (of {len(points)} starts)."
