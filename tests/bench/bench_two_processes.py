"""Two processes against one on the quick sweep of Experiment 1 (four cells a seed), whole command
lines.

    python -m tests.bench.bench_two_processes [SEEDS]        on a machine with nothing else to do

Of each run: wall time to the last stored cell and to the end (with the report, which one process
makes). Promised: a ratio of at least 1.7 to the last cell.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import ROOT


def took(seeds: int, processes: int, outputs: Path) -> tuple[float, float]:
    """Seconds to the last cell and to the end."""
    words = [
        "-m",
        "experiment=exp1_resonance",
        "profile=quick",
        f"seed=range(0,{seeds})",
        f"jobs={processes}",
    ]
    command = [sys.executable, "-m", "runner.cli", *words, f"outputs={outputs}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    begin = time.time()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    last = max(
        path.stat().st_mtime for path in (outputs / "exp1_resonance" / "cells").glob("*.zip")
    )
    return last - begin, time.time() - begin


def main(seeds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as name:
        one, two = (took(seeds, processes, Path(name) / str(processes)) for processes in (1, 2))
    for what, k in (("to the last cell", 0), ("in all", 1)):
        print(
            f"{what}: one process {one[k]:.1f} s, two {two[k]:.1f} s, ratio {one[k] / two[k]:.2f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
