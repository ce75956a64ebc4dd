"""How a command ends: an exit status, and one line for whatever went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from runner.contract import SettingError
from runner.run.sources import FULL_ERROR, short, was_interrupted


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
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from runner.run.handover import ran_full

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
