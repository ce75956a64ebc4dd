"""What the DAG paper says of Exp. 2 (Section 5.2, Appendix N, Proposition 31), decided from the
tables.

R, C and D are the paper's own estimates (100 probes, 20 power steps) on the papers' images wherever
a printed number is compared; ranks are numerical ranks in float64. Statements on shapes are on
means over seeds, as the tables print them; their errors are by the jackknife.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd

from experiments.dag.exp2.settings import DESCRIBED_WIDTH, PUBLISHED_WIDTH
from experiments.dag.protocol.scores import described, jackknife, paired, printed, probes
from experiments.dag.protocol.statements import TABLES, Groups, Judge, Parts
from experiments.dag.protocol.summary import ENDS, at_ends, first, in_percent, long_format, per_seed
from runner import stats
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.intervals import Pseudovalues
from runner.stats.tables import chosen, groups

NAME = "exp2_bottleneck"
KEYS = ["depth", "d_u", "checkpoint"]
SHALLOW = 6
DEEP = 8
"""The depths of Tables 3 and N.1."""
NARROW = 4
WIDE = 256
"""The widths between which Section 5.2 counts the suppression."""
PREFERRED = 8
"""The least width whose values Section 5.2 and the caption of Table 3 prefer for conclusions."""
MEAN_RANK = "dag.exp2, class C"
"""Root cause in the errata of the rank bound on means, on which nothing rests."""
FROM = 64
"""Least width of the statements on the deeper network."""
Configurations = Mapping[tuple[int, str], "pd.DataFrame"]
"""(depth, checkpoint) -> rows seed, columns d_u."""


def claims(tables: Tables, classes: int, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """One claim per statement; depths, checkpoints and widths are its parts."""
    decide = Judge(says)
    far = at_ends(first(tables["far"]))
    d, c, r = (wide(far, f"{name}_estimate") for name in ("D", "C", "R"))
    highest = {text(keys): shares(table, classes) for keys, table in d.items()}
    yield decide.number("suppression of D_far", suppression(d))
    yield decide.bound("D_far monotone", of_means(d, smallest_step, "init"))
    yield decide.bound("D_far below the bound", highest)
    yield from ranks(tables["ranks"], classes, says)
    yield summarised(says["range of C_far"], twofold(c))
    yield summarised(says["C_far less sensitive"], less_sensitive(d, c))
    yield decide.bound("R_far constant", of_means(r, spread, "init"))
    yield decide.bound("R_far falls", of_means(r, slope, "final"))
    yield from deeper(d, decide)


def wide(far: pd.DataFrame, column: str) -> dict[tuple[int, str], pd.DataFrame]:
    """Tables by depth and checkpoint, of at least two widths."""
    found = {}
    networks = groups(far, ["depth", "checkpoint"])
    for (depth, checkpoint), part in networks:
        table = per_seed(part, column, "d_u").sort_index(axis=1)
        if len(table.columns) > 1 and len(table):
            found[int(depth), str(checkpoint)] = table
    return found


def text(keys: tuple[int, str]) -> str:
    """'L=6 init'."""
    return f"L={keys[0]} {keys[1]}"


def of_means(
    tables: Configurations, statistic: Callable[[pd.Series[float]], float], checkpoint: str
) -> Parts:
    """A statistic of the means over seeds by width, as Table 3 has them, with its pseudovalues
    (`jackknife`)."""
    found: Parts = {}
    for keys, table in tables.items():
        if keys[1] == checkpoint:
            log = statistic is spread
            of_seeds = jackknife(table, lambda t: statistic(t.mean()), log=log)
            found[text(keys)] = of_seeds
    return found


def suppression(stable_rank: Configurations) -> Parts:
    """D_far at d_u = WIDE over that at NARROW, both means over seeds, L = 6, init."""
    table = stable_rank.get((SHALLOW, "init"))
    if table is None or not {NARROW, WIDE} <= set(table.columns):
        return {}
    ratio = jackknife(table, lambda t: t[WIDE].mean() / t[NARROW].mean(), log=True)
    return {f"L={SHALLOW} init": ratio}


def smallest_step(means: pd.Series[float]) -> float:
    """The smallest step between neighbouring widths."""
    steps = means.diff().iloc[1:]
    return float(steps.min())


def spread(means: pd.Series[float]) -> float:
    """Largest over smallest value of the widths."""
    return float(means.max() / means.min())


def slope(means: pd.Series[float]) -> float:
    """Slope of the logarithm on log d_u."""
    x = np.log(means.index.to_numpy(float))
    y = np.log(means.to_numpy())
    return stats.linear(x, y, name="").slope


def preferred(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of the widths from PREFERRED to WIDE."""
    widths = [d for d in table.columns if PREFERRED <= d <= WIDE]
    return table[widths]


def twofold(coupling: Configurations) -> dict[tuple[int, str], Pseudovalues]:
    """Largest over smallest C_far of the preferred widths, of the means over seeds."""
    found = {}
    for keys, table in coupling.items():
        widths = preferred(table)
        if len(widths.columns) > 1:
            found[keys] = jackknife(widths, lambda t: spread(t.mean()), log=True)
    return found


def less_sensitive(
    stable_rank: Configurations, coupling: Configurations
) -> dict[tuple[int, str], Pseudovalues]:
    """Range of D_far over that of C_far, of the means over seeds of the preferred widths."""
    found = {}
    for keys in stable_rank.keys() & coupling.keys():
        couplings = preferred(coupling[keys])
        both = joined(preferred(stable_rank[keys]), couplings)
        if len(both.columns) > 2:
            found[keys] = jackknife(both, _ratio_of_ranges, log=True)
    return found


def _ratio_of_ranges(both: pd.DataFrame) -> float:
    of_ranks = spread(both[0].mean())
    return of_ranks / spread(both[1].mean())


