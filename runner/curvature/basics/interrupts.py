"""Ctrl-C while something of the user's program is replaced: it waits until all is put back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def _here() -> bool:
    """Whether this is the main thread, which alone gets interrupts."""
    return threading.current_thread() is threading.main_thread()


class _Interrupts:
    """While inside, an interrupt waits for the end of the block, or for `deliver`. No generator:
    nothing runs between the end of the block and `__exit__`.

    depth: blocks within each other. before: the program's handler; None: not of Python.
    """

    depth = 0
    before: Any = None
    waiting = False

    def __enter__(self) -> None:
        if not _here():
            return
        if not self.depth:
            self.waiting = False
            self.before = signal.getsignal(signal.SIGINT)
            self._handle(self._keep)
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        if not _here():
            return
        self.depth -= 1
        if self.depth:
            return
        try:
            self._handle(self.before)
        finally:  # one may have come until just now
            if self.waiting:
                self.waiting = False
                signal.raise_signal(signal.SIGINT)

    def _handle(self, handler: Any) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, handler)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self.waiting = True

    def deliver(self) -> None:
        """Lets an interrupt through that waits: the blocks around put back what they replaced."""
        if self.waiting and _here():
            self.waiting = False
            if callable(self.before):
                self.before(signal.SIGINT, None)

    @contextmanager
    def released(self) -> Iterator[None]:
        """While inside, interrupts are as outside: for what is the user's own and may wait."""
        if not (self.depth and _here()):
            yield
            return
        self.deliver()
        self._handle(self.before)
        try:
            yield
        finally:
            self._handle(self._keep)


INTERRUPTS = _Interrupts()
