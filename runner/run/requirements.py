"""Data sets that must be there before a run starts, and the `data` verb that brings them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from runner.contract import Experiment, SettingError, one_of
from runner.run.call import Call

ARCHIVES = ("cifar10", "cifar100")


def missing_data(experiments: Iterable[Experiment]) -> str:
    """What is missing of the first data set whose files are not there or have the wrong size; "" for nothing."""
    for experiment in experiments:
        missing = getattr(getattr(experiment, "dataset", None), "missing", None)
        if missing is not None and (reason := missing()):
            return str(reason)
    return ""


def data_command(call: Call) -> int:
    """`hess-run data fetch|verify NAME`. Returns the exit status."""
    verb, name = call.words
    one_of("data", verb, ("fetch", "verify"))
    one_of(f"data {verb}", name, ARCHIVES)
    from runner.data.images import DataError

    try:
        return _fetch(name) if verb == "fetch" else _verify(name)
    except DataError as error:
        raise SettingError(str(error)) from error
    except OSError as error:
        print(f"hess-run: {name}: {error}; run the same command again to go on", file=sys.stderr)
        return 1


def _fetch(name: str) -> int:
    from tqdm import tqdm

    from runner.data.cifar import data_root
    from runner.data.fetch import fetch
    from runner.run.config import mirrors

    with tqdm(unit="B", unit_scale=True, desc=name, disable=not sys.stderr.isatty()) as bar:

        def progress(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        folder = fetch(name, data_root(), mirrors=mirrors(name), progress=progress)
    print(f"{name}: complete in {folder}")
    return 0


def _verify(name: str) -> int:
    from runner.data.cifar import data_root
    from runner.data.fetch import verify

    folder: Path = verify(name, data_root())
    print(f"{name}: files and labels in {folder} are as they should be")
    return 0
