"""The contract between the runner and the experiments.

An experiment is a frozen dataclass whose fields come from its YAML file. It says which cells there
are and names two things by "module:name": the function that measures one cell, and the analysis
that turns saved tables into figures, claims, tests and values to compare with the paper
(`runner.contract.analysis`). The runner imports them when it needs them, so that a listing loads
nothing heavy. An experiment never sees a path, a CSV file, a seed loop, a progress bar or a Hydra
object.

    @dataclass(frozen=True, kw_only=True)
    class Ratio(Experiment):
        title: ClassVar[str] = "Ratio of bound and eigenvalue"
        measure = "experiments.ratio.measure:measure"      # def measure(experiment, cell, ctx)
        analysis = "experiments.ratio.report:RatioAnalysis"
        width: list[int] = grid(above=0)                   # -> cells width=3, width=10
        samples: int = setting(50, above=0)                # part of every cell's identity

Random streams are named: one seed and a role give one generator, whoever asks and in whatever
order. A stream is keyed by SHA-256 over the seed and the role, so adding a stream never shifts
another one, and the same role gives the same numbers on every machine.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from runner.contract.schema import check, imported

if TYPE_CHECKING:
    import numpy as np
    import torch


def stream_key(seed: int, role: str) -> int:
    """64-bit key of the stream `role` under `seed`. Raises ValueError for an empty role."""
    if not role or role != role.strip():
        raise ValueError(
            f"random stream: expected a role such as 'init' or 'data/train', found {role!r}"
        )
    digest = hashlib.sha256(f"hess-run/{seed}/{role}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # torch takes signed 64-bit seeds


def torch_generator(seed: int, role: str) -> torch.Generator:
    """A torch generator for the stream `role` of `seed`."""
    import torch

    generator = torch.Generator()
    generator.manual_seed(stream_key(seed, role))
    return generator


def numpy_generator(seed: int, role: str) -> np.random.Generator:
    """A numpy generator for the stream `role` of `seed`."""
    import numpy as np

    return np.random.default_rng(stream_key(seed, role))


Scalar = str | int | float | bool
Table = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""Columns of equal length (lists, numpy arrays or 1-D tensors), or rows (mappings from column to
value, NaN where one lacks a column); in long format: one row per thing measured."""


@dataclass(frozen=True)
class Cell:
    """One unit of work: a point of the grid, measured once per seed.

    params: the cell's parameters, added as columns to each of its tables. seconds, memory_gib:
    predicted cost on one thread, shown by `list` until a stored cell of the same
    parameters gives a measured one.
    """

    params: Mapping[str, Scalar]
    seconds: float = 1.0
    memory_gib: float = 0.4

    @property
    def label(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.params.items())


class Checkpoints(Protocol):
    """States of one training, kept outside the cell so that a killed training goes on where it
    stopped."""

    def load(self, name: str) -> Any | None:
        """The state saved under `name`, or None."""

    def save(self, name: str, state: Any) -> None:
        """Save `state` atomically under `name`, replacing an earlier one."""


@dataclass(frozen=True)
class Context:
    """What measure() may ask of the runner.

    seed, device, threads: of this job. progress(done, total, note): report inside a long cell. log:
    one line to the job's log. checkpoints(key): states of the training that `key` describes; two
    cells with the same key share it, so a key holds every setting that training depends on (the
    seed is added here).
    """

    seed: int
    device: str = "cpu"
    threads: int = 1
    progress: Callable[..., None] = lambda done, total, note="": None
    log: Callable[[str], None] = lambda line: None
    open_checkpoints: Callable[[Mapping[str, Any]], Checkpoints] | None = None

    def torch_generator(self, role: str) -> torch.Generator:
        """Generator of the stream `role` of this seed, the same in every cell; put cell parameters
        into the role where cells shall draw independently."""
        return torch_generator(self.seed, role)

    def numpy_generator(self, role: str) -> np.random.Generator:
        """As torch_generator, for numpy."""
        return numpy_generator(self.seed, role)

    def checkpoints(self, key: Mapping[str, Any]) -> Checkpoints | None:
        """Checkpoint store of the training `key`; None outside a run (tests), where it starts from
        the beginning."""
        if self.open_checkpoints:
            return self.open_checkpoints({**key, "seed": self.seed})
        return None


