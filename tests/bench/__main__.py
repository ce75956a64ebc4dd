"""The benchmarks: `python -m tests.bench [--quick] [--page FILE] [NAME ...]`, which `make bench
ONLY="NAME ..."` calls.

Without a name, every part with goals runs, in a process of its own, and one table of all goals
comes at the end; a name picks parts (NAME:WORD, some rows of one: memory:convnet, inter_layer:MLP,
epoch:ResNet, eigenpairs:MLP). --page keeps the rows in FILE (.json) and makes the page beside it
(.md): rows that ran replace those that were there. The other tests/bench/bench_NAME.py run by
themselves.
"""

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from runner.training.allocator import keep_freed_memory
from tests.bench.table import Row, markdown, read, stamped, write

GOALS = (
    "blocks",
    "inter_layer",
    "parameters",
    "operators",
    "eigenpairs",
    "memory",
    "deep_blocks",
    "epoch",
)
"""Parts that are held to goals, in the order of the page."""
TIMED = ("blocks", "inter_layer", "parameters", "operators", "eigenpairs")
"""Parts whose process keeps freed memory, as `hess-run` does (trainings do of themselves). The
others measure peaks."""

PAGE = """# Benchmarks

Each row compares two implementations in one process on one thread, both warm: ours, and another
that the row names. *Ours* is a median of processor time, or a peak of memory. The ratio is other /
ours where the goal is `≥` (a speed-up), and ours / other where it is `≤` (a price); **bold**: the
goal is missed. *Published way*: the algorithm of the DAG paper's authors
(`tests/bench/published.py`; of ResNet-18 one product of each kind was timed, times their number).
*By hand*: what a competent user writes (`tests/bench/by_hand.py`). `make bench` makes this page;
`docs/benchmarks.json` has both sides with ranges, errors, commits and dates.

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a part failed; a goal that is missed is a line of the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Two ways in one run, as ratios."
    )
    parser.add_argument("names", nargs="*", help=f"parts: {', '.join(GOALS)} (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats, smaller batches; kept on no page"
    )
    parser.add_argument(
        "--page", type=Path, help="JSON file that keeps the rows; the page lies beside it"
    )
    given = parser.parse_args(arguments)
    if unknown := sorted({name.partition(":")[0] for name in given.names} - set(GOALS)):
        parser.error(f"expected names among {', '.join(GOALS)}, found {', '.join(unknown)}")
    if given.quick and given.page:
        parser.error("expected --page or --quick: a page holds whole runs alone")
    rows: list[Row] = []
    failed = [
        name for name in given.names or GOALS if not _ran(name, given.quick, given.page, rows)
    ]
    if rows:
        print(f"\n{markdown(rows)}\n\n{_met(rows)} met")
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return bool(failed)


CALL = """
import sys
from tests.bench.__main__ import measured

measured(*sys.argv[1:3], sys.argv[3] == "quick")
"""


def _ran(name: str, quick: bool, page: Path | None, rows: list[Row]) -> bool:
    """Runs one benchmark in a process of its own and adds its rows; whether it ended well."""
    print(f"== {name}", flush=True)
    part, _, word = name.partition(":")
    words = [sys.executable, "-c", CALL, part, word, "quick" if quick else ""]
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        return False
    found = Row.from_lines(run.stdout)
    for row in found:
        met = "met " if row.met else "MISSED"
        print(f"{met} {row.what}: {row.ratio:.3g} ({row.note})", flush=True)
    rows += found
    if page is not None:
        keep(page, found, whole=not word)
    return True


def measured(name: str, word: str, quick: bool) -> None:
    """Measures one part and prints its rows as JSON, one a line."""
    torch.set_num_threads(1)
    if name in TIMED:
        keep_freed_memory()
    date, part = time.strftime("%Y-%m-%d", time.gmtime()), f"tests.bench.bench_{name}"
    for row in stamped(importlib.import_module(part).rows(quick, word), date):
        print(row.as_json(), flush=True)


def keep(path: Path, found: Sequence[Row], whole: bool) -> None:
    """Replaces the rows of the parts of `found` in a JSON file (whole=False: the same rows alone),
    and makes the page anew."""
    parts, names = {row.part for row in found}, {row.what for row in found}
    old = [row for row in read(path) if not (row.part in parts if whole else row.what in names)]
    rows = old + list(found)
    rows.sort(key=lambda row: GOALS.index(row.part))
    write(path, rows)
    path.with_suffix(".md").write_text(page(rows))


def page(rows: Sequence[Row]) -> str:
    """The page that these rows make."""
    machines = " and ".join(dict.fromkeys(row.machine for row in rows))
    dates = sorted(row.date for row in rows)
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    where = f"{_met(rows)} are met on {machines}, {days}."
    peaks = [row for row in rows if row.part == "memory"]
    others = [row for row in rows if row.part != "memory"]
    return f"{PAGE}{where}\n\n{markdown(others)}\n{_peaks(peaks)}"


def _peaks(rows: Sequence[Row]) -> str:
    """One sentence on peaks of memory against budgets; none without rows."""
    if not rows:
        return ""
    ratios = [row.ratio for row in rows]
    met = sum(row.met for row in rows)
    return (
        f"\n**Memory.** Peaks of {len(rows)} parameter operators are "
        f"{min(ratios):.3g} to {max(ratios):.3g} times their `memory_budget`; "
        f"goal: ≤{rows[0].goal:g}, met by {met}.\n"
    )


def _met(rows: Sequence[Row]) -> str:
    return f"{sum(row.met for row in rows)} of {len(rows)} goals"


if __name__ == "__main__":
    raise SystemExit(main())
