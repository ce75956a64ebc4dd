"""Attacks on the runner, one part each, from one seed; a table of their counts at the end.

    python -m tests.attack                         all parts
    python -m tests.attack --seed 7 --share 0.1    other random cases, a tenth of them
    python -m tests.attack kills archives          these parts alone

A case is a kill, a damaged file, a command line, an archive or a folder. Exit status 1 if any case
ends in another way than promised.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests import ROOT

PROCESSES = "2"
OUTCOME = re.compile(r"(\d+) (passed|skipped|failed|error)")
"""A number in the last line of pytest."""


@dataclass(frozen=True)
class Count:
    """What a part tried, what was wrong, and a remark."""

    cases: int
    wrong: int
    remark: str = ""


def pytest(files: str, seed: int, share: float, *, cases: int = 0, chosen: str = "") -> Count:
    """Run test files, slow tests included; each test is a case, and in generated ones each
    example."""
    generated = max(1, round(cases * share))
    environment = os.environ | {"HESS_CASES": str(generated), "HESS_SEED": str(seed)}
    command = [sys.executable, "-m", "pytest", "-n", PROCESSES, "--dist", "worksteal"]
    command += [*files.split(), "-k", chosen]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    *lines, last = ended.stdout.splitlines()
    print(*(line for line in lines if line.startswith(("FAILED", "ERROR"))), sep="\n", flush=True)
    number = {word: int(count) for count, word in OUTCOME.findall(last)}
    passed, skipped = number.get("passed", 0), number.get("skipped", 0)
    wrong = sum(number.values()) - passed - skipped
    remark = f"{generated} generated " * bool(cases) + f"{skipped} skipped" * bool(skipped)
    return Count(passed + wrong, wrong or int(ended.returncode != 0), remark)


def kills(seed: int, share: float) -> Count:
    """SIGKILLs of runs and launchers."""
    most = max(4, round(100 * share))
    words = f"tests.run.kills {most} --seed {seed} --ways jobs=1,jobs=2,joblib"
    status, lines = shown(words)
    wrong = sum(line.startswith("  ") for line in lines)
    return Count(most, wrong or int(status != 0))


def shown(words: str) -> tuple[int, list[str]]:
    """Exit status and lines of a module with arguments, which are printed as they come."""
    lines = []
    command = [sys.executable, "-m", *words.split()]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return process.returncode, lines


PARTS: dict[str, Callable[[int, float], Count]] = {
    "kills": kills,
    "damage": partial(
        pytest,
        "tests/store tests/run/test_damage_around.py tests/report/test_update.py",
        cases=1000,
    ),
    "archives": partial(
        pytest, "tests/attack/test_archives.py tests/data/test_fetch.py", cases=300
    ),
    "streams": partial(pytest, "tests/run/test_limits.py", chosen="status_is_true"),
    "disks": partial(pytest, "tests/run/test_limits.py", chosen="not status_is_true"),
    "command lines": partial(pytest, "tests/run/config/test_mistakes.py", cases=1000),
    "folders": partial(pytest, "tests/attack/test_folders.py"),
    "others' files": partial(pytest, "tests/test_files.py tests/run/test_others_files.py"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the random cases")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    rows, wrong = [], 0
    for name in options.parts or PARTS:
        begin = time.monotonic()
        count = PARTS[name](options.seed, options.share)
        minutes = (time.monotonic() - begin) / 60
        wrong += count.wrong
        rows.append(f"{name:14} {count.cases:6} {count.wrong:6} {minutes:8.1f}  {count.remark}")
    head = f"{'part':14} {'cases':>6} {'wrong':>6} {'minutes':>8}  seed {options.seed}"
    print(head, *rows, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
