"""Code of others in this process: an experiment's `measure`, the target of a diagnosis.

It may print, exit, fork, draw random numbers, and change the working folder and torch's defaults:
none of it ends the command, reaches standard output, or changes what is measured next.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TypeVar

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


def described(error: BaseException) -> str:
    """The kind and the text of an error of others, which may fail to make it."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:
        return f"{kind}, whose text cannot be made"


def _exit_text(error: SystemExit) -> str:
    """Where sys.exit was called, and why where argparse did."""
    frames = traceback.extract_tb(error.__traceback__)
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


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the global random streams begin at a seed, and prints go to standard error; after it,
    they, the working folder and torch's defaults are as before."""
    import torch

    from runner.curvature.function.context import random_state

    here = os.open(".", os.O_RDONLY)
    dtype = torch.get_default_dtype()
    device = torch.get_default_device()
    gradients = torch.is_grad_enabled()
    precision = torch.get_float32_matmul_precision()
    with random_state(), redirect_stdout(sys.stderr):
        seed_streams(seed)
        try:
            yield
        finally:
            os.fchdir(here)
            os.close(here)
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(gradients)
            torch.set_float32_matmul_precision(precision)
            if torch.get_default_device() != device:  # else torch would watch every new tensor
                torch.set_default_device(device)
