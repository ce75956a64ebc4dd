"""`hess-run data`: what is there of the data sets, download, verification."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from runner.contract import Experiment, SettingError, one_of
from runner.run.command_line import Call

ARCHIVES = ("cifar10", "cifar100")


def missing_data(experiments: Iterable[Experiment]) -> str:
    """What is missing of the first data set whose files are not there or have the wrong size; ""
    for nothing."""
    for experiment in experiments:
        missing = getattr(getattr(experiment, "dataset", None), "missing", None)
        if missing is not None and (reason := missing()):
            return str(reason)
    return ""


def data_command(call: Call) -> int:
    """hess-run data list         what is there, where it is looked for, sizes and orders of records
    hess-run data fetch NAME  download an official archive; check its sum; unpack known files only
    hess-run data verify NAME check the files and labels that are there

    NAME: cifar10 or cifar100. Files are looked for below $HESS_DATA, then below data/ in the
    current folder; torchvision's folder there counts where it has the official binary files (its
    own are pickled and never read). fetch writes to $HESS_DATA, else to data/.
    """
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
    return _fetch(name) if verb == "fetch" else _verify_data(name)


def _listed(name: str) -> list[str]:
    """What is known of a data set: where it is looked for, whether it is there, its files and
    addresses."""
    from runner.data.cifar import archive, complete, data_root, locate, pickled, places
    from runner.data.fetch import SUMS
    from runner.run.config.files import mirrors

    spec = archive(name)
    folder = locate(spec)
    state = f"not there; hess-run data fetch {name}"
    if complete(spec, folder):
        size = sum(spec.sizes.values()) / 2**20
        state = (
            f"{len(spec.sizes)} files, {size:.0f} MiB; "
            f"hess-run data verify {name} compares their sums"
        )
    origin = {data_root(): "$HESS_DATA", Path("data"): "data/ in the current folder"}
    looked = [
        f"  {'folder' if p == folder else 'or':8} {p.absolute()} ({origin[p.parent]})"
        for p in places(spec)
    ]
    sums = folder / SUMS
    noted = []
    if sums.is_file():
        noted = sums.read_text(encoding="utf-8").splitlines()
    return [
        f"{name}: {state}",
        *sorted(looked),
        *([f"  note     {note}"] if (note := pickled(spec)) else []),
        f"  archive  {spec.file}, MD5 {spec.md5}",
        *(f"  address  {url}" for url in mirrors(name)),
        *(f"  SHA-256  {line}" for line in noted),
    ]


def _fetch(name: str) -> int:
    from tqdm import tqdm

    from runner.data.fetch import fetch
    from runner.run.config.files import mirrors

    with tqdm(unit="B", unit_scale=True, desc=name, disable=not sys.stderr.isatty()) as bar:

        def progress(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        folder = fetch(name, mirrors=mirrors(name), progress=progress)
    print(f"{name}: complete in {folder}")
    return 0


def _verify_data(name: str) -> int:
    from runner.data.cifar import archive, locate
    from runner.data.fetch import verify

    folder = locate(archive(name))
    verify(archive(name), folder)
    print(f"{name}: files and labels in {folder} are as they should be")
    return 0
