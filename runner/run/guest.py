"""Code of others in this process: an experiment's `measure`, the target of a diagnosis.

It may print, call sys.exit, fork, draw random numbers, and change the working folder and torch's
defaults: none of it ends the command, reaches standard output, or changes what is measured next.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

from runner.contract import described

T = TypeVar("T")
PARSERS = ("argparse.py", "_sitebuiltins.py")
"""Files of Python that exit for their callers."""


class Stopped(RuntimeError):
    """Code of others that asked the process to end, or raised what is no Exception."""


def call(code: Callable[[], T]) -> T:
    """Run code of others. Raises what it raises, and Stopped for sys.exit and its like."""
    process = os.getpid()
    try:
        return code()
    except (KeyboardInterrupt, Exception):
        raise
    except SystemExit as error:
        raise Stopped(_exit_text(error)) from error
    except BaseException as error:
        raise Stopped(described(error)) from error
    finally:
        if os.getpid() != process:  # a copy of this process that the code has made
            os._exit(0)


def _exit_text(error: SystemExit) -> str:
    """Where sys.exit was called, and why where argparse did."""
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if frame.filename != __file__]
    files = [Path(frame.filename).name for frame in frames]
    last = max((i for i, file in enumerate(files) if file not in PARSERS), default=0)
    place = f"{files[last]}:{frames[last].lineno}"
    if "argparse.py" in files:
        return (
            f"{place} reads command-line arguments (argparse), and there are none; give each of "
            "them a default"
        )
    return f"{place} called sys.exit({error.code!r}); remove that call"


def seed_streams(seed: int) -> None:
    """Begin the global random streams, which code of others may use, at a seed."""
    import numpy
    import torch

    torch.manual_seed(seed)
    numpy.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def _write_path(path: list[str]) -> None:
    sys.path[:] = path


def _settings() -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """What code may set for the whole process: how it is read and written."""
    import torch

    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, torch.set_default_device),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.get_num_threads, torch.set_num_threads),
        (sys.getrecursionlimit, sys.setrecursionlimit),
        (lambda: list(sys.path), _write_path),
    ]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the global random streams begin at a seed, and prints go to standard error; after it,
    they, the working folder and what else belongs to the process are as before."""
    from runner.curvature.function.context import random_state

    here = os.open(".", os.O_RDONLY)
    before = [(read, write, read()) for read, write in _settings()]
    with random_state(), redirect_stdout(sys.stderr):
        seed_streams(seed)
        try:
            yield
        finally:
            os.fchdir(here)
            os.close(here)
            for read, write, value in before:
                if read() != value:
                    write(value)
