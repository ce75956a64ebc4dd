"""How a command ends: an exit status, and one line for whatever went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from runner.contract.schema import SettingError
from runner.run.sources import FULL_ERROR, was_interrupted


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
        raise


def interrupted() -> int:
    say("interrupted; finished cells are stored. Run the same command again to go on.")
    return 130


def no_space(error: Exception) -> int:
    say(f"no space left ({str(error).strip().splitlines()[-1]}); finished cells are stored. Free space and run again.")
    return 1


def say(line: str) -> None:
    """One line on standard error."""
    print(f"hess-run: {' '.join(line.split())}", file=sys.stderr)
