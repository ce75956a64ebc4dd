"""Theorem J.1 and the extensions in numbers: shares, costs and ratios, claims and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.attention.settings import AttentionNewton
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.tables import chosen

OURS = "levenberg-marquardt"
LAYER = "regression layer"
FEWEST = 10  # problems or values below which an order or a correlation says nothing
LATE = 0.1  # share of starts that were given up too early above which a failure says nothing
DENSE = (
    "the closed-form Hessian of n d variables and one dense solve: O(n d (n d)²) multiply-adds at "
    "every point"
)


def sizes(table: pd.DataFrame) -> list[str]:
    """Sizes by number of variables."""

    def variables(size: str) -> tuple[int, str]:
        n, d = (int(part) for part in size.split("x"))
        return n * d, size

    return sorted(set(table["size"]), key=variables)


def by_size(table: pd.DataFrame, part: str, whole: str) -> dict[str, list[float]]:
    """size -> the share part/whole of each seed's sums; seeds without a whole are left out."""
    shares = {}
    for size in sizes(table):
        of_size = chosen(table, size=size)
        sums = of_size.groupby("seed")[[part, whole]].sum()
        sums = sums[sums[whole] > 0]
        if len(sums):
            shares[size] = list(sums[part] / sums[whole])
    return shares


def solved_by(rows: pd.DataFrame, budget: float | Iterable[float]) -> pd.Series:
    """Expected share 1 - (1 - p)^(budget / mean cost of a start) of the problems recovered from
    blind starts for a budget of multiply-adds; p: share of a problem's starts that recover it.
    Starts are tried until the budget is spent."""
    rate = rows["recovered"] / rows["starts"]
    cost = rows["work"] / rows["starts"]
    tries = np.asarray(budget, dtype=float) / cost
    return 1 - (1 - rate) ** tries


def lead(blind: pd.DataFrame) -> dict[str, list[float]]:
    """method -> by seed, mean over sizes and problems: what Levenberg-Marquardt's starts recover
    less what the method does for the same work."""
    keys = ["size", "seed", "problem"]
    leader = chosen(blind, method=OURS).set_index(keys)
    leads = {}
    for method, rows in blind.groupby("method", sort=False):
        if method == OURS:
            continue
        other = rows.set_index(keys)
        ours = leader.loc[other.index]
        budget = ours["work"]
        ahead = solved_by(ours, budget) - solved_by(other, budget)
        means = ahead.groupby("seed").mean()
        leads[str(method)] = list(means)
    return leads


def ball_ratios(certificate: pd.DataFrame, theorem: pd.DataFrame) -> dict[str, float]:
    """size -> smallest ratio over its problems of the certified radius to that of Theorem J.1, both
    over |X_true|."""
    keys = ["size", "seed", "problem"]
    ours = certificate.groupby(keys)["radius_share"].first()
    theirs = theorem.set_index(keys)["admitted_share"]
    ratio = (ours / theirs).dropna()
    smallest = ratio.groupby("size").min()
    return {size: float(smallest[size]) for size in sizes(certificate) if size in smallest.index}


# ------------------------------------------------------------------ claims


def claims(setup: AttentionNewton, tables: Tables) -> list[Claim]:
    """One row for each statement whose tables are there."""
    says = setup.says
    made = []
    if "theorem" in tables:
        made += theorem_claims(setup, tables["theorem"], says)
    if "balls" in tables:
        made += certificate_claims(tables, says)
    if "contest" in tables:
        made += contest_claims(tables, says)
    if "targets" in tables:
        made += layer_claims(tables["targets"], says)
    return made


