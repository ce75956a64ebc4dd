"""What the DAG paper says of Exps. 3 and 3b and of its stochastic gap (Section 5.3, Appendices N.4, N.6), decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import facts, fit_of_means, jackknife, printed, published_start
from experiments.dag.protocol.summary import (
    chosen,
    first,
    groups,
    over_seeds,
    seed_values,
)
from runner import stats
from runner.contract import Claim, Statement, decide
from runner.stats import judge
from runner.training import CHECKPOINTS

PIECEWISE_LINEAR = ("relu", "leaky_relu")
SECTION = "Section 5.3"
ENDS = ("init", "final")
PAPER_PROBES = 100
"""Probes behind the published Table N.6; its text says TEXT_PROBES."""
TEXT_PROBES = 30
KEYS = ["activation", "checkpoint", "probes"]
RANKING = "dag.ranking, class B"
"""Root cause in the errata of the printed p: the order stands, and scipy's default prints this p."""
SCALING = "dag.scaling, class B"
"""Root cause in the errata of the power of σ'': T is linear in it (Eq. 1)."""
Parts = dict[str, list[float]]


def gap_and_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> pd.DataFrame:
    """activation, gap and E[σ''²] at a checkpoint, means over seeds, on the papers' images."""
    part = first(gaps)[lambda t: t["checkpoint"] == checkpoint]
    curvature = first(networks)[lambda t: t["checkpoint"] == checkpoint]
    left = over_seeds(part, ["activation"], "gap").rename(columns={"mean": "gap"})
    right = over_seeds(curvature, ["activation"], "sigma_pp_squared").rename(
        columns={"mean": "curvature"}
    )
    return left.merge(right[["activation", "curvature"]], on="activation")


def correlations(gaps: pd.DataFrame, networks: pd.DataFrame) -> list[stats.Statistic]:
    """Linear fit and Spearman's rank correlation of gap against E[σ''²] over the activations, by checkpoint."""
    found = []
    for checkpoint in CHECKPOINTS:
        points = gap_and_curvature(gaps, networks, checkpoint)
        about: stats.About = {"name": "gap against E[σ''²]", "group": f"checkpoint={checkpoint}"}
        about |= {"figure": "fig5_gap_and_curvature", "where": f"Fig. 5, {SECTION}"}
        found.append(stats.linear(points["curvature"], points["gap"], **about))
        about["name"] = "rank of gap and E[σ''²]"
        found.append(stats.spearman(points["curvature"], points["gap"], **about))
    return found


def without_norm(
    gaps: pd.DataFrame, tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]
) -> list[Claim]:
    """The claims of Exp. 3."""
    networks = tables["networks"]
    same = published_start(tables)
    fits = {c: r2_of_means(gaps, networks, c) for c in CHECKPOINTS}
    power, falls = (
        {"init": power_of_curvature(gaps, networks, "init")},
        decays(first(tables["distances"])),
    )
    later = {c: v for c, v in fits.items() if c != "init"}
    smooth = first(networks)[
        lambda t: (t["checkpoint"] == "final") & ~t["activation"].isin(PIECEWISE_LINEAR)
    ]
    percent = {
        k: [100 * v for v in seed_values(p, "test_accuracy").values()]
        for (k,), p in by_activation(smooth)
    }
    return [
        *zero_tensor(tables, says),
        judge.number(
            says["linear fit of the gap"], {"": fits["init"]}, same=facts({"": fits["init"]}, same)
        ),
        judge.bound(says["R² above 0.9"], {"": fits["init"]}, same=facts({"": fits["init"]}, same)),
        rank_claim(says["rank correlation"], gaps, networks, ("init",)),
        p_of_ranking(says["p of the ranking"], gaps, networks),
        judge.bound(says["correlation persists"], later),
        judge.minor_error(
            judge.bound(says["scaling of H^T"], power, same=facts(power, same)), SCALING
        ),
        judge.bound(says["decay of the parts"], falls, same=facts(falls, same)),
        judge.constructed(
            says["H^T at the largest distance"], "the recursion has no tensor term there"
        ),
        judge.bound(
            says["accuracy of smooth activations"],
            percent,
            same=printed_again(percent) if same else {},
        ),
        judge.bound(says["gap stabilises"], late_changes(gaps)),
    ]


