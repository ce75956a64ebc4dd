"""What the DAG paper says of Exp. 6 (Section 5.6, Remark 39, Appendix N.8), decided from the
tables.

Printed numbers are compared with the paper's own kind of estimate (30 probes); statements about the
networks are compared with the engine's values, exact for ReLU. Statements on an exact zero are
compared with the estimates, whose products know nothing of the network's structure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from experiments.dag.protocol.scores import (
    described,
    jackknife,
    on_log_scale,
    paired,
    probes,
    published_start,
)
from experiments.dag.protocol.statements import Groups, Judge, Parts
from experiments.dag.protocol.summary import gap, in_percent, long_format, per_seed
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.intervals import Pseudovalues
from runner.stats.tables import chosen, groups, ratios
from runner.training import CHECKPOINTS

KEYS = ["activation", "arch", "checkpoint"]
LAST = 4
"""Distance between stem and layer4, the largest."""
RESNET = "resnet18"
PLAIN = "plain_resnet18"
DECAYS = {
    "decay of the ReLU ResNet": ("relu", RESNET),
    "decay of the plain ReLU network": ("relu", PLAIN),
    "decay of the SiLU ResNet": ("silu", RESNET),
    "decay of the plain SiLU network": ("silu", PLAIN),
}
PUBLISHED_STEPS = 20
DESCRIBED_STEPS = 50
"""Power steps of D in the published values (Section 5) and in Appendix N.8."""
METRICS = {name: name for name in ("R", "C", "D", "gap")}
NEGLIGIBLE = 1e-12
"""‖H‖₂² below which the paper leaves D out (Appendix N.8)."""


def selected(table: pd.DataFrame, estimator: str) -> pd.DataFrame:
    """Rows of one estimator, with the running statistics of BatchNorm."""
    return chosen(table, estimator=estimator, statistics="running")


def leaving_out(tables: Tables, estimator: str, negligible: float) -> pd.DataFrame:
    """Rows of `distances` with D averaged as published: over the blocks whose ‖H‖_F² is at least
    `negligible`."""
    keys = [*KEYS, "seed", "distance"]
    pairs = selected(tables["pairs"], estimator)
    kept = pairs[pairs["R"] ** 2 >= negligible]
    by_distance = kept.groupby(keys, as_index=False)
    means = by_distance["D"].mean()
    own = selected(tables["distances"], estimator)
    distances = own.drop(columns="D")
    return distances.merge(means, on=keys, how="left")


def claims(tables: Tables, says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement; networks and checkpoints are its parts."""
    if "distances" not in tables:
        return [judge.claim(s, "not run", detail="no network was measured") for s in says.values()]
    of_probes = selected(tables["distances"], "published")
    published = of_probes.assign(gap=gap)
    of_engine = selected(tables["distances"], "engine")
    engine = of_engine.assign(gap=gap)
    exact = engine if published_start(tables) else engine.iloc[:0]
    calibrated = with_calibrated_start(tables["distances"], engine)
    decide = Judge(says)
    small = negligible(selected(tables["pairs"], "engine"))
    negligible_blocks = decide.bound("negligible blocks", small)
    return [
        *zeros(published, decide),
        *smooth(engine, calibrated, decide),
        *decays(published, exact, decide),
        *coupling(engine, calibrated, decide),
        negligible_blocks,
    ]


def by_network(table: pd.DataFrame) -> Groups:
    """Groups named 'relu resnet18 init'."""
    return Groups(table, KEYS, "{activation} {arch} {checkpoint}")


def largest_step(rows: pd.DataFrame, column: str) -> list[float]:
    """The largest step from one distance to the next, by seed; NaN where a value is infinite."""
    curves = rows.pivot(index="seed", columns="distance", values=column)
    finite = curves.where(curves.abs() < math.inf)
    steps = finite.diff(axis=1).iloc[:, 1:]
    return list(steps.max(axis=1, skipna=False))


