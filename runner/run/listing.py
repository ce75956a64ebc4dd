"""`hess-run list`: which experiments there are, what is stored, what a seed would cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.contract import Experiment, SettingError, short
from runner.run.command_line import Call
from runner.run.config import experiment_names, preview
from runner.run.costs import Cost, Costs, duration, price
from runner.run.nearest import did_you_mean
from runner.run.reports import say_damage
from runner.store.archive import published_root, where_published
from runner.store.identity import Identity
from runner.store.store import Store


def list_command(call: Call) -> int:
    """hess-run list [PATTERN] [outputs=PATH] [--json]

    One line for every experiment: paper, cells of one seed, cells stored below PATH (default
    outputs), predicted processor time of one seed, and what it reproduces. PATTERN: a part of the
    name. Imports only what --config-dir and HESS_MODULES allow.

      hess-run list --config-dir my/conf             with experiments of your own
    """
    records = experiments(call.outputs, *call.words)
    left_out = [line for record in records for line in record["damaged"]]
    say_damage(left_out, call.json)
    lines = [*listing(records), *total_lines(records)]
    if published_root() is None:
        lines.append(where_published())
    print(json.dumps(records, indent=1) if call.json else "\n".join(lines))
    return 1 if left_out else 0


def experiments(outputs: Path, pattern: str = "") -> list[dict[str, Any]]:
    """What `hess-run list` says of each experiment. pattern: a part of the name."""
    records: list[dict[str, Any]] = []
    names = [name for name in experiment_names() if pattern in name]
    if not names:
        hint = did_you_mean(pattern, experiment_names())
        raise SettingError(
            f"list: expected a part of an experiment's name, found {short(pattern)}{hint}"
        )
    for name in names:
        try:
            records.append(_record(name, preview(name), outputs))
        except SettingError as error:
            records.append({"experiment": name, "error": str(error), "damaged": []})
    return records


def _record(name: str, experiment: Experiment, outputs: Path) -> dict[str, Any]:
    """What `hess-run list` says of one experiment."""
    key = Identity.of(name, experiment).key
    store = Store(outputs, name)
    stored = [cell for cell in store.all() if cell.meta["settings_key"] == key]
    cells = list(experiment.cells())
    predicted = Costs(stored, cells)
    costs = [predicted(cell) for cell in cells]
    return {
        "experiment": name,
        "paper": experiment.paper,
        "cells": len(cells),
        "stored": len(stored),
        "damaged": store.left_out(),
        "seeds": sorted({cell.meta["seed"] for cell in stored}),
        "seconds": sum(cost.seconds for cost in costs),
        "gib": max((cost.gib for cost in costs), default=0.0),
        "bytes": sum(cost.bytes for cost in costs),
        "reproduces": experiment.reproduces,
    }


def listing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of `hess-run list`."""
    rows = [("experiment", "paper", "cells a seed", "stored", "cost a seed", "reproduces")]
    for record in records:
        name = record["experiment"]
        if "error" in record:
            rows.append((name, "", "", "", "", f"cannot be read: {record['error']}"))
            continue
        stored = "0"
        if record["stored"]:
            stored = f"{record['stored']} (seeds {_ranges(record['seeds'])})"
        cells = str(record["cells"])
        cost = duration(record["seconds"])
        rows.append((name, record["paper"], cells, stored, cost, record["reproduces"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return lines


def total_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What one seed of all listed experiments costs; nothing for a single one."""
    read = [record for record in records if "error" not in record]
    if len(read) < 2:
        return []
    costs = [Cost(record["seconds"], record["gib"], record["bytes"]) for record in read]
    cells = sum(record["cells"] for record in read)
    return [
        f"{len(read)} experiments, {cells} cells a seed: {price(costs)}",
        "all seeds of the papers: hess-run plan",
    ]


def _ranges(numbers: Sequence[int]) -> str:
    """42, 43, 44, 46 -> '42-44,46'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if part[1:] else f"{part[0]}" for part in parts)
