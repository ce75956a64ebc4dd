"""Progress of a run: one bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time


class Progress:
    """Says nothing; the base of the two that do."""

    def start(self, label: str) -> None:
        """A cell begins."""

    def inside(self, done: float, total: float, note: str = "") -> None:
        """Progress within the current cell."""

    def advance(self, state: str, seconds: float | None = None) -> None:
        """A cell ended as 'stored', 'measured' or 'failed', after `seconds` (since its start, where not given)."""

    def close(self) -> None:
        """No more cells."""


class Bar(Progress):
    """A tqdm bar over cells, with the cell's name and its own progress behind it."""

    def __init__(self, title: str, total: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=total, desc=title, unit="cell", dynamic_ncols=True, leave=True)
        self._label = ""
        self._last = 0.0

    def start(self, label: str) -> None:
        self._label = label
        self._bar.set_postfix_str(label)

    def inside(self, done: float, total: float, note: str = "") -> None:
        now = time.monotonic()
        if now - self._last > 0.2:
            self._last = now
            self._bar.set_postfix_str(f"{self._label} {100 * done / max(total, 1e-12):.0f}% {note}".rstrip())

    def advance(self, state: str, seconds: float | None = None) -> None:
        self._bar.update()

    def close(self) -> None:
        self._bar.close()


class Lines(Progress):
    """One line for each cell that was measured or failed; quiet about stored ones."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total, self._done = title, total, 0
        self._label, self._since = "", time.monotonic()

    def start(self, label: str) -> None:
        self._label, self._since = label, time.monotonic()

    def advance(self, state: str, seconds: float | None = None) -> None:
        self._done += 1
        if state != "stored":
            took = time.monotonic() - self._since if seconds is None else seconds
            print(
                f"{self._title}: {self._done}/{self._total} {state} {self._label} ({took:.1f} s)",
                file=sys.stderr,
                flush=True,
            )


def open_progress(title: str, total: int) -> Progress:
    """A bar when standard error is a terminal, else lines."""
    return Bar(title, total) if sys.stderr.isatty() else Lines(title, total)
