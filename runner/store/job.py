"""One experiment at one seed: which cells it has, and where they are."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from runner.contract import Cell, Experiment
from runner.store.identity import Identity
from runner.store.store import Store


@dataclass(frozen=True)
class Job:
    """One experiment at one seed, with everything that running it needs."""

    name: str
    experiment: Experiment
    seed: int
    outputs: Path
    profile: str = "paper"
    threads: int = 1
    device: str = "cpu"
    jobs: int = 1
    force: bool = False
    published: bool = True
    """Whether published cells count as stored."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)
    """Identity of this run, which its cells and failures record: clocks of different machines disagree."""
    overrides: tuple[str, ...] = ()
    """The command line of this job without experiment, seed and profile: for the commands that reports print."""

    @cached_property
    def identity(self) -> Identity:
        return Identity.of(self.name, self.experiment, self.threads, self.device)

    @property
    def store(self) -> Store:
        return Store(self.outputs, self.name, published=self.published)

    @property
    def only_run(self) -> str:
        """The run whose cells count as stored; "" for any. `force` asks for all of them anew."""
        return self.run if self.force else ""

    def cells(self) -> list[tuple[str, Cell]]:
        """(id, cell) of every cell of this job, in order."""
        identity = self.identity
        return [(identity.cell_id(cell, self.seed), cell) for cell in self.experiment.cells()]
