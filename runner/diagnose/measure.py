"""The loop over snapshots and parts: skip what is stored, foretell the price, measure, store, compare.

A part is a cell of the store, named by the content of what it was measured on, so that a second run of the same target
measures nothing, and a changed weight everything.
"""

from __future__ import annotations

import random
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner.contract import Cell, SettingError
from runner.diagnose.checks import check
from runner.diagnose.identity import content
from runner.diagnose.parts import Part, Table
from runner.diagnose.pricing import Price
from runner.diagnose.problem import Options, Problem
from runner.diagnose.target import Snapshot
from runner.store.identity import Identity
from runner.store.store import Store, Stored
from runner.store.tables import frame
from runner.store.version import software

_APART = ("seed", "device", "threads")
VERSION = 3
"""Raised when what a part measures changes."""


TEXT = {"v", "w", "node", "parents", "note", "status", "method", "quantity", "part", "how", "group", "what"}
"""Columns that are words, whatever they look like."""


@dataclass
class Outcome:
    """Stored cells in order, what failed, and how many parts were found stored."""

    cells: list[Stored] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    found: int = 0


def diagnose(
    found: Iterable[Snapshot],
    parts: Sequence[Part],
    options: Options,
    store: Store,
    say: Callable[[str], None],
    *,
    steps: Sequence[int] = (),
    force: bool = False,
) -> Outcome:
    """Measure every part of every snapshot (of those of `steps`, when given). Raises SettingError for a network that
    cannot be measured as it is, and for steps that do not come."""
    store.prepare()
    outcome, waiting = Outcome(), set(steps)
    for snapshot in found:
        if steps and snapshot.step not in waiting:
            continue
        waiting.discard(snapshot.step)
        with own_randomness():
            _one(snapshot, parts, options, store, say, outcome, force)
        if steps and not waiting:
            break
    if waiting:
        raise SettingError(f"steps: the target never came to {sorted(waiting)}")
    if not outcome.cells and not outcome.failed:
        raise SettingError("target: the function yielded nothing")
    return outcome


@contextmanager
def own_randomness() -> Iterator[None]:
    """Whatever is drawn inside, a training goes on with the numbers it would have drawn without a diagnosis: the
    weights of its next step must not depend on which parts were stored."""
    import numpy
    import torch

    states = random.getstate(), numpy.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(states[0])
            numpy.random.set_state(states[1])  # noqa: NPY002


def _one(
    snapshot: Snapshot,
    parts: Sequence[Part],
    options: Options,
    store: Store,
    say: Callable[[str], None],
    outcome: Outcome,
    force: bool,
) -> None:
    problem = Problem(snapshot, options)
    check(problem)
    key = content(snapshot, (*problem.first_gradients.values, *problem.first_gradients.norms))
    identity = identity_of(store.experiment, key, options)
    cells = {part.name: Cell({"part": part.name, "step": snapshot.step}) for part in parts}
    ids = {name: identity.cell_id(cell, options.seed) for name, cell in cells.items()}
    stored = [part for part in parts if not force and store.has(ids[part.name])]
    missing = [part for part in parts if part not in stored and part.wanted(problem)]
    outcome.found += len(stored)
    prices = foretell(problem, missing, say, snapshot.step, len(stored)) if missing else {}
    for part in parts:
        if part in missing:
            say(f"  {part.name}: about {prices[part.name].gradients:.3g} gradients ({prices[part.name].how})")
            _measure(part, problem, prices[part.name], store, (ids[part.name], identity), outcome, say)
        if part in stored or (part in missing and store.has(ids[part.name])):
            outcome.cells.append(store.get(ids[part.name]))


