"""Whole command lines of the toy experiment killed at random moments, resumed, and held against an undisturbed run.

    python -m tests.run.kills 60                        60 SIGKILLs, shared among the ways to run
    python -m tests.run.kills 30 --signals 20 --seed 1  and 20 SIGTERMs or Ctrl-Cs; other moments
    python -m tests.run.kills 20 --ways ray             one way only

Half of the moments are uniform over the length of an undisturbed run, half follow an event: the folder is claimed, the
first cell is stored, a report begins. A folder takes up to three kills, then the command runs to its end. Every third
kill takes the command alone and leaves its workers, which have to end by themselves or finish rightly. Some cells are
published: they count as stored, and their archive must not change.
"""

from __future__ import annotations

import argparse
import json
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
from dataclasses import dataclass, field
from pathlib import Path

from runner.store.archive import Archive, archive_bytes
from runner.store.tables import is_scratch

ROOT = Path(__file__).resolve().parents[2]
WAYS: dict[str, tuple[str, ...]] = {
    "jobs=1": (),
    "jobs=2": ("jobs=2",),
    "joblib": ("-m", "seed=1,2", "hydra/launcher=processes"),
    "submitit_local": ("-m", "seed=1,2", "hydra/launcher=local_jobs"),
    "ray": ("-m", "seed=1,2", "hydra/launcher=ray_cluster"),
}
KILLS_A_FOLDER = 3
LIMIT = 900.0  # seconds that no run of the toy may take, on a busy machine either


def configuration(folder: Path) -> Path:
    """A copy of conf/ that knows the toy alone."""
    from tests.run.conftest import TOY

    conf = folder / "conf"
    shutil.copytree(ROOT / "conf", conf)
    for path in (conf / "experiment").glob("*.yaml"):
        path.unlink()
    (conf / "experiment" / "toy.yaml").write_text(TOY)
    return conf


@dataclass
class Command:
    """The command line under test, in a working folder of its own."""

    work: Path
    conf: Path
    words: tuple[str, ...]
    published: str = ""

    def start(self) -> subprocess.Popen[str]:
        self.work.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HESS_CONF": str(self.conf),
            "HESS_MODULES": "tests",
            "HESS_KILLS": str(self.work),
            "HESS_PUBLISHED": self.published,
            "OMP_NUM_THREADS": "1",
        }
        slow = any(word.startswith("experiment.pause=") for word in self.words)
        pause = () if slow else ("experiment.pause=0.05",)
        with open(self.work / "stderr", "w") as errors, open(self.work / "stdout", "w") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "runner.cli", "experiment=toy", *pause, *self.words],
                cwd=self.work,
                env=environment,
                text=True,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def finish(self) -> int:
        """Run to the end; the exit status."""
        return self.start().wait(LIMIT)

    def processes(self) -> list[int]:
        """Ids of what this command started and still runs, wherever a launcher has put it."""
        mark, found = f"HESS_KILLS={self.work}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def kill_all(self) -> None:
        """SIGKILL for everything that this command started."""
        for number in self.processes():
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)

    @property
    def outputs(self) -> Path:
        return self.work / "outputs"

    def content(self) -> dict[str, bytes]:
        """Every table, of cells and of the report, by path."""
        found = sorted([*self.outputs.rglob("*.csv.gz"), *self.outputs.rglob("*.csv")])
        return {str(path.relative_to(self.outputs)): path.read_bytes() for path in found}

    def phase(self) -> str:
        """How far the command has come, from what it has written."""
        if any({"numbers.csv", "manifest.json"} & set(files) for _, _, files in os.walk(self.outputs / "toy")):
            return "report"  # os.walk passes over folders that vanish meanwhile, as glob does not
        if any(self.outputs.glob("toy/cells/[!.]*")):
            return "cells"
        return "claimed" if self.outputs.exists() else "start"


@dataclass
class Count:
    """What happened to one way to run."""

    kills: int = 0
    folders: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def line(self, way: str) -> str:
        phases = ", ".join(f"{n} at {phase}" for phase, n in sorted(self.phases.items()))
        return f"{way}: {self.kills} kills ({phases}), {self.folders} folders, {len(self.faults)} faults"


def wait_for_moment(command: Command, process: subprocess.Popen[str], length: float, rng: random.Random) -> None:
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


