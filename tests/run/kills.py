"""Whole command lines of the toy experiment killed at random moments, resumed, and held against an
undisturbed run.

    python -m tests.run.kills 60             60 SIGKILLs, shared among the ways to run
    python -m tests.run.kills 30 --seed 1    at other moments
    python -m tests.run.kills 20 --ways ray  one way only

Half of the moments are uniform over the length of an undisturbed run, half follow an event: the
folder is claimed, the first cell is stored, a report begins. A folder takes up to three kills, then
the command runs to its end. Every third kill takes the command alone and leaves its workers, which
have to end by themselves or finish rightly. Some cells are
published: they count as stored, and their archive must not change.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from runner.files import is_scratch
from runner.store.archive import Archive, archive_bytes
from runner.store.store import Store
from tests.run.conftest import command_environment, packed, toy_configuration

WAYS: dict[str, tuple[str, ...]] = {
    "jobs=1": (),
    "jobs=2": ("jobs=2",),
    "joblib": ("-m", "seed=1,2", "hydra/launcher=processes"),
    "submitit_local": ("-m", "seed=1,2", "hydra/launcher=local_jobs"),
    "ray": ("-m", "seed=1,2", "hydra/launcher=ray_cluster"),
}
BASE = ("experiment=toy", "experiment.pause=0.05")
KILLS_A_FOLDER = 3
LIMIT = 900.0  # seconds that no run of the toy may take, on a busy machine either


@dataclass
class Command:
    """The command line under test, in a working folder of its own."""

    work: Path
    conf: Path
    words: tuple[str, ...]
    published: str = ""

    def start(self) -> subprocess.Popen[str]:
        self.work.mkdir(exist_ok=True)
        places = {"HESS_CONF": self.conf, "HESS_KILLS": self.work, "HESS_PUBLISHED": self.published}
        with open(self.work / "stderr", "w") as errors, open(self.work / "stdout", "w") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "runner.cli", *BASE, *self.words],
                cwd=self.work,
                env=command_environment(HESS_MODULES="tests", OMP_NUM_THREADS="1", **places),
                text=True,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def finish(self) -> int:
        """Run to the end; the exit status."""
        return self.start().wait(LIMIT)

    def kill_all(self) -> None:
        """SIGKILL for everything that this command started, wherever a launcher has put it."""
        mark = f"HESS_KILLS={self.work}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)

    @property
    def errors(self) -> str:
        return (self.work / "stderr").read_text()

    @property
    def outputs(self) -> Path:
        return self.work / "outputs"

    def content(self) -> dict[str, bytes]:
        """Every table, of cells and of the report, by path."""
        tables = sorted(self.outputs.rglob("*.csv"))
        reports = {str(path.relative_to(self.outputs)): path.read_bytes() for path in tables}
        cells = packed(self.outputs / "toy" / "cells")
        return {**reports, **{name: table for name, table in cells if name.endswith(".csv.gz")}}

    def phase(self) -> str:
        """How far the command has come, from what it has written."""
        # os.walk passes over folders that vanish meanwhile, as glob does not
        written = {name for _, _, names in os.walk(self.outputs / "toy") for name in names}
        if {"numbers.csv", "manifest.json"} & written:
            return "report"
        if any(self.outputs.glob("toy/cells/[!.]*")):
            return "cells"
        return "claimed" if self.outputs.exists() else "start"


def wait_for_moment(
    command: Command, process: subprocess.Popen[str], length: float, rng: random.Random
) -> None:
    """Sleep until a random moment of the run, or until its end."""
    begin, event = time.monotonic(), rng.choice(["", "", "", "claimed", "cells", "report"])
    if event:
        order = ["start", "claimed", "cells", "report"]
        while process.poll() is None and order.index(command.phase()) < order.index(event):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        return
    moment = rng.uniform(0, length)
    while process.poll() is None and time.monotonic() - begin < moment:
        time.sleep(0.005)


def kill_and_resume(
    way: str, kills: int, folder: Path, conf: Path, rng: random.Random
) -> tuple[Counter[str], list[str]]:
    """How many of `kills` SIGKILLs of one way to run came in each phase, and what was wrong
    afterwards."""
    phases: Counter[str] = Counter()
    wrong: list[str] = []
    layer = folder / f"{way}-published"
    layer.mkdir(parents=True)
    calm = Command(folder / f"{way}-calm", conf, WAYS[way], str(layer))
    begin = time.monotonic()
    if calm.finish() != 0:
        return phases, [f"the undisturbed run failed: {calm.errors[-300:]}"]
    length = time.monotonic() - begin
    archive = publish_first(calm.outputs, layer)
    published, before = set(Archive(archive).names()), archive.read_bytes()
    whole = calm.content()
    expected = {name: whole[name] for name in whole if name.split("/")[-2] not in published}
    while phases.total() < kills:
        command = Command(folder / f"{way}-{phases.total()}", conf, WAYS[way], str(layer))
        for _ in range(min(KILLS_A_FOLDER, kills - phases.total())):
            process = command.start()
            wait_for_moment(command, process, length, rng)
            phases["the end" if process.poll() is not None else command.phase()] += 1
            command.kill_all() if phases.total() % 3 else process.kill()
            process.wait()
        found = faults(command, command.finish(), expected)
        command.kill_all()
        found += ["the published archive changed"] if archive.read_bytes() != before else []
        wrong += [f"{command.work.name}: {fault}" for fault in found]
        if not found:
            shutil.rmtree(command.work)
    return phases, wrong


def publish_first(outputs: Path, layer: Path) -> Path:
    """Pack the cells of the smallest width, as published ones are; their archive."""
    stored = Store(outputs, "toy", published=False).all()
    first = [cell.entries() for cell in stored if cell.meta["params"]["width"] == 1]
    files = chain(*first)
    archive = layer / "toy" / "cells.zip"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(archive_bytes(files))
    return archive


def faults(command: Command, status: int, expected: dict[str, bytes]) -> list[str]:
    """What is wrong after a resumed run: its exit status, bytes, or leftovers."""
    found = [f"exit status {status}: {command.errors[-300:]}"] if status else []
    content = command.content()
    differing = expected.items() ^ content.items()
    names = {name for name, _ in differing}
    found += [f"differs: {name}" for name in sorted(names)]
    for path in command.outputs.rglob(".*"):
        if is_scratch(path):
            found.append(f"left behind: {path.name}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", default=",".join(WAYS))
    chosen = parser.parse_args(argv)
    ways, rng = chosen.ways.split(","), random.Random(chosen.seed)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, conf = Path(name), toy_configuration(Path(name))
        for i, way in enumerate(ways):
            share = chosen.kills // len(ways) + (i < chosen.kills % len(ways))
            phases, found = kill_and_resume(way, share, folder, conf, rng)
            print(f"{way}: {dict(phases)}, {len(found)} faults", *found, sep="\n  ", flush=True)
            wrong += found
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
