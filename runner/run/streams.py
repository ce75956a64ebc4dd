"""Standard streams that may be closed, full or broken."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast

from runner.contract import plain


class Tolerant:
    """A text stream that is thrown away from its first failing write on.

    error: what went wrong, unless the reader closed its end, which is no error: `| head` does.
    """

    def __init__(self, stream: TextIO, *, text_alone: bool) -> None:
        self._stream = stream
        self._text_alone = text_alone
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, if that is still possible; text_alone: without control characters, as paths may
        hold."""
        if self._text_alone:
            text = "\n".join(map(plain, text.split("\n")))
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush, if that is still possible."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._give_up(error)

    def close(self) -> None:
        """Nothing: the stream is the process's, whoever prints to it."""

    def _give_up(self, error: Exception) -> None:
        if not isinstance(error, BrokenPipeError):
            self.error = error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


def protect(quiet: bool = False) -> None:
    """Open what is closed (or a file of results would take its number), and tolerate what breaks
    later.

    quiet: nothing is written to standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if quiet:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Tolerant):
            if hasattr(stream, "reconfigure"):
                # ASCII streams cannot show every letter
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, cast(TextIO, Tolerant(stream, text_alone=name == "stdout")))


def say(line: str) -> None:
    """One line on standard error."""
    print(f"hess-run: {plain(' '.join(line.split()))}", file=sys.stderr, flush=True)


def flushed(status: int) -> int:
    """The exit status after standard output was flushed: 1 where a disk was full, say, and a part
    of it is lost."""
    stream = sys.stdout
    if stream is not None:
        stream.flush()
    error = stream.error if isinstance(stream, Tolerant) else None
    if error is None:
        return status
    say(f"standard output cannot be written ({error}); a part of it is lost")
    return status or 1
