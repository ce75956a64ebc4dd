"""The benchmarks: `python -m tests.bench [--quick] [--page FILE] [NAME ...]`, which `make bench
ONLY="NAME ..."` calls.

Pages of several machines may lie side by side (benchmarks*.json): each names the others.

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
from collections.abc import Mapping, Sequence
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

REASONS = {
    "step of MLP": (
        "By a profile of 180 steps of 26.4 ms on an AMD EPYC: products 22.5; update of 3.2 million "
        "weights 1.1 (63 MB through the memory), norm of the gradient 0.4, scaling it where it is "
        "clipped 0.3; LayerNorm 0.5, ReLU 0.2; reading the batch 0.3; a hundred small calls 0.35, "
        "by the same step at width 8. What keeps the bits saves nothing that can be measured "
        "there: the update in pieces or backwards, scaling and updating piece by piece, large "
        "pages, transposed copies for the products (each within 1 %, five to nine turns). Clipping "
        "and updating in one pass would save 0.3 ms of the 0.5 that are missing, and change the "
        "last bits of every training that is stored. On an Intel Xeon, where the products take "
        "15.8 of 23 ms, what goes through the memory costs twice as much: update 2.4, scaling 0.8, "
        "norm 0.8, LayerNorm 1.1, ReLU 0.6; scaling and updating in 4 to 24 pieces without the "
        "optimiser's own calls saves 1 to 2 % (fifteen turns)."
    ),
}
"""What holds a quantity back, by a part of "part: what"; on the page where its goal is missed."""

PAGE = """# Benchmarks

Each row compares two implementations in one process on one thread: ours and another, which the row
names. `make bench` makes this page (`make bench ONLY="epoch memory:convnet"`: some rows); do not
edit it by hand. Seconds are processor time, median and range of the repeats. The ratio is theirs /
ours where the goal is `>=`, and ours / theirs where it is `<=`. *Narrowly*: within 5 % of the goal,
and another run may decide otherwise.

*By hand*: what a competent user writes (`tests/bench/by_hand.py`); the ratio to quote is that
against the best other way, also where it is below 1. *Published way*: the algorithm of the DAG
paper's authors, one graph for each pair and one backward pass for each direction, 30 probes and 20
power steps, written anew in `tests/bench/published.py`. Both ways are warmed and reach the accuracy
that the notes give.

Operations are those of matrix products and convolutions, without the zeros of padding. The last
column is our rate over the peak of the thread: the faster of a float32 product of 1024 x 1024
matrices and a convolution of 256 channels, the best of 10 (rows measured before 2026-11-26: of the
product alone, padding counted). A value above 100 % means that the machine was busier while the
peak was timed. Freed memory is kept for the next call, as `hess-run` does
(`runner/training/allocator.py`). The notes give errors as root mean squares over the pairs; ours
are zero where the method is "factors" alone.

Reading 100,000 cells from a published archive takes 0.94 (`list`), 0.63 (a finished sweep run
again) and 0.67 (the whole report) times the processor time of reading them from folders, on an AMD
EPYC: [scaling](scale.md#measured).

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
    path.with_suffix(".md").write_text(page(rows, beside(path)))


def beside(path: Path) -> dict[str, list[Row]]:
    """Name of a page of another machine in the same folder -> its rows."""
    return {p.stem: read(p) for p in sorted(path.parent.glob("benchmarks*.json")) if p != path}


def page(rows: Sequence[Row], others: Mapping[str, Sequence[Row]] | None = None) -> str:
    """The page that these rows make; others: pages of other machines, to be named with what they
    miss."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(f"{row.date}, commit {row.commit}, {row.machine}", []).append(row)
    measured_when = [f"- {run}: {_parts(of_run, rows)}" for run, of_run in runs.items()]
    elsewhere = [_elsewhere(name, of) for name, of in (others or {}).items()]
    missed = [f"- {row.what}: {row.ratio:.3g}. {_reason(row)}" for row in rows if not row.met]
    notes = [f"- {row.what}: {row.note}." for row in rows if row.note]
    sections = [
        f"{PAGE}{_met(rows)} are met.{''.join(elsewhere)}",
        "Measured:\n\n" + "\n".join([*measured_when, *_unmeasured(rows)]),
        markdown(rows),
        *(["## Goals that are missed\n\n" + "\n".join(missed)] if missed else []),
        "## Notes\n\n" + "\n".join(notes),
    ]
    return "\n\n".join(sections) + "\n"


def _met(rows: Sequence[Row]) -> str:
    return f"{sum(row.met for row in rows)} of {len(rows)} goals"


def _unmeasured(rows: Sequence[Row]) -> list[str]:
    """One line on the parts without rows, if there are any."""
    parts = {row.part for row in rows}
    missing = [part for part in GOALS if part not in parts]
    return [f"- not measured on this machine: {', '.join(missing)}"] if missing else []


def _elsewhere(name: str, rows: Sequence[Row]) -> str:
    """One line on the page of another machine."""
    machine = next(iter(dict.fromkeys(row.machine for row in rows)), "")
    missed = "; ".join(f"{row.what}: {row.ratio:.3g}" for row in rows if not row.met)
    return f" [On {machine}]({name}.md): {_met(rows)}{f' (missed: {missed})' if missed else ''}."


def _reason(row: Row) -> str:
    return next((why for part, why in REASONS.items() if part in f"{row.part}: {row.what}"), "")


def _parts(found: Sequence[Row], rows: Sequence[Row]) -> str:
    """The parts of a run, and which of their rows where some are of another."""
    texts = []
    for part in dict.fromkeys(row.part for row in found):
        here = [row.what for row in found if row.part == part]
        whole = len(here) == sum(row.part == part for row in rows)
        texts.append(part if whole else f"{part} ({len(here)} rows: {'; '.join(here)})")
    return ", ".join(texts)


if __name__ == "__main__":
    raise SystemExit(main())
