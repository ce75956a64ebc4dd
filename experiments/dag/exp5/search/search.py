"""All variants of one source of random numbers, scored, and what is kept of them.

Tables: `counts`, how many variants of each stage give how many printed numbers; `readings`, how the norms that know no
targets scatter over the data, for each origin of the network; `best`, the variants that give most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from experiments.dag.exp5.search.score import Target, Targets, search
from experiments.dag.exp5.search.settings import Exp5InitSearch
from runner.contract import Cell, Context, Table

NAMES = {
    ("frob_gn", "attention"): "attention gn",
    ("frob_full", "attention"): "attention full",
    ("gap", "attention"): "attention gap",
    ("test_mse", "attention"): "attention loss",
    ("frob_full", "relu_mlp"): "mlp full",
    ("test_mse", "relu_mlp"): "mlp loss",
}
"""Metric and network of the reference file -> name of a target."""


@cache
def printed_targets() -> Targets:
    """The printed init rows of Exp. 5, each with half a unit of its last digit."""
    from runner.report.collect import reference_path
    from runner.report.printed import published, read_reference, resolution

    path = reference_path("exp5_attention")
    assert path is not None
    rows = [{str(k): str(v) for k, v in row.items()} for row in read_reference(path).to_dict("records")]
    found: dict[str, Target] = {}
    for row in rows:
        name = NAMES.get((row["metric"], row["network"]))
        if name is None or (row["protocol"], row["checkpoint"]) != ("printed", "init"):
            continue
        number = published(row)
        found[name] = Target(number.mean, resolution(row, rows))
        if name == "attention gap":
            found["attention gap std"] = Target(number.std, resolution(row, rows, "std"))
    return found


def measure(experiment: Exp5InitSearch, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The tables of the source of a cell."""
    return tables(str(cell.params["source"]), experiment.seeding, experiment.kept, ctx)


def tables(source: str, seedings: Sequence[str], kept: int, ctx: Context) -> dict[str, Table]:
    """The tables of one source; seedings: of these alone, all if empty."""
    targets = printed_targets()
    counts: Counter[tuple[str, int]] = Counter()
    values: dict[tuple[str, str], list[float]] = {}
    best: list[dict[str, Any]] = []
    for row in search(source, targets, seedings):
        if row["stage"] == "inputs":
            counts["inputs", int(row["met"]) + bool(row["pairs"])] += 1
            for name, value in row.items():
                if name.startswith("block") or name == "attention gn":
                    values.setdefault((row["network"], name), []).append(value)
        else:
            counts["targets", row["digits"]] += 1
            best.append(row)
            if len(best) > 20 * kept:
                best = foremost(best, kept)
        if sum(counts.values()) % 200 == 0:
            ctx.progress(sum(counts.values()), 0, "variants")
    return {
        "counts": [{"stage": s, "numbers_met": n, "variants": c} for (s, n), c in sorted(counts.items())],
        "readings": [summary(network, name, found, targets) for (network, name), found in values.items()],
        "best": foremost(best, kept),
    }


def foremost(rows: list[dict[str, Any]], kept: int) -> list[dict[str, Any]]:
    """The rows that give most printed numbers, of those the nearest to the others."""
    return sorted(rows, key=lambda row: (-row["digits"], row["off"]))[:kept]


def summary(network: str, name: str, found: Sequence[float], targets: Targets) -> dict[str, Any]:
    """How one norm (mean over the five seeds) scatters over the data, and how often it rounds to the printed one."""
    n = len(found)
    mean = sum(found) / n
    std = (sum((v - mean) ** 2 for v in found) / (n - 1)) ** 0.5 if n > 1 else float("nan")
    target = targets["attention gn" if name == "attention gn" else "mlp full"]
    row = {"network": network, "norm": name, "variants": n, "mean": mean, "std": std}
    return row | {"lowest": min(found), "highest": max(found), "met": sum(map(target.met, found))}
