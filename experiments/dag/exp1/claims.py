"""What the DAG paper says of Exp. 1 (Section 5.1, Figs. 2 and 3), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pandas as pd

from experiments.dag.protocol.scores import (
    fit_of_means,
    jackknife,
    printed,
    published_start,
    scored,
)
from experiments.dag.protocol.statements import TABLES, Groups, Judge, Parts
from experiments.dag.protocol.summary import (
    ENDS,
    at_ends,
    complete,
    first,
    in_percent,
    per_seed,
    seed_fits,
)
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.tables import chosen, ratios, seed_values
from runner.training.streams import PUBLISHED

VARIANT = ["depth", "arch", "checkpoint"]
TEXT = "L={depth} {checkpoint}"
CHAIN = 8
"""Depth at which Section 5.1 speaks of the whole chain of Jacobians."""
DYNAMICS = {"rho_max": "rho", "lyapunov_1": "lyapunov_1", "test_acc_percent": "percent"}
"""Metric of Table 2 -> column of `networks`."""
EXPONENTS = {"QR": "lyapunov_1", "Eq. 8": "lyapunov_log_norm"}
"""Definition of the Lyapunov exponent -> column of `networks`."""


def claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    decide = Judge(says, published_start(tables))
    networks = first(tables["networks"])
    distances = at_ends(first(tables["distances"]))
    curves = Groups(distances, VARIANT, TEXT)
    plain = curves.only(arch="plain")
    residual = curves.only(arch="residual")
    yield from resonance(plain, residual, decide)
    yield from coupling(plain, residual, decide)
    start = plain.only(checkpoint="init").each(scale)
    yield decide.on_own("scale of R at init", start)
    end = plain.only(checkpoint="final").each(scale)
    yield decide.on_own("scale of R at the end", end)
    yield from chain(networks, decide)
    yield from after_training(networks, plain, decide)


def resonance(plain: Groups, residual: Groups, decide: Judge) -> Iterator[Claim]:
    """How R falls with distance."""
    name = "residual slower than plain"
    slow = {}
    for checkpoint in ENDS:
        ratios = slower(plain.only(checkpoint=checkpoint), residual)
        if ratios:
            slow[checkpoint] = decide.on_own(name, ratios)
    log_falls = plain.only(depth=12).each(log_fall)
    deep = decide.on_own("norms at L=12", log_falls)
    yield decide.on_own("plain R² of log R", plain.each(fit_of_means, "R"))
    yield residual_slope(residual, decide)
    yield decide.together(name, slow, "init")
    yield judge.minor_error(deep, TABLES)


def residual_slope(residual: Groups, decide: Judge) -> Claim:
    """One printed rate for six curves. It is the rate of each; where no curve has it and their mean
    rounds to it, the text does not say which it is: that the mean was meant is a reading that its
    fitting suggests, no evidence.
    """
    name = "residual slope"
    says = decide.says[name]
    curves = residual.each(rates)
    made = decide.on_own(name, curves)
    seeds = {tuple(sorted(set(rows["seed"]))) for _, rows in residual.items()}
    variants = made.variants.values()
    verdicts = {*variants, *made.other_seeds.values()}
    if made.verdict != "refuted" or len(seeds) != 1 or "confirmed" in verdicts:
        return made
    by_position = zip(*curves.values(), strict=True)
    means = [sum(values) / len(values) for values in by_position]
    pooled = judge.number(says, means)
    agrees = judge.digits_agree(pooled.statistic, says.number, says.rounding)
    if pooled.verdict == "refuted" or not agrees:
        return made
    each = ", ".join(f"{name} {sum(v) / len(v):.2g}" for name, v in curves.items())
    why = (
        f"{each}; their mean {pooled.statistic:.2g}, init and final together; that this mean is "
        "meant is not printed"
    )
    return replace(made, verdict="not comparable", detail=f"{why}; {made.detail}")


def coupling(plain: Groups, residual: Groups, decide: Judge) -> Iterator[Claim]:
    """How C falls with distance: at init, after training (a variant) and from one to the other."""
    name = "plain C monotone"
    falls = {}
    for checkpoint in ENDS:
        steps = plain.only(checkpoint=checkpoint).each(largest_step, "C")
        falls[checkpoint] = decide.on_own(name, steps)
    deep = plain.only(depth=12, checkpoint="init")
    far = deep.each(values_at, "C", 11)
    moved = shifts(plain, "plain") | shifts(residual, "residual")
    yield decide.on_own("plain C at the largest distance", far)
    yield judge.together(falls, main="init")
    yield decide.on_own("residual C", residual.values("C", "min"))
    yield decide.bound("C shifts upward", moved)


def chain(networks: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """Statements about the Jacobians of plain networks at init."""
    init = chosen(networks, arch="plain", checkpoint="init")
    depths = Groups(init, ["depth"], "L={depth}")
    at_chain = depths.only(depth=CHAIN)
    logs_of_norms = seed_values(at_chain.table, "lyapunov_log_norm").values()
    norms = {f"L={CHAIN} init": [math.exp(CHAIN * value) for value in logs_of_norms]}
    skips = by_variant(at_ends(chosen(networks, arch="residual")))
    readings = {}
    for definition, column in EXPONENTS.items():
        of_seeds = seed_values(at_chain.table, column)
        values = {f"L={CHAIN}": list(of_seeds.values())}
        readings[definition] = decide.on_own("Lyapunov exponent", values)
    yield decide.on_own("rho at init", depths.values("rho"))
    yield decide.on_own("rho of residual networks", skips.values("rho"))
    yield decide.on_own("norm of the chain", norms)
    yield judge.together(readings, main="QR")


def after_training(networks: pd.DataFrame, plain: Groups, decide: Judge) -> Iterator[Claim]:
    """Section 7: the decay is guaranteed at init by λ₁ < 0 and persists after training, where λ₁ >
    0."""
    init = by_variant(chosen(networks, arch="plain", checkpoint="init"))
    final = by_variant(chosen(networks, checkpoint="final"))
    readings = {}
    cancels = {}
    for definition, column in EXPONENTS.items():
        values = init.values(column)
        readings[definition] = decide.on_own("negative exponent at init", values)
    for checkpoint in dict.fromkeys(plain.table["checkpoint"]):
        shares = plain.only(checkpoint=checkpoint).each(cancellation)
        cancels[checkpoint] = decide.bound("cancellation", shares)
    cancelled = decide.bound("cancellation", {})
    if cancels:
        cancelled = judge.together(cancels, main="final")
    positive = final.values("lyapunov_1")
    yield judge.together(readings, main="QR")
    yield decide.bound("positive exponent after training", positive)
    after = plain.only(checkpoint="final").each(rates)
    yield decide.bound("decay after training", after)
    yield cancelled


def by_variant(networks: pd.DataFrame) -> Groups:
    """Groups named 'L=8 plain init'."""
    return Groups(networks, VARIANT, "L={depth} {arch} {checkpoint}")


def depth_of(rows: pd.DataFrame) -> int:
    return int(rows["depth"].iloc[0])


def log_fall(rows: pd.DataFrame, column: str = "R") -> list[float]:
    """log10 of the value at d = 0 over that at d = L − 1, by seed."""
    wide = per_seed(rows, column)
    last = depth_of(rows) - 1
    return logs(wide[0] / wide[last])


def cancellation(rows: pd.DataFrame) -> list[float]:
    """log10 of how much more the mean block's norm falls from d = 0 to L − 1 than the mean norm of
    the images' own."""
    of_examples = log_fall(rows, "R_examples")
    falls = zip(log_fall(rows), of_examples, strict=True)
    return [of_mean - of_images for of_mean, of_images in falls]