def theorem_claims(
    setup: AttentionNewton, theorem: pd.DataFrame, says: Mapping[str, Statement]
) -> list[Claim]:
    """Convexity, convergence and recovery at the theorem's gamma."""
    good = chosen(theorem, status="ok")
    if good.empty:
        return []
    count = f"{len(good)} problems"
    small = f"|X*| / |X_true| at most {good['norm_share'].max():.1e}: the minimiser is not the data"
    close = replace(says["recovery"], high=setup.recovered, chosen=True)
    convexity = good["convexity"] / (2 * good["admissible_gamma"])
    excess = good["excess"].max()
    recovery_error = good["recovery_error"].max()
    least = float(convexity.min())
    made = [
        judge.exact(says["convexity"], least, count),
        judge.exact(says["convergence"], float(excess), count),
        judge.exact(close, float(recovery_error), f"{count}; {small}"),
    ]
    lost = len(theorem) - len(good)  # without a minimiser nothing is known
    made = [judge.with_lost(claim, lost, len(theorem), "minimisers") for claim in made]
    return [*made, judge.constructed(says["time of an iteration"], DENSE)]


def certificate_claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """Order within the ball, convergence of what is certified, and the size of the ball."""
    table = tables["balls"]
    inside = table[table["multiple"] < 1]
    orders = inside["order"].dropna()
    detail = f"{len(orders)} spheres in the certified balls"
    if len(orders) >= FEWEST:
        middle = float(orders.median())
        yield judge.exact(says["order"], middle, detail)
    else:
        detail += f"; at least {FEWEST} needed"
        yield judge.claim(says["order"], "inconclusive", detail=detail)
    certified = table[table["certified"] > 0]
    in_ball = inside["converged"] / inside["starts"]
    certified_itself = certified["certified_solved"] / certified["certified"]
    shares = {  # NaN without any
        "in the ball": float(in_ball.min()),
        "certified itself": float(certified_itself.min()),
    }
    counted = (
        f"{inside['starts'].sum()} starts in the ball, {certified['certified'].sum()} that certify "
        "themselves"
    )
    yield judge.exact(says["certified"], shares, counted)
    if "theorem" in tables:
        ratios = ball_ratios(table, tables["theorem"])
        yield judge.exact(says["larger ball"], ratios, "smallest ratio of each size")
    far = chosen(table, multiple=100)
    converged = by_size(far, "converged", "starts")
    yield judge.bound(says["tight ball"], converged)


def contest_claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """What blind starts find, at what cost, and how often it is something else."""
    contest = tables["contest"]
    solutions = tables["solutions"]
    blind = chosen(contest, origin="blind")
    leader = chosen(blind, method=OURS)
    is_solved = (leader["recovered"] > 0).astype(int)
    solved = leader.assign(solved=is_solved, problems=1)
    solved_problems = by_size(solved, "solved", "problems")
    yield judge.bound(says["blind recovery"], solved_problems)
    yield judge.bound(says["equal work"], lead(blind))
    by_method = contest.groupby(["method", "seed"], sort=False)
    sums = by_method[["late", "starts"]].sum()
    late = sums["late"] / sums["starts"]
    late_by_method = late.groupby("method", sort=False).agg(list)
    yield judge.bound(says["caps"], late_by_method.to_dict())
    solved_exactly = blind[blind["exact"] > 0]
    wrong = by_size(solved_exactly, "wrong", "exact")
    yield judge.bound(says["unique"], wrong)
    by_symmetry = by_size(solutions, "wrong_by_symmetry", "wrong")
    yield judge.bound(says["symmetry"], by_symmetry)
    proven = by_size(solutions, "wrong_certified", "wrong")
    yield judge.bound(says["proven"], proven)


def layer_claims(targets: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """Blind recovery from the trained layer."""
    rows = chosen(targets, target=LAYER, view="final")
    if rows.empty:
        return []
    recovered = rows["recovered"] > 0
    shares = recovered.groupby(rows["seed"]).mean()
    starts = rows["starts"].sum()
    given_up = rows["given_up"].sum() / starts
    late = rows["late"].sum() / starts
    claim = judge.bound(says["trained layer"], list(shares))
    detail = (
        f"{given_up:.0%} of the starts were given up, {late:.0%} recover when they are followed; "
        f"{claim.detail}"
    )
    claim = replace(claim, detail=detail)
    if late > LATE and claim.verdict == "refuted":  # rounds would decide it, not seeds
        claim = replace(claim, verdict="inconclusive", seeds_needed=float("inf"))
    return [claim]
