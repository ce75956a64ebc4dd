"""What the DAG paper says of depths 16 and 32 (Section 5.1, Appendices N.2 and N.6), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experiments.dag.exp1.claims import ENDS, VARIANT, decades, values_at
from experiments.dag.protocol.summary import first, groups, long_format, over_seeds
from runner import stats
from runner.contract.experiment import Claim
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

APPENDIX = "Appendix N.2"
TEXT = "Section 5.1"
DEEPEST = 32


def claims(tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """One claim per statement, depth and checkpoint."""
    distances = first(tables["distances"])
    found: list[Claim] = []
    for (depth, arch, checkpoint), part in groups(distances, VARIANT):
        if checkpoint in ENDS and depth in (16, DEEPEST):
            group = f"L={depth} {checkpoint}"
            found += list((plain if arch == "plain" else residual)(part, depth, checkpoint, group))
    found += list(small_stable_ranks(tables["estimates"]))
    return found


def plain(part: pd.DataFrame, depth: int, checkpoint: str, group: str) -> Iterator[Claim]:
    """Plain networks of one depth at one checkpoint."""
    if depth == DEEPEST:
        statement = "norms fall to 1e-14 at L = 32: log10 R(L−1) rounds to −14"
        tail = [math.log10(v) for v in values_at(part, "R", depth - 1).values() if v > 0]
        yield judge.bound("norms at L=32", tail, -14.5, -13.5, group=group, where=TEXT, statement=statement)
    if (depth, checkpoint) == (DEEPEST, "init"):
        ratio = [10**v for v in decades(part, depth)]
        statement = "R(0)/R(L−1) reaches 5.9 at L = 32, plain, init"
        yield judge.number("fall of R", ratio, 5.9, 0.05, group=group, where=APPENDIX, statement=statement)
        last = values_at(part, "C", depth - 1).values()
        statement = "C(L−1) drops to 0.145 at L = 32, plain, init"
        yield judge.number(
            "coupling of the ends", last, 0.145, 0.0005, group=group, where=APPENDIX, statement=statement
        )
    rise = [math.log10(b / a) for a, b in middle_and_end(part, depth)]
    statement = "R(d) rises again for d > L/2: log10 R(L−1)/R(L/2) is above 0"
    yield judge.bound("rise of R", rise, low=0.0, group=group, where=TEXT, statement=statement)
    if (depth, checkpoint) == (DEEPEST, "final"):
        yield from u_shape(part, group)
    steps = [float(p.sort_values("distance")["C"].diff().max()) for _, p in part.groupby("seed")]
    statement = "C(d) falls monotonically: the largest step from d to d + 1 is below 0"
    yield judge.bound("C monotone", steps, high=0.0, group=group, where=f"{TEXT}, {APPENDIX}", statement=statement)
    r2 = [stats.log_linear(p["distance"], p["C"], name="").r2 for _, p in part.groupby("seed")]
    for low, where in ((0.90, TEXT), (0.91, APPENDIX)):
        statement = f"log C(d) = a − b d holds with R² > {low:.2f}"
        yield judge.bound(f"R² of log C > {low:.2f}", r2, low=low, group=group, where=where, statement=statement)


def middle_and_end(part: pd.DataFrame, depth: int) -> Iterator[tuple[float, float]]:
    """R(L/2) and R(L−1) of each seed."""
    middle, end = values_at(part, "R", depth // 2), values_at(part, "R", depth - 1)
    return ((middle[s], end[s]) for s in middle if s in end)


def u_shape(part: pd.DataFrame, group: str) -> Iterator[Claim]:
    """1.75 at d = 0, a minimum of 0.33 at d = 14, 0.52 at d = 31."""
    means = over_seeds(part, ["distance"], "R").sort_values("distance")
    lowest = means.loc[means["mean"].idxmin()]
    place = int(lowest["distance"])
    each = [int(p.loc[p["R"].idxmin(), "distance"]) for _, p in part.groupby("seed")]
    about: dict[str, Any] = {"group": group, "where": APPENDIX}
    yield judge.number(
        "start of the U", values_at(part, "R", 0).values(), 1.75, 0.005, statement="R(0) = 1.75", **about
    )
    least = values_at(part, "R", place).values()
    statement = f"the smallest R(d), of the means over seeds, is 0.33 (here at d = {place})"
    yield judge.number("bottom of the U", least, 0.33, 0.005, statement=statement, **about)
    statement = "R(d) is smallest at d = 14 (seed by seed)"
    yield judge.number("place of the bottom", each, 14, 0.5, statement=statement, **about)
    end = values_at(part, "R", DEEPEST - 1).values()
    yield judge.number("end of the U", end, 0.52, 0.005, statement="R(31) = 0.52", **about)


def residual(part: pd.DataFrame, depth: int, checkpoint: str, group: str) -> Iterator[Claim]:
    """Residual networks of one depth at one checkpoint."""
    last = values_at(part, "C", depth - 1).values()
    statement = "C(L−1) > 0.91 in residual networks, at all depths and phases"
    yield judge.bound("residual C of the ends", last, low=0.91, group=group, where=APPENDIX, statement=statement)


def small_stable_ranks(estimates: pd.DataFrame) -> Iterator[Claim]:
    """D below 1 for distant pairs, which only an estimate can have: exact values are at least 1."""
    for (depth, checkpoint), part in groups(estimates[estimates["arch"] == "plain"], ["depth", "checkpoint"]):
        far = part[part["distance"] > depth // 2]
        if checkpoint in ENDS and len(far):
            yield judge.bound(
                "D below 1",
                list(far.groupby("seed")["D_smallest"].min()),
                high=1.0,
                group=f"L={depth} {checkpoint}",
                where="Appendix N.6",
                statement="estimates of D fall below 1 for distant pairs at L > 12: the smallest at d > L/2",
            )


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Table N.3, one row per seed; R and C from 100 probes, as the paper's, ρ exact as there."""
    import pandas as pd

    parts = [long_format(first(tables["networks"]), VARIANT, {"rho_max": "rho"})]
    estimates = tables["estimates"]
    start = estimates[estimates["distance"] == 0]
    end = estimates[estimates["distance"] == estimates["depth"] - 1]
    parts.append(long_format(start, VARIANT, {"R_d0": "R"}))
    parts.append(long_format(end, VARIANT, {"R_dLminus1": "R", "C_dLminus1": "C"}))
    return pd.concat(parts, ignore_index=True)


def notes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    distances, estimates = first(tables["distances"]), tables["estimates"]
    keys = [*VARIANT, "seed", "distance"]
    both = distances.merge(estimates, on=keys, suffixes=("", "_estimate"))
    found = []
    for (depth, arch, checkpoint), part in groups(both, VARIANT):
        if checkpoint in ENDS:
            shift = (part["R_estimate"] / part["R"] - 1).abs().mean()
            rank = (part["D_estimate"] / part["D"] - 1).mean()
            found.append(
                f"L = {depth} {arch} {checkpoint}: estimated R(d) differs from the exact one by {100 * shift:.1f} % on "
                f"average, estimated D(d) by {100 * rank:+.1f} %; smallest estimated D {part['D_smallest'].min():.3f}, "
                f"smallest exact mean {part['D'].min():.3f} (exact D is never below 1)."
            )
    return found
