"""What the DAG paper says of Exp. 6 (Section 5.6, Remark 39, Appendix N.8), decided from the
tables.

Printed numbers are compared with the paper's own kind of estimate (30 probes); statements about the
networks are compared with the engine's values, exact for ReLU. Statements on an exact zero are
compared with the estimates, whose products know nothing of the network's structure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from experiments.dag.protocol.scores import jackknife, paired, probes, published_start
from experiments.dag.protocol.summary import groups, long_format
from runner.contract import Claim, Statement
from runner.stats import judge
from runner.stats.intervals import Pseudovalues
from runner.training import CHECKPOINTS

KEYS = ["activation", "arch", "checkpoint"]
LAST = 4
"""Distance between stem and layer4, the largest."""
RESNET, PLAIN = "resnet18", "plain_resnet18"
DECAYS = {
    "decay of the ReLU ResNet": ("relu", RESNET),
    "decay of the plain ReLU network": ("relu", PLAIN),
    "decay of the SiLU ResNet": ("silu", RESNET),
    "decay of the plain SiLU network": ("silu", PLAIN),
}
METRICS = {name: name for name in ("R", "C", "D", "gap")}
NEGLIGIBLE = 1e-12
"""‖H‖₂² below which the paper leaves D out (Appendix N.8)."""
Parts = dict[str, list[float]]


def selected(table: pd.DataFrame, estimator: str, statistics: str = "running") -> pd.DataFrame:
    """Rows of one estimator and one kind of BatchNorm statistics."""
    return table[(table["estimator"] == estimator) & (table["statistics"] == statistics)]


def gaps(distances: pd.DataFrame) -> pd.DataFrame:
    """The rows with their GN-gap Σ‖H^T‖/Σ‖H^GN‖."""
    return distances.assign(gap=distances["tensor"] / distances["gn"].where(distances["gn"] > 0))


def leaving_out(
    tables: Mapping[str, pd.DataFrame], estimator: str, negligible: float
) -> pd.DataFrame:
    """Rows of `distances` with D averaged as published: over the blocks whose ‖H‖_F² is at least
    `negligible`."""
    keys = [*KEYS, "seed", "distance"]
    pairs = selected(tables["pairs"], estimator)
    kept = pairs[pairs["R"] ** 2 >= negligible].groupby(keys, as_index=False)["D"].mean()
    return (
        selected(tables["distances"], estimator).drop(columns="D").merge(kept, on=keys, how="left")
    )


def claims(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement; networks and checkpoints are its parts."""
    if "distances" not in tables:
        return [judge.claim(s, "not run", detail="no network was measured") for s in says.values()]
    published, engine = (gaps(selected(tables["distances"], e)) for e in ("published", "engine"))
    return [
        *zeros(published, says),
        *smooth(engine, says),
        *decays(published, engine if published_start(tables) else engine.iloc[:0], says),
        *coupling(engine, says),
        judge.bound(says["negligible blocks"], negligible(selected(tables["pairs"], "engine"))),
    ]


