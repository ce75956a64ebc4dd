"""What the studies of the recovery measured, as the judge reads it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from runner.contract import Claim, Statement, Tables
from runner.stats.claims import claim
from runner.stats.quantities import Functions, rows_of
from runner.stats.statements import decided

FUNCTIONS = Functions()


@FUNCTIONS.quantity("order")
def known_median(orders: pd.DataFrame) -> float:
    """Median order over the problems in which it could be measured."""
    return float(orders["order"].median())


@FUNCTIONS.decision("a median of fewer than ten problems says nothing")
def of_ten_problems(says: Statement, tables: Tables) -> Claim:
    orders = rows_of(says, tables)
    if orders.empty or orders["order"].count() >= says.fewest:
        return decided(replace(says, test="exact"), tables, FUNCTIONS)
    detail = f"{measured_orders(orders)}, at least {says.fewest} needed"
    return claim(says, "inconclusive", detail=detail)


@FUNCTIONS.remark
def measured_orders(orders: pd.DataFrame) -> str:
    converged = f"{orders['converged'].sum()} of {orders['starts'].sum()} starts converge"
    known = f"{orders['order'].count()} of {len(orders)} problems"
    return f"{converged} to the data; their order is measured in {known}"


@FUNCTIONS.remark
def minimiser(theorem: pd.DataFrame) -> str:
    largest = theorem["norm_share"].max()
    return f"|X*| / |X_true| at most {largest:.1e}: the minimiser is not the data"


@FUNCTIONS.remark
def capped(recovery: pd.DataFrame) -> str:
    return f"{recovery['capped'].sum()} of {recovery['starts'].sum()} starts reach the cap of steps"


def judged(tables: Tables) -> Tables:
    """The tables with the columns that statements read: the smallest eigenvalue at the minimiser
    over 2γ; whether a problem is solved from one of its starts."""
    found = dict(tables)
    if "theorem" in tables:
        theorem = tables["theorem"]
        share = theorem["convexity"] / (2 * theorem["admissible_gamma"])
        found["theorem"] = theorem.assign(convexity_share=share)
    if "recovery" in tables:
        found["recovery"] = tables["recovery"].assign(solved=tables["recovery"]["recovered"] > 0)
    return found