def with_norm(
    gaps: pd.DataFrame, tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]
) -> list[Claim]:
    """The claims of Exp. 3b."""
    networks, curved = tables["networks"], gaps[~gaps["activation"].isin(PIECEWISE_LINEAR)]
    final = {
        k: seed_values(p, "gap")
        for (k,), p in by_activation(first(gaps)[lambda t: t["checkpoint"] == "final"])
    }
    flat = {k: list(v.values()) for k, v in final.items() if k in PIECEWISE_LINEAR}
    relu = final.get("relu", {})
    added = {
        k: [v[s] - relu[s] for s in v if s in relu]
        for k, v in final.items()
        if k not in PIECEWISE_LINEAR
    }
    last = first(networks)[lambda t: t["checkpoint"] == "final"]
    percent = {
        k: [100 * v for v in seed_values(p, "test_accuracy").values()]
        for (k,), p in by_activation(last)
    }
    return [
        rank_claim(says["gap ranks as E[σ''²]"], curved, networks, CHECKPOINTS, main="final"),
        judge.number(says["gap of piecewise linear networks"], flat),
        judge.bound(says["smooth activations add"], added),
        judge.bound(says["accuracy"], percent),
        judge.bound(says["gap stabilises"], late_changes(gaps)),
    ]


def printed_again(percent: Parts) -> dict[str, float]:
    """activation -> mean accuracy after training, where it is the printed one in every digit: the trained networks are
    then the paper's as far as the table shows."""
    paper = printed("exp3_gn_gap")
    found = {}
    for activation, values in percent.items():
        rows = chosen(paper, metric="test_acc_percent", activation=activation, checkpoint="final")
        mean = sum(values) / len(values)
        if len(rows) and abs(mean - rows["mean"].iloc[0]) <= 0.05:
            found[activation] = mean
    return found


def by_activation(table: pd.DataFrame) -> Iterator[tuple[tuple[str], pd.DataFrame]]:
    """((activation,), rows)."""
    return groups(table, ["activation"])  # type: ignore[return-value]