@dataclass(frozen=True)
class Companion:
    """Settings of an experiment, and the seeds, whose cells a report of other settings reads as
    well."""

    experiment: Experiment
    seeds: Sequence[int]


OF_PAPER = (
    *("paper", "reproduces", "paper_seeds"),
    *("replication_seeds", "paper_rows"),
)
"""Class attributes of an experiment that say what it has of a paper."""


@dataclass(frozen=True)
class Experiment(ABC):  # noqa: B024 (families of experiments add abstract methods)
    """Base of all experiments; see the module's example.

    Class attributes: version (raised when what the measuring function means changes), title,
    measure and analysis (see the module; `measure` may also be a method), devices (kinds of device
    that it makes use of: cpu, cuda, mps), uncertified (why its cells carry no table `certificate`;
    see runner.contract.records), and of an experiment from a paper (`OF_PAPER`, which no subclass
    inherits: another experiment is not the paper's): paper (short name), reproduces (the figures
    and tables that it makes, one line), paper_seeds (those of the published protocol, which alone
    verdicts read; none: all), replication_seeds (those of a second verdict, the paper's included,
    written down before they are run) and paper_rows (column -> value: the rows of a table with
    that column that are the paper's own, which `runner.results.load` gives). reads: experiments
    whose published cells its report reads.
    A field named dataset, model, metric or training receives that configuration group; its
    annotation, a class or a union of classes, says which kinds the experiment takes, subclasses
    included. Fields made with `grid()` are the grid; all other fields, and the groups, are part of
    a cell's identity, except those made with `report_only()`. A run whose settings differ from the
    YAML file's is not compared with the paper's numbers, unless they differ in fields made with
    `free()` alone.
    Limits of one field are declared where it is made (`runner.contract.schema`). A check of several
    fields together belongs in `__post_init__`, after super().__post_init__(), and raises
    SettingError.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    reproduces: ClassVar[str] = ""
    paper_seeds: ClassVar[Sequence[int]] = ()
    replication_seeds: ClassVar[Sequence[int]] = ()
    paper_rows: ClassVar[Mapping[str, Scalar]] = {}
    reads: ClassVar[Sequence[str]] = ()
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    uncertified: ClassVar[str] = ""
    measure: ClassVar[Any] = ""
    analysis: ClassVar[str] = "runner.contract.analysis:Analysis"

    def __init_subclass__(cls, **about: Any) -> None:
        super().__init_subclass__(**about)
        for name in OF_PAPER:
            if name not in vars(cls):
                setattr(cls, name, getattr(Experiment, name))

    def __post_init__(self) -> None:
        check(self)

    def combinations(self) -> list[dict[str, Scalar]]:
        """Every combination of the grid fields, in the order of the fields."""
        names = [f.name for f in fields(self) if f.metadata.get("grid")]
        values = [getattr(self, name) for name in names]
        return [
            dict(zip(names, combination, strict=True)) for combination in itertools.product(*values)
        ]

    def cells(self) -> Iterable[Cell]:
        """The grid, in order; cheap, without torch. Override to drop combinations or to state
        costs."""
        return [Cell(params) for params in self.combinations()]

    def companions(self) -> Mapping[str, Companion]:
        """Other settings of this experiment whose stored cells its report reads as well
        (`Analysis.beside`).

        They are measured like any settings, on the command line. Companions never count as missing,
        and none of their values enters the tables of these settings. Seeds of a companion with
        identical settings are excluded from the main tables.
        """
        return {}


def named(experiment: Experiment, role: str) -> Callable[..., Any]:
    """What the class attribute `role` ("measure", "analysis") of an experiment names. Raises
    SettingError."""
    owner = type(experiment)
    value = getattr(owner, role)
    where = f"{owner.__module__}.{owner.__name__}.{role}"
    found: Callable[..., Any] = value
    if not callable(value):
        found = imported(value, where)
    return found


def measure(experiment: Experiment, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Measure one cell: table name -> columns or rows. The only place where numbers are made.

    A row that could not be measured stays, with the reason in a `status` column ("ok" elsewhere).
    Cell parameters and the seed are added as columns by the runner.
    """
    found: dict[str, Table] = named(experiment, "measure")(experiment, cell, ctx)
    return found