def foretell(
    problem: Problem, parts: Sequence[Part], say: Callable[[str], None], step: int, stored: int
) -> dict[str, Price]:
    """The price of each part, announced: that of the network's own part last, which is what telling them took."""
    one = problem.gradient
    prices = {part.name: part.price(problem) for part in sorted(parts, key=lambda part: part.name == "network")}
    problem.pricing = problem.clock() - problem.started
    total = sum(price.gradients for price in prices.values())
    memory = max(price.bytes for price in prices.values())
    say(
        f"step {step}: {problem.size} parameters, {sum(problem.examples)} examples; {len(parts)} parts to measure, "
        f"{stored} stored; foretold {total:.4g} gradients of {one.seconds:.3g} s, about {_time(total * one.wall)}, "
        f"{memory / 2**30:.2g} GiB beside the network"
    )
    return prices


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _measure(
    part: Part,
    problem: Problem,
    price: Price,
    store: Store,
    place: tuple[str, Identity],
    outcome: Outcome,
    say: Callable[[str], None],
) -> None:
    cell_id, identity = place
    with store.lock(cell_id) as mine:
        if not mine:
            outcome.failed.append(f"{part.name}: another process is measuring it; run the same command again")
            return
        peak = Peak(problem.options.device)
        started, on_the_wall = problem.clock(), time.perf_counter()
        step = problem.snapshot.step
        try:
            tables = part.measure(problem)
        except (ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
            line = " ".join(str(error).split()) or type(error).__name__
            outcome.failed.append(f"step {step}, {part.name}: {line}")
            store.record_failure(cell_id, {"error": line, "part": part.name, "step": step})
            return
        seconds, wall = problem.clock() - started, time.perf_counter() - on_the_wall
        seconds += problem.pricing if part.name == "network" else 0.0
        gradients = seconds / problem.gradient.seconds
        say(f"  {part.name}: took {gradients:.3g} gradients, {seconds:.3g} s")
        cost: Mapping[str, Table] = {
            "cost": {
                "part": [part.name],
                "foretold_gradients": [float(price.gradients)],
                "gradients": [gradients],
                "seconds": [seconds],
                "foretold_bytes": [float(price.bytes)],
                "bytes": [float(peak.bytes())],
                "how": [price.how],
            }
        }
        frames = {name: frame(name, table, {"step": step}) for name, table in {**tables, **cost}.items()}
        store.write(cell_id, frames, _meta(identity, part, problem, wall))


def identity_of(name: str, key: str, options: Options) -> Identity:
    """What decides the numbers of every part of a snapshot whose content has the hash `key`."""
    asked = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items() if k not in _APART}
    return Identity(name, VERSION, {"content": key, **asked}, options.threads, options.device)


def _meta(identity: Identity, part: Part, problem: Problem, seconds: float) -> dict[str, Any]:
    return {
        "experiment": identity.experiment,
        "version": identity.version,
        "settings": identity.settings,
        "settings_key": identity.key,
        "params": {"part": part.name, "step": problem.snapshot.step},
        "seed": problem.options.seed,
        "threads": identity.threads,
        "device": identity.device,
        "wall_seconds": seconds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "software": software(),
    }


class Peak:
    """Bytes taken at once since it was made: the highest resident memory beyond what there was; NaN where unknown."""

    def __init__(self, device: str) -> None:
        self.cuda = device.startswith("cuda")
        if self.cuda:
            import torch

            torch.cuda.reset_peak_memory_stats()
            self.before = float(torch.cuda.memory_allocated())
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self.before = _status("VmRSS")
        except OSError:
            self.before = float("nan")

    def bytes(self) -> float:
        if self.cuda:
            import torch

            return float(torch.cuda.max_memory_allocated()) - self.before
        return float("nan") if self.before != self.before else max(0.0, _status("VmHWM") - self.before)


def _status(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    return 1024 * float(found[1]) if found else float("nan")


def tables_of(cells: Sequence[Stored]) -> Iterator[tuple[str, Any]]:
    """Tables of all cells, one below the other, by name."""
    import pandas as pd

    names = dict.fromkeys(name for cell in cells for name in cell.meta["tables"])
    for name in names:
        frames = [cell.table(name) for cell in cells if name in cell.meta["tables"]]
        whole = pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)
        for column in TEXT.intersection(whole.columns):  # a layer may be called "0"
            whole[column] = whole[column].astype(object).where(whole[column].notna(), "").astype(str)
        yield name, whole
