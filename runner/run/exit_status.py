"""How a command ends: errors as one line each, and exit statuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from runner.contract import SettingError, described, short, where_raised
from runner.run.guest import Stopped, call
from runner.run.streams import say

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


class Ended(Exception):
    """What ended a run or its report, in one line; its cause is the error of others."""


def limit(error: BaseException | None) -> str:
    """The limit of the system behind an error, also one that a launcher hands on as text; "" for
    none."""
    if error is None:
        return ""
    if isinstance(error, SettingError | Ended):
        return limit(error.__cause__)
    if isinstance(error, OSError):
        return next((name for name, (numbers, _) in LIMITS.items() if error.errno in numbers), "")
    text = described(error)
    if "LimitReached: " in text:
        return next((name for name in LIMITS if f"LimitReached: {name}" in text), "")
    for name, words in LIMIT_TEXTS.items():
        if any(word in text for word in words):
            return name
    return ""


def was_interrupted(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt is behind an error: OmegaConf turns one that meets it into
    something else."""
    open_ = [error]
    seen = set()
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
        return call(action)
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        return _status_of(error)


def _status_of(error: Exception) -> int:
    """One line on an error, and the exit status."""
    if was_interrupted(error):
        return interrupted()
    if limit(error):
        return limit_reached(error)
    if FULL_ERROR and not isinstance(error, Stopped):
        raise error
    if isinstance(error, SettingError | Stopped | Ended):
        say(str(error))
        return 2 if isinstance(error, SettingError) else 1
    if isinstance(error, OSError):
        return _file_in_the_way(error)
    say(
        f"a fault of this program: {short(described(error), 220)} ({where_raised(error)}); "
        "finished cells are stored. HYDRA_FULL_ERROR=1 shows where it came from."
    )
    return 1


def interrupted() -> int:
    """One line, status 130.

    An interruption inside a string that is executed (a dataclass or a named tuple made during an
    import) leaves a mark in CPython, which then ends the process by SIGINT whatever its status;
    executing another string takes the mark away.
    """
    exec("pass")
    say(
        "interrupted; finished cells are stored. Run the same command again, without force=true, "
        "to go on."
    )
    return 130


def limit_reached(error: Exception) -> int:
    """One line that names the limit of the system and what to do, status 1."""
    name = limit(error)
    cause = error.__cause__ if isinstance(error, SettingError | Ended) else error
    last = described(cause or error).splitlines()[-1]
    detail = short(last.rpartition(f"{name}: ")[2], 160)
    say(f"{name} ({detail}); finished cells are stored. {LIMITS[name][1]} and run again.")
    return 1


def _file_in_the_way(error: OSError) -> int:
    """One line on what lies in the way of a file, by its name."""
    if not error.filename:
        say(f"{short(described(error), 220)}; run the same command again to go on")
        return 1
    path = short(error.filename2 or error.filename, 200)
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        say(f"{path}: expected a path that can be used ({error.strerror}); choose another")
        return 2
    say(
        f"{path}: {error.strerror}; finished cells are stored. Move it away or give access "
        "to it, and run again."
    )
    return 1
