"""A diagnosis as an experiment: a job for each snapshot of the target, with its parts as cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from runner.contract import Cell, Context, Experiment, SettingError, Table, report_only
from runner.diagnose.listings import console, cost_line, listings
from runner.diagnose.parts import PARTS, Work, one_line
from runner.diagnose.problem import Problem
from runner.diagnose.settings import PARTS as NAMES, Request
from runner.diagnose.target import Snapshot, Target, at_checkpoints, load, own_randomness, snapshots
from runner.report.answers.findings import Failures
from runner.report.answers.judged import Judged
from runner.report.collect import Collection, Missing, Place
from runner.report.output.manifest import PAGE
from runner.report.output.record import record_of
from runner.report.output.write import Report
from runner.run.execute import measure
from runner.run.guest import seed_streams
from runner.run.progress import Progress
from runner.store.costs import duration
from runner.store.job import Job, claim_outputs
from runner.store.store import DIAGNOSIS, Stored
from runner.training.allocator import keep_freed_memory

WORDS = {
    "gradient": "gradients",
    "product": "products",
    "product_together": "products together",
    "product_between": "products between layers",
}
BETWEEN = ("certificate", "layers", "batches")
"""Parts that measure the named outputs."""


class Cost(NamedTuple):
    """The predicted cost of a part: gradients of all batches, bytes at once, and the method."""

    gradients: float
    bytes: float
    method: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Experiment):
    """The parts of one snapshot.

    content: hash of state and first gradients; the other settings are keys of the command.
    """

    version: ClassVar[int] = 4
    title: ClassVar[str] = "Diagnosis of a network"
    analysis: ClassVar[str] = "runner.diagnose.figures:DiagnosisAnalysis"
    content: str
    nodes: tuple[str, ...]
    eigenvalues: int
    memory_gib: float
    output: str
    batch_dim: int
    step: int = report_only()
    parts: tuple[str, ...] = report_only()
    problem: Any = report_only()
    costs: dict[str, Cost] = report_only({})
    tell: Callable[[str], None] = report_only(print)

    def cells(self) -> list[Cell]:
        """A cell for each part."""
        return [Cell({"part": part, "step": self.step}) for part in self.parts]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        """The tables of one part, and what it cost."""
        part = str(cell.params["part"])
        problem = self.problem
        predicted = self.costs[part]
        self.tell(f"  {part}: about {predicted.gradients:.3g} gradients ({predicted.method})")
        started = problem.clock()
        try:
            tables = PARTS[part].tables(problem)
        except KeyboardInterrupt as stop:
            if (partial := getattr(stop, "partial", None)) is not None:
                self.tell(f"  {part}, when it was interrupted: {partial.summary()}")
            raise
        seconds = problem.clock() - started
        if part == "network":
            seconds += problem.preparing
        gradients = seconds / problem.gradient
        self.tell(f"  {part}: took {gradients:.3g} gradients, {seconds:.3g} s")
        cost = {"predicted_gradients": predicted.gradients, "gradients": gradients}
        cost |= {"seconds": seconds, "predicted_bytes": predicted.bytes}
        return {**tables, "cost": [{**cost, "method": predicted.method}]}


def diagnose(request: Request, tell: Callable[[str], None]) -> int:
    """Measure every part of every snapshot of the target, and write the report.

    Returns
    -------
    Exit status: 0, or 1 where a part failed.

    Raises
    ------
    SettingError
        For a target or a network that cannot be measured as it is, and for steps that the target
        does not yield. The report of the snapshots before it is written.
    KeyboardInterrupt
        At Ctrl-C, after the report of the finished parts is written.
    """
    _prepare(request)
    target = load(request.place)
    folder = request.folder  # the target may change the working folder
    given = snapshots(target, request.batches, request.device)
    if request.checkpoints:
        given = at_checkpoints(given, request.states)
    run = _Run(request, target, folder, tell)
    try:
        run.measure_all(given)
    except (SettingError, KeyboardInterrupt):  # of a later snapshot: those before it stay
        run.report()
        raise
    return run.report()


def _prepare(request: Request) -> None:
    """Threads, seeds and device. Raises SettingError for a device that is not available."""
    try:
        torch.zeros(1, device=request.device)
    except (RuntimeError, AssertionError) as error:
        line = str(error).splitlines()[0]
        raise SettingError(
            f"device: {request.device} cannot be used ({line}); this machine has cpu"
        ) from error
    torch.set_num_threads(request.threads)
    keep_freed_memory()
    seed_streams(request.seed)


@dataclass
class _Run:
    """The snapshots of one command: the last job, stored cells in order, and parts that failed."""

    request: Request
    target: Target
    folder: Path
    tell: Callable[[str], None]
    job: Job | None = None
    cells: list[Stored] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    measured: int = 0
    stored: int = 0

    def measure_all(self, given: Iterable[Snapshot]) -> None:
        """Measure the snapshots that are asked for. Raises SettingError for one that is missing."""
        waiting = set(self.request.steps)
        for snapshot in given:
            if self.request.steps and snapshot.step not in waiting:
                continue
            waiting.discard(snapshot.step)
            with own_randomness():
                self.measure(snapshot)
            if self.request.steps and not waiting:
                break
        if waiting:
            raise SettingError(f"steps: the target never yielded step(s) {sorted(waiting)}")

    def measure(self, snapshot: Snapshot) -> None:
        """Measure the parts of one snapshot that are not stored."""
        try:
            problem = Problem(snapshot, self.request)
        except ValueError as error:
            raise SettingError(f"target: step {snapshot.step}: {one_line(error)}") from error
        job = self.job_of(problem, self.request.parts or NAMES)
        if not job.cells():
            parts = ", ".join(self.request.parts)
            raise SettingError(f"parts: {parts} needs a loader, and the target gives one batch")
        store = job.store
        named = [(cell_id, str(cell.params["part"])) for cell_id, cell in job.cells()]
        missing = [part for cell_id, part in named if not store.has(cell_id, job.only_run)]
        self._require_layers(problem, missing)
        claim_outputs(self.folder)
        if missing:
            stored = len(named) - len(missing)
            experiment: Diagnosis = job.experiment  # type: ignore[assignment]
            experiment.costs.update(predict(problem, missing, stored, self.tell))
        outcome = measure(job, Progress())
        self.job = job
        self.measured += len(outcome.measured)
        self.stored += len(outcome.stored)
        whole = self.job_of(problem, NAMES)  # the page has every part that is stored
        ids = [cell_id for cell_id, _ in whole.cells() if cell_id not in outcome.failed]
        self.cells += [store.get(cell_id) for cell_id in ids if store.has(cell_id)]
        errors = store.failed()
        labels = dict(named)
        for cell_id in outcome.failed:
            text = " ".join(str(errors[cell_id]["error"]).split())
            label = f"step {snapshot.step}, {labels[cell_id]}"
            self.missing.append(Missing(self.request.seed, label, text, ()))
        if outcome.interrupted:
            raise KeyboardInterrupt

    def _require_layers(self, problem: Problem, parts: list[str]) -> None:
        """Raises SettingError for layers that were named and cannot be measured."""
        if not self.request.nodes or not set(parts) & set(BETWEEN):
            return
        try:
            problem.layers  # noqa: B018  built here once, and kept
        except ValueError as error:
            raise SettingError(f"nodes: {one_line(error)}") from error

    def job_of(self, problem: Problem, wanted: Iterable[str]) -> Job:
        """The job of a snapshot: its parts under the hash of its content and the keys that change
        numbers."""
        request = self.request
        allowed = [part for part in NAMES if PARTS[part].allowed(problem)]
        experiment = Diagnosis(
            content=problem.content,
            nodes=tuple(request.nodes),
            eigenvalues=request.eigenvalues,
            memory_gib=request.memory,
            output=request.output,
            batch_dim=request.batch_dim,
            step=problem.snapshot.step,
            parts=tuple(part for part in allowed if part in wanted),
            problem=problem,
            costs={},
            tell=self.tell,
        )
        return Job(
            request.name or re.sub(r"[^\w.-]", "_", self.target.name),
            experiment,
            request.seed,
            self.folder,
            threads=request.threads,
            device=request.device,
            force=request.force,
            kind=DIAGNOSIS,
            published=False,
        )

    def report(self) -> int:
        """Write the report of what is stored, as that of any experiment. Returns the exit
        status."""
        failed = [f"{cell.label}: {cell.error}" for cell in self.missing]
        if self.job is None:
            return 1 if failed else 0
        counts = f"{self.measured} parts measured, {self.stored} were stored before"
        self.tell(f"{self.job.name}: {counts}")
        job = self.job
        folder = job.store.root
        place = Place(folder, job.experiment, (), job.experiment)
        seed = (self.request.seed,)
        judged = Judged(Collection(job, place, tuple(self.cells), seed, tuple(self.missing)))
        tables = judged.material.shown.tables
        record = self._record(record_of(judged), cost_line(tables))
        made = Report(folder, record, judged.material, listings(tables)).write()
        failed += Failures(made["report_failures"]).lines()
        for line in (*console(tables), *(f"failed: {line}" for line in failed)):
            self.tell(f"  {line}")
        self.tell(f"  page {folder / PAGE}")
        return 1 if failed else 0

    def _record(self, record: dict[str, Any], cost: str) -> dict[str, Any]:
        """The manifest, with the target and the command in the place of commits and a run."""
        command = self.request.command
        target = f"{self.request.target} ({self.target.provenance})"
        return record | {
            "title": f"Diagnosis of {self.request.target}",
            "summary": f"Target: {target}; {cost}." if cost else f"Target: {target}.",
            "command": command,
            "fill_commands": [command],
            "cells": [{**cell, "git_commit": target} for cell in record["cells"]],
        }


def predict(
    problem: Problem, parts: list[str], stored: int, tell: Callable[[str], None]
) -> dict[str, Cost]:
    """The predicted cost of each part, announced; that of `network` includes the predictions."""
    costs = {part: _cost(problem, PARTS[part].work) for part in parts}
    gradient = problem.gradient
    problem.preparing = problem.clock() - problem.started
    if "network" in costs:
        spent = problem.preparing / gradient + 1
        costs["network"] = Cost(spent, costs["network"].bytes, "checks and timed products")
    total = sum(cost.gradients for cost in costs.values())
    memory = max(cost.bytes for cost in costs.values()) / 2**30
    operator = problem.operator
    tell(
        f"step {problem.snapshot.step}: {operator.shape[0]} parameters, {operator.examples} "
        f"examples; {len(parts)} parts to measure, {stored} stored; predicted cost {total:.4g} "
        f"gradients (a forward and backward pass over all examples, {gradient:.3g} s of processor "
        f"time), about {duration(total * gradient)}, {memory:.2g} GiB in addition to the network"
    )
    for note in problem.warnings:
        tell(f"  warning: {note}")
    return costs


def _cost(problem: Problem, work_of: Callable[[Problem], Work]) -> Cost:
    """The number of products times the time of one."""
    try:
        work = work_of(problem)
        seconds = sum(count * getattr(problem, kind) for kind, count in work.items())
    except ValueError as error:
        return Cost(0.0, 0.0, f"cannot be measured: {one_line(error)}")
    operator = problem.layers if "product_between" in work else problem.operator
    method = ", ".join(f"about {count:.0f} {WORDS[kind]}" for kind, count in work.items())
    return Cost(seconds / problem.gradient, float(operator.planned.bytes), method)
