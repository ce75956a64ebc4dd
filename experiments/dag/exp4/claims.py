"""What the DAG paper says of Exp. 4 (Section 5.4, Appendix N.3, Fig. N.2), decided from the
tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import (
    jackknife,
    on_log_scale,
    published_start,
    scored,
)
from experiments.dag.protocol.statements import Groups, Judge, Parts
from experiments.dag.protocol.summary import (
    ENDS,
    at_ends,
    complete,
    first,
    in_percent,
    label,
    per_seed,
)
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.intervals import Pseudovalues, lost_text
from runner.stats.tables import chosen, differences, groups, seed_values

PAIRS = 48
DEPTHS = 3
"""Pairs (configuration, distance) that H4.1 counts, and depths k that Appendix N.3 compares."""
VARIANT = ["branch_depth", "merge", "activation"]
CURVED = ("cat", "silu")
COUNTED = "dag.steps, class B"
"""Root cause in the errata of the printed count, of which the public results have more."""
CAT_RELU = "dag.cat_relu, class B"
"""Root cause in the errata of a tensor of cat + ReLU that is not zero."""
GROWING = (("sum", "relu"), ("cat", "relu"))
"""Configurations for which H4.2b is printed; the caption of Fig. N.2 has all four, at k = 2."""
TEXT = "k={branch_depth} {merge}+{activation}"
ZERO = (
    "the engine routes the second derivative of the merge itself, an exact zero of the code here; "
    "the printed 1e-8 to 1e-10 are what float32 leaves of H − H^GN; `hess-run audit "
    "dag.zeros.exp4` has the block by automatic differentiation, the audit's table `zeros` for "
    "every cell"
)


def claims(
    tables: Tables, says: Mapping[str, Statement], without_norm: pd.DataFrame | None = None
) -> Iterator[Claim]:
    """One claim per statement; configurations and checkpoints are its parts.

    without_norm: `distances` of untrained networks without LayerNorm, if any.
    """
    decide = Judge(says, published_start(tables))
    networks = first(tables["networks"])
    cross = across(first(tables["distances"]))
    final = chosen(networks, checkpoint="final")
    percent = configurations(in_percent(final))
    yield from within_branches(tables["distances"], says)
    yield from across_branches(cross, decide)
    yield printed_ratio(cross, without_norm, decide)
    yield from jacobians(networks, decide)
    yield from at_the_merge(tables["merge"], decide)
    curved = chosen(first(tables["merge"]), merge="cat", activation="silu")
    yield from over_depths(curved, decide)
    yield decide.number("accuracy", percent.values("percent"))


def configurations(table: pd.DataFrame) -> Groups:
    """Groups named 'k=2 sum+relu'."""
    return Groups(table, VARIANT, TEXT)


def across(distances: pd.DataFrame) -> pd.DataFrame:
    """The pairs between branches of more than one block."""
    cross = chosen(distances, relation="cross")
    return cross[cross["branch_depth"] > 1]


def steps(distances: pd.DataFrame) -> dict[str, float]:
    """Change in percent of R within a branch for every step d -> d + 1, init and final, of means
    over seeds."""
    part = at_ends(distances[distances["relation"] != "cross"])
    changes = {}
    branches = groups(part, [*VARIANT, "relation", "checkpoint"])
    for values, rows in branches:
        means = rows.groupby("distance")["R"].mean()
        group = label([*VARIANT, "branch", "checkpoint"], values)
        for low, high in pairwise(means.index):
            ratio = means[high] / means[low]
            changes[f"{group} d={low}->{high}"] = 100 * (ratio - 1)
    return changes


def within_branches(distances: pd.DataFrame, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """H4.1, on the papers' images and on every random set."""
    by_images = distances.groupby("images")
    sets = {int(str(i)): steps(rows) for i, rows in by_images}
    complete = {i: changes for i, changes in sets.items() if len(changes) == PAIRS}
    values = sets.get(0, {}).values()
    infinite = sum(not math.isfinite(value) for value in values)
    lost = lost_text(infinite, len(values), "pairs")
    too_few = distances["seed"].nunique() < judge.FEWEST_SEEDS
    if too_few or 0 not in complete or lost:
        detail = lost or f"{len(values)} of {PAIRS} pairs, too few seeds"
        yield judge.claim(says["H4.1"], "inconclusive", detail=detail)
        yield judge.claim(says["H4.1 deviations"], "inconclusive")
        return
    falling = {i: _count_falling(changes) for i, changes in complete.items()}
    rising = {where: v for where, v in complete[0].items() if v >= 0}
    on_papers = falling.pop(0)
    numbers = map(str, falling.values())
    counts = ", ".join(numbers) or "none"
    detail = f"{on_papers} of {PAIRS} on the papers' images; {counts} on random sets"
    made = judge.exact(says["H4.1"], float(on_papers), detail)
    yield judge.minor_error(made, COUNTED) if on_papers == PAIRS else made
    if not rising:
        yield judge.claim(says["H4.1 deviations"], "not run", detail="no pair rises")
        return
    listed = "; ".join(f"{where} {v:+.1f} %" for where, v in rising.items())
    largest = max(rising.values())
    yield judge.exact(says["H4.1 deviations"], largest, listed)


