"""`hess-run list`: which experiments there are, what is stored and what it costs; of one of them,
or of a choice of a group, what it can be set to and what a run would measure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.contract import GROUPS, SettingError, did_you_mean, seeds_line, short
from runner.report.output.manifest import read_manifest
from runner.run.command_line import Call
from runner.run.config import files
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.store.archive import published_folder, published_root, where_published
from runner.store.costs import Cost, a_seed, duration, price
from runner.store.identity import Identity
from runner.store.store import Store


def list_command(call: Call) -> int:
    """hess-run list [PATTERN] [outputs=PATH] [--json]
    hess-run [-m] list NAME [key=value ...]       an experiment, as a run would measure it
    hess-run list GROUP=NAME                      a choice of dataset, model, metric or training

    One line for every experiment: paper, cells of one seed, cells stored below PATH (default
    outputs), predicted processor time of one seed, and what it reproduces. PATTERN: a part of the
    name. Of one experiment: every setting with its type, value, limits and meaning, the kinds that
    it takes, and every cell that the same command without `list` would measure, with its id,
    predicted time and memory and whether it is stored. Measures and writes nothing; sums of stored
    cells are compared by a run, a report and hess-run store check.

      hess-run list ws_bound hidden=3
      hess-run -m list exp1_resonance 'seed=range(42,47)'
      hess-run list --config-dir my/conf             with experiments of your own
    """
    named = [word.partition("=")[2] for word in call.settings if word.startswith("experiment=")]
    pattern = call.words[0] if call.words else ""
    group, _, choice = call.settings[0].partition("=") if call.settings else ("", "", "")
    if named or pattern in experiment_names():
        if not call.json:
            return _of_experiment(call, pattern)
    elif group in GROUPS and not pattern:
        from runner.run.settings import kind_lines

        print("\n".join(kind_lines(group, choice)))
        return 0
    elif call.settings:
        raise SettingError(_expected(pattern, call.settings[0]))
    records = experiments(call.keys.folder, pattern or "".join(named))
    lines = [*listing(records), *total_lines(records)]
    if published_root() is None:
        lines.append(where_published())
    print(json.dumps(records, indent=1) if call.json else "\n".join(lines))
    return 0


def _expected(pattern: str, setting: str) -> str:
    """What was expected in place of a setting without an experiment."""
    if pattern:
        hint = did_you_mean(pattern, experiment_names())
        return f"list: expected the name of an experiment, found {short(pattern)}{hint}"
    hint = did_you_mean(setting.partition("=")[0], (*GROUPS, "outputs", "experiment"))
    return (
        f"list: expected NAME [key=value ...] or GROUP=NAME (groups: {', '.join(GROUPS)}), "
        f"found {short(setting)}{hint}"
    )


def _of_experiment(call: Call, name: str) -> int:
    """Settings and cells of an experiment."""
    from runner.run.forecast import cell_lines, planned
    from runner.run.reports import read_jobs
    from runner.run.settings import experiment_lines

    words = [*([f"experiment={name}"] if name else []), *call.settings, *call.keys.word]
    _, jobs = read_jobs(replace(call, settings=tuple(words)))
    lines = experiment_lines(jobs[0].name, jobs[0].experiment)
    print("\n".join([*lines, "", *cell_lines(planned(jobs))]))
    return 0


def experiments(outputs: Path, pattern: str = "") -> list[dict[str, Any]]:
    """What `hess-run list` says of each experiment. pattern: a part of the name."""
    names = [name for name in experiment_names() if pattern in name]
    if not names:
        hint = did_you_mean(pattern, experiment_names())
        raise SettingError(
            f"list: expected a part of an experiment's name, found {short(pattern)}{hint}"
        )
    records: list[dict[str, Any]] = []
    for name in names:
        try:
            records.append(_record(name, outputs))
        except SettingError as error:
            records.append({"experiment": name, "error": str(error)})
    return records


def _record(name: str, outputs: Path) -> dict[str, Any]:
    """What `hess-run list` says of one experiment: from the manifest of a report whose
    configuration has not changed, else from the configuration."""
    store = Store(outputs, name)
    made = [read_manifest(folder) for folder in (store.root, published_folder(name)) if folder]
    manifests = [one for one in made if one is not None and not one["changed"]]
    digest = files.fingerprint(name)
    found = next((one for one in manifests if one.get("conf") == digest), None)
    if found is not None:
        about = {"paper": found["paper"], **found["a_seed"]}
        stored = _stored(store, manifests, found["settings_key"])
    else:
        experiment = preview(name)
        stored = _stored(store, manifests, Identity.of(name, experiment).key)
        cells = [cell for cell in map(store.find, stored) if cell is not None]
        about = {"paper": experiment.paper, **a_seed(experiment, cells)}
    return {
        "experiment": name,
        **about,
        "stored": len(stored),
        "seeds": sorted(set(stored.values())),
    }


def _stored(store: Store, manifests: Sequence[Mapping[str, Any]], key: str) -> dict[str, int]:
    """Stored cell of these settings -> its seed. The manifests say it of most cells; only the
    others are read."""
    names = set(store.names())
    found = {}
    for manifest in manifests:
        cells = {cell["id"]: cell["seed"] for cell in manifest["cells"]}
        if manifest["settings_key"] == key:
            found.update({name: seed for name, seed in cells.items() if name in names})
        names -= cells.keys()
        names -= {name for ids in manifest.get("beside", {}).values() for name in ids}
    for name in names:
        cell = store.find(name)
        if cell is not None and cell.meta["settings_key"] == key:
            found[name] = cell.meta["seed"]
    return found


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
            stored = f"{record['stored']} (seeds {seeds_line(record['seeds'])})"
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
    """What one seed of all listed experiments costs, and all seeds of their papers; nothing for a
    single one."""
    read = [record for record in records if "error" not in record]
    if len(read) < 2:
        return []
    one = []
    every = []
    for record in read:
        cost = Cost(record["seconds"], record["gib"], record["bytes"])
        one.append(cost)
        every += [cost] * max(1, len(record["paper_seeds"]))
    cells = sum(record["cells"] for record in read)
    return [
        f"{len(read)} experiments, {cells} cells a seed: {price(one)}",
        f"all seeds of the papers: {price(every)}",
    ]