def summarised(says: Statement, ranges: Mapping[tuple[int, str], Pseudovalues]) -> Claim:
    """Decided before training at L = SHALLOW, of which the paragraph speaks; variants: the rest."""
    readings = {}
    order = sorted(ranges, key=lambda at: (at[0], ENDS.index(at[1])))
    for keys in order:
        name = text(keys)
        readings[name] = judge.bound(says, {name: ranges[keys]})
    if not readings:
        return judge.bound(says, {})
    main = text((SHALLOW, "init"))
    return judge.together(readings, main=main)


def printed_values() -> pd.DataFrame:
    """The printed numbers, once."""
    return chosen(printed(NAME), base_width=str(PUBLISHED_WIDTH))


def joined(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Two tables side by side under 0 and 1, of the seeds that both have."""
    return pd.concat({0: a, 1: b}, axis=1, join="inner")


def shares(table: pd.DataFrame, classes: int) -> list[float]:
    """The largest D_far/min(d_u, K − 1) over the widths, by seed."""
    bounds = [min(d, classes - 1) for d in table.columns]
    relative = table.div(bounds, axis=1)
    return list(relative.max(axis=1, skipna=False))


def deeper(stable_rank: Configurations, decide: Judge) -> Iterator[Claim]:
    """How many percent D_far at L = 8 lies below L = 6, width by width and on average over the
    widths."""
    wide_ones = {}
    final = {}
    average = {}
    for checkpoint in ENDS:
        shallow = stable_rank.get((SHALLOW, checkpoint))
        deep = stable_rank.get((DEEP, checkpoint))
        if shallow is None or deep is None:
            continue
        both = joined(shallow, deep)
        common = set(shallow.columns) & set(deep.columns)
        for d in sorted(common):
            below = jackknife(both, partial(percent_at, d))
            if checkpoint == "final":
                final[f"d_u={d}"] = below
            elif d >= FROM:
                wide_ones[f"d_u={d}"] = below
        if checkpoint == "final":
            of_seeds = jackknife(both, lambda t: float(percent_below(t).mean()))
            average = {"": of_seeds}
    yield decide.bound("D_far of the deeper net", wide_ones)
    yield judge.contradicted(decide.bound("D_far after training", final), TABLES)
    yield decide.bound("no direction after training", average)


def percent_below(both: pd.DataFrame) -> pd.Series[float]:
    """How many percent the second table's means over seeds lie below the first's, by width."""
    ratio = both[1].mean() / both[0].mean()
    return 100 * (1 - ratio)


def percent_at(d_u: int, both: pd.DataFrame) -> float:
    """`percent_below` at one width."""
    return float(percent_below(both)[d_u])


def ranks(table: pd.DataFrame, classes: int, says: Mapping[str, Statement]) -> list[Claim]:
    """Proposition 31: the rank of a block across the narrow layer less its bound, by example and
    for the batch mean.

    It says something of every network, so that the largest over the networks is compared with it:
    no mean, no chance.
    """
    part = chosen(table, part="gauss_newton")
    widest = part["d_u"].max()
    narrow = part[part["d_u"] < widest]  # in the widest network nothing is narrow
    allowed = narrow["d_u"].clip(upper=classes - 1)
    excess = narrow.assign(excess=narrow["rank"] - allowed)
    found = []
    for block in ("example", "mean"):
        largest = {}
        listed = []
        of_block = chosen(excess, block=block)
        by = Groups(of_block, ["depth", "checkpoint"], "L={depth} {checkpoint}")
        for name, rows in by.items():
            of_seeds = rows.groupby("seed")["excess"].max()
            largest[name] = float(of_seeds.max())
            listed.append(f"{name}: {largest[name]:.4g}, n = {len(of_seeds)}")
        detail = f"largest over networks: {'; '.join(listed)}"
        claim = judge.exact(says[f"rank bound, {block}"], largest, detail)
        found.append(judge.minor_error(claim, MEAN_RANK) if block == "mean" else claim)
    return found


def measured(tables: Tables) -> pd.DataFrame:
    """Values of Tables 3 and N.1, one row per seed: D_far and C_far by the paper's estimates.

    The authors cut the estimated coupling of each pair at 1; cells measured before this was stored
    have it uncut.
    """
    rows = first(tables["far"])
    if "C_cut_estimate" in rows:
        cut = rows["C_cut_estimate"].fillna(rows["C_estimate"])
        rows = rows.assign(C_estimate=cut)
    exact = long_format(rows, KEYS, {"D_far": "D", "C_far": "C"})
    far = long_format(rows, KEYS, {"D_far": "D_estimate", "C_far": "C_estimate"})
    far = probes(far, exact, tables, KEYS[:2])
    percent = paired(accuracy(tables), tables, KEYS[:2])
    found = pd.concat([far, percent], ignore_index=True)
    paired_or_not = found["paired"].eq(True)  # estimates are of other probes
    return found.assign(paired=paired_or_not, base_width=PUBLISHED_WIDTH)


def accuracy(tables: Tables) -> pd.DataFrame:
    """Test accuracy in percent, one row per seed."""
    networks = in_percent(tables["networks"])
    return long_format(networks, KEYS, {"test_acc_percent": "percent"})


def as_described(tables: Tables) -> pd.DataFrame:
    """The same numbers from exact blocks of networks of the base width that the text has, where
    enough seeds are measured to judge them; NaN for a published seed that others leave out."""
    rows = first(tables["far"])
    exact = long_format(rows, KEYS, {"D_far": "D", "C_far": "C"})
    found = pd.concat([exact, accuracy(tables)], ignore_index=True)
    return described(found, KEYS).assign(base_width=DESCRIBED_WIDTH)