def shifts(curves: Groups, arch: str) -> Parts:
    """Mean of C(d) over d >= 1, final less init, paired by seed."""
    found = {}
    init, final = (Groups(curves.only(checkpoint=c).table, ["depth"], "L={depth}") for c in ENDS)
    for name, before, later in init.pairs(final):
        found[f"{name} {arch}"] = list(mean_coupling(later) - mean_coupling(before))
    return found


def mean_coupling(rows: pd.DataFrame) -> pd.Series[float]:
    """Mean of C(d) over d >= 1, by seed."""
    between_nodes = rows[rows["distance"] > 0]
    by_seed = between_nodes.groupby("seed")["C"]
    means: pd.Series[float] = complete(by_seed, by_seed.mean())
    return means


def largest_step(part: pd.DataFrame, value: str) -> list[float]:
    """Pseudovalues over seeds of the largest step d → d + 1 of the mean over seeds."""
    wide = per_seed(part, value)
    return jackknife(wide, lambda t: float(t.mean().diff().max()))


def printed_values(name: str) -> pd.DataFrame:
    """The printed numbers of a reference file, once."""
    return chosen(printed(name), initial=PUBLISHED)


def measured(tables: Tables) -> pd.DataFrame:
    """Values of Tables 2 and N.2, one row per seed."""
    networks = in_percent(tables["networks"])
    return scored(networks, VARIANT, DYNAMICS, tables, ["depth", "arch"])


def rates(part: pd.DataFrame) -> list[float]:
    """b of each seed's own fit of log R."""
    return [fit.decay for fit in seed_fits(part, "R")]


def slower(plain: Groups, residual: Groups) -> Parts:
    """log10 of the plain decay rate over the residual one, by depth and checkpoint."""
    found = {}
    for name, rows, other in plain.pairs(residual):
        quotients = ratios(rates_by_seed(rows), rates_by_seed(other))
        shares = quotients.values()
        found[name] = logs(map(abs, shares))
    return found


def rates_by_seed(part: pd.DataFrame) -> dict[int, float]:
    seeds = sorted(set(part["seed"]))
    return dict(zip(seeds, rates(part), strict=True))


def logs(values: Iterable[float]) -> list[float]:
    """log10 of the values; NaN where there is none."""
    return [math.log10(value) if value > 0 else math.nan for value in values]


def values_at(rows: pd.DataFrame, value: str, distance: int) -> list[float]:
    """The values at one distance, by seed."""
    at_distance = chosen(rows, distance=distance)
    return list(seed_values(at_distance, value).values())


def at_end(rows: pd.DataFrame, value: str) -> list[float]:
    """The values at the largest distance, by seed."""
    return values_at(rows, value, depth_of(rows) - 1)


def scale(rows: pd.DataFrame) -> list[float]:
    """Order of magnitude of R(0)."""
    return logs(values_at(rows, "R", 0))


def log_end(rows: pd.DataFrame) -> list[float]:
    """log10 R at the largest distance, by seed."""
    return logs(at_end(rows, "R"))
