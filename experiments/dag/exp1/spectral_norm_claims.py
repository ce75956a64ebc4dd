"""What the DAG paper says of Exp. 1b (Appendix N.1, Fig. N.1), decided from the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp1.claims import ENDS, decades, values_at
from experiments.dag.protocol.comparisons import seed_fits
from experiments.dag.protocol.summary import first, groups, seed_values
from runner.contract.experiment import Claim
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

PLACE = "Appendix N.1"
PLAIN = "plain_sn"


def claims(tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """One claim per statement, depth and checkpoint."""
    found: list[Claim] = []
    networks, distances = first(tables["networks"]), first(tables["distances"])
    for (depth, checkpoint), part in groups(networks[networks["arch"] == PLAIN], ["depth", "checkpoint"]):
        if checkpoint in ENDS:
            found += dynamics(part, depth, checkpoint)
    for (depth, checkpoint), part in groups(distances[distances["arch"] == PLAIN], ["depth", "checkpoint"]):
        if checkpoint in ENDS:
            found += decay(part, depth, checkpoint)
    return found


def dynamics(part: pd.DataFrame, depth: int, checkpoint: str) -> list[Claim]:
    """rho, λ₁ and accuracy at one depth and checkpoint."""
    group = f"L={depth} {checkpoint}"
    rho, exponent = (list(seed_values(part, name).values()) for name in ("rho", "lyapunov_1"))
    statement = "λ₁ < 0 in every configuration"
    found = [judge.bound("contracting", exponent, high=0.0, group=group, where=PLACE, statement=statement)]
    if checkpoint == "init":
        found.append(
            judge.bound(
                "rho below 1", rho, high=1.0, group=group, where=PLACE, statement="rho < 1 at init at every depth"
            )
        )
    elif depth == 8:
        found.append(
            judge.bound(
                "rho after training",
                rho,
                low=1.0,
                high=1.04,
                group=group,
                where=PLACE,
                statement="rho exceeds 1 slightly, below 1.04, at L = 8 after training",
            )
        )
    return found


def decay(part: pd.DataFrame, depth: int, checkpoint: str) -> list[Claim]:
    """R(d) at one depth and checkpoint."""
    group = f"L={depth} {checkpoint}"
    found = []
    if checkpoint == "init":
        fits = [f.r2 for f in seed_fits(part, "R")]
        found.append(
            judge.bound(
                "R² of log R",
                fits,
                low=0.91,
                group=group,
                where="Fig. N.1",
                statement="R(d) decays exponentially (read as R² of log R >= 0.91)",
            )
        )
    if (depth, checkpoint) == (16, "init"):
        orders = decades(part, depth)
        found.append(
            judge.bound(
                "decay in orders",
                orders,
                low=5.25,
                high=5.75,
                group=group,
                where="Fig. N.1",
                statement="R decays over about 5.5 orders: log10 R(0)/R(15)",
            )
        )
    if (depth, checkpoint) == (8, "final"):
        plateau = [float(p["R"].mean()) for _, p in part.groupby("seed")]
        found.append(
            judge.number(
                "plateau of R",
                plateau,
                0.94,
                0.005,
                group=group,
                where="Fig. N.1",
                statement="R(d) plateaus at about 0.94 (mean over the distances)",
            )
        )
        start, end = values_at(part, "R", 0), values_at(part, "R", 7)
        flat = [1 - end[seed] / start[seed] for seed in start]
        found.append(
            judge.bound(
                "flatness of R",
                flat,
                high=0.1,
                group=group,
                where="Fig. N.1",
                statement="R(d) is flat: it loses at most a tenth from d = 0 to d = 7",
            )
        )
    return found
