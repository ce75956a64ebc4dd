"""What Exps. 3 and 3b measured, as the judge reads it: tables with further columns, and the fits
and ranks of the gap by the curvature of the activation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import (
    paired,
    printed,
    published_start,
    with_columns,
    with_own,
    with_rounding,
    with_scores,
)
from experiments.dag.protocol.summary import (
    first,
    gap,
    global_gaps,
    in_percent,
    long_format,
    over_seeds,
)
from runner import stats
from runner.contract import Claim, Statement, Tables
from runner.stats.claims import claim
from runner.stats.intervals import FEWEST_SEEDS, NAN
from runner.stats.over_seeds import exact
from runner.stats.quantities import Functions
from runner.stats.tables import chosen
from runner.training import CHECKPOINTS

PIECEWISE_LINEAR = ("relu", "leaky_relu")
SECTION = "Section 5.3"
ZERO_TENSOR = "H^T of piecewise linear networks"
VARIANT = ["activation"]
KEYS = [*VARIANT, "checkpoint"]
PRINTED = {
    "gaps": ["gap"],
    "networks": ["sigma_pp_squared", "percent"],
    "distances": ["tensor", "gn", "gap"],
}
"""Table -> columns that Tables 4, 5 and N.5 print."""
FUNCTIONS = Functions()


@FUNCTIONS.quantity("gap", "sigma_pp_squared")
def fit_of_gap(rows: pd.DataFrame) -> float:
    """R² of the linear fit of the gap on E[σ''²]."""
    return stats.linear(rows["sigma_pp_squared"], rows["gap"], name="").r2


@FUNCTIONS.quantity("gap", "sigma_pp_squared")
def rank_of_gap(rows: pd.DataFrame) -> float:
    """Rank correlation of the gap and E[σ''²]."""
    return stats.spearman(rows["sigma_pp_squared"], rows["gap"], name="").statistic


@FUNCTIONS.remark
def order_of_gaps(rows: pd.DataFrame) -> str:
    """The mean gaps of the activations, the smallest first."""
    means = rows.groupby("activation")["gap"].mean().sort_values()
    return "mean gaps " + ", ".join(f"{name} {value:.3g}" for name, value in means.items())


@FUNCTIONS.quantity("gap", "log_curvature")
def exponent_of_gap(rows: pd.DataFrame) -> float:
    """Slope of log gap on log E[σ''²]; NaN below three activations."""
    if len(rows) < 3:
        return NAN
    return stats.linear(rows["log_curvature"], np.log(rows["gap"]), name="").slope


@FUNCTIONS.decision("an exact p over five activations, which cannot reach the printed one")
def p_of_ranking(says: Statement, tables: Tables) -> Claim:
    """The exact p of the rank correlation at init, with the smallest that five activations
    allow."""
    gaps = tables["gaps"]
    points = gap_and_curvature(gaps, tables["networks"], "init")
    rank = stats.spearman(points["curvature"], points["gap"], name=says.name)
    detail = (
        f"n = {rank.n_a} activations, ρ = {rank.statistic:.3f}; exact over all orders; the "
        f"smallest p that the ties allow is {rank.p_min:.3g}"
    )
    if gaps["seed"].nunique() < FEWEST_SEEDS:
        return claim(says, "inconclusive", rank.p, detail)
    if not says.holds(rank.p_min):
        detail += ": no data could give the printed p by an exact test"
    return exact(says, rank.p, detail)


def judged(tables: Tables, gaps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables with the columns that statements read.

    gaps: GN-gap over all pairs, NaN without E[σ''²], with this curvature and its logarithm.
    norms: Σ‖H^GN‖_F and Σ‖H^T‖_F by distance, this without its structural zero at d = L − 1.
    networks: accuracy in percent.
    """
    found = dict(tables)
    if "networks" in tables:
        found["networks"] = in_percent(tables["networks"]).assign(same=False)
        keys = [*VARIANT, "seed", "checkpoint", "images"]
        curvature = tables["networks"][[*keys, "sigma_pp_squared"]]
        points = gaps.drop(columns="sigma_pp_squared", errors="ignore").merge(
            curvature, on=keys, how="left"
        )
        known = np.isfinite(points["sigma_pp_squared"])
        positive = points["sigma_pp_squared"].where(points["sigma_pp_squared"] > 0)
        points = points.assign(gap=points["gap"].where(known), log_curvature=np.log(positive))
        found["gaps"] = with_own(points, tables, VARIANT)
    if "distances" in tables:
        found["norms"] = norms(tables["distances"])
    return found