def by_network(part: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """'relu resnet18 init' -> rows."""
    return {" ".join(map(str, keys)): rows for keys, rows in groups(part, KEYS)}


def zeros(published: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """H6.1 and Remark 39: where the tensor part is zero, by estimates from products.

    Remark 39 is proved for every network (the audit has it): untrained networks decide, of which
    there are five seeds first; later checkpoints are secondary results.
    """
    relu = published[published["activation"] == "relu"]
    largest: Parts = {k: list(p.groupby("seed")["gap"].max()) for k, p in by_network(relu).items()}
    final = {k: largest[k] for k in by_network(relu[relu["checkpoint"] == "final"])}
    head = published[published["distance"] == LAST]
    before = {
        str(checkpoint): judge.bound(
            says["gap before the head"], {k: list(p["gap"]) for k, p in by_network(rows).items()}
        )
        for (checkpoint,), rows in groups(head, ["checkpoint"])
    } or {"": judge.claim(says["gap before the head"], "not run")}
    return [
        at_every_checkpoint(says["gap of ReLU"], largest),
        judge.bound(says["gap of ReLU, final"], final),
        judge.together(before, main="init"),
    ]


def at_every_checkpoint(says: Statement, parts: Parts) -> Claim:
    """A statement on all checkpoints (Tables 8 and N.8 have the three) stays open while some are
    not measured."""
    found = {name.rsplit(" ", 1)[-1] for name in parts}
    return judge.incomplete(judge.bound(says, parts), [c for c in CHECKPOINTS if c not in found])


def smooth(engine: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """H6.2 and Appendix N.8: the gap of SiLU networks before the last segment, and how it changes
    in training."""
    silu = engine[(engine["activation"] == "silu") & (engine["distance"] < LAST)]
    parts = by_network(silu)
    falls = {
        k: [float(r.sort_values("distance")["gap"].diff().max()) for _, r in p.groupby("seed")]
        for k, p in parts.items()
        if k == f"silu {RESNET} final"
    }
    init = silu[(silu["arch"] == RESNET) & (silu["checkpoint"] == "init") & (silu["distance"] > 0)]
    start = {f"d={d}": list(p["gap"]) for (d,), p in groups(init, ["distance"])}
    return [
        at_every_checkpoint(
            says["gap of SiLU"], {k: list(p.groupby("seed")["gap"].min()) for k, p in parts.items()}
        ),
        judge.bound(says["gap falls"], falls),
        judge.bound(says["gap of the SiLU ResNet at init"], start),
        judge.bound(says["ResNet gap falls in training"], changes(silu, RESNET, (1, 2, 3), -1)),
        judge.bound(says["plain gap grows in training"], changes(silu, PLAIN, (0, 1), 1)),
        judge.bound(says["plain gap declines in training"], changes(silu, PLAIN, (2, 3), -1)),
    ]


def changes(silu: pd.DataFrame, arch: str, distances: tuple[int, ...], sign: int) -> Parts:
    """sign · (gap at the end − gap at init), mean over the distances, by seed."""
    part = silu[(silu["arch"] == arch) & silu["distance"].isin(distances)]
    both = [
        part[part["checkpoint"] == c].set_index(["seed", "distance"])["gap"]
        for c in ("init", "final")
    ]
    table = pd.concat(both, axis=1, keys=["init", "final"], join="inner")
    if table.empty:
        return {}
    change = (
        (table["final"] - table["init"])
        .groupby("seed")
        .agg(lambda values: values.mean(skipna=False))
    )
    return {"d = " + ", ".join(map(str, distances)): [sign * float(v) for v in change]}


def decay_of(part: pd.DataFrame) -> dict[int, float]:
    """seed -> R(0)/R(4)."""
    table = part.pivot(index="seed", columns="distance", values="R")
    if not {0, LAST} <= set(table.columns):
        return {}
    return {int(s): float(r) for s, r in (table[0] / table[LAST]).items()}


def decays(
    published: pd.DataFrame, engine: pd.DataFrame, says: Mapping[str, Statement]
) -> list[Claim]:
    """H6.3: R(0)/R(4) of the four networks at init, and what skips make of it.

    published: estimates as the paper's; engine: values without probes of the paper's own networks,
    if they are.
    """
    found = {keys: decay_of(p) for keys, p in groups(published, KEYS)}
    means, exact = start_decays(published), start_decays(engine)
    rows = [
        judge.number(
            says[which],
            {"init": means.get(network, [])},
            without_probes={"init": exact[network]} if network in exact else {},
        )
        for which, network in DECAYS.items()
    ]
    contrast = {
        (a, c): ratio(found.get((a, PLAIN, c), {}), values)
        for (a, arch, c), values in found.items()
        if arch == RESNET
    }
    silu, relu = (contrast.get((a, "init"), {}) for a in ("silu", "relu"))
    stabilised = {
        c: judge.bound(
            says["skips stabilise R"],
            {f"{a} {c}": list(v.values()) for (a, at), v in contrast.items() if at == c},
        )
        for c in dict.fromkeys(c for _, c in contrast)
    }
    return [
        *rows,
        judge.bound(says["stronger contrast for SiLU"], {"init": list(ratio(silu, relu).values())}),
        judge.together(stabilised, main="init")
        if stabilised
        else judge.claim(says["skips stabilise R"], "not run"),
    ]


def start_decays(distances: pd.DataFrame) -> dict[tuple[str, ...], Pseudovalues]:
    """(activation, architecture) -> R(0)/R(4) of untrained networks."""
    start = distances[distances["checkpoint"] == "init"]
    return {
        keys: jackknife(
            p.pivot(index="seed", columns="distance", values="R"), ratio_of_means, log=True
        )
        for keys, p in groups(start, ["activation", "arch"])
    }


def ratio_of_means(wide: pd.DataFrame) -> float:
    """R(0) over R(4), both means over seeds, as printed; NaN where a distance is not measured."""
    return float(wide[0].mean() / wide[LAST].mean()) if LAST in wide else math.nan


def ratio(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    """seed -> a/b, of the seeds that both have."""
    return {seed: a[seed] / b[seed] for seed in a if seed in b}


def coupling(engine: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """H6.3: C falls with distance, and more slowly with skips (C(4) of ResNet less that of the
    plain twin)."""
    steps = {
        k: [float(r.sort_values("distance")["C"].diff().max()) for _, r in p.groupby("seed")]
        for k, p in by_network(engine).items()
    }
    far = engine[engine["distance"] == LAST]
    gain: dict[str, Parts] = {}
    for (activation, checkpoint), part in groups(far, ["activation", "checkpoint"]):
        wide = part.pivot(index="seed", columns="arch", values="C")
        if {RESNET, PLAIN} <= set(wide.columns):
            values = list(wide[RESNET] - wide[PLAIN])
            gain.setdefault(str(checkpoint), {})[f"{activation} {checkpoint}"] = values
    slower = {c: judge.bound(says["skips slow the decay"], parts) for c, parts in gain.items()}
    return [
        judge.bound(says["C monotone"], steps),
        # Table 9, of which the sentence speaks, is the initial checkpoint.
        judge.together(slower, main="init")
        if slower
        else judge.claim(says["skips slow the decay"], "not run"),
    ]


def negligible(pairs: pd.DataFrame) -> Parts:
    """Share in Σ‖H‖_F² over all pairs of the blocks with ‖H‖₂² < 1e-12, by network that has any and
    seed."""
    known = pairs.assign(top=pairs["R"] ** 2 / pairs["D"], square=pairs["R"] ** 2)
    found: Parts = {}
    for name, part in by_network(known[known["top"].notna()]).items():
        small = part[part["top"] < NEGLIGIBLE].groupby("seed")["square"].sum()
        if len(small):
            whole = part.groupby("seed")["square"].sum()
            found[name] = list(small / whole.loc[small.index])
    return found


def measured(tables: Mapping[str, pd.DataFrame], negligible: float) -> pd.DataFrame:
    """Values of Tables 8, 9, N.7, N.8 and of the text, one row per seed, by the paper's estimates
    and averages."""
    parts = []
    if "distances" in tables:
        own, exact = (
            long_format(gaps(leaving_out(tables, of, negligible)), [*KEYS, "distance"], METRICS)
            for of in ("published", "engine")
        )
        parts.append(probes(own, exact, tables, KEYS))
    networks = tables["networks"][tables["networks"]["statistics"] == "running"]
    networks = networks.assign(percent=100 * networks["test_accuracy"])
    parts.append(paired(long_format(networks, KEYS, {"test_acc_percent": "percent"}), tables, KEYS))
    found = pd.concat(parts, ignore_index=True)
    # Estimates are of other probes, and after 100 epochs networks of two processors are not the
    # same.
    return found.assign(paired=found["paired"].eq(True) & found["checkpoint"].eq("init"))


def notes(tables: Mapping[str, pd.DataFrame], negligible: float) -> list[str]:
    """Findings in plain words."""
    if "distances" not in tables:
        return []
    distances, found = tables["distances"], []
    init = distances[(distances["checkpoint"] == "init") & (distances["estimator"] == "engine")]
    for (activation, arch), part in groups(init, ["activation", "arch"]):
        ratios = {s: list(decay_of(p).values()) for (s,), p in groups(part, ["statistics"])}
        if all(ratios.get(s) for s in ("running", "calibrated")):
            means = {s: sum(v) / len(v) for s, v in ratios.items()}
            found.append(
                f"{activation} {arch}, init: R(0)/R(4) = {means['running']:.3g} with BatchNorm's "
                f"statistics at 0 and 1, as published, {means['calibrated']:.3g} once they are "
                "those of training images (means over seeds)."
            )
    published, engine = leaving_out(tables, "published", negligible), selected(distances, "engine")
    for (activation, arch, checkpoint), part in groups(published[published["D"].notna()], KEYS):
        ours = by_network(engine)[f"{activation} {arch} {checkpoint}"]
        theirs, better = (
            ", ".join(f"{value:.3g}" for value in rows.groupby("distance")["D"].mean())
            for rows in (part, ours)
        )
        found.append(
            f"{activation} {arch}, {checkpoint}: D at distances 0, 1, … is {theirs} as published "
            f"(30 probes, without blocks with ‖H‖_F² < {negligible:.0e}) and {better} over all "
            "blocks by the engine (means over seeds)."
        )
    return found + devices(tables.get("origin", pd.DataFrame()))


def devices(origin: pd.DataFrame) -> list[str]:
    """Which seeds' networks were trained on another device than the processor, one sentence for
    each device."""
    if "trained_on" not in origin:
        return []
    ended = origin[(origin["checkpoint"] == "final") & origin["trained_on"].notna()]
    seeds = {
        d: ", ".join(map(str, sorted(set(part["seed"]))))
        for (d,), part in groups(ended, ["trained_on"])
    }
    return [
        f"The networks of seed {numbers} were trained on {device}."
        for device, numbers in seeds.items()
    ]
