"""Data sets that must be there before a run starts, and the `data` verb that brings them."""

from __future__ import annotations

import os
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
    verb, *names = call.words
    one_of("data", verb, ("list", "fetch", "verify"))
    if verb != "list" and not names:
        raise SettingError(f"data {verb}: expected one of {', '.join(ARCHIVES)}, found nothing")
    for name in names:
        one_of(f"data {verb}", name, ARCHIVES)
    if verb == "list":
        print("\n".join(line for name in names or ARCHIVES for line in _listed(name)))
        return 0
    (name,) = names
    from runner.data.images import DataError

    try:
        return _fetch(name) if verb == "fetch" else _verify(name)
    except DataError as error:
        raise SettingError(str(error)) from error
    except OSError as error:
        print(f"hess-run: {name}: {error}; run the same command again to go on", file=sys.stderr)
        return 1


def _listed(name: str) -> list[str]:
    """What is known of a data set: where it is looked for, whether it is there, its files and addresses."""
    from runner.data.cifar import archive, check_files, data_root
    from runner.data.fetch import SUMS
    from runner.data.images import DataError
    from runner.run.config import mirrors

    spec, root = archive(name), data_root()
    folder = (root / spec.folder).absolute()
    try:
        check_files(spec, folder)
        size = sum(spec.sizes.values()) / 2**20
        state = f"{len(spec.sizes)} files, {size:.0f} MiB; hess-run data verify {name} compares their sums"
    except DataError:
        state = f"not there; hess-run data fetch {name}"
    origin = "$HESS_DATA" if os.environ.get("HESS_DATA") else "data/ in the current folder; set HESS_DATA for another"
    sums = folder / SUMS
    noted = sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []
    lines = [f"{name}: {state}", f"  folder   {folder} ({origin})", f"  archive  {spec.file}, MD5 {spec.md5}"]
    return [*lines, *(f"  address  {url}" for url in mirrors(name)), *(f"  SHA-256  {line}" for line in noted)]


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
