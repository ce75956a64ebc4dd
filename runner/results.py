"""Measured tables as pandas DataFrames, for Python and notebooks."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.contract import Scalar, SettingError, quoted
from runner.run.config.jobs import build_jobs, protocol
from runner.run.config.overrides import arguments
from runner.store.archive import where_published
from runner.store.cells import in_order, within
from runner.store.identity import Identity
from runner.store.job import PAPER, Job, read_folder
from runner.store.store import Stored, merge

if TYPE_CHECKING:
    import pandas as pd


class Results(Mapping[str, "pd.DataFrame"]):
    """Tables of one experiment by name. A table is read when it is first asked for.

    only: column -> value, of the rows that are kept of a table with that column. left_out: cells
    that are stored and not among these. damaged: one line for each cell that cannot be used.
    """

    def __init__(
        self,
        experiment: str,
        cells: Sequence[Stored],
        only: Mapping[str, Scalar] | None = None,
        left_out: int = 0,
        damaged: Sequence[str] = (),
    ) -> None:
        self.experiment = experiment
        self.cells = tuple(cells)
        self.left_out = left_out
        self.damaged = tuple(damaged)
        self._only = only or {}
        self.rows: dict[str, int] = dict(
            sum((Counter(cell.meta["tables"]) for cell in cells), Counter())
        )
        """Table -> number of stored rows, known without reading it."""
        self._read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self.rows:
            raise KeyError(f"{name}: expected one of {', '.join(self)}")
        if name not in self._read:
            table = merge(self.cells, [name])[name]
            for column, value in self._only.items():
                if column in table:
                    table = table[table[column] == value].reset_index(drop=True)
            self._read[name] = table
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} ({self.rows[name]} rows stored)" for name in self)
        more = f" ({self.left_out} more with all=True)" if self.left_out else ""
        damaged = f", {len(self.damaged)} damaged cells left out" if self.damaged else ""
        return f"<Results of {self.experiment}: {len(self.cells)} cells{more}{damaged}; {tables}>"


def load(
    experiment: str, *settings: str, outputs: str | Path = "outputs", all: bool = False
) -> Results:
    """Measured tables of one experiment, merged over cells and seeds: the paper's rows, or all of
    them.

    Cells below `outputs` come first, published cells second. Damaged cells are left out, with a
    warning.

    Parameters
    ----------
    experiment : str
        Name of an experiment, as `hess-run list` shows it.
    *settings : str
        Settings as on the command line (``"profile=quick"``, ``"hidden=3"``). Without them, the
        cells of the paper's protocol. Settings of the grid and ``seed`` select nothing: every cell
        with the same other settings is loaded.
    outputs : str or Path
        Output folder of your runs.
    all : bool
        Every stored row. By default of the paper's protocol only its own grid and seeds, and in
        every protocol only rows on the paper's set of images (column ``images``).

    Returns
    -------
    Results
        Mapping from table name to `pandas.DataFrame`. The first columns are the parameters of the
        cell and its seed.

    Warns
    -----
    UserWarning
        If damaged cells of this experiment are left out; `Results.damaged` names them.

    Raises
    ------
    SettingError
        If the experiment or a setting does not exist, or no cell of these settings is stored.

    Examples
    --------
    >>> from runner import results
    >>> tables = results.load("exp1_resonance")
    >>> sorted(tables)
    ['certificate', 'distances', 'history', 'networks', 'origin', 'pairs']
    >>> networks = tables["networks"]
    >>> final = networks[networks["checkpoint"] == "final"]
    >>> final.groupby("arch")["test_accuracy"].mean().round(3).to_dict()
    {'plain': 0.498, 'residual': 0.511}
    """
    place = quoted("outputs", read_folder(str(outputs)))
    job = build_jobs(arguments([f"experiment={experiment}", *settings, place]))[0]
    found = _results(job)
    if not found.cells and found.damaged:
        raise SettingError(f"{experiment}: no cell is whole; {damage_line(found.damaged)}")
    if not found.cells:
        place = f"found none below {job.outputs}; {where_published()}"
        raise SettingError(f"{experiment}: expected stored cells of these settings, {place}")
    if found.damaged:
        warnings.warn(damage_line(found.damaged), stacklevel=2)
    return found if all else _papers(job, found)


def damage_line(damaged: Sequence[str]) -> str:
    """How many damaged cells are left out, the first of them, and what to do."""
    cells = "1 damaged cell is" if len(damaged) == 1 else f"{len(damaged)} damaged cells are"
    return f"{cells} left out: {damaged[0]}; see hess-run store check"


def _papers(job: Job, found: Results) -> Results:
    """The rows of the paper."""
    paper = protocol(job.name, PAPER)
    cells = list(found.cells)
    if (
        job.identity.key == Identity.of(job.name, paper, job.threads, job.device).key
        and paper.paper
    ):
        cells = within(cells, paper, paper.paper_seeds)
    left_out = len(found.cells) - len(cells)
    if not cells:
        raise SettingError(
            f"{job.name}: expected stored cells of the paper's grid and seeds, "
            f"found {left_out} others; "
            "load them with all=True"
        )
    return Results(job.name, cells, paper.paper_rows, left_out, found.damaged)


def _results(job: Job) -> Results:
    store = job.store
    cells = [cell for cell in store.all() if cell.meta["settings_key"] == job.identity.key]
    return Results(job.name, in_order(cells, job.experiment), damaged=store.left_out())