def compared(tables: Tables, judged_tables: Tables, repeated: Tables) -> Tables:
    """The tables that Tables 4, 5 and N.5 are read from, with `changes`; repeated: tables of
    repeated trainings, if any."""
    found = with_ratios(judged_tables)
    again: Tables = {}
    if repeated:
        again = with_ratios(judged(repeated, global_gaps(repeated["distances"], VARIANT)))
    for name, columns in PRINTED.items():
        keys = [*KEYS, "distance"] if name == "distances" else KEYS
        found[name] = with_scores(found[name], columns, keys, tables, VARIANT, again.get(name))
    change = {"change": "change"}
    known = paired(long_format(found["changes"], KEYS, change), tables, VARIANT)
    if again:
        known = with_rounding(known, long_format(again["changes"], KEYS, change), [*KEYS, "metric"])
    found["changes"] = with_columns(found["changes"], known, KEYS)
    return found


def with_ratios(tables: Tables) -> dict[str, pd.DataFrame]:
    """The tables with the gap by distance and its change in training."""
    distances = tables["distances"].assign(gap=gap)
    return {**tables, "distances": distances, "changes": changes(first(tables["gaps"]))}


def changes(gaps: pd.DataFrame) -> pd.DataFrame:
    """change: from init to final in percent of the mean init gap, so that the mean over seeds is
    the change of means."""
    wide = gaps.pivot(index=[*VARIANT, "seed"], columns="checkpoint", values="gap").reset_index()
    scale = wide.groupby(VARIANT)["init"].transform("mean")
    wide["change"] = 100 * (wide["final"] - wide["init"]) / scale.where(scale > 0)
    return wide[[*VARIANT, "seed", "change"]].assign(checkpoint="init->final")


def norms(distances: pd.DataFrame) -> pd.DataFrame:
    """One row for each part of the Hessian."""
    keys = [*VARIANT, "seed", "checkpoint", "images", "distance"]
    last = distances.groupby(VARIANT)["distance"].transform("max")
    shorter = distances[distances["distance"] < last]
    parts = []
    for part, column, rows in (("H^GN", "gn", distances), ("H^T", "tensor", shorter)):
        parts.append(rows[[*keys, column]].rename(columns={column: "norm"}).assign(part=part))
    return pd.concat(parts, ignore_index=True)


def with_printed_accuracy(networks: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """`same` for trained networks whose mean accuracy is the printed one in every digit, where they
    started as the paper's: they are then the paper's as far as the table shows."""
    if not published_start(tables):
        return networks
    paper = chosen(printed("exp3_gn_gap"), metric="test_acc_percent", checkpoint="final")
    theirs = paper.set_index("activation")["mean"]
    final = first(networks)[first(networks)["checkpoint"] == "final"]
    apart = (final.groupby("activation")["percent"].mean() - theirs).abs()
    agree = apart.index[apart <= 0.05]
    same = (networks["checkpoint"] == "final") & networks["activation"].isin(agree)
    return networks.assign(same=same)


def gap_and_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> pd.DataFrame:
    """activation, gap and E[σ''²] at a checkpoint, means over seeds, on the papers' images."""
    gap = over_seeds(chosen(first(gaps), checkpoint=checkpoint), ["activation"], "gap")
    curvature = chosen(first(networks), checkpoint=checkpoint)
    means = over_seeds(curvature, ["activation"], "sigma_pp_squared")
    means = means.rename(columns={"mean": "curvature"})[["activation", "curvature"]]
    return gap.rename(columns={"mean": "gap"}).merge(means, on="activation")


def correlations(
    gaps: pd.DataFrame, networks: pd.DataFrame, figure: str = "fig5_gap_and_curvature"
) -> list[stats.Statistic]:
    """Linear fit and Spearman's rank correlation of gap against E[σ''²] over the activations, by
    checkpoint. figure: that shows them."""
    found = []
    for checkpoint in CHECKPOINTS:
        points = gap_and_curvature(gaps, networks, checkpoint)
        about = {
            "name": "gap against E[σ''²]",
            "group": f"checkpoint={checkpoint}",
            "figure": figure,
            "where": f"Fig. 5, {SECTION}",
        }
        found.append(stats.linear(points["curvature"], points["gap"], **about))
        about["name"] = "rank of gap and E[σ''²]"
        found.append(stats.spearman(points["curvature"], points["gap"], **about))
    return found


def smooth(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of activations with curvature."""
    return table[~table["activation"].isin(PIECEWISE_LINEAR)]


def piecewise_linear(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of activations without curvature."""
    return table[table["activation"].isin(PIECEWISE_LINEAR)]
