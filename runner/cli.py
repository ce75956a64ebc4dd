"""hess-run: the command line. `hess-run --help` lists its commands.

Exit status: 0 when all is well, 1 when a cell failed or the disk is full, 2 for a mistake in what
was asked (one line says which; nothing is written), 130 when interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from runner.run.exit_status import guarded
from runner.run.streams import flushed, protect, say


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if sys.platform == "win32":
        say(
            "Windows is not supported (locks and renames of its file systems differ); "
            "run it inside WSL 2"
        )
        sys.exit(2)
    os.environ["MPLBACKEND"] = "agg"  # figures are files; a notebook's name for another may be set
    if arguments is None:
        protect()
        signal.signal(
            signal.SIGTERM, _interrupt
        )  # from the first moment, while settings are read too
    sys.exit(flushed(guarded(lambda: dispatch(argv))))


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def dispatch(argv: list[str]) -> int:
    """Do what a command line asks for; its exit status."""
    from runner.run.command_line import COMMANDS, parse

    call = parse(argv)
    if call.config_dir:
        from runner.run.config import files

        files.add(call.config_dir)
    if call.version:
        from runner import __version__

        print(f"hess-run {__version__}")
    elif call.help:
        from runner.run.command_line import help_text

        print(help_text(call))
    else:
        if call.quiet:
            protect(quiet=True)
            os.environ["HESS_QUIET"] = "1"  # processes of launchers are quiet, too
        return int(COMMANDS[call.name].run(call))
    return 0


if __name__ == "__main__":
    main()
