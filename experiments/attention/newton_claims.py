"""Theorem J.1 and the extensions in numbers: shares and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from experiments.attention.recovery import BLIND
from experiments.attention.settings import AttentionNewton
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.tables import chosen

FEWEST = 10  # problems below which a median order says nothing
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


def claims(setup: AttentionNewton, tables: Tables) -> list[Claim]:
    """One row for each statement whose tables are there."""
    says = setup.says
    made = []
    if "theorem" in tables:
        made += theorem_claims(setup, tables["theorem"], says)
    if "orders" in tables:
        made.append(order_claim(tables["orders"], says["order"]))
    if "recovery" in tables:
        made += recovery_claims(tables, says)
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


def order_claim(orders: pd.DataFrame, statement: Statement) -> Claim:
    """Order of full Newton steps near the data, median over the problems."""
    known = orders["order"].dropna()
    converged = orders["converged"].sum()
    detail = f"{converged} of {orders['starts'].sum()} starts converge to the data"
    detail += f"; their order is measured in {len(known)} of {len(orders)} problems"
    if len(known) < FEWEST:
        detail += f", at least {FEWEST} needed"
        return judge.claim(statement, "inconclusive", detail=detail)
    return judge.exact(statement, float(known.median()), detail)


def recovery_claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """What blind starts find, and how often it is something else."""
    blind = chosen(tables["recovery"], origin=BLIND)
    is_solved = (blind["recovered"] > 0).astype(int)
    solved = blind.assign(solved=is_solved, problems=1)
    claim = judge.bound(says["blind recovery"], by_size(solved, "solved", "problems"))
    capped = f"{blind['capped'].sum()} of {blind['starts'].sum()} starts reach the cap of steps"
    yield replace(claim, detail=f"{capped}; {claim.detail}")
    yield judge.bound(says["unique"], by_size(blind, "wrong", "exact"))
    by_symmetry = by_size(tables["solutions"], "wrong_by_symmetry", "wrong")
    yield judge.bound(says["symmetry"], by_symmetry)
