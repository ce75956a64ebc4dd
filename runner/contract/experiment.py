"""The contract between the runner and the experiments.

An experiment is a frozen dataclass whose fields come from its YAML file. It says which cells there are, measures one
cell at a time, and names the analysis that reads saved tables back into figures, claims, tests and values to hold
against the paper (`runner.contract.analysis`). It never sees a path, a CSV file, a seed loop, a progress bar or a Hydra
object.

    @dataclass(frozen=True, kw_only=True)
    class Ratio(Experiment):
        version: ClassVar[int] = 1
        title: ClassVar[str] = "Ratio of bound and eigenvalue"
        paper: ClassVar[str] = "WS bound"
        width: list[int] = grid()                 # -> cells width=3, width=10
        samples: int = 50                         # part of every cell's identity

        def measure(self, cell, ctx):
            import torch                          # heavy imports stay inside: listing must be quick
            g = ctx.torch_generator("data")
            ...
            return {"ratios": {"start": [...], "ratio": [...]}}

        def analyse(self, tables):
            return RatioAnalysis(self, tables)    # class RatioAnalysis(Analysis): def claims(self): ...
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from runner.contract import seeding
from runner.contract.analysis import Analysis, Tables
from runner.contract.claim import Claim, Statement, Verdict, decide
from runner.contract.schema import (
    GROUPS,
    SettingError,
    free,
    grid,
    non_negative,
    not_empty,
    one_of,
    positive,
    report_only,
    since,
)

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = [
    "GROUPS",
    "Analysis",
    "Cell",
    "Checkpoints",
    "Claim",
    "Companion",
    "Context",
    "Experiment",
    "SettingError",
    "Statement",
    "Tables",
    "Verdict",
    "decide",
    "free",
    "grid",
    "non_negative",
    "not_empty",
    "one_of",
    "positive",
    "report_only",
    "since",
]

Scalar = str | int | float | bool
Table = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""Columns of equal length (lists, numpy arrays or 1-D tensors), or rows (mappings from column to value, NaN where one
lacks a column); in long format: one row per thing measured."""


@dataclass(frozen=True)
class Cell:
    """One unit of work: a point of the grid, measured once per seed.

    params: the cell's parameters, added as columns to each of its tables. seconds, memory_gib: predicted cost on one
    thread, shown by `list` and `plan` until a stored cell of the same parameters gives a measured one.
    """

    params: Mapping[str, Scalar]
    seconds: float = 1.0
    memory_gib: float = 0.4

    @property
    def label(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.params.items())


class Checkpoints(Protocol):
    """States of one training, kept outside the cell so that a killed training goes on where it stopped."""

    def load(self, name: str) -> Any | None:
        """The state saved under `name`, or None."""

    def save(self, name: str, state: Any) -> None:
        """Save `state` atomically under `name`, replacing an earlier one."""


@dataclass(frozen=True)
class Context:
    """What measure() may ask of the runner.

    seed, device, threads: of this job. progress(done, total, note): report inside a long cell. log: one line to the
    job's log. checkpoints(key): states of the training that `key` describes; two cells with the same key share it,
    so a key holds every setting that training depends on (the seed is added here).
    """

    seed: int
    device: str = "cpu"
    threads: int = 1
    progress: Callable[..., None] = field(default=lambda done, total, note="": None, repr=False)
    log: Callable[[str], None] = field(default=lambda line: None, repr=False)
    open_checkpoints: Callable[[Mapping[str, Any]], Checkpoints] | None = field(default=None, repr=False)

    def torch_generator(self, role: str) -> torch.Generator:
        """Generator of the stream `role` of this seed, the same in every cell; put cell parameters into the role
        where cells shall draw independently."""
        return seeding.torch_generator(self.seed, role)

    def numpy_generator(self, role: str) -> np.random.Generator:
        """As torch_generator, for numpy."""
        return seeding.numpy_generator(self.seed, role)

    def checkpoints(self, key: Mapping[str, Any]) -> Checkpoints | None:
        """Checkpoint store of the training `key`; None outside a run (tests), where training starts afresh."""
        return self.open_checkpoints({**key, "seed": self.seed}) if self.open_checkpoints else None


@dataclass(frozen=True)
class Companion:
    """Settings of an experiment, and the seeds, whose cells stand beside those of other settings in a report."""

    experiment: Experiment
    seeds: Sequence[int]


@dataclass(frozen=True)
class Experiment(ABC):
    """Base of all experiments; see the module's example.

    Class attributes: version (raised when what measure() means changes), title, paper (short name), reproduces (the
    figures and tables of the paper it makes, one line), devices (kinds of device that measure() makes use of: cpu,
    cuda, mps), uncertified (why its cells carry no table `certificate`; see runner.contract.certificate).
    A field named dataset, model, metric or training receives that configuration group; its annotation, a class or a
    union of classes, says which kinds the experiment takes, subclasses included. Fields made with `grid()` are
    the grid; all other fields, and the groups, are part of a cell's identity, save those made with `report_only()`.
    A run whose settings differ from the YAML file's is not held against the paper's numbers, unless they differ in
    fields made with `free()` alone.
    Checks of values belong in `__post_init__` (call super().__post_init__()) and raise SettingError.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    reproduces: ClassVar[str] = ""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    uncertified: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.metadata.get("grid"):
                not_empty(f"experiment.{f.name}", getattr(self, f.name))

    def combinations(self) -> list[dict[str, Scalar]]:
        """Every combination of the grid fields, in the order of the fields."""
        names = [f.name for f in fields(self) if f.metadata.get("grid")]
        values = [getattr(self, name) for name in names]
        return [dict(zip(names, combination, strict=True)) for combination in itertools.product(*values)]

    def cells(self) -> Iterable[Cell]:
        """The grid, in order; cheap, without torch. Override to drop combinations or to state costs."""
        return [Cell(params) for params in self.combinations()]

    @abstractmethod
    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        """Measure one cell: table name -> columns or rows. The only place where numbers are made.

        A row that could not be measured stays, with the reason in a `status` column ("ok" elsewhere). Cell
        parameters and the seed are added as columns by the runner.
        """

    def companions(self) -> Mapping[str, Companion]:
        """Other settings of this experiment whose stored cells its report reads beside its own (`Analysis.beside`).

        They are measured like any settings, on the command line; none of them is ever missing, and none of their
        values enters the tables of these settings. A companion of the same settings takes its seeds out of them.
        """
        return {}

    def analyse(self, tables: Tables) -> Analysis:
        """The reading of merged tables, made once for each report: figures, claims, statistics and all else.

        Override it to name the experiment's own analysis, importing it inside where it stands in a module of its own
        (listing must be quick).
        """
        return Analysis(self, tables)