def _count_falling(changes: Mapping[str, float]) -> int:
    return sum(change < 0 for change in changes.values())


def across_branches(cross: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """H4.2a and H4.2b: R across the branches against the graph distance.

    At init R is the paper's own quantity on its own networks: of the pair at d = 2 Tables 6 and N.4
    print ‖H^T‖ and the gap, every digit of which is found, and ‖H^T‖/gap of the flat merges, their
    ‖H^GN‖ = R(2), is ours (report.shares).
    """
    init = configurations(chosen(cross, checkpoint="init"))
    final = configurations(chosen(cross, checkpoint="final"))
    ratio = init.each(change, 4)
    cancelled = {}
    for group, rows in init.items():
        grows = 1 <= ratio[group].whole < math.inf
        if not grows:  # elsewhere nothing decays
            cancelled[group] = cancellation(rows)
    readings = {}
    for reading in ("growth", "level"):
        by_growth = reading == "growth"
        shares = weakened(growing(init), growing(final), growth=by_growth)
        readings[reading] = decide.bound("weakened cancellation", shares)
    yield decide.on_own("H4.2a decay", ratio)
    yield decide.on_own("H4.2a cancellation", cancelled)
    yield decide.bound("H4.2b", growing(final).each(change))
    shallow = final.only(branch_depth=2).each(change, 4)
    yield decide.bound("H4.2b growth", shallow)
    yield judge.together(readings, main="growth")


def growing(groups_of: Groups) -> Groups:
    """Those of the configurations `GROWING`."""
    table = groups_of.table
    pairs = pd.MultiIndex.from_frame(table[["merge", "activation"]])
    return configurations(table[pairs.isin(GROWING)])


def printed_ratio(cross: pd.DataFrame, without_norm: pd.DataFrame | None, decide: Judge) -> Claim:
    """R(d+2)/R(d) at init at d = 2; as a variant, R(d+1)/R(d) of networks without LayerNorm at
    every d."""
    statement = "H4.2a ratio"
    init = chosen(cross, checkpoint="init")
    ratio = configurations(init).each(change, 4)
    readings = {"as published": decide.on_own(statement, ratio)}
    blocks = {} if without_norm is None else quotients(without_norm, 1)
    if blocks:
        shares = [values.whole for values in blocks.values()]
        ends = {"smallest": min(shares), "largest": max(shares)}
        exact = judge.exact(decide.says[statement], ends)
        readings["one block, without LayerNorm,"] = exact
    return judge.together(readings, main="as published")


def _ratio_of_means(columns: pd.DataFrame) -> float:
    """Mean of the second column over the mean of the first."""
    before = columns.iloc[:, 0].mean()
    return float(columns.iloc[:, 1].mean() / before)


def quotients(distances: pd.DataFrame, step: int) -> dict[tuple[Any, ...], Pseudovalues]:
    """(branch depth, merge, activation, d) -> pseudovalues of R(d+step)/R(d) of the means over
    seeds at init, on the papers' images."""
    cross = chosen(first(distances), relation="cross", checkpoint="init")
    found = {}
    for keys, part in groups(cross, VARIANT):
        wide = per_seed(part, "R")
        for d in wide.columns:
            if d + step in wide.columns:
                ends = wide[[d, d + step]]
                found[*keys, int(d)] = jackknife(ends, _ratio_of_means)
    return found


def cancellation(part: pd.DataFrame) -> list[float]:
    """log10 of how much more the mean block's norm falls from d = 2 to 4 than the mean norm of the
    images' own."""
    mean, own = (np.array(ratios(part, name, 4)) for name in ("R", "R_examples"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return list(np.log10(own / mean))


def weakened(init: Groups, final: Groups, *, growth: bool) -> Parts:
    """How much more of the images' own norm survives averaging, R over its mean, after training
    than before, by seed.

    growth: of the largest distance over d = 2, for it is growth with distance that the sentence
    explains; otherwise the share at the largest distance itself.
    """
    found: Parts = {}
    for group, before, after in init.pairs(final):
        before_survival = survivals(before, growth=growth)
        ratio = survivals(after, growth=growth) / before_survival
        found[group] = on_log_scale(list(ratio))
    return found


def survivals(part: pd.DataFrame, *, growth: bool) -> pd.Series[float]:
    """Norm of the mean block over the mean norm of the images' own blocks, at the largest distance,
    by seed.

    growth: over the same at d = 2.
    """
    share_of_images = part["R"] / part["R_examples"]
    shares = part.assign(share=share_of_images)
    wide = per_seed(shares, "share")
    far = wide[wide.columns.max()]
    if growth:
        return far / wide[2]
    return far


def change(part: pd.DataFrame, distance: int | None = None) -> Pseudovalues:
    """R(distance)/R(2) of the means over seeds, as Fig. N.2 has them; the largest distance where
    none is given."""
    wide = per_seed(part, "R")
    far = wide.columns.max() if distance is None else distance
    ends = wide[[2, far]]
    return jackknife(ends, _ratio_of_means, log=True)


def ratios(part: pd.DataFrame, value: str, distance: int) -> list[float]:
    """value(distance)/value(2) of each seed; NaN where value(2) is infinite."""
    wide = per_seed(part, value)
    finite = wide[2].where(wide[2] < math.inf)
    return list(wide[distance] / finite)


def jacobians(networks: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """The spectral norms that H4.2 is explained by; configurations that share their values are one
    part."""
    above: Parts = {}
    grown = {}
    for group, part in configurations(networks).items():
        init = seed_values(chosen(part, checkpoint="init"), "rho")
        final = seed_values(chosen(part, checkpoint="final"), "rho")
        rise = differences(final, init)
        grown[group] = list(rise.values())
        values = list(init.values())
        twins = [other for other, known in above.items() if known == values]
        for twin in twins[:1]:
            del above[twin]
        above[" = ".join([*twins[:1], group])] = values
    yield decide.on_own("rho above 1", above)
    yield decide.bound("rho grows", grown)


def at_the_merge(merge: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """H4.3: the tensor part between the branches needs a curved merge."""
    says = decide.says
    joined = merge["merge"] == CURVED[0]
    curved = joined & (merge["activation"] == CURVED[1])
    flat = merge[~curved]
    relu = chosen(flat, merge="cat")
    wrong = "tensor part of cat+ReLU"
    statements = (("H4.3 flat merge", flat), (wrong, relu), ("separation", flat))
    for statement, rows in statements:
        if (rows["tensor"].dropna() == 0).all():
            made = judge.constructed(says[statement], ZERO)
            yield judge.contradicted(made, CAT_RELU) if statement == wrong else made
        elif statement == "separation":
            separated = separation(first(merge))
            yield decide.bound(statement, {"": separated})
        else:
            column = "gap"
            if statement == wrong:
                column = "tensor"
            keys = [*VARIANT, "checkpoint"]
            by = Groups(first(rows), keys, TEXT + " {checkpoint}")
            values = by.each(lambda part, c=column: list(part[c]))
            yield decide.bound(statement, values)
    init = chosen(first(merge[curved]), checkpoint="init")
    depths = Groups(init, ["branch_depth"], "k={branch_depth}")
    yield decide.on_own("H4.3 curved merge", depths.values("gap"))


def separation(merge: pd.DataFrame) -> list[float]:
    """The largest gap of a flat merge over that of the curved one at init, by seed."""
    init = chosen(merge, checkpoint="init")
    gaps = init.groupby(["seed", "merge", "activation"])["gap"]
    maxima = complete(gaps, gaps.max())
    largest = maxima.unstack(["merge", "activation"])
    flat = largest.drop(columns=[CURVED])
    return list(flat.max(axis=1, skipna=False) / largest[CURVED])


def over_depths(curved: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """Appendix N.3: how much the gap of cat+SiLU depends on the branch depth."""
    ranges = {}
    for checkpoint in ENDS:
        rows = chosen(curved, checkpoint=checkpoint)
        wide = per_seed(rows, "gap", "branch_depth")
        ranges[checkpoint] = jackknife(wide, _range) if wide.shape[1] >= DEPTHS else []
    yield decide.on_own("gap over branch depths, init", {"": ranges["init"]})
    yield decide.number("gap over branch depths, final", {"": ranges["final"]})


def _range(gaps: pd.DataFrame) -> float:
    """How many percent the largest mean lies above the smallest."""
    means = gaps.mean()
    ratio = means.max() / means.min()
    return 100 * (ratio - 1)


def measured(tables: Tables) -> pd.DataFrame:
    """Values of Tables 6 and N.4, one row per seed."""
    metrics = {"gap_merge": "gap", "frob_tensor_merge": "tensor"}
    keys = [*VARIANT, "checkpoint"]
    return scored(tables["merge"], keys, metrics, tables, VARIANT)
