"""How a command ends: an exit status, and one line for whatever went wrong."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

from runner.contract import SettingError
from runner.run.messages import short

FULL_ERROR = os.environ.get("HYDRA_FULL_ERROR") == "1"
"""Whether the user asked for tracebacks; launchers set the variable for Hydra, later."""
OUT_OF_SPACE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class NoSpace(Exception):
    """The disk is full; the store holds whole cells only."""


def out_of_space(error: BaseException) -> bool:
    """Whether an error says that the disk is full."""
    return isinstance(error, NoSpace) or (isinstance(error, OSError) and error.errno in OUT_OF_SPACE)


def ran_full(error: BaseException) -> bool:
    """Whether a full disk is behind an error, also one that a launcher hands on as text."""
    return out_of_space(error) or "NoSpace" in str(error)


def was_interrupted(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt is behind an error: OmegaConf turns one that meets it into something else."""
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
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        if was_interrupted(error):
            return interrupted()
        if ran_full(error):
            return no_space(error)
        if FULL_ERROR:
            raise
        return unexpected(error)


def interrupted() -> int:
    """One line, status 130.

    An interruption inside a string that is executed (a dataclass or a named tuple made during an import) leaves a mark
    in CPython, which then ends the process by SIGINT whatever its status; executing another string takes the mark away.
    """
    exec("pass")
    say("interrupted; finished cells are stored. Run the same command again to go on.")
    return 130


def no_space(error: Exception) -> int:
    say(f"no space left ({str(error).strip().splitlines()[-1]}); finished cells are stored. Free space and run again.")
    return 1


def unexpected(error: Exception) -> int:
    """One line: what lies in the way of a file, by name; anything else is a fault of this program."""
    if isinstance(error, OSError) and error.filename:
        path = error.filename2 or error.filename
        say(f"{path}: {error.strerror}; finished cells are stored. Move it away or give access to it, and run again.")
        return 1
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "no place"
    text = short(str(error).replace("\n", " ") or "no message", 200)
    say(
        f"a fault of this program: {type(error).__name__}: {text} ({place}); finished cells are stored. "
        "HYDRA_FULL_ERROR=1 shows where it came from."
    )
    return 1


def say(line: str) -> None:
    """One line on standard error."""
    print(f"hess-run: {' '.join(line.split())}", file=sys.stderr)
