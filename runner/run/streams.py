"""Standard streams that are closed, broken or full must not end a run, nor change its exit status."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast


class Tolerant:
    """A text stream that is thrown away from its first failing write on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, if that is still possible."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            self._give_up()
        return len(text)

    def flush(self) -> None:
        """Flush, if that is still possible."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._give_up()

    def _give_up(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


def protect(quiet: bool = False) -> None:
    """Open what is closed (or a file of results would take its number), and tolerate what breaks later.

    quiet: nothing is written to standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))
    if quiet:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Tolerant):
            setattr(sys, name, cast(TextIO, Tolerant(stream)))
