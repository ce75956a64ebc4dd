"""A diagnosis as an experiment: for each snapshot that the target yields, a job whose cells are its parts."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy
import torch

from runner.contract import Cell, Context, Experiment, SettingError, Table, report_only
from runner.curvature import MeasurementError
from runner.curvature.graph.tensors import tree_flatten_with_path
from runner.curvature.graph.tracing.batches import arguments_of, path_name
from runner.curvature.graph.tracing.calls import check_evaluation, chosen, unwrapped
from runner.curvature.parameters.batches import Rows, check_loss
from runner.curvature.parameters.model import Model, scalar_loss
from runner.diagnose.command import PARTS as NAMES, Request
from runner.diagnose.costs import Cost
from runner.diagnose.parts import PARTS
from runner.diagnose.problem import Problem, content
from runner.diagnose.report import write
from runner.diagnose.target import Snapshot, load, own_randomness, snapshots
from runner.report.collect import Missing
from runner.run.console import Progress
from runner.run.loop import close_log, loop, open_log
from runner.store.job import Job, claim_outputs
from runner.store.store import DIAGNOSIS, Stored
from runner.training.allocator import keep_freed_memory


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Experiment):
    """The parts of one snapshot. content: hash of the snapshot; the other settings are keys of the command."""

    version: ClassVar[int] = 3
    title: ClassVar[str] = "Diagnosis of a network"
    uncertified: ClassVar[str] = (
        "the table of numerical checks has one row for the layers and one for the parameters"
    )
    analysis: ClassVar[str] = "runner.diagnose.report:DiagnosisAnalysis"
    content: str
    nodes: tuple[str, ...]
    eigenvalues: int
    memory_gib: float
    output: str
    batch_dim: int
    shared: tuple[str, ...]
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
        part, problem = str(cell.params["part"]), self.problem
        predicted = self.costs[part]
        self.tell(f"  {part}: about {predicted.gradients:.3g} gradients ({predicted.method})")
        peak, started = Peak(ctx.device), problem.clock()
        tables = PARTS[part].measure(problem)
        seconds = problem.clock() - started + (problem.predicting if part == "network" else 0.0)
        gradients = seconds / problem.gradient.seconds
        self.tell(f"  {part}: took {gradients:.3g} gradients, {seconds:.3g} s")
        cost = {
            "predicted_gradients": float(predicted.gradients),
            "gradients": gradients,
            "seconds": seconds,
            "predicted_bytes": float(predicted.bytes),
            "bytes": peak.bytes(),
            "method": predicted.method,
        }
        return {**tables, "cost": [cost]}


@dataclass
class Diagnosed:
    """The last job, stored cells in order, parts that failed, and how many were measured, and stored before."""

    job: Job | None = None
    cells: list[Stored] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    measured: int = 0
    stored: int = 0


def diagnose(request: Request, tell: Callable[[str], None]) -> int:
    """Measure every part of every snapshot of the target, and write the report.

    Returns
    -------
    Exit status: 0, or 1 where a part failed.

    Raises
    ------
    SettingError
        For a target or a network that cannot be measured as it is, and for steps that the target does not yield. The
        report of the snapshots before it is written.
    """
    _prepare(request)
    name, function = load(request.target)
    name = request.name or re.sub(r"[^\w.-]", "_", name)
    waiting, seen = set(request.steps), False
    diagnosed, mistake = Diagnosed(), None
    try:
        for snapshot in snapshots(function, request.batches, request.device):
            seen = True
            if request.steps and snapshot.step not in waiting:
                continue
            waiting.discard(snapshot.step)
            with own_randomness():
                _measure(snapshot, request, name, diagnosed, tell)
            if request.steps and not waiting:
                break
        if not seen:
            raise SettingError("target: the function yielded nothing")
        if waiting:
            raise SettingError(f"steps: the target never yielded step(s) {sorted(waiting)}")
    except SettingError as error:  # of a later snapshot: those before it get their report
        mistake = error
    failed = [f"{cell.label}: {cell.error}" for cell in diagnosed.missing]
    if diagnosed.job is not None:
        tell(f"{name}: {diagnosed.measured} parts measured, {diagnosed.stored} were stored before")
        command = f"hess-run diagnose {shlex.join(request.words) or f'target={request.target}'}"
        lines, failures = write(diagnosed.job, diagnosed.cells, diagnosed.missing, command)
        failed += failures
        for line in (*lines, *(f"  failed: {line}" for line in failed)):
            tell(line)
    if mistake is not None:
        raise mistake
    return 1 if failed else 0


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
    torch.manual_seed(request.seed)
    numpy.random.seed(request.seed % 2**32)  # noqa: NPY002  the user's function may use the global generator
    random.seed(request.seed)


def _measure(
    snapshot: Snapshot,
    request: Request,
    name: str,
    diagnosed: Diagnosed,
    tell: Callable[[str], None],
) -> None:
    """Measure the parts of one snapshot that are not stored."""
    problem = Problem(snapshot, request)
    check(problem)
    claim_outputs(request.outputs)
    job = job_of(problem, request, name, tell)
    if not job.cells():
        raise SettingError(
            f"parts: {', '.join(request.parts)} needs a loader, and the target gives one batch"
        )
    store, gradients = job.store, job.experiment.costs  # type: ignore[attr-defined]
    missing = [
        str(cell.params["part"])
        for cell_id, cell in job.cells()
        if not store.has(cell_id, job.only_run)
    ]
    if missing:
        gradients |= predict(problem, missing, len(job.cells()) - len(missing), tell)
    store.prepare(clean=diagnosed.job is None)
    log = open_log(store, job)
    try:
        outcome = loop(job, store, log, Progress())
    finally:
        close_log(log)
    if outcome.interrupted:
        raise KeyboardInterrupt
    diagnosed.job = job
    diagnosed.measured += len(outcome.measured)
    diagnosed.stored += len(outcome.stored)
    whole = job_of(
        problem, replace(request, parts=()), name, tell
    )  # the page has every part that is stored
    diagnosed.cells += [
        store.get(i) for i, _ in whole.cells() if i not in outcome.failed and store.has(i)
    ]
    errors = store.failed()
    for cell_id, cell in job.cells():
        if cell_id in outcome.failed:
            error = " ".join(str(errors[cell_id]["error"]).split())
            diagnosed.missing.append(
                Missing(request.seed, f"step {snapshot.step}, {cell.params['part']}", error, ())
            )


def job_of(
    problem: Problem, request: Request, name: str, tell: Callable[[str], None] = print
) -> Job:
    """The job of a snapshot: its parts under the hash of its content and the keys that change numbers."""
    first = problem.first_gradients
    wanted = request.parts or NAMES
    experiment = Diagnosis(
        content=content(problem.snapshot, (*first.values, *first.norms)),
        nodes=request.nodes,
        eigenvalues=request.eigenvalues,
        memory_gib=request.memory,
        output=request.output,
        batch_dim=request.batch_dim,
        shared=request.shared,
        step=problem.snapshot.step,
        parts=tuple(part for part in NAMES if part in wanted and PARTS[part].allowed(problem)),
        problem=problem,
        tell=tell,
    )
    about: dict[str, Any] = {
        "threads": request.threads,
        "device": request.device,
        "force": request.force,
    }
    return Job(
        name, experiment, request.seed, request.outputs, kind=DIAGNOSIS, published=False, **about
    )


def predict(
    problem: Problem, parts: list[str], stored: int, tell: Callable[[str], None]
) -> dict[str, Cost]:
    """The predicted cost of each part, announced; that of `network` last, since it includes the predictions."""
    gradient = problem.gradient
    costs = {
        part: PARTS[part].cost(problem)
        for part in sorted(parts, key=lambda part: part == "network")
    }
    problem.predicting = problem.clock() - problem.started
    total = sum(cost.gradients for cost in costs.values())
    memory = max(cost.bytes for cost in costs.values())
    wall = total * gradient.wall
    time_needed = f"{wall:.0f} s" if wall < 120 else f"{wall / 60:.0f} min"
    tell(
        f"step {problem.snapshot.step}: {problem.size} parameters, {sum(problem.examples)} examples; {len(parts)} "
        f"parts to measure, {stored} stored; predicted cost {total:.4g} gradients of {gradient.seconds:.3g} s of "
        f"processor time, about {time_needed} in all as the machine is loaded now, {memory / 2**30:.2g} GiB in "
        "addition to the network"
    )
    return costs


class Peak:
    """Largest memory in bytes since this object was made, beyond what was used then; NaN where unknown."""

    def __init__(self, device: str) -> None:
        self.cuda = device.startswith("cuda")
        if self.cuda:
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
            return float(torch.cuda.max_memory_allocated()) - self.before
        return (
            float("nan") if self.before != self.before else max(0.0, _status("VmHWM") - self.before)
        )


def _status(name: str) -> float:
    line = re.search(
        rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE
    )
    return 1024 * float(line[1]) if line else float("nan")


def check(problem: Problem) -> None:
    """Raises SettingError for a module in training mode, empty batches, names that no submodule has, and a loss without
    gradient or that is no mean: a sum, random, not finite, one value for each example, every output with every target.
    """
    where = f"target: step {problem.snapshot.step}"
    try:
        chosen(unwrapped(problem.module), list(problem.options.nodes) or None)
    except ValueError as error:
        raise SettingError(f"nodes: {error}") from error
    try:
        check_evaluation(problem.snapshot.module)
        examples = problem.examples
    except ValueError as error:
        raise SettingError(f"{where}: {error}") from error
    if 0 in examples:
        raise SettingError(
            f"{where}: batch {examples.index(0)} has no examples; expected at least one in each batch"
        )
    if not problem.parameters:
        raise SettingError(
            f"{where}: no parameter of the module requires a gradient; unfreeze some: requires_grad_()"
        )
    try:
        problem.first_gradients  # noqa: B018  measured here once, and kept
        _check_loss(problem)
    except MeasurementError as error:
        raise SettingError(f"{where}: {error}") from error
    except Exception as error:  # the user's code may raise anything
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "does not require grad" in line:
            raise SettingError(
                f"{where}: loss(module(input), target) has no gradient: {line}"
            ) from error
        named = isinstance(error, TypeError | AttributeError)  # of an output that is no tensor
        advice = _names_of_output(problem) if named else ""
        advice = advice or "Check the shapes and dtypes of the data and the range of the labels"
        text = f"loss(module(input), target) failed: {type(error).__name__}: {line.rstrip('.')}. {advice}"
        raise SettingError(f"{where}: {text}") from error


def _names_of_output(problem: Problem) -> str:
    """How to name a tensor of an output that is none itself; "" where that is not what is wrong."""
    if problem.options.output:
        return ""
    args, kwargs = arguments_of(problem.batches[0][0])
    try:
        with torch.no_grad():
            output = problem.module(*args, **kwargs)
    except Exception:  # what fails is told already
        return ""
    leaves = [
        (path, t)
        for path, t in tree_flatten_with_path(output)[0]
        if isinstance(t, torch.Tensor) and t.dim()
    ]
    names = list(
        dict.fromkeys(path_name((None, *path)) for path, t in leaves if t.is_floating_point())
    )
    if isinstance(output, torch.Tensor) or not names:
        return ""
    found = f"{type(output).__name__} with {', '.join(names)}"
    return f"The module returns a {found}: name the tensor that the loss takes, as in output={names[0]}"


def _check_loss(problem: Problem) -> None:
    """Check the loss of the first batch."""
    options, batch = problem.options, problem.batches[0]
    model = Model(unwrapped(problem.module), problem.loss, options.output or None)
    with torch.no_grad():
        scalar_loss(problem.loss(model.call(problem.parameters, batch[0]), batch[1]))
    rows = Rows(options.batch_dim, options.shared)
    check_loss(model, dict(problem.parameters), rows, batch, None, "", False)
