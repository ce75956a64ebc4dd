"""What a command shows and how it ends: standard streams, progress, pieces of messages, exit
statuses.

The time to go is judged by predicted cost. Stored cells take no time and say nothing about the
others: what is left is the predicted seconds of the cells to be measured, scaled by how the
measured ones, or a running one that takes longer, compare with their predictions.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from runner.contract import Cell, SettingError, plain, short


class Tolerant:
    """A text stream that is thrown away from its first failing write on.

    error: what went wrong, unless the reader closed its end, which is no error: `| head` does.
    """

    def __init__(self, stream: TextIO, *, text_alone: bool) -> None:
        self._stream, self._text_alone = stream, text_alone
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
            setattr(
                sys,
                name,
                os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False),
            )
    if quiet:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Tolerant):
            if hasattr(stream, "reconfigure"):
                # ASCII streams cannot show every letter
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, cast(TextIO, Tolerant(stream, text_alone=name == "stdout")))


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """' (did you mean X?)', or '' where no name is near."""
    near = nearest(name, known)
    return f" (did you mean {near}?)" if near else ""


def nearest(name: str, known: Sequence[str]) -> str:
    """The known name that is nearest, or '' where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return near[0]
    # The last part may be right and the path wrong or missing; an experiment's own settings come
    # first.
    tails = {path.rpartition(".")[2]: path for path in reversed(known)}
    near = get_close_matches(name.rpartition(".")[2], list(tails), n=1, cutoff=0.6)
    return tails[near[0]] if near else ""


FULL_ERROR = os.environ.get("HYDRA_FULL_ERROR") == "1"
"""Whether the user asked for tracebacks; launchers set the variable for Hydra, later."""
LIMITS = {
    "no space left": ((errno.ENOSPC, errno.EFBIG, errno.EDQUOT), "Free space"),
    "too many open files": ((errno.EMFILE, errno.ENFILE), "Allow more (ulimit -n)"),
    "too many processes": ((errno.EAGAIN,), "Allow more (ulimit -u)"),
    "not enough memory": ((errno.ENOMEM,), "Free memory or allow more (ulimit -v)"),
}
"""Limit of the system -> the error numbers that tell it, and what to do."""
LIMIT_TEXTS = {
    "too many processes": ("can't start new thread",),
    "not enough memory": ("MemoryError", "can't allocate memory", "failed to map segment"),
}
"""Limit of the system -> words of errors of libraries, which have no number."""


class LimitReached(Exception):
    """A limit of the system was reached; the store holds whole cells only. Begins with the name of
    the limit."""


def limit(error: BaseException | None) -> str:
    """The limit of the system behind an error, also one that a launcher hands on as text; "" for
    none."""
    if error is None or isinstance(error, SettingError):
        return limit(error.__cause__) if error is not None else ""
    if isinstance(error, OSError):
        return next((name for name, (numbers, _) in LIMITS.items() if error.errno in numbers), "")
    text = f"{type(error).__name__}: {error}"
    if "LimitReached: " in text:
        return next((name for name in LIMITS if f"LimitReached: {name}" in text), "")
    for name, words in LIMIT_TEXTS.items():
        if any(word in text for word in words):
            return name
    return ""