def zeros(published: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """H6.1 and Remark 39: where the tensor part is zero, by estimates from products.

    Remark 39 is proved for every network (the audit has it): untrained networks decide, of which
    there are five seeds first; later checkpoints are secondary results.
    """
    relu = by_network(chosen(published, activation="relu"))
    head = chosen(published, distance=LAST)
    before = {}
    for checkpoint in dict.fromkeys(head["checkpoint"]):
        of_networks = by_network(chosen(head, checkpoint=checkpoint))
        parts = of_networks.each(lambda rows: list(rows["gap"]))
        before[str(checkpoint)] = decide.bound("gap before the head", parts)
    final = relu.only(checkpoint="final").values("gap", "max")
    yield at_every_checkpoint("gap of ReLU", relu, decide, "max")
    yield decide.bound("gap of ReLU, final", final)
    yield decide.together("gap before the head", before, "init")


def at_every_checkpoint(name: str, networks: Groups, decide: Judge, statistic: str) -> Claim:
    """A statement on the gap at all checkpoints (Tables 8 and N.8 have the three) stays open while
    some are not measured."""
    made = decide.bound(name, networks.values("gap", statistic))
    there = set(networks.table["checkpoint"])
    missing = [c for c in CHECKPOINTS if c not in there]
    return judge.incomplete(made, missing)


AS_PUBLISHED = "initial statistics"
CALIBRATED = "statistics of training images"
"""Of BatchNorm in the untrained networks. With the initial ones, as published, BatchNorm is the
identity; after training it never is."""


def with_calibrated_start(distances: pd.DataFrame, engine: pd.DataFrame) -> pd.DataFrame:
    """The exact values, of untrained networks with statistics of training images."""
    start = chosen(distances, estimator="engine", statistics="calibrated", checkpoint="init")
    trained = engine[engine["checkpoint"] != "init"]
    return pd.concat([start.assign(gap=gap), trained], ignore_index=True)


def smooth(engine: pd.DataFrame, calibrated: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """H6.2 and Appendix N.8: the gap of SiLU networks before the last segment, and how it changes
    in training, from the published start and, as a variant, from calibrated networks."""
    before_head = engine[engine["distance"] < LAST]
    silu = chosen(before_head, activation="silu")
    networks = by_network(silu)
    trained = networks.only(arch=RESNET, checkpoint="final")
    falls = trained.each(largest_step, "gap")
    between_blocks = silu[silu["distance"] > 0]
    init = chosen(between_blocks, arch=RESNET, checkpoint="init")
    by_distance = Groups(init, ["distance"], "d={distance}")
    start = by_distance.each(lambda rows: list(rows["gap"]))
    yield at_every_checkpoint("gap of SiLU", networks, decide, "min")
    yield decide.bound("gap falls", falls)
    yield decide.bound("gap of the SiLU ResNet at init", start)
    starts = {AS_PUBLISHED: silu, CALIBRATED: chosen(calibrated, activation="silu")}
    for name, arch, distances, sign in (
        ("ResNet gap falls in training", RESNET, (1, 2, 3), -1),
        ("plain gap grows in training", PLAIN, (0, 1), 1),
        ("plain gap declines in training", PLAIN, (2, 3), -1),
    ):
        readings = {
            start: decide.bound(name, changes(rows, arch, distances, sign))
            for start, rows in starts.items()
        }
        yield decide.together(name, readings, AS_PUBLISHED)


def changes(silu: pd.DataFrame, arch: str, distances: tuple[int, ...], sign: int) -> Parts:
    """sign · (gap at the end − gap at init), mean over the distances, by seed."""
    near = silu[silu["distance"].isin(distances)]
    part = chosen(near, arch=arch)
    by_checkpoint = {}
    for checkpoint in ("init", "final"):
        rows = chosen(part, checkpoint=checkpoint)
        indexed = rows.set_index(["seed", "distance"])
        by_checkpoint[checkpoint] = indexed["gap"]
    table = pd.concat(by_checkpoint, axis=1, join="inner")
    if table.empty:
        return {}
    growth = table["final"] - table["init"]
    change = growth.groupby("seed")
    means = change.agg(lambda values: values.mean(skipna=False))
    name = "d = " + ", ".join(map(str, distances))
    return {name: [sign * float(mean) for mean in means]}


def decay_of(part: pd.DataFrame) -> dict[int, float]:
    """seed -> R(0)/R(4)."""
    table = per_seed(part, "R")
    if not {0, LAST} <= set(table.columns):
        return {}
    decays = table[0] / table[LAST]
    return {int(seed): float(decay) for seed, decay in decays.items()}


def decays(published: pd.DataFrame, engine: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """H6.3: R(0)/R(4) of the four networks at init, and what skips make of it.

    published: estimates as the paper's; engine: values without probes of the paper's own networks,
    if they are.
    """
    means = start_decays(published)
    exact = start_decays(engine)
    rows = []
    for name, network in DECAYS.items():
        without_probes = {"init": exact[network]} if network in exact else {}
        parts: Parts = {"init": means.get(network, [])}
        rows.append(decide.number(name, parts, without_probes=without_probes))
    yield from rows
    yield from contrasts(published, decide)


def contrasts(published: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """The decay of plain networks over that of ResNets."""
    found = {keys: decay_of(rows) for keys, rows in groups(published, KEYS)}
    contrast: dict[str, dict[str, dict[int, float]]] = {}
    for (activation, arch, checkpoint), values in found.items():
        if arch == RESNET:
            plain = found.get((activation, PLAIN, checkpoint), {})
            of_checkpoint = contrast.setdefault(checkpoint, {})
            of_checkpoint[activation] = ratios(plain, values)
    stabilised = {}
    for checkpoint, of_activations in contrast.items():
        parts = {
            f"{activation} {checkpoint}": on_log_scale(list(values.values()))
            for activation, values in of_activations.items()
        }
        stabilised[checkpoint] = decide.bound("skips stabilise R", parts)
    start = contrast.get("init", {})
    of_silu = start.get("silu", {})
    of_relu = start.get("relu", {})
    stronger = ratios(of_silu, of_relu)
    over_relu = {"init": on_log_scale(list(stronger.values()))}
    yield decide.bound("stronger contrast for SiLU", over_relu)
    yield decide.together("skips stabilise R", stabilised, "init")


def start_decays(distances: pd.DataFrame) -> dict[tuple[str, ...], Pseudovalues]:
    """(activation, architecture) -> R(0)/R(4) of untrained networks."""
    found = {}
    init = chosen(distances, checkpoint="init")
    for network, rows in groups(init, ["activation", "arch"]):
        wide = per_seed(rows, "R")
        found[network] = jackknife(wide, ratio_of_means, log=True)
    return found


def ratio_of_means(wide: pd.DataFrame) -> float:
    """R(0) over R(4), both means over seeds, as printed; NaN where a distance is not measured."""
    if LAST in wide:
        last = wide[LAST].mean()
        return float(wide[0].mean() / last)
    return math.nan


def coupling(engine: pd.DataFrame, calibrated: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """H6.3: C falls with distance, and more slowly with skips (C(4) of ResNet less that of the
    plain twin); of untrained networks as published, and as a variant from calibrated ones."""
    slower = {c: decide.bound("skips slow the decay", p) for c, p in kept_coupling(engine).items()}
    start = kept_coupling(chosen(calibrated, checkpoint="init"))
    if start:
        slower[f"init, {CALIBRATED}"] = decide.bound("skips slow the decay", start["init"])
    monotone = {}
    for statistics, table in ((AS_PUBLISHED, engine), (CALIBRATED, calibrated)):
        steps = by_network(table).each(largest_step, "C")
        monotone[statistics] = decide.bound("C monotone", steps)
    yield decide.together("C monotone", monotone, AS_PUBLISHED)
    # Table 9, of which the sentence speaks, is the initial checkpoint.
    yield decide.together("skips slow the decay", slower, "init")


def kept_coupling(distances: pd.DataFrame) -> dict[str, Parts]:
    """checkpoint -> 'relu init' -> C(4) of the ResNet less that of its plain twin, by seed."""
    gain: dict[str, Parts] = {}
    far = chosen(distances, distance=LAST)
    networks = groups(far, ["activation", "checkpoint"])
    for (activation, checkpoint), part in networks:
        wide = per_seed(part, "C", "arch")
        if {RESNET, PLAIN} <= set(wide.columns):
            values = list(wide[RESNET] - wide[PLAIN])
            gain.setdefault(str(checkpoint), {})[f"{activation} {checkpoint}"] = values
    return gain


def negligible(pairs: pd.DataFrame) -> Parts:
    """Share in Σ‖H‖_F² over all pairs of the blocks with ‖H‖₂² < 1e-12, by network that has any and
    seed; NaN of a seed whose blocks are missing."""
    square = pairs["R"] ** 2
    top = square / pairs["D"]
    known = pairs.assign(top=top, square=square)
    found = {}
    for name, rows in by_network(known).items():
        lost = rows.loc[rows["R"].isna(), "seed"].nunique()
        part = rows[rows["top"].notna()]
        below = part[part["top"] < NEGLIGIBLE]
        small = below.groupby("seed")["square"].sum()
        whole = part.groupby("seed")["square"].sum()
        shares = small / whole.loc[small.index]
        if len(small) or lost:
            found[name] = [*shares, *[math.nan] * lost]
    return found


def measured(tables: Tables, negligible: float) -> pd.DataFrame:
    """Values of Tables 8, 9, N.7, N.8, of the text and of the authors' results, one row per seed,
    by the paper's estimates and averages; and D without probes and power steps, of which the
    paper's 50 steps are an estimate."""
    parts = []
    if "distances" in tables:
        keys = [*KEYS, "distance"]
        own = {}
        for estimator in ("published", "engine"):
            rows = leaving_out(tables, estimator, negligible).assign(gap=gap)
            own[estimator] = long_format(rows, keys, METRICS)
        estimated = probes(own["published"], own["engine"], tables, KEYS)
        parts.append(estimated.assign(power_steps=PUBLISHED_STEPS))
        exact = described(chosen(own["engine"], metric="D"), keys)
        parts.append(exact.assign(power_steps=DESCRIBED_STEPS))
    networks = in_percent(chosen(tables["networks"], statistics="running"))
    accuracy = long_format(networks, KEYS, {"test_acc_percent": "percent"})
    parts.append(paired(accuracy, tables, KEYS))
    found = pd.concat(parts, ignore_index=True)
    # Estimates are of other probes, and after 100 epochs networks of two processors are not the
    # same.
    untrained = found["checkpoint"].eq("init")
    same = found["paired"].eq(True)
    return found.assign(paired=same & untrained)


def devices(origin: pd.DataFrame) -> list[str]:
    """Which seeds' networks were trained on another device than the processor, one sentence for
    each device."""
    if "trained_on" not in origin:
        return []
    final = chosen(origin, checkpoint="final")
    ended = final.dropna(subset=["trained_on"])
    found = []
    for (device,), part in groups(ended, ["trained_on"]):
        numbers = sorted(set(part["seed"]))
        seeds = ", ".join(map(str, numbers))
        found.append(f"The networks of seed {seeds} were trained on {device}.")
    return found
