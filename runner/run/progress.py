"""Progress over cells, as a bar on a terminal and in lines elsewhere.

The time to go is judged by predicted cost. Stored cells take no time and say nothing about the
others: what is left is the predicted seconds of the cells to be measured, scaled by how the
measured ones, and a running one that takes longer, compare with their predictions. The first
seconds of a run count little, since imports and short cells say nothing about long ones.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from runner.contract import Cell
from runner.store.costs import duration


class Progress:
    """Says nothing; the base of those that do."""

    def start(self, label: str) -> None:
        """A cell begins."""

    def inside(self, done: float, total: float, note: str = "") -> None:
        """Progress within the current cell."""

    def advance(self, state: str, cell: Cell, seconds: float | None = None) -> None:
        """A cell ended as 'stored', 'measured' or 'failed', after `seconds` (since its start, where
        not given)."""

    def close(self) -> None:
        """No more cells."""


WARM_UP = 10.0
"""Seconds that a process may need before its first cell; as many of the prediction are taken to be
right before any cell is measured."""


class _Counting(Progress):
    """Counts cells and predicted seconds."""

    def __init__(self, title: str, cells: Sequence[Cell], processes: int = 1) -> None:
        self._title = title
        self._total = len(cells)
        self._done = 0
        self._processes = processes
        self._to_go = sum(cell.seconds for cell in cells)
        self._predicted = self._took = WARM_UP
        self._warm = False
        self._label = ""
        self._since = time.monotonic()
        self._seconds = {cell.label: cell.seconds for cell in cells}
        self._running = 0.0

    def start(self, label: str) -> None:
        self._label = label
        self._since = time.monotonic()
        self._running = self._seconds.get(label, 0.0)

    def advance(self, state: str, cell: Cell, seconds: float | None = None) -> None:
        self._done = self._done + 1
        self._running = 0.0
        self._to_go -= cell.seconds
        took = time.monotonic() - self._since if seconds is None else seconds
        if state == "measured":
            steady = took
            if not self._warm:  # the first one imports and warms up as well
                steady = max(took - WARM_UP, min(took, cell.seconds))
            self._took += steady
            self._predicted += cell.seconds
            self._warm = True
        self.ended(state, took)

    def ended(self, state: str, took: float) -> None:
        """Show that a cell ended."""

    @property
    def left(self) -> str:
        """'about 3 min to go', '' when nothing is left."""
        if self._done == self._total:
            return ""
        pace = self._took / self._predicted
        spent = 0.0
        if self._running:  # it may take longer than was predicted
            spent = time.monotonic() - self._since
            pace = max(pace, (self._took + spent) / (self._predicted + self._running))
        seconds = (self._to_go * pace - spent) / self._processes
        return f"about {duration(seconds)} to go"


class RunningCell(Progress):
    """A line of tqdm on the running cell of a process: its name, phase, step and rate.

    position: of the line below the bar; lock: that of tqdm where several processes draw.
    """

    def __init__(self, position: int = 1, lock: Any = None) -> None:
        from tqdm import tqdm

        if lock is not None:
            tqdm.set_lock(lock)
        self._line = tqdm(position=position, dynamic_ncols=True, leave=False, bar_format="  {desc}")
        self._label = ""
        self._last = 0.0
        self._first = (0.0, 0.0, 0.0)

    def start(self, label: str) -> None:
        self._label = label
        self._first = (0.0, 0.0, 0.0)
        self._line.set_description_str(label)

    def inside(self, done: float, total: float, note: str = "") -> None:
        now = time.monotonic()
        begin, whole, since = self._first
        if total != whole or done < begin:  # another phase
            self._first = begin, _, since = done, total, now
        elif now - self._last <= 0.2:
            return
        self._last = now
        text = f"{self._label}: {note or 'step'} {done:g} of {total:g}"
        if done > begin and now > since:
            text += f", {(done - begin) / (now - since):.3g} a second"
        self._line.set_description_str(text)

    def advance(self, state: str, cell: Cell, seconds: float | None = None) -> None:
        self._line.set_description_str("")

    def close(self) -> None:
        self._line.close()


class Bar(_Counting):
    """A tqdm bar over cells, with the running cell below it; of several processes each draws its
    own."""

    def __init__(self, title: str, cells: Sequence[Cell], processes: int = 1) -> None:
        from tqdm import tqdm

        super().__init__(title, cells, processes)
        shape = "{desc} {n_fmt}/{total_fmt} |{bar}| {elapsed} {postfix}"
        self._bar = tqdm(
            total=len(cells), desc=title, dynamic_ncols=True, leave=True, bar_format=shape
        )
        self._cell = RunningCell() if processes == 1 else Progress()

    def start(self, label: str) -> None:
        super().start(label)
        self._cell.start(label)
        self._bar.set_postfix_str(self.left)

    def inside(self, done: float, total: float, note: str = "") -> None:
        self._cell.inside(done, total, note)
        self._bar.set_postfix_str(self.left)

    def advance(self, state: str, cell: Cell, seconds: float | None = None) -> None:
        self._cell.advance(state, cell, seconds)
        super().advance(state, cell, seconds)

    def ended(self, state: str, took: float) -> None:
        self._bar.set_postfix_str(self.left, refresh=False)
        self._bar.update()

    def close(self) -> None:
        self._cell.close()
        self._bar.close()


class Lines(_Counting):
    """One line for each cell that was measured or failed; quiet about stored ones."""

    def ended(self, state: str, took: float) -> None:
        if state == "stored":
            return
        line = f"{self._title}: {self._done}/{self._total} {state} {self._label} ({took:.1f} s)"
        print("; ".join(filter(None, (line, self.left))), file=sys.stderr, flush=True)


def is_drawn() -> bool:
    """Whether standard error is a terminal of a user who asked for no quiet."""
    return os.environ.get("HESS_QUIET") != "1" and sys.stderr.isatty()


def open_progress(title: str, cells: Sequence[Cell], processes: int = 1) -> Progress:
    """A bar when standard error is a terminal, else lines."""
    if os.environ.get("HESS_QUIET") == "1":
        return Progress()
    return (Bar if is_drawn() else Lines)(title, cells, processes)
