"""`hess-run list` and `hess-run plan`: what there is, what is stored, what it would cost."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from runner.contract import Cell, SettingError, short
from runner.run.command_line import Call
from runner.run.config import experiment_names, preview
from runner.run.console import did_you_mean
from runner.run.reports import read_jobs, say_damage
from runner.store import code
from runner.store.archive import Archive, published_folder, published_root, where_published
from runner.store.identity import Identity
from runner.store.job import Job
from runner.store.store import Store, Stored


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3.6e6 else f"{seconds / 3.156e7:.3g} years"


TAKEN_UP = 3.0
"""How much longer than a stored cell an experiment may say before the cell counts as one whose
training was taken from a checkpoint; for cells stored before that was recorded."""


class Cost(NamedTuple):
    """What a cell takes: processor time, memory, and bytes of disk (0 where that is not known)."""

    seconds: float
    gib: float
    bytes: float = 0


def price(costs: Sequence[Cost], processes: int = 1) -> str:
    """The sum in words.

    >>> price([Cost(90.0, 0.5, 2e5), Cost(60.0, 1.0, 1e5)])
    'about 2 min of one core, up to 1.0 GiB at a time, 0.3 MB on disk'
    """
    seconds = sum(cost.seconds for cost in costs)
    peak = max((cost.gib * processes for cost in costs), default=0.0)
    total = sum(cost.bytes for cost in costs)
    disk = f"{total / 1e6:.2g} MB on disk" if total else "disk not known"
    if total and not all(cost.bytes for cost in costs):
        disk = f"at least {disk}"
    return f"about {duration(seconds)} of one core, up to {peak:.1f} GiB at a time, {disk}"


class Costs:
    """Predicted cost of cells: the median of stored cells with the same parameters that trained,
    else the longest of the stored ones or what the experiment says.

    Processor time, not wall time: it hardly depends on what else the machine was doing. What the
    experiment says is scaled by how the stored cells of `grid` that trained compare with it.
    """

    def __init__(self, stored: Sequence[Stored], grid: Sequence[Cell] = ()) -> None:
        self._seen: dict[str, list[Mapping[str, Any]]] = {}
        self._known: dict[str, Cost] = {}
        sizes: dict[str, list[int]] = {}
        for cell in stored:
            key = _params_key(cell.meta["params"])
            self._seen.setdefault(key, []).append(cell.meta)
            sizes.setdefault(key, []).append(cell.files.size(cell.id))
        self._bytes = {key: statistics.median(of) for key, of in sizes.items()}
        self._usual_bytes = statistics.median(self._bytes.values()) if sizes else 0.0
        pairs = [(cell.seconds, self._trained(_params_key(cell.params))) for cell in grid]
        known = [(seconds, statistics.median(trained)) for seconds, trained in pairs if trained]
        self._pace = (
            sum(took for _, took in known) / sum(seconds for seconds, _ in known) if known else 1.0
        )

    def __call__(self, cell: Cell) -> Cost:
        key = _params_key(cell.params)
        if key not in self._known:
            seconds, gib = self._time(cell, self._seen.get(key, []), self._trained(key))
            self._known[key] = Cost(seconds, gib, self._bytes.get(key, self._usual_bytes))
        return self._known[key]

    def _trained(self, key: str) -> list[float]:
        return [
            meta["cpu_seconds"] for meta in self._seen.get(key, []) if meta.get("resumed") is False
        ]

    def _time(
        self, cell: Cell, seen: Sequence[Mapping[str, Any]], trained: Sequence[float]
    ) -> tuple[float, float]:
        """(seconds, GiB)"""
        if not seen:
            return cell.seconds * self._pace, cell.memory_gib
        memory = max(meta["peak_memory_mib"] for meta in seen) / 1024
        if trained:
            return statistics.median(trained), memory
        longest = max(meta["cpu_seconds"] for meta in seen)
        return (cell.seconds if cell.seconds > TAKEN_UP * longest else longest), memory


def _params_key(params: object) -> str:
    return repr(sorted(dict(params).items()))  # type: ignore[call-overload]


def list_command(call: Call) -> int:
    """hess-run list [PATTERN] [outputs=PATH] [--json]

    One line for every experiment: paper, cells of one seed, cells stored below PATH (default
    outputs), predicted processor time of one seed, and what it reproduces. PATTERN: a part of the
    name. Imports only what --config-dir and HESS_MODULES allow.

      hess-run list --config-dir my/conf             with experiments of your own
    """
    records = experiments(Path(call.keys.get("outputs", "outputs")), *call.words)
    left_out = [line for record in records for line in record["damaged"]]
    say_damage(left_out, call.json)
    lines = [*listing(records), *total_lines(records)]
    if published_root() is None:
        lines.append(where_published())
    print(json.dumps(records, indent=1) if call.json else "\n".join(lines))
    return 1 if left_out else 0


def plan_command(call: Call) -> int:
    """hess-run [-m] plan [experiment=NAME] [key=value ...] [--json]

    Every cell that the same command without `plan` would measure: its id, predicted time and
    memory, and whether it is stored; last, what they cost in all, on disk too (data sets and saved
    networks apart). Without experiment: one line for each, at the seeds of its paper. Checks
    everything that a run checks before its first cell, the files of the data set apart; writes
    nothing.

      hess-run plan -m experiment=ws_bound 'seed=range(42,47)'
      hess-run plan                                  the whole reproduction
    """
    if not any(word.startswith("experiment=") for word in call.settings):
        return _plan_all(call)
    jobs = read_jobs(call)[1]
    print(json.dumps(cells_of(jobs), indent=1) if call.json else "\n".join(plan(jobs)))
    return 0


def _plan_all(call: Call) -> int:
    """The whole reproduction: every experiment at the seeds of its paper, or at one."""
    records, lines = [], []
    for name in experiment_names():
        seeds = ",".join(map(str, preview(name).paper_seeds)) or "42"
        own = any(word.startswith("seed=") for word in call.settings)
        words = (f"experiment={name}", *([] if own else [f"seed={seeds}"]), *call.settings)
        of_name = cells_of(read_jobs(replace(call, settings=words, multirun=True))[1])
        records += of_name
        lines.append(f"{name}: {', '.join(_states(of_name))}; {price(_costs_of(of_name))}")
    print(json.dumps(records, indent=1) if call.json else "\n".join([*lines, *_sums(records)]))
    return 0


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
            experiment = preview(name)
        except SettingError as error:
            records.append({"experiment": name, "error": str(error), "damaged": []})
            continue
        key = Identity.of(name, experiment).key
        store = Store(outputs, name)
        stored = [cell for cell in store.all() if cell.meta["settings_key"] == key]
        seeds = sorted({cell.meta["seed"] for cell in stored})
        cells = list(experiment.cells())
        costs = Costs(stored, cells)
        of_cells = [costs(cell) for cell in cells]
        record = {
            "experiment": name,
            "paper": experiment.paper,
            "cells": len(cells),
            "stored": len(stored),
            "damaged": store.left_out(),
        }
        records.append(
            {
                **record,
                "seeds": seeds,
                "seconds": sum(cost.seconds for cost in of_cells),
                "gib": max((cost.gib for cost in of_cells), default=0.0),
                "bytes": sum(cost.bytes for cost in of_cells),
                "reproduces": experiment.reproduces,
            }
        )
    return records


def listing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of `hess-run list`."""
    rows = [("experiment", "paper", "cells a seed", "stored", "cost a seed", "reproduces")]
    for record in records:
        if "error" in record:
            rows.append(
                (record["experiment"], "", "", "", "", f"cannot be read: {record['error']}")
            )
            continue
        stored = (
            f"{record['stored']} (seeds {_ranges(record['seeds'])})" if record["stored"] else "0"
        )
        cells, cost = str(record["cells"]), duration(record["seconds"])
        rows.append(
            (record["experiment"], record["paper"], cells, stored, cost, record["reproduces"])
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(part.ljust(w) for part, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def total_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What one seed of all listed experiments costs; nothing for a single one."""
    costs = [Cost(r["seconds"], r["gib"], r["bytes"]) for r in records if "error" not in r]
    if len(costs) < 2:
        return []
    cells = sum(record.get("cells", 0) for record in records)
    return [
        f"{len(costs)} experiments, {cells} cells a seed: {price(costs)}",
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
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


class _Stored:
    """What one store holds: read once, however many jobs share it."""

    def __init__(self, store: Store) -> None:
        cells = list(store.all())
        self.ids = {cell.id for cell in cells}
        self.published = {cell.id for cell in cells if isinstance(cell.files, Archive)}
        self.code = {
            cell.id: code.PUBLISHED if cell.id in self.published else cell.meta.get("code", "")
            for cell in cells
        }
        self.failed = store.failed()
        self.damaged = store.damaged
        self._by_settings: dict[str, list[Stored]] = {}
        for cell in cells:
            self._by_settings.setdefault(cell.meta["settings_key"], []).append(cell)
        self._costs: dict[str, Costs] = {}

    def costs(self, job: Job) -> Costs:
        """Costs of cells with the settings of a job."""
        key = job.identity.key
        if key not in self._costs:
            self._costs[key] = Costs(self._by_settings.get(key, []), list(job.experiment.cells()))
        return self._costs[key]


def cells_of(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """What `hess-run plan` says of each cell."""
    return [record for _, records in _planned(jobs) for record in records]


def _planned(jobs: Sequence[Job]) -> list[tuple[Job, list[dict[str, Any]]]]:
    """Every job with a record of each of its cells; stored cells are examined, sums included."""
    planned = []
    stores: dict[Path, _Stored] = {}
    for job in jobs:
        if job.store.root not in stores:
            stores[job.store.root] = _Stored(job.store)
        there, records = stores[job.store.root], []
        costs = there.costs(job)
        of = {
            "experiment": job.name,
            "seed": job.seed,
            "profile": job.profile,
            "outputs": str(job.outputs),
        }
        for cell_id, cell in job.cells():
            cost = costs(cell)
            stored = cell_id in there.ids and not job.force
            state = "stored" if stored else "to run"
            if not stored and cell_id in there.failed:
                state = "to run, failed last time"
            elif not stored and cell_id in there.damaged:
                state = "to run, the stored cell is damaged"
            published = stored and cell_id in there.published
            about = {
                **cost._asdict(),
                "processes": job.jobs,
                "published": published,
                "code": there.code[cell_id] if stored else "",
            }
            records.append(
                {**of, "cell": cell_id, "state": state, **about, "params": dict(cell.params)}
            )
        planned.append((job, records))
    return planned


def plan(jobs: Sequence[Job]) -> list[str]:
    """Lines of `hess-run plan`."""
    lines: list[str] = []
    records, last = cells_of(jobs), ""
    for record in records:
        head = "{experiment} seed={seed} profile={profile} outputs={outputs}".format(**record)
        lines += [head] if head != last else []
        last = head
        label = Cell(record["params"]).label
        cost = f"{duration(record['seconds']):>7}  {record['gib']:5.1f} GiB"
        lines.append(f"  {record['cell']}  {cost}  {record['state']:7}  {label}")
    return [*lines, *_sums(records)]


def _states(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many cells are stored, and how many are to run."""
    left = sum(record["state"] != "stored" for record in records)
    return [f"{len(records) - left} stored", f"{left} to run"]


def _costs_of(records: Sequence[Mapping[str, Any]]) -> list[Cost]:
    """Costs of the cells, each counted once: jobs of a sweep may share them."""
    by_cell = {(record["experiment"], record["cell"]): record for record in records}
    return [Cost(r["seconds"], r["gib"], r["bytes"]) for r in by_cell.values()]


def _sums(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is left to run costs, and what all would cost from the beginning."""
    left = [record for record in records if record["state"] != "stored"]
    processes = max((record["processes"] for record in records), default=1)
    rest = price(_costs_of(left), processes) if left else "nothing to do"
    lines = [f"{len(records)} cells: {', '.join(_states(records))}; {rest}"]
    if len(left) < len(records):
        lines.append(f"all {len(records)} again: {price(_costs_of(records), processes)}")
    return lines


NAMED = 3
"""Changed files that a line names; of more it gives the number."""


def _changed_code(job: Job, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line where stored cells were measured by other code than the present one."""
    folders = [job.store.root, *filter(None, [published_folder(job.name)])]
    used = {record["code"] for record in records} - {""}
    found = {name for folder in folders for name in code.changes(job.experiment, used, folder)}
    if not found:
        return []
    names = sorted(found)
    more = f" and {len(names) - NAMED} more files" if len(names) > NAMED else ""
    return [
        f"{job.name}: stored cells were measured by other code: changed since: "
        f"{', '.join(names[:NAMED])}{more}; force=true measures again"
    ]


def survey(jobs: Sequence[Job]) -> tuple[list[str], list[Job]]:
    """What a run is about to do, one line an experiment (cells, stored ones apart, predicted time
    and memory), and the jobs that have a cell to measure."""
    planned, lines = _planned(jobs), []
    for outputs, name in dict.fromkeys((job.outputs, job.name) for job in jobs):
        of_name = [
            record
            for job, of in planned
            if (job.outputs, job.name) == (outputs, name)
            for record in of
        ]
        records = list(
            {record["cell"]: record for record in of_name}.values()
        )  # jobs of a sweep may share cells
        missing = [record for record in records if record["state"] != "stored"]
        known, published = (
            len(records) - len(missing),
            sum(record["published"] for record in records),
        )
        shown = f" ({'all' if published == known else published} published)" if published else ""
        text = f"{name}: {known} of {len(records)} cells are stored{shown}"
        if missing:
            seconds, processes = (
                sum(record["seconds"] for record in missing),
                missing[0]["processes"],
            )
            peak = max(record["gib"] * record["processes"] for record in missing)
            shared = (
                f", {duration(seconds / processes)} with {processes} processes"
                if processes > 1
                else ""
            )
            text += (
                f"; {len(missing)} to measure: about {duration(seconds)} of one core{shared}, "
                f"{peak:.1f} GiB"
            )
        lines.append(f"{text}; then the report, below {outputs / name}")
        job = next(j for j, _ in planned if (j.outputs, j.name) == (outputs, name))
        lines += _changed_code(job, records)
    return lines, [
        job for job, records in planned if any(record["state"] != "stored" for record in records)
    ]