def kill_and_resume(way: str, kills: int, folder: Path, conf: Path, rng: random.Random) -> Count:
    """`kills` SIGKILLs of one way to run."""
    count = Count()
    layer = folder / f"{way}-published"
    calm = Command(folder / f"{way}-calm", conf, WAYS[way], str(layer))
    begin = time.monotonic()
    if calm.finish() != 0:
        count.faults.append(f"the undisturbed run failed: {(calm.work / 'stderr').read_text()[-300:]}")
        return count
    length = time.monotonic() - begin
    archive = publish_first(calm.outputs, layer)
    whole, before = calm.content(), archive.read_bytes()
    expected = {name: content for name, content in whole.items() if name.split("/")[-2] not in names(archive)}
    while count.kills < kills:
        command = Command(folder / f"{way}-{count.folders}", conf, WAYS[way], str(layer))
        count.folders += 1
        for _ in range(min(KILLS_A_FOLDER, kills - count.kills)):
            process = command.start()
            wait_for_moment(command, process, length, rng)
            count.kills += 1
            count.phases["the end" if process.poll() is not None else command.phase()] += 1
            if count.kills % 3:
                command.kill_all()
            else:
                process.kill()
            process.wait()
        status = command.finish()
        command.kill_all()
        count.faults += [f"{way} {command.work.name}: {fault}" for fault in faults(command, status, expected)]
        if archive.read_bytes() != before:
            count.faults.append(f"{way} {command.work.name}: the published archive changed")
        if not count.faults:
            shutil.rmtree(command.work)
    return count


def publish_first(outputs: Path, layer: Path) -> Path:
    """Pack the cells of the smallest width, as published ones are; their archive."""
    cells = [cell for cell in (outputs / "toy" / "cells").glob("[!.]*") if width(cell) == 1]
    files = [(f"{cell.name}/{path.name}", path.read_bytes()) for cell in cells for path in cell.iterdir()]
    archive = layer / "toy" / "cells.zip"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(archive_bytes(files))
    return archive


def width(cell: Path) -> int:
    """A parameter of a stored toy cell."""
    return int(json.loads((cell / "cell.json").read_text())["params"]["width"])


def names(archive: Path) -> set[str]:
    """Names of the cells in an archive."""
    return set(Archive(archive).names())


def faults(command: Command, status: int, expected: dict[str, bytes]) -> list[str]:
    """What is wrong after a resumed run: its exit status, bytes, or leftovers."""
    found = []
    if status != 0:
        found.append(f"exit status {status}: {(command.work / 'stderr').read_text()[-300:]}")
    content = command.content()
    wrong = [name for name in expected if content.get(name) != expected[name]]
    found += [f"differs: {name}" for name in wrong] + [f"extra: {name}" for name in set(content) - set(expected)]
    left = [path.name for path in command.outputs.rglob(".*") if is_scratch(path) or path.name.startswith(".tmp-")]
    return found + [f"left behind: {name}" for name in left]


def interrupt(way: str, signals: int, folder: Path, conf: Path, rng: random.Random) -> Count:
    """SIGTERM and Ctrl-C in turn: exit status 130, one line that says so, no traceback; or the run had ended."""
    count = Count()
    for i in range(signals):
        command = Command(folder / f"{way}-signal-{i}", conf, WAYS[way])
        process = command.start()
        wait_for_moment(command, process, 6.0, rng)
        asked = [signal.SIGTERM, signal.SIGINT][i % 2]
        ended = process.poll() is not None
        phase = "the end" if ended else command.phase()
        with suppress(ProcessLookupError):
            os.kill(process.pid, asked) if asked == signal.SIGTERM else os.killpg(process.pid, asked)
        status = process.wait(LIMIT)
        text = (command.work / "stderr").read_text()
        lines = [line for line in text.splitlines() if line.startswith("hess-run: interrupted")]
        if phase == "start" and status in (-asked, 1) and "runner.cli" not in text and not lines:
            phase = "before the first line of the program"
        elif status in (0, -asked) and not lines and any(command.outputs.glob("toy/**/manifest.json")):
            phase = "the end"  # all is written: what is left is Python's own end, which heeds no handler any more
        elif status != 130 or len(lines) != 1 or "Traceback" in text:
            count.faults.append(f"{way} {asked.name} at {phase}: exit status {status}: {text[-600:]}")
        count.kills += 1
        count.folders += 1
        count.phases[phase] += 1
        command.kill_all()
    return count


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int)
    parser.add_argument("--signals", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", default=",".join(WAYS))
    chosen = parser.parse_args(argv)
    ways, rng = chosen.ways.split(","), random.Random(chosen.seed)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        conf = configuration(Path(name))
        for i, way in enumerate(ways):
            kills = chosen.kills // len(ways) + (i < chosen.kills % len(ways))
            count = kill_and_resume(way, kills, Path(name), conf, rng)
            print(f"SIGKILL {count.line(way)}", *count.faults, sep="\n  ", flush=True)
            wrong += count.faults
        for i, way in enumerate(ways[:2] if chosen.signals else []):
            count = interrupt(way, (chosen.signals + 1 - i) // 2, Path(name), conf, rng)
            print(f"SIGTERM, Ctrl-C {count.line(way)}", *count.faults, sep="\n  ", flush=True)
            wrong += count.faults
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