def was_interrupted(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt is behind an error: OmegaConf turns one that meets it into
    something else."""
    open_, seen = [error], set()
    while open_:
        cause = open_.pop()
        if isinstance(cause, KeyboardInterrupt):
            return True
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            open_ += [cause.__context__, cause.__cause__]
    return False


def guarded(action: Callable[[], int]) -> int:
    """Run an action; turn what can go wrong into one line and an exit status."""
    try:
        return action()
    except SettingError as error:
        if FULL_ERROR:
            raise
        if limit(error):
            return limit_reached(error)
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        if was_interrupted(error):
            return interrupted()
        if limit(error):
            return limit_reached(error)
        if FULL_ERROR:
            raise
        return unexpected(error)


def interrupted() -> int:
    """One line, status 130.

    An interruption inside a string that is executed (a dataclass or a named tuple made during an
    import) leaves a mark in CPython, which then ends the process by SIGINT whatever its status;
    executing another string takes the mark away.
    """
    exec("pass")
    say("interrupted; finished cells are stored. Run the same command again to go on.")
    return 130


def limit_reached(error: Exception) -> int:
    """One line that names the limit of the system and what to do, status 1."""
    name = limit(error)
    cause = error.__cause__ if isinstance(error, SettingError) else error
    detail = (
        (str(cause).strip() or type(cause).__name__).splitlines()[-1].rpartition(f"{name}: ")[2]
    )
    say(
        f"{name} ({short(detail, 160)}); finished cells are stored. {LIMITS[name][1]} and run "
        "again."
    )
    return 1


def unexpected(error: Exception) -> int:
    """One line: what lies in the way of a file, by name; anything else is a fault of this
    program."""
    if isinstance(error, OSError) and error.filename:
        path = short(error.filename2 or error.filename, 200)
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            say(f"{path}: expected a path that can be used ({error.strerror}); choose another")
            return 2
        say(
            f"{path}: {error.strerror}; finished cells are stored. Move it away or give access "
            "to it, and run again."
        )
        return 1
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (
        f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "no place"
    )
    text = short(str(error).replace("\n", " ") or "no message", 200)
    say(
        f"a fault of this program: {type(error).__name__}: {text} ({place}); "
        "finished cells are stored. "
        "HYDRA_FULL_ERROR=1 shows where it came from."
    )
    return 1


def say(line: str) -> None:
    """One line on standard error."""
    print(f"hess-run: {plain(' '.join(line.split()))}", file=sys.stderr)


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


class Progress:
    """Says nothing; the base of the two that do."""

    def start(self, label: str) -> None:
        """A cell begins."""

    def turn_to(self, label: str) -> None:
        """What `inside` says next is of this running cell: several run at a time."""

    def inside(self, done: float, total: float, note: str = "") -> None:
        """Progress within the current cell."""

    def advance(self, state: str, cell: Cell, seconds: float | None = None) -> None:
        """A cell ended as 'stored', 'measured' or 'failed', after `seconds` (since its start, where
        not given)."""

    def close(self) -> None:
        """No more cells."""


WARM_UP = 10.0
"""Seconds that a process may need before its first cell."""


class _Counting(Progress):
    """Counts cells and predicted seconds."""

    def __init__(self, title: str, cells: Sequence[Cell], processes: int = 1) -> None:
        self._title, self._total, self._done, self._processes = title, len(cells), 0, processes
        self._to_go = sum(cell.seconds for cell in cells)
        self._predicted = self._took = 0.0
        self._label, self._since = "", time.monotonic()
        self._seconds, self._running = {cell.label: cell.seconds for cell in cells}, 0.0

    def start(self, label: str) -> None:
        self._label, self._since, self._running = (
            label,
            time.monotonic(),
            self._seconds.get(label, 0.0),
        )

    def advance(self, state: str, cell: Cell, seconds: float | None = None) -> None:
        self._done, self._running = self._done + 1, 0.0
        self._to_go -= cell.seconds
        took = time.monotonic() - self._since if seconds is None else seconds
        if state == "measured":  # the first one imports and warms up as well
            self._took += took if self._predicted else max(took - WARM_UP, min(took, cell.seconds))
            self._predicted += cell.seconds
        self.ended(state, took)

    def ended(self, state: str, took: float) -> None:
        """Show that a cell ended."""

    @property
    def left(self) -> str:
        """'about 3 min to go', '' when nothing is left."""
        pace = self._took / self._predicted if self._predicted else 1.0
        spent = time.monotonic() - self._since if self._running else 0.0
        if self._running:
            pace = max(
                pace, spent / self._running
            )  # the running cell takes longer than was predicted
        seconds = (self._to_go * pace - spent) / self._processes
        if self._done == self._total:
            return ""
        return (
            f"about {seconds:.0f} s to go"
            if seconds < 100
            else f"about {seconds / 60:.0f} min to go"
        )


class Bar(_Counting):
    """A tqdm bar over cells; below it the running cell: its name, phase, step and rate."""

    def __init__(self, title: str, cells: Sequence[Cell], processes: int = 1) -> None:
        from tqdm import tqdm

        super().__init__(title, cells, processes)
        shape = "{desc} {n_fmt}/{total_fmt} |{bar}| {elapsed} {postfix}"
        self._bar = tqdm(
            total=len(cells), desc=title, dynamic_ncols=True, leave=True, bar_format=shape
        )
        self._cell = tqdm(position=1, dynamic_ncols=True, leave=False, bar_format="  {desc}")
        self._last, self._first = 0.0, (0.0, 0.0, 0.0)

    def start(self, label: str) -> None:
        super().start(label)
        self._first = (0.0, 0.0, 0.0)
        self._cell.set_description_str(label)
        self._bar.set_postfix_str(self.left)

    def turn_to(self, label: str) -> None:
        if label != self._label:
            self._label, self._first = label, (0.0, 0.0, 0.0)

    def inside(self, done: float, total: float, note: str = "") -> None:
        now, (begin, whole, since) = time.monotonic(), self._first
        if total != whole or done < begin:  # another phase
            self._first = begin, _, since = done, total, now
        elif now - self._last <= 0.2:
            return
        self._last = now
        rate = (
            f", {(done - begin) / (now - since):.3g} a second"
            if done > begin and now > since
            else ""
        )
        self._cell.set_description_str(
            f"{self._label}: {note or 'step'} {done:g} of {total:g}{rate}"
        )
        self._bar.set_postfix_str(self.left)

    def ended(self, state: str, took: float) -> None:
        self._cell.set_description_str("")
        self._bar.set_postfix_str(self.left, refresh=False)
        self._bar.update()

    def close(self) -> None:
        self._cell.close()
        self._bar.close()


class Lines(_Counting):
    """One line for each cell that was measured or failed; quiet about stored ones."""

    def ended(self, state: str, took: float) -> None:
        if state != "stored":
            left = f"; {self.left}" if self.left else ""
            print(
                (
                    f"{self._title}: {self._done}/{self._total} {state} {self._label} "
                    f"({took:.1f} s){left}"
                ),
                file=sys.stderr,
                flush=True,
            )


def open_progress(title: str, cells: Sequence[Cell], processes: int = 1) -> Progress:
    """A bar when standard error is a terminal, else lines."""
    if os.environ.get("HESS_QUIET") == "1":
        return Progress()
    return (Bar if sys.stderr.isatty() else Lines)(title, cells, processes)
