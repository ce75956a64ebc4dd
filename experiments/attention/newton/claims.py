"""Theorem J.1 in numbers, and what holds beyond it: blind recovery, wrong solutions, certificates, noise, targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from experiments.attention.newton import readings
from experiments.attention.newton.prices import ALONE
from runner.contract import Claim, Statement
from runner.stats import judge

if TYPE_CHECKING:
    from experiments.attention.newton.settings import AttentionNewton

Tables = Mapping[str, pd.DataFrame]
FEWEST = 10  # problems below which an order says nothing
LATE = 0.1  # share of starts that were given up too early above which a failure says nothing
DENSE = "the closed-form Hessian of n d variables and one dense solve: O(n d (n d)²) multiply-adds at every point"


def claims(setup: AttentionNewton, tables: Tables) -> list[Claim]:
    """One row for each statement whose tables are there."""
    says, found = setup.says, []
    if "theorem" in tables:
        found += theorem_claims(setup, tables["theorem"], says)
    if "balls" in tables:
        found += certificate_claims(tables, says)
    if "contest" in tables:
        found += contest_claims(setup, tables, says)
    if "noise" in tables:
        found += noise_claims(tables["noise"], says)
    if "targets" in tables:
        found += target_claims(tables, says)
    return found


def theorem_claims(setup: AttentionNewton, theorem: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """Convexity, convergence and recovery at the theorem's gamma."""
    good = theorem[theorem["status"] == "ok"]
    if good.empty:
        return []
    count = f"{len(good)} problems" + (f", {len(theorem) - len(good)} left out" if len(good) < len(theorem) else "")
    small = f"|X*| / |X_true| at most {good['norm_share'].max():.1e}: the minimiser is not the data"
    close = replace(says["recovery"], high=setup.recovered)
    return [
        judge.exact(says["convexity"], {"": float((good["convexity"] / (2 * good["admissible_gamma"])).min())}, count),
        judge.exact(says["convergence"], {"": float(good["excess"].max())}, count),
        judge.exact(close, {"": float(good["recovery_error"].max())}, f"{count}; {small}"),
        judge.constructed(says["time of an iteration"], DENSE),
    ]


def certificate_claims(tables: Tables, says: Mapping[str, Statement]) -> list[Claim]:
    """Order within the ball, convergence of what is certified, and the size of the ball."""
    table = tables["balls"]
    inside = table[table["multiple"] < 1]
    orders = inside["order"].dropna()
    detail = f"{len(orders)} spheres in the certified balls"
    found = [
        judge.exact(says["order"], {"": float(orders.median())}, detail)
        if len(orders) >= FEWEST
        else judge.claim(says["order"], "inconclusive", detail=f"{detail}; at least {FEWEST} needed")
    ]
    sure = table[table["certified"] > 0]
    shares = {
        "in the ball": float((inside["converged"] / inside["starts"]).min()) if len(inside) else float("nan"),
        "certified itself": float((sure["certified_solved"] / sure["certified"]).min()) if len(sure) else float("nan"),
    }
    counted = f"{inside['starts'].sum()} starts in the ball, {sure['certified'].sum()} that certify themselves"
    found.append(judge.exact(says["certified"], shares, counted))
    if "theorem" in tables:
        ratios = readings.ball_ratios(table, tables["theorem"])
        found.append(judge.exact(says["larger ball"], ratios, "smallest ratio of each size"))
    far = table[table["multiple"] == 100]
    return [*found, judge.bound(says["tight ball"], readings.by_size(far, "converged", "starts"))]


def contest_claims(setup: AttentionNewton, tables: Tables, says: Mapping[str, Statement]) -> list[Claim]:
    """What blind starts find, at what cost, and how often it is something else."""
    contest, solutions = tables["contest"], tables["solutions"]
    blind = contest[contest["origin"] == "blind"]
    leader = blind[blind["method"] == readings.OURS]
    solved = leader.assign(solved=(leader["recovered"] > 0).astype(int), problems=1)
    late = contest.groupby(["method", "seed"], sort=False)[["late", "starts"]].sum()
    shares = (late["late"] / late["starts"]).groupby("method", sort=False)
    found = [
        judge.bound(says["blind recovery"], readings.by_size(solved, "solved", "problems")),
        judge.bound(says["equal work"], readings.lead(blind)),
        judge.bound(says["caps"], {str(name): list(values) for name, values in shares}),
        judge.bound(says["unique"], readings.by_size(blind[blind["exact"] > 0], "wrong", "exact")),
        judge.bound(says["symmetry"], readings.by_size(solutions, "wrong_by_symmetry", "wrong")),
        judge.bound(says["proven"], readings.by_size(solutions, "wrong_certified", "wrong")),
    ]
    if "prices" in tables and len(timed := readings.in_seconds(blind, tables["prices"], ALONE)):
        found.append(judge.bound(says["equal time"], readings.lead(timed, "seconds")))
    return found


def noise_claims(noise: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """Predictions of the error under noise, and whether 1 % of noise protects."""
    local = noise[(noise["estimator"] == "least squares") & (noise["predicted"] <= 1e-2)]
    prior = noise[noise["estimator"] == "with prior"]
    level = noise[np.isclose(noise["noise"], 1e-2)].assign(
        name=lambda t: t["axis"] + " " + t["value"].map("{:g}".format)
    )
    least = (
        level.groupby(["name", "seed", "problem"], sort=False)["error"]
        .min()
        .groupby(["name", "seed"], sort=False)
        .min()
    )
    return [
        judge.bound(says["noise law"], readings.ratio_by_axis(local, "predicted")),
        judge.bound(says["flattest"], readings.ratio_by_axis(local, "flattest")),
        judge.bound(says["prior law"], readings.ratio_by_axis(prior, "with_prior")),
        judge.bound(says["protection"], {str(name): list(part) for name, part in least.groupby("name", sort=False)}),
    ]


def target_claims(tables: Tables, says: Mapping[str, Statement]) -> list[Claim]:
    """The trained layer, the transformer, and its characters."""
    targets, found = tables["targets"], []
    for name, target, view in (
        ("trained layer", "regression layer", "final"),
        ("transformer", "character transformer", "causal"),
    ):
        rows = targets[(targets["target"] == target) & (targets["view"] == view)]
        if rows.empty:
            continue
        shares = (rows["recovered"] > 0).groupby(rows["seed"]).mean()
        left, late = (float(rows[column].sum() / rows["starts"].sum()) for column in ("given_up", "late"))
        decided = judge.bound(says[name], list(shares))
        note = f"{left:.0%} of the starts were given up, {late:.0%} recover when they are followed; {decided.detail}"
        decided = replace(decided, detail=note)
        if late > LATE and decided.verdict == "refuted":
            decided = replace(decided, verdict="inconclusive", seeds_needed=float("inf"))  # rounds, not seeds
        found.append(decided)
    if "reading" in tables:
        rows = tables["reading"]
        rows = rows[(rows["view"] == "causal") & np.isclose(rows["noise"], 0.1)]
        read = rows.groupby("seed")["read"].mean()
        found.append(judge.bound(says["characters"], list(read)))
    return found