def wide_points(
    gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Gap and E[σ''²] on the papers' images: a row per seed, a column per activation."""
    gap = first(gaps)[lambda t: t["checkpoint"] == checkpoint]
    curvature = first(networks)[lambda t: t["checkpoint"] == checkpoint]
    left = gap.pivot(index="seed", columns="activation", values="gap")
    right = curvature.pivot(index="seed", columns="activation", values="sigma_pp_squared")
    return left, right.reindex(index=left.index, columns=left.columns)


def r2_of_means(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> list[float]:
    """Pseudovalues over seeds of R² of the linear fit of the mean gaps on the mean E[σ''²]."""
    gap, curvature = wide_points(gaps, networks, checkpoint)
    return jackknife(
        gap, lambda t: stats.linear(curvature.loc[t.index].mean(), t.mean(), name="").r2
    )


def power_of_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> list[float]:
    """Pseudovalues over seeds of the exponent: slope of log gap on log E[σ''²] over the smooth activations' means."""
    gap, curvature = wide_points(gaps, networks, checkpoint)
    smooth = [a for a in gap.columns if a not in PIECEWISE_LINEAR]
    if len(smooth) < 3:
        return []
    x = np.log(curvature[smooth])
    return jackknife(
        gap[smooth], lambda t: stats.linear(x.loc[t.index].mean(), np.log(t.mean()), name="").slope
    )


def late_changes(gaps: pd.DataFrame) -> Parts:
    """Pseudovalues over seeds of the change of the mean gap from mid to final, as a share, where there is a gap."""
    found: Parts = {}
    for (activation,), part in by_activation(first(gaps)):
        wide = part.pivot(index="seed", columns="checkpoint", values="gap")
        if {"mid", "final"} <= set(wide.columns) and (wide["mid"] > 0).any():
            wide = wide[["mid", "final"]]
            found[activation] = jackknife(
                wide, lambda t: float(t["final"].mean() / t["mid"].mean() - 1)
            )
    return found


def rank_claim(
    says: Statement,
    gaps: pd.DataFrame,
    networks: pd.DataFrame,
    checkpoints: Sequence[str],
    main: str | None = None,
) -> Claim:
    """The activations' mean gaps are in the order of E[σ''²], whichever seed is left out: `judge.together` of the
    checkpoints.

    Confirmed when ρ keeps the statement's limits for all seeds and without each, refuted when it never does,
    inconclusive between the two or below `judge.FEWEST_SEEDS` seeds.
    """
    found: dict[str, Claim] = {}
    listed = []
    for checkpoint in checkpoints:
        gap, curvature = wide_points(gaps, networks, checkpoint)
        samples = [gap, *(gap.drop(seed) for seed in gap.index)] if len(gap) > 1 else [gap]
        rho = [
            stats.spearman(curvature.loc[t.index].mean(), t.mean(), name="").statistic
            for t in samples
        ]
        kept = [agrees(says, value) for value in rho]
        enough = len(gap) >= judge.FEWEST_SEEDS
        verdict = (
            decide(True if all(kept) else None if any(kept) else False) if enough else decide(None)
        )
        found[checkpoint] = judge.claim(says, verdict, rho[0])
        order = ", ".join(f"{a} {g:.3g}" for a, g in gap.mean().sort_values().items())
        listed.append(
            f"{checkpoint}: ρ = {rho[0]:.3f}, {min(rho):.3f} to {max(rho):.3f} without a seed ({order})"
        )
    made = judge.together(found, main)
    return replace(made, detail="; ".join(t for t in (*listed, made.detail) if t))


def agrees(says: Statement, value: float) -> bool:
    """Whether a value keeps the limits or, where a number is printed, rounds to it."""
    if math.isnan(says.number):
        return says.holds(value)
    return judge.digits_agree(value, says.number, says.rounding)


def p_of_ranking(says: Statement, gaps: pd.DataFrame, networks: pd.DataFrame) -> Claim:
    """The exact p of the rank correlation at init, with the smallest that five activations allow."""
    rank = next(s for s in correlations(gaps, networks) if s.kind == "spearman")
    detail = f"n = {rank.n_a} activations, ρ = {rank.statistic:.3f}; exact over all orders; the smallest p that the "
    detail += f"ties allow is {rank.p_min:.3g}"
    if gaps["seed"].nunique() < judge.FEWEST_SEEDS:
        return judge.claim(says, "inconclusive", rank.p, detail)
    if not says.holds(rank.p_min):
        detail += ": no data could give the printed p by an exact test"
    return judge.minor_error(judge.exact(says, {"": rank.p}, detail), RANKING)


def zero_tensor(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[Claim]:
    """H^T = 0 without smooth nonlinearities: by products that know nothing of it, where they are stored."""
    norm, ratio = says["H^T of piecewise linear networks"], says["gap of piecewise linear networks"]
    pairs = tables["pairs"][lambda t: t["activation"].isin(PIECEWISE_LINEAR)]
    why = "the engine routes the activation's second derivative, an exact zero of the code; `hess-run audit "
    why += "dag.zeros.exp3` has the block by automatic differentiation"
    if (pairs["frob_tensor"] == 0).all():
        zero = judge.constructed(norm, why)
    else:
        largest = {
            k: list(p.groupby("seed")["frob_tensor"].max()) for (k,), p in by_activation(pairs)
        }
        zero = judge.bound(norm, largest, known=1)
    if "stochastic" not in tables:
        return [zero]
    part = tables["stochastic"][lambda t: t["activation"].isin(PIECEWISE_LINEAR)]
    keys = ["activation", "checkpoint"]
    parts = {
        f"{k[0]} {k[1]}": list(p.groupby("seed")["gap_stochastic"].max())
        for k, p in groups(part, keys)
    }
    return [zero, judge.bound(ratio, parts, known=2)]


def decays(distances: pd.DataFrame) -> dict[str, list[float]]:
    """Pseudovalues of R² of log Σ‖H^T‖ and log Σ‖H^GN‖ against d at init, smooth activations."""
    init = distances[
        (distances["checkpoint"] == "init") & ~distances["activation"].isin(PIECEWISE_LINEAR)
    ]
    found: Parts = {}
    for (activation,), part in by_activation(init):
        found[f"{activation} H^GN"] = fit_of_means(part, "gn")
        found[f"{activation} H^T"] = fit_of_means(
            part[part["distance"] < part["distance"].max()], "tensor"
        )
    return found


def of_means(draws: pd.DataFrame) -> pd.DataFrame:
    """KEYS, draw, percent: 100 (mean stochastic / mean exact gap − 1), means over the seeds of one draw each."""
    kept = draws[draws["status"] == "ok"]
    means = (
        kept.groupby([*KEYS, "draw"], sort=False)[["gap_exact", "gap_stochastic"]]
        .mean()
        .reset_index()
    )
    return means.assign(percent=100 * (means["gap_stochastic"] / means["gap_exact"] - 1))


def stochastic(draws: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """The claims of the stochastic estimates, one per statement.

    What the paper saw in its table is decided with the probes of the published one, what it says of 30 probes with 30;
    the other number is a variant. Its discrepancies are of means over five seeds, so that one draw of every seed is one
    repetition of Table N.6.
    """
    means = of_means(draws)
    enough = draws["seed"].nunique() >= judge.FEWEST_SEEDS
    known = set(means["probes"]) if enough else set()
    found = []
    for name, rule, main in (
        ("discrepancy at init", partial(in_one_table, checkpoint="init"), PAPER_PROBES),
        ("discrepancy at the end", partial(in_one_table, checkpoint="final"), PAPER_PROBES),
        ("below 1 %", partial(over_draws, reading=typical), TEXT_PROBES),
        ("overestimation", partial(over_draws, reading=signed), PAPER_PROBES),
    ):
        by = {
            f"{n} probes": rule(says[name], means, n)
            for n in (PAPER_PROBES, TEXT_PROBES)
            if n in known
        }
        found.append(
            judge.together(by, main=f"{main} probes")
            if by
            else judge.claim(says[name], "inconclusive")
        )
    few = {c: sizes(draws, c) for c in ENDS}
    found.append(
        judge.bound(says["stochastic estimates agree"], few if enough else {}, over="draws")
    )
    found.append(judge.number(says["rate of the error"], exponents(draws) if enough else {}))
    return found


def in_one_table(says: Statement, means: pd.DataFrame, probes: int, checkpoint: str) -> Claim:
    """A printed maximum of one table: how many draws keep it.

    A draw is that of one activation: the paper's share their probes, so that its largest of three is nearly that of a
    single one. Of three activations with probes of their own fewer tables keep it; the claim gives their number.
    """
    part = means[(means["probes"] == probes) & (means["checkpoint"] == checkpoint)]
    sizes = part["percent"].abs()
    kept = sizes <= says.high
    verdict, text = judge.one_draw(int(kept.sum()), len(kept))
    tables = kept.groupby(part["draw"]).all()
    detail = (
        f"{text}; {tables.sum()} of {len(tables)} tables of activations with probes of their own"
    )
    needed = (
        math.inf if verdict == "inconclusive" else math.nan
    )  # it is one table of the paper that is asked about
    return judge.claim(says, verdict, float(sizes.mean()), detail, seeds_needed=needed)


def over_draws(
    says: Statement,
    means: pd.DataFrame,
    probes: int,
    reading: Callable[[pd.DataFrame, int, tuple[str, ...]], Parts],
) -> Claim:
    """A property of the estimator: its mean over the draws."""
    return judge.bound(says, reading(means, probes, ENDS), over="draws")


def typical(means: pd.DataFrame, probes: int, ends: tuple[str, ...]) -> Parts:
    """The mean size of the discrepancy of one activation, by draw."""
    part = means[means["probes"] == probes].assign(size=lambda t: t["percent"].abs())
    return {c: list(part[part["checkpoint"] == c].groupby("draw")["size"].mean()) for c in ends}


def signed(means: pd.DataFrame, probes: int, ends: tuple[str, ...]) -> Parts:
    """The mean discrepancy of the activations, by draw."""
    part = means[means["probes"] == probes]
    return {c: list(part[part["checkpoint"] == c].groupby("draw")["percent"].mean()) for c in ends}


def sizes(draws: pd.DataFrame, checkpoint: str) -> list[float]:
    """Mean size of the discrepancy of one network from the text's number of probes in percent, by draw."""
    part = draws[
        (draws["status"] == "ok")
        & (draws["checkpoint"] == checkpoint)
        & (draws["probes"] == TEXT_PROBES)
    ]
    percent = (100 * (part["gap_stochastic"] / part["gap_exact"] - 1)).abs()
    return list(percent.groupby(part["draw"]).mean())


def exponents(draws: pd.DataFrame) -> Parts:
    """Slope of log error on log m: a value for each seed, the mean over its activations, which share no probes."""
    found: Parts = {}
    for checkpoint in ENDS:
        fits = _fits(
            draws[(draws["status"] == "ok") & (draws["checkpoint"] == checkpoint)],
            ["activation", "seed"],
        )
        by: dict[object, list[float]] = {}
        for (_, seed), fit in fits:
            by.setdefault(seed, []).append(fit.slope)
        found[checkpoint] = [sum(slopes) / len(slopes) for slopes in by.values()]
    return found


def rates(draws: pd.DataFrame) -> list[stats.Statistic]:
    """Fits of log(relative std of one estimate over the draws) on log(probes), by activation and checkpoint."""
    return [fit for _, fit in _fits(draws[draws["status"] == "ok"], ["activation", "checkpoint"])]


def _fits(part: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[object, ...], stats.Statistic]]:
    found = []
    for values, rows in groups(part, keys):
        spread = spreads(rows).groupby("probes")["percent"].mean()
        spread = spread[spread > 0]
        if len(spread) > 1:
            group = " ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True))
            fit = stats.linear(
                np.log(spread.index), np.log(spread), name="error against probes", group=group
            )
            found.append((values, fit))
    return found


def spreads(draws: pd.DataFrame) -> pd.DataFrame:
    """activation, checkpoint, seed, probes, percent: relative std of the estimate over the draws of one network."""
    kept = draws[draws["status"] == "ok"]
    by = kept.groupby(["activation", "checkpoint", "seed", "probes"], sort=False)
    found = by.agg(std=("gap_stochastic", "std"), exact=("gap_exact", "first")).reset_index()
    return found.assign(percent=100 * found["std"] / found["exact"]).drop(columns=["std", "exact"])
