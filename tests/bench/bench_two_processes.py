"""Two processes against one on the quick sweep of Experiment 1 (four cells a seed), whole command lines.

    python -m tests.bench.bench_two_processes [SEEDS]        on a machine with nothing else to do

Of each run: wall time to the last stored cell and to the end (with the report, which one process makes), processor
time, and how many processors it got on average, which tells how busy the machine was. Promised: a ratio of at least
1.7 to the last cell. `idle` is that ratio if every process had a processor to itself: from the processor times alone,
those of the two processes as they came, with what a busy machine adds to them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Took:
    """Seconds of one run: to the last cell, to the end, of processor; and of each cell, by seed in the grid's order."""

    cells: float
    whole: float
    cpu: float
    each: dict[int, list[float]]

    def line(self, processes: int) -> str:
        return (
            f"jobs={processes}: {self.cells:.1f} s to the last cell, {self.whole:.1f} s in all, {self.cpu:.1f} s of "
            f"processor ({self.cpu / self.whole:.2f} processors), cells {sum(map(sum, self.each.values())):.1f} s"
        )


def took(seeds: int, processes: int, outputs: Path) -> Took:
    words = ["-m", "experiment=exp1_resonance", "profile=quick", f"seed=range(0,{seeds})", f"jobs={processes}"]
    before, begin, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), time.time()
    command = [sys.executable, "-m", "runner.cli", *words, f"outputs={outputs}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    whole, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    files = list((outputs / "exp1_resonance" / "cells").glob("*/cell.json"))
    each: dict[int, list[float]] = {}
    for path in sorted(files, key=lambda path: path.stat().st_mtime):
        meta = json.loads(path.read_text())
        each.setdefault(meta["seed"], []).append(meta["cpu_seconds"])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(max(path.stat().st_mtime for path in files) - clock, whole, cpu, each)


def idle(one: Took, two_processes: Took, start: float) -> float:
    """The ratio if nothing else ran: cells of a seed go to whichever of two processes is free. Both wait for the start;
    the processes that measure import while the command composes, and what each imports later is in its first cell."""
    two = start
    for costs in two_processes.each.values():
        ends = [0.0, 0.0]
        for cost in costs:
            ends[ends.index(min(ends))] += cost
        two += max(ends)
    return (start + sum(map(sum, one.each.values()))) / two


def main(seeds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as name:
        found = {}
        for processes in (1, 2):
            found[processes] = took(seeds, processes, Path(name) / str(processes))
            print(found[processes].line(processes), flush=True)
        one, two = found[1], found[2]
        start = max(0.0, one.cpu - sum(map(sum, one.each.values())) - (one.whole - one.cells))
        print(f"ratio to the last cell {one.cells / two.cells:.2f}, in all {one.whole / two.whole:.2f}")
        print(f"idle machine, from processor times: {idle(one, two, start):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
